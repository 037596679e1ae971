package engine

import (
	"runtime"
	"sync"
	"testing"

	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/model"
	"github.com/foretoken/foretoken/sample"
	"github.com/foretoken/foretoken/spec"
	"github.com/foretoken/foretoken/state"
)

// stubborn guesses with a real head and then says something else: no guess ever holds.
type stubborn struct {
	spec.Drafter
	vocab int32
}

func (d stubborn) Draft(batch []spec.Run) ([]spec.Draft, error) {
	drafts, err := d.Drafter.Draft(batch)
	for i := range drafts {
		for j := range drafts[i].Tokens {
			drafts[i].Tokens[j] = d.vocab - 1 // a logit bias keeps it from ever being drawn
		}
	}
	return drafts, err
}

// never keeps the last id of the vocabulary from being drawn.
func never(vocab int32) sample.Options {
	return sample.Options{LogitBias: map[int32]float32{vocab - 1: -1e9}}
}

// TestRefusedGuessesLeaveNothingBehind has every guess of 20,000 tokens refused, in texts of
// a thousand, four at a time. The heap after the last is as large as after the eighth.
func TestRefusedGuessesLeaveNothingBehind(t *testing.T) {
	if testing.Short() {
		t.Skip("generates 20,000 tokens")
	}
	const turns, together, tokens = 5, 4, 1000
	m, pool := openModel(t, golden.Dir(t, "dense"), model.Options{Quantise: 8})
	vocab := int32(m.Info().Vocab)
	e, err := New(m, pool, Options{Drafter: stubborn{m.Drafter(), vocab}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var early, late runtime.MemStats
	for turn := range turns {
		var wg sync.WaitGroup
		for range together {
			wg.Go(func() {
				_, r, err := collect(e, Request{
					Prompt: []int32{1, 2, 3}, MaxTokens: tokens, IgnoreEnd: true, LogProbs: -1, Depth: 3, Sampling: never(vocab),
				})
				if err != nil || r.Tokens != tokens || r.Receipt.Accepted != 0 || r.Receipt.Drafted < 2*tokens {
					t.Errorf("%d tokens, %d of %d guesses accepted: %v", r.Tokens, r.Receipt.Accepted, r.Receipt.Drafted, err)
				}
			})
		}
		wg.Wait()
		runtime.GC()
		if turn == 1 {
			runtime.ReadMemStats(&early)
		}
	}
	runtime.ReadMemStats(&late)
	grown := int64(late.HeapAlloc) - int64(early.HeapAlloc)
	t.Logf("the heap grew by %d bytes over the last %d tokens", grown, (turns-2)*together*tokens)
	if grown > 256<<10 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	if pool.Used() != 0 {
		t.Errorf("%d bytes of the pool still in use", pool.Used())
	}
}

// TestRoundsAllocateNothing runs rounds by hand: a token, a token with refused guesses.
func TestRoundsAllocateNothing(t *testing.T) {
	m, pool := openModel(t, golden.Dir(t, "dense"), model.Options{Quantise: 8})
	vocab := int32(m.Info().Vocab)
	for _, depth := range []int{0, 3} {
		e := &Engine{model: m, pool: pool, o: Options{RoundTokens: 512, Drafter: stubborn{m.Drafter(), vocab}}}
		s, err := newSequence(Request{
			Prompt: []int32{1, 2, 3}, IgnoreEnd: true, LogProbs: -1, Depth: depth, Sampling: never(vocab),
		}, m.Info(), 4000)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.open(s); err != nil {
			t.Fatal(err)
		}
		for _, st := range []*state.State{s.target, s.memory} {
			if st != nil {
				if err := st.Reserve(2000); err != nil {
					t.Fatal(err)
				}
			}
		}
		e.running, s.unwatch = []*sequence{s}, func() bool { return true }
		for range 300 {
			e.round()
		}
		s.stream.tokens = make([]Token, 0, 4000) // what a reader takes is not the round's
		if n := testing.AllocsPerRun(200, e.round); n != 0 {
			t.Errorf("depth %d: %v allocations a round", depth, n)
		}
		e.end(s)
	}
}
