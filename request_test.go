package foretoken

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/grammar"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/sample"
)

func TestOpenEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := Options{Threads: 1, Log: silent, Progress: func(done, total int64) {
		if done < total {
			cancel()
		}
	}}
	if m, err := Open(ctx, Tiny, o); !errors.Is(err, context.Canceled) || m != nil {
		t.Errorf("Open returns %v, %v after its context was canceled", m, err)
	}
}

func TestRequestNeedsAPrompt(t *testing.T) {
	m := openTiny(t, Options{Threads: 1})
	for name, f := range map[string]func() error{
		"Generate": func() error { _, err := m.Generate(t.Context(), Request{}); return err },
		"Complete": func() error { _, err := m.Complete(t.Context(), Request{}); return err },
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), "Request.Prompt is nil") {
			t.Errorf("%s of an empty request: %v", name, err)
		}
	}
}

func TestCompleteIsGenerateAndWait(t *testing.T) {
	m := openTiny(t, Options{Threads: 1})
	r := Request{Prompt: m.TextPrompt("Once upon a time"), MaxTokens: 12, Sampling: &sample.Options{}}
	a, err := m.Generate(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Wait(); err != nil {
		t.Fatal(err)
	}
	text, err := m.Complete(t.Context(), r)
	if err != nil || text != a.Content() || text == "" {
		t.Errorf("Complete gives %q, %v, want %q", text, err, a.Content())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Complete(ctx, r); !errors.Is(err, context.Canceled) {
		t.Errorf("Complete with a canceled context: %v", err)
	}
}

// A request may ask for every depth, whatever depth the model was opened with.
func TestRequestChoosesItsDepth(t *testing.T) {
	m := openTiny(t, Options{Threads: 1, Speculation: Speculation{Depth: 3}})
	for asked, want := range map[Depth]spec.Depth{DepthDefault: 3, DepthAuto: spec.DepthAuto, DepthOff: spec.DepthOff, 1: 1, MaxDepth: MaxDepth} {
		q, err := m.question(t.Context(), &Request{Prompt: m.TextPrompt("The"), Depth: asked})
		if err != nil || q.Depth != want {
			t.Errorf("depth %d: %v, %v, want %v", int(asked), q.Depth, err, want)
		}
	}
	for _, wrong := range []Depth{-3, MaxDepth + 1} {
		if _, err := m.Generate(t.Context(), Request{Prompt: m.TextPrompt("The"), Depth: wrong}); err == nil || !strings.Contains(err.Error(), "want off, auto or up to") {
			t.Errorf("depth %d: %v", int(wrong), err)
		}
	}
	if DepthAuto.String() != "auto" || DepthOff.String() != "off" || Depth(2).String() != "2" {
		t.Errorf("depths are %v, %v, %v", DepthAuto, DepthOff, Depth(2))
	}
}

// letters allows the tokens of one id.
type letters struct{ words []uint64 }

func (l letters) Allowed([]int32) []uint64 { return l.words }
func (l letters) Accept(int32)             {}

// The constraint of the sampling options applies, unless a grammar does.
func TestRequestKeepsItsConstraint(t *testing.T) {
	m := openTiny(t, Options{Threads: 1})
	words := make([]uint64, (m.Vocab()+63)/64)
	words[300/64] |= 1 << (300 % 64)
	r := Request{
		Prompt: m.TextPrompt("Once"), MaxTokens: 3, IgnoreEnd: true,
		Sampling: &sample.Options{Constraint: func() sample.Constraint { return letters{words} }},
	}
	a := collect(t, m, r)
	for _, token := range a.Tokens {
		if token.ID != 300 || len(a.Tokens) != 3 {
			t.Fatalf("tokens %v, want three of id 300", a.Tokens)
		}
	}
	r.Grammar = grammar.JSON()
	if _, err := m.Generate(t.Context(), r); err == nil || !strings.Contains(err.Error(), "both set") {
		t.Errorf("a grammar and a constraint: %v", err)
	}
}
