package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/sampling"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/sample"
)

// Ids with a meaning for the scripted model.
const (
	vocab   = 64
	end     = 63
	faulty  = 62 // makes Forward panic
	broken  = 61 // makes Forward return an error
	unclear = 60 // gives logits that are NaN
	lost    = 59 // makes the device fail, after Forward has returned
)

// scripted is a model whose next token is a hash of the whole text before it. A token that is lost, repeated or taken from
// another sequence changes all later ones.
type scripted struct {
	b      *backendtest.Opaque
	logits backend.Tensor // of the last pass
	texts  map[*state.State][]int32
	// widest is the maximum number of tokens fed in one round, and most of sequences.
	widest, most int
}

func newScripted() *scripted {
	b, err := backend.Open("cpu", backend.Options{Threads: 1})
	if err != nil {
		panic(err)
	}
	return &scripted{b: backendtest.NewOpaque(b), texts: map[*state.State][]int32{}}
}

func (m *scripted) Info() model.Info {
	return model.Info{Vocab: vocab, Context: 200, Stop: []int32{end}}
}
func (m *scripted) Layout() state.Layout { return state.Layout{} }
func (m *scripted) Head() model.Head     { return nil }
func (m *scripted) Release()             {}
func (m *scripted) Close() error         { return nil }

func (m *scripted) Forward(batch []model.Span) (model.Output, error) {
	var out model.Output
	var rows []float32
	n, gone := 0, false
	for _, s := range batch {
		if s.State.Len() == 0 {
			delete(m.texts, s.State) // memory used again
		}
		text := m.texts[s.State]
		if len(text) != s.State.Len() {
			return out, fmt.Errorf("%d tokens fed, %d remembered", len(text), s.State.Len())
		}
		n += len(s.Tokens)
		for i, id := range s.Tokens {
			switch id {
			case faulty:
				panic("scripted fault")
			case broken:
				return out, errors.New("scripted error")
			case lost:
				gone = true
			}
			text = append(text, id)
			if i >= len(s.Tokens)-s.Want {
				rows = append(rows, logitsAfter(text)...)
			}
		}
		m.texts[s.State] = text
		s.State.Fed(len(s.Tokens), s.Drafts)
	}
	m.widest, m.most = max(m.widest, n), max(m.most, len(batch))
	m.b.Free(m.logits)
	var err error
	if m.logits, err = m.b.Alloc(dtype.F32, len(rows)/vocab, vocab); err != nil {
		return out, err
	}
	if gone {
		m.b.Break(errors.New("scripted device error"))
	}
	return model.Output{Device: m.b, Logits: m.logits}, m.b.Write(m.logits, rows)
}

// logitsAfter favors the token that a hash of the text names.
func logitsAfter(text []int32) []float32 {
	h := uint64(14695981039346656037)
	for _, id := range text {
		h = (h ^ uint64(id)) * 1099511628211
		h ^= h >> 29
	}
	row := make([]float32, vocab)
	for i := range row {
		h = h*6364136223846793005 + 1442695040888963407
		row[i] = float32(h>>40) / (1 << 22)
		if i >= lost {
			row[i] = -10 // only prompts contain these
		}
		if text[len(text)-1] == unclear {
			row[i] = float32(math.NaN())
		}
	}
	if len(text) > 60 && h%5 == 0 {
		row[end] = 100
	}
	return row
}

// expected is the greedy answer of the scripted model.
func expected(prompt []int32, limit int) []int32 {
	text := slices.Clone(prompt)
	for len(text)-len(prompt) < limit {
		row := logitsAfter(text)
		id := int32(slices.Index(row, slices.Max(row)))
		text = append(text, id)
		if id == end {
			break
		}
	}
	return text[len(prompt):]
}

func start(t *testing.T, m model.Model, o Options) *Engine {
	t.Helper()
	e, err := New(m, state.NewPool(nil, 1<<20), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// collect runs a request to its end.
func collect(e *Engine, r Request) ([]int32, Result, error) {
	s, err := e.Generate(context.Background(), r)
	if err != nil {
		return nil, Result{}, err
	}
	var ids []int32
	for tok, err := range s.Tokens() {
		if err != nil {
			return ids, s.Result(), err
		}
		ids = append(ids, tok.ID)
	}
	return ids, s.Result(), nil
}

func prompt(n, seed int) []int32 {
	p := make([]int32, n)
	for i := range p {
		p[i] = int32((i*7 + seed*13) % 50)
	}
	return p
}

func TestGenerateFollowsTheModel(t *testing.T) {
	e := start(t, newScripted(), Options{})
	ids, r, err := collect(e, Request{Prompt: prompt(5, 1), MaxTokens: 20})
	if err != nil {
		t.Fatal(err)
	}
	if want := expected(prompt(5, 1), 20); !slices.Equal(ids, want) {
		t.Errorf("got %v, want %v", ids, want)
	}
	if r.Finish != FinishLength || r.Prompt != 5 || r.Tokens != 20 {
		t.Errorf("result %+v", r)
	}
}

func TestGenerateStops(t *testing.T) {
	e := start(t, newScripted(), Options{})
	long := prompt(50, 3)
	want := expected(long, 150)
	if want[len(want)-1] != end {
		t.Fatal("the script does not end")
	}
	ids, r, err := collect(e, Request{Prompt: long})
	if err != nil || r.Finish != FinishStop || !slices.Equal(ids, want) {
		t.Errorf("end token: %v %+v %v, want %v", ids, r, err, want)
	}
	for _, limit := range []int{0, 150, math.MaxInt} {
		ids, r, err = collect(e, Request{Prompt: long, IgnoreEnd: true, MaxTokens: limit})
		if err != nil || r.Finish != FinishLength || len(ids) != 150 {
			t.Errorf("full context, at most %d: %d tokens %+v %v", limit, len(ids), r, err)
		}
	}
	ids, r, err = collect(e, Request{Prompt: long, Stop: want[:1]})
	if err != nil || r.Finish != FinishStop || len(ids) != 1 {
		t.Errorf("own stop token: %v %+v %v", ids, r, err)
	}
}

// TestGenerateIsIndependentOfTheBatch runs many requests at once, under limits that cut
// prompts and queue sequences, and compares each with running alone.
func TestGenerateIsIndependentOfTheBatch(t *testing.T) {
	alone := start(t, newScripted(), Options{})
	requests := make([]Request, 24)
	wantIDs, wantHash := make([][]int32, len(requests)), make([]uint64, len(requests))
	for i := range requests {
		requests[i] = Request{
			Prompt: prompt(1+i*3, i), MaxTokens: 5 + i, Hash: true,
			Sampling: sample.Options{Temperature: float64(i%3) * 0.6, TopK: i % 7, Seed: uint64(i), RepetitionPenalty: 1.1},
		}
		ids, r, err := collect(alone, requests[i])
		if err != nil {
			t.Fatal(err)
		}
		wantIDs[i], wantHash[i] = ids, r.LogitsHash
	}
	for _, o := range []Options{{}, {RoundTokens: 9}, {RoundTokens: 4, MaxBatch: 3}, {MaxBatch: 24}} {
		m := newScripted()
		e := start(t, m, o)
		var wg sync.WaitGroup
		for i := range requests {
			wg.Go(func() {
				ids, r, err := collect(e, requests[i])
				if err != nil || !slices.Equal(ids, wantIDs[i]) || r.LogitsHash != wantHash[i] {
					t.Errorf("%+v: request %d: %v %x %v, want %v %x", o, i, ids, r.LogitsHash, err, wantIDs[i], wantHash[i])
				}
			})
		}
		wg.Wait()
		e.Close()
		if o.RoundTokens > 0 && m.widest > o.RoundTokens {
			t.Errorf("%+v: a round of %d tokens", o, m.widest)
		}
		if o.MaxBatch > 0 && m.most > o.MaxBatch {
			t.Errorf("%+v: a round of %d sequences", o, m.most)
		}
	}
}

// TestGenerateContainsFaults checks that a fault ends only sequences of its round.
func TestGenerateContainsFaults(t *testing.T) {
	e := start(t, newScripted(), Options{Log: quiet})
	for id, want := range map[int32]string{
		faulty:  "scripted fault",
		broken:  "scripted error",
		lost:    "scripted device error",
		unclear: "not a number",
	} {
		if _, _, err := collect(e, Request{Prompt: []int32{1, id}, MaxTokens: 3}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("id %d: error %v, want %q", id, err, want)
		}
		ids, _, err := collect(e, Request{Prompt: prompt(4, 4), MaxTokens: 6})
		if err != nil || !slices.Equal(ids, expected(prompt(4, 4), 6)) {
			t.Errorf("after id %d: %v %v", id, ids, err)
		}
	}
}

func TestGenerateRefusesBadRequests(t *testing.T) {
	e := start(t, newScripted(), Options{})
	for want, r := range map[string]Request{
		"no tokens":                   {},
		"outside":                     {Prompt: []int32{vocab}},
		"outside of":                  {Prompt: []int32{-1}},
		"does not fit into a context": {Prompt: prompt(200, 1)},
		"to generate":                 {Prompt: []int32{1}, MaxTokens: -1},
		"Temperature":                 {Prompt: []int32{1}, Sampling: sample.Options{Temperature: -1}},
	} {
		if _, err := e.Generate(context.Background(), r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if _, err := New(newScripted(), state.NewPool(nil, 1), Options{MaxBatch: -1}); err == nil {
		t.Error("a negative limit was accepted")
	}
}

// TestGenerateCancels cancels a request in the middle of a round: it is not in the next one, and its stream has all tokens
// so far.
func TestGenerateCancels(t *testing.T) {
	gate := newGated()
	e := start(t, gate, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	s, err := e.Generate(ctx, Request{Prompt: prompt(3, 1), IgnoreEnd: true})
	if err != nil {
		t.Fatal(err)
	}
	const rounds = 4 // each with a token
	for range rounds - 1 {
		gate.pass()
	}
	<-gate.begun
	cancel()
	gate.let <- struct{}{}
	var ids []int32
	var last error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ids, last = read(s)
	}()
	select {
	case <-ended:
	case <-gate.begun:
		t.Error("a round was begun after the request was canceled")
		gate.let <- struct{}{}
		gate.passUntil(ended)
	}
	if r := s.Result(); !errors.Is(last, context.Canceled) || r.Finish != "" || r.Tokens != rounds || !slices.Equal(ids, expected(prompt(3, 1), rounds)) {
		t.Errorf("%v, error %v, result %+v", ids, last, r)
	}
	if x := e.Stats(); x.Rounds != rounds || x.Canceled != 1 {
		t.Errorf("after it: %+v", x)
	}
}

// read returns the tokens of a stream, and the error at its end.
func read(s *Stream) (ids []int32, last error) {
	for token, err := range s.Tokens() {
		if err != nil {
			return ids, err
		}
		ids = append(ids, token.ID)
	}
	return ids, nil
}

// TestCloseEndsEverything closes an engine in the middle of a round, with waiting requests.
func TestCloseEndsEverything(t *testing.T) {
	gate := newGated()
	e, err := New(gate, state.NewPool(nil, 1), Options{MaxBatch: 1})
	if err != nil {
		t.Fatal(err)
	}
	var streams []*Stream
	for i := range 5 {
		s, err := e.Generate(context.Background(), Request{Prompt: prompt(3, i), IgnoreEnd: true})
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	<-gate.begun
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		e.Close()
		e.Close() // a second call has no effect
	}()
	for isClosed := false; !isClosed; runtime.Gosched() { // the round ends after the engine was told
		e.mu.Lock()
		isClosed = e.closed
		e.mu.Unlock()
	}
	gate.let <- struct{}{}
	<-closed
	for i, s := range streams {
		want := 0
		if i == 0 {
			want = 1 // it was running
		}
		ids, last := read(s)
		if r := s.Result(); !errors.Is(last, ErrClosed) || len(ids) != want || r.Finish != "" || r.Tokens != want {
			t.Errorf("request %d: %v, error %v, result %+v", i, ids, last, r)
		}
	}
	if _, err := e.Generate(context.Background(), Request{Prompt: []int32{1}}); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestLogProbsAreTheTargets(t *testing.T) {
	e := start(t, newScripted(), Options{})
	s, err := e.Generate(context.Background(), Request{Prompt: prompt(3, 1), MaxTokens: 2, LogProbs: true, TopLogProbs: 3, Sampling: sample.Options{Temperature: 2, Seed: 5}})
	if err != nil {
		t.Fatal(err)
	}
	text := prompt(3, 1)
	for tok, err := range s.Tokens() {
		if err != nil {
			t.Fatal(err)
		}
		want, top := sampling.LogProbs(logitsAfter(text), tok.ID, 3)
		if tok.LogProb != want || !slices.Equal(tok.Top, top) {
			t.Errorf("token %d: %v %v, want %v %v", tok.ID, tok.LogProb, tok.Top, want, top)
		}
		text = append(text, tok.ID)
	}
}
