package drafter_test

import (
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/spec/mtp"
	"github.com/foretoken/foretoken/internal/spec/ngram"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/sample"
)

// answer is the result of a request.
type answer struct {
	ids []int32
	engine.Result
}

// engine starts an engine with a budget of memory.
func (r *rig) engine(t *testing.T, budget int64, o engine.Options) *engine.Engine {
	t.Helper()
	o.Log = slog.New(slog.DiscardHandler)
	e, err := engine.New(r.Model, state.NewPool(r.B, budget), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// ask makes a request and reads the answer.
func ask(t *testing.T, e *engine.Engine, q engine.Request) (a answer) {
	s, err := e.Generate(t.Context(), q)
	if err != nil {
		t.Error(err)
		return a
	}
	for token, err := range s.Tokens() {
		if err != nil {
			t.Error(err)
		}
		a.ids = append(a.ids, token.ID)
	}
	a.Result = s.Result()
	return a
}

// requests have prefixes in common, and are greedy or sampled.
func requests(vocab int) (list []engine.Request) {
	rng := rand.New(rand.NewPCG(3, 4))
	text := func(n int) (ids []int32) {
		for range n {
			ids = append(ids, rng.Int32N(int32(vocab)))
		}
		return ids
	}
	prefix := text(70)
	for i := range 6 {
		q := engine.Request{
			Prompt: slices.Concat(prefix[:[]int{0, 40, 70}[i%3]], text(1+rng.IntN(20))), MaxTokens: 24, IgnoreEnd: true, Hash: true,
			Sampling: sample.Options{Temperature: float64(i%2) * 0.8, Seed: uint64(i), TopP: 0.95}, Priority: i % 2,
		}
		q.Boundaries = []int{min(40, len(q.Prompt)-1), len(q.Prompt) - 1}
		list = append(list, q)
	}
	return list
}

// inTurns is a drafter that offers its drafts in every other stretch of a text.
type inTurns struct {
	spec.Drafter
	source spec.Source
}

func (d inTurns) Taps() []int { return spec.TapsOf(d.Drafter) }

func (d inTurns) Plan(batch []spec.Run) {
	for i := range batch {
		if batch[i].Sources = 0; len(batch[i].Text)/5%2 == int(d.source) {
			batch[i].Sources = batch[i].Sources.With(d.source)
		}
	}
}

// TestEngineChangesNothing has requests meet in an engine that drafts with a drafter, alone or beside the head and copies, with a
// prefix cache or without it, with memory for all or for a few. Every request gives the tokens and the bits of logits that it gives alone
// without drafts.
func TestEngineChangesNothing(t *testing.T) {
	accepted := 0
	for _, f := range golden.Drafters(t, "") {
		t.Run(f.Name, func(t *testing.T) {
			r := open(t, "dense", f.Dir, backend.Options{})
			list := requests(r.Info().Vocab)
			alone := r.engine(t, 1<<26, engine.Options{})
			want := make([]answer, len(list))
			for i, q := range list {
				want[i] = ask(t, alone, q)
			}
			alone.Close()
			lookup, err := ngram.New(ngram.Options{})
			if err != nil {
				t.Fatal(err)
			}
			need := spec.Needs(r.Layout(), r.drafts(-1), r.Info().Width)
			head := mtp.New(r.Head(), mtp.Options{Vocab: r.Info().Vocab})
			both := spec.Auto(inTurns{head, spec.Computed}, inTurns{r.drafts(-1), spec.Beside}, lookup)
			more := spec.Needs(r.Layout(), both, r.Info().Width)
			for _, c := range []struct {
				drafter spec.Drafter
				cache   bool
				budget  int64
				tokens  int
			}{
				{r.drafts(-1), true, 1 << 26, 30},
				{r.drafts(64), false, 3 * need.Bytes(150), 7},
				{spec.Auto(r.drafts(-1), head, lookup), true, 1 << 26, 100},
				{both, true, 1 << 26, 30},
				{both, false, 3 * more.Bytes(150), 9},
			} {
				e := r.engine(t, c.budget, engine.Options{Drafter: c.drafter, Cache: c.cache, RoundTokens: c.tokens})
				var all sync.WaitGroup
				var mu sync.Mutex
				drafted := 0
				for i, q := range list {
					q.Depth = spec.Depth(i) // the first is chosen
					all.Go(func() {
						got := ask(t, e, q)
						if !slices.Equal(got.ids, want[i].ids) || got.LogitsHash != want[i].LogitsHash {
							t.Errorf("request %d: %v, %x; alone %v, %x", i, got.ids, got.LogitsHash, want[i].ids, want[i].LogitsHash)
						}
						mu.Lock()
						defer mu.Unlock()
						drafted += got.Speculation.Drafted
						accepted += got.Speculation.Accepted
					})
				}
				all.Wait()
				known := list[5] // to the cache
				known.Depth = 4
				again := ask(t, e, known)
				if again.LogitsHash != want[5].LogitsHash || c.cache && again.Cached == 0 || drafted == 0 || again.Speculation.Drafted == 0 {
					t.Errorf("%d drafts; asked again: %+v", drafted, again)
				}
				e.Close()
			}
		})
	}
	if accepted == 0 {
		t.Error("no draft was accepted")
	}
}
