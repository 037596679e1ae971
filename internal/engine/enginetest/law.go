// Package enginetest holds models in an engine to its law, for tests only. It imports modeltest, which tests of the engine itself
// import, so it is a package of its own.
package enginetest

import (
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/modeltest"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/sample"
)

// scripted drafts what will be said, with mistakes: drafters of random models guess right once in hundreds of times.
type scripted struct {
	answers [][]int32 // prompt and answer
	vocab   int32
}

func (*scripted) Name() string         { return "scripted" }
func (*scripted) Layout() state.Layout { return state.Layout{} }

func (d *scripted) Draft(batch []spec.Run) ([]spec.Draft, error) {
	out := make([]spec.Draft, len(batch))
	for i, r := range batch {
		for _, a := range d.answers {
			if len(a) < len(r.Text) || !slices.Equal(a[:len(r.Text)], r.Text) {
				continue
			}
			for j, id := range a[len(r.Text):min(len(a), len(r.Text)+r.Depth)] {
				if (len(r.Text)*7+j*3)%5 == 0 {
					id = (id + 1) % d.vocab
				}
				out[i].Tokens = append(out[i].Tokens, id)
			}
			break
		}
	}
	return out, nil
}

// Run is an engine in which the requests meet.
type Run struct {
	Drafter spec.Drafter
	Cache   bool
	Budget  int64 // memory of sequences
	Tokens  int   // of a round
}

// ChangesNothing has requests meet in engines of runs, with the prefix cache or without it, with memory for all or for a few, and has one
// preempted that is drafted for by drafter. Every request gives the tokens and the bits of logits that it gives alone. need is the memory
// of a sequence of 200 tokens, and script a drafter that knows the answers.
func ChangesNothing(t *testing.T, r *modeltest.Rig, need int64, drafter spec.Drafter, runs func(script spec.Drafter) []Run) {
	t.Helper()
	requests := randomRequests(int32(r.Info().Vocab))
	want := make([]answer, len(requests))
	alone := newEngine(t, r, 1<<26, engine.Options{})
	script := &scripted{vocab: int32(r.Info().Vocab)}
	for i, q := range requests {
		want[i] = ask(t, alone, q)
		script.answers = append(script.answers, slices.Concat(q.Prompt, want[i].ids))
	}
	alone.Close()
	var cached int64
	var drafted, accepted atomic.Int64
	count := func(a answer) {
		drafted.Add(int64(a.Speculation.Drafted))
		accepted.Add(int64(a.Speculation.Accepted))
	}
	for _, c := range runs(script) {
		e := newEngine(t, r, c.Budget, engine.Options{Drafter: c.Drafter, Cache: c.Cache, RoundTokens: c.Tokens})
		var all sync.WaitGroup
		for i, q := range requests {
			q.Depth = spec.Depth(1 + i%spec.MaxDepth)
			all.Go(func() {
				got := ask(t, e, q)
				count(got)
				if !slices.Equal(got.ids, want[i].ids) || got.LogitsHash != want[i].LogitsHash {
					t.Errorf("request %d: %v, %x; alone %v, %x", i, got.ids, got.LogitsHash, want[i].ids, want[i].LogitsHash)
				}
			})
		}
		all.Wait()
		known := requests[5] // to the cache
		known.Depth = 4
		again := ask(t, e, known)
		if again.LogitsHash != want[5].LogitsHash || c.Cache && c.Budget == 1<<26 && again.Cached == 0 {
			t.Errorf("asked again: %+v", again)
		}
		cached += e.Stats().CachedTokens
		count(again)
		e.Close()
	}
	if n := accepted.Load(); cached == 0 || n == 0 || n == drafted.Load() {
		t.Errorf("%d cached tokens, %d of %d drafts accepted: not all was tried", cached, n, drafted.Load())
	}
	preempt(t, r, drafter, requests[2], want[2], requests[5], want[5], need*5/4)
}

// randomRequests are requests with prefixes in common.
func randomRequests(vocab int32) (requests []engine.Request) {
	rng := rand.New(rand.NewPCG(3, 4))
	text := func(n int) (ids []int32) {
		for range n {
			ids = append(ids, rng.Int32N(vocab))
		}
		return ids
	}
	prefix := text(130)
	for i := range 10 {
		q := engine.Request{
			Prompt: slices.Concat(prefix[:[]int{0, 65, 130}[i%3]], text(1+rng.IntN(30))), MaxTokens: 12, IgnoreEnd: true, Hash: true,
			Sampling: sample.Options{Temperature: float64(i%2) * 0.8, Seed: uint64(i), TopP: 0.95}, Priority: i % 2,
		}
		q.Boundaries = []int{min(65, len(q.Prompt)-1), len(q.Prompt) - 1}
		requests = append(requests, q)
	}
	return requests
}

// preempt has a request wait after its first token until another one of higher priority is there,
// with memory for one of them.
func preempt(t *testing.T, r *modeltest.Rig, drafter spec.Drafter, first engine.Request, wantFirst answer, second engine.Request, wantSecond answer, budget int64) {
	t.Helper()
	g := &gated{Model: r.Model, calls: make(chan struct{}), open: make(chan struct{})}
	e, err := engine.New(g, state.NewPool(r.B, budget), engine.Options{Drafter: drafter, RoundTokens: 512})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	first.Priority, second.Priority = 0, 1
	var all sync.WaitGroup
	run := func(q engine.Request, want answer) {
		s, err := e.Generate(t.Context(), q)
		if err != nil {
			t.Error(err)
			return
		}
		all.Go(func() {
			if got := read(t, s); !slices.Equal(got.ids, want.ids) || got.LogitsHash != want.LogitsHash {
				t.Errorf("%v, %x; alone %v, %x", got.ids, got.LogitsHash, want.ids, want.LogitsHash)
			}
		})
	}
	run(first, wantFirst)
	g.calls <- struct{}{} // its prompt
	<-g.calls             // and its first token, which waits
	run(second, wantSecond)
	close(g.open)
	all.Wait()
	if e.Stats().Preemptions == 0 {
		t.Error("nothing was preempted")
	}
}

// gated is a model whose first two passes wait for the test.
type gated struct {
	model.Model
	passes      int
	calls, open chan struct{}
}

func (g *gated) Forward(batch []model.Span) (model.Output, error) {
	switch g.passes++; g.passes {
	case 1:
		<-g.calls
	case 2:
		g.calls <- struct{}{}
		<-g.open
	}
	return g.Model.Forward(batch)
}

// answer is the result of a request.
type answer struct {
	ids []int32
	engine.Result
}

func newEngine(t *testing.T, r *modeltest.Rig, budget int64, o engine.Options) *engine.Engine {
	t.Helper()
	o.Log = slog.New(slog.DiscardHandler)
	e, err := engine.New(r.Model, state.NewPool(r.B, budget), o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func ask(t *testing.T, e *engine.Engine, q engine.Request) (a answer) {
	s, err := e.Generate(t.Context(), q)
	if err != nil {
		t.Error(err)
		return a
	}
	return read(t, s)
}

// read reads a stream to its end.
func read(t *testing.T, s *engine.Stream) (a answer) {
	for token, err := range s.Tokens() {
		if err != nil {
			t.Error(err)
		}
		a.ids = append(a.ids, token.ID)
	}
	a.Result = s.Result()
	return a
}
