package engine

import (
	"errors"
	"math"
	"runtime"
	"sync"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/engine/schedule"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/sample"
)

// stubborn drafts with a real head and replaces its tokens: no draft is ever accepted.
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

// settled is the size of the heap after two collections.
func settled() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// leaked is the smallest growth of the heap between two measurements. A leak grows the heap every time. Memory that the
// runtime keeps once, or frees late, does not.
func leaked(heap []int64) int64 {
	least := int64(math.MaxInt64)
	for i := range heap[1:] {
		least = min(least, heap[i+1]-heap[i])
	}
	return least
}

// TestRejectedDraftsLeaveNothingBehind has every draft of 6,000 tokens rejected, in texts of
// hundreds, four at a time, and of 20,000 in the long version. They leak less than eight bytes for each token.
func TestRejectedDraftsLeaveNothingBehind(t *testing.T) {
	if testing.Short() {
		t.Skip("generates thousands of tokens")
	}
	const repeats, together = 5, 4
	tokens := 300
	if long {
		tokens = 1000
	}
	m, pool := openModel(t, golden.Dir(t, "dense"), model.Options{Quantize: 8})
	vocab := int32(m.Info().Vocab)
	e, err := New(m, pool, Options{Drafter: stubborn{m.Drafter(), vocab}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var heap []int64
	for n := 0; len(heap) < repeats; n++ {
		if n == 5*repeats {
			t.Fatalf("the device still prepares for passes after %d repeats", n)
		}
		prepared := e.prepared()
		var wg sync.WaitGroup
		for range together {
			wg.Go(func() {
				_, r, err := collect(e, Request{
					Prompt: []int32{1, 2, 3}, MaxTokens: tokens, IgnoreEnd: true, Depth: 3, Sampling: never(vocab),
				})
				if err != nil || r.Tokens != tokens || r.Speculation.Accepted != 0 || r.Speculation.Drafted < 2*tokens {
					t.Errorf("%d tokens, %d of %d drafts accepted: %v", r.Tokens, r.Speculation.Accepted, r.Speculation.Drafted, err)
				}
			})
		}
		wg.Wait()
		if e.prepared() != prepared { // what a device has recorded stays
			heap = heap[:0]
		}
		heap = append(heap, settled())
	}
	t.Logf("the heap after each repeat: %d", heap)
	if n := leaked(heap); n >= int64(8*together*tokens) {
		t.Errorf("the heap grows by %d bytes with every %d tokens: %d", n, together*tokens, heap)
	}
	if pool.Used() != 0 {
		t.Errorf("%d bytes of the pool still in use", pool.Used())
	}
}

// TestRoundsAllocateLittle runs rounds by hand: a token, a token with rejected drafts. Only a few closures are allocated. On
// one thread: what of an operation another one meets, and so has memory for, is luck.
func TestRoundsAllocateLittle(t *testing.T) {
	b := backendtest.Open(t, backend.Options{Threads: 1})
	m, pool := load(t, golden.Dir(t, "dense"), model.Options{Quantize: 8}, b), state.NewPool(b, 1<<30)
	vocab := int32(m.Info().Vocab)
	for _, depth := range []spec.Depth{spec.DepthOff, 3} {
		e := &Engine{model: m, pool: pool, o: Options{RoundTokens: 512, Drafter: stubborn{m.Drafter(), vocab}}}
		e.sched, e.drafting.parts = schedule.Scheduler[*sequence]{RoundTokens: e.o.RoundTokens, Cost: e.cost()}, newParts(e.o.Drafter)
		s, err := newSequence(Request{
			Prompt: []int32{1, 2, 3}, IgnoreEnd: true, Depth: depth, Sampling: never(vocab),
		}, m.Info(), 4000)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.open(s); err != nil {
			t.Fatal(err)
		}
		err = s.target.Reserve(2000)
		for _, m := range s.drafts {
			err = errors.Join(err, m.state.Reserve(2000))
		}
		if err != nil {
			t.Fatal(err)
		}
		e.running, s.unwatch = []*sequence{s}, func() bool { return true }
		for range 300 {
			e.round()
		}
		s.stream.tokens = make([]Token, 0, 4000) // what a reader takes is not the round's
		if n := testing.AllocsPerRun(200, e.round); n > 16 {
			t.Errorf("depth %v: %v allocations a round", depth, n)
		}
		e.end(s)
	}
}
