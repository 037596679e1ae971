package foretoken

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/foretoken/foretoken/grammar"
	"github.com/foretoken/foretoken/sample"
)

// TestGrammarsAreCompiledOnce has many want the same grammar at once, and some of them give up.
func TestGrammarsAreCompiledOnce(t *testing.T) {
	m := openTiny(t, Options{Threads: 1})
	var compiled atomic.Int32
	hold := make(chan struct{})
	compile := func(ctx context.Context) (*grammar.Grammar, error) {
		compiled.Add(1)
		<-hold
		v, err := m.grammars.vocab()
		if err != nil {
			return nil, err
		}
		return grammar.CompileContext(ctx, grammar.Choice("x"), v)
	}
	key := grammar.Key{1}
	brief, give := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var got [8]*grammar.Grammar
	for i := range got {
		ctx := t.Context()
		if i%2 == 1 {
			ctx = brief
		}
		all.Go(func() {
			g, err := m.grammars.get(ctx, key, compile)
			if ctx == brief && !errors.Is(err, context.Canceled) || ctx != brief && err != nil {
				t.Errorf("waiter %d: %v", i, err)
			}
			got[i] = g
		})
	}
	waiting := func() int {
		m.grammars.mu.Lock()
		defer m.grammars.mu.Unlock()
		if c := m.grammars.pending[key]; c != nil {
			return c.waiting
		}
		return 0
	}
	for waiting() != len(got) { // all wait for the same
		runtime.Gosched()
	}
	give()
	for waiting() != len(got)/2 {
		runtime.Gosched()
	}
	close(hold)
	all.Wait()
	if n := compiled.Load(); n != 1 {
		t.Errorf("compiled %d times", n)
	}
	for i := 0; i < len(got); i += 2 {
		if got[i] == nil || got[i] != got[0] {
			t.Errorf("waiter %d has another grammar", i)
		}
	}
	if g, err := m.grammars.get(t.Context(), key, nil); g != got[0] || err != nil {
		t.Errorf("it was not kept: %v", err)
	}
}

// TestGrammarsDoNotWaitForHostileOnes delays a compilation. Another request with its own grammar is
// answered meanwhile. The compilation ends when the last request for it is canceled.
func TestGrammarsDoNotWaitForHostileOnes(t *testing.T) {
	m := openTiny(t, Options{Threads: 1})
	begun, ended := make(chan struct{}), make(chan struct{})
	hostile := func(ctx context.Context) (*grammar.Grammar, error) {
		close(begun)
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	}
	ctx, giveUp := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := m.grammars.get(ctx, grammar.Key{2}, hostile)
		result <- err
	}()
	<-begun
	a := collect(t, m, Request{Prompt: m.TextPrompt("Once"), Grammar: grammar.Choice("yes"), MaxTokens: 50, Sampling: &sample.Options{Seed: 1}})
	if a.Text() != "yes" {
		t.Errorf("%q, want yes", a.Text())
	}
	select {
	case err := <-result:
		t.Fatalf("the hostile one has ended: %v", err)
	default:
	}
	giveUp()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	<-ended
	// The next with the same grammar starts another.
	_, err := m.grammars.get(t.Context(), grammar.Key{2}, func(context.Context) (*grammar.Grammar, error) { return nil, errors.New("anew") })
	if err == nil || err.Error() != "anew" {
		t.Errorf("after one that was given up: %v", err)
	}
}

// TestGenerateGivesUpCompiling has a request canceled whose grammar takes long to compile.
func TestGenerateGivesUpCompiling(t *testing.T) {
	m := openTiny(t, Options{Threads: 1})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	slow := grammar.Regexp(`(?:a|b)*a(?:a|b){13}`)
	if _, err := m.Generate(ctx, Request{Prompt: m.TextPrompt("Once"), Grammar: slow}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's error", err)
	}
}

// TestGrammarsAreBounded keeps the last used, up to a number and up to a size.
func TestGrammarsAreBounded(t *testing.T) {
	m := openTiny(t, Options{Threads: 1})
	get := func(text string) *grammar.Grammar {
		t.Helper()
		g, err := m.grammar(t.Context(), grammar.Choice(text))
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	first := get("first")
	for i := range maxGrammars - 1 {
		get(fmt.Sprint("text ", i))
	}
	if get("first") != first {
		t.Error("one of the last used was compiled again")
	}
	get("one more") // text 0 goes
	if n := len(m.grammars.recent); n != maxGrammars || get("first") != first {
		t.Errorf("%d are kept, want %d and the last used among them", n, maxGrammars)
	}
	m.grammars.max = 2 * first.Bytes()
	get("first")
	total := int64(0)
	for _, c := range m.grammars.recent {
		total += c.grammar.Bytes()
	}
	if n := len(m.grammars.recent); n < 1 || n > 3 || total > m.grammars.max {
		t.Errorf("%d grammars of %d bytes are kept, want at most %d", n, total, m.grammars.max)
	}
	if get("first") != first {
		t.Error("the last used was not kept")
	}
	large := get(strings.Repeat("a long text ", 1000))
	if large.Bytes() <= m.grammars.max {
		t.Fatalf("%d bytes are not large", large.Bytes())
	}
	if n := len(m.grammars.recent); n != 1 {
		t.Errorf("%d grammars are kept beside one that is too large", n-1)
	}
}

// TestGrammarsSurvivePanics has compiling panic: an error with the stack, and then all is well.
func TestGrammarsSurvivePanics(t *testing.T) {
	m := openTiny(t, Options{Threads: 1})
	for range maxCompilations + 1 { // turns are given back
		_, err := m.grammars.get(t.Context(), grammar.Key{3}, func(context.Context) (*grammar.Grammar, error) { panic("of the test") })
		if err == nil || err.Error() != "panic: of the test" {
			t.Fatalf("%v, want the panic and its stack", err)
		}
	}
	if _, err := m.grammar(t.Context(), grammar.Choice("well")); err != nil {
		t.Error(err)
	}
}
