package engine

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
)

// copier is an oracle whose drafts are copies, or blocks, as long as they may be whatever the controller says.
type copier struct {
	*oracle
	source spec.Source
	most   []int // tokens of each run of the last Plan
}

func (c *copier) Drafts() int { return spec.MaxCopy }

func (c *copier) Plan(batch []spec.Run) {
	c.most = c.most[:0]
	for i := range batch {
		c.most = append(c.most, min(batch[i].Depth, spec.MaxCopy))
		batch[i].Sources = spec.Sources(0).With(c.source)
	}
}

func (c *copier) Draft(batch []spec.Run) ([]spec.Draft, error) {
	if len(c.most) == len(batch) { // else it is to catch up
		for i := range batch {
			batch[i].Depth = c.most[i]
		}
	}
	return c.oracle.Draft(batch)
}

// answered is a request, what it gives without drafts, and what its continuation gives.
type answered struct {
	Request
	ids  []int32
	hash uint64
}

// turns are requests and, after them, as many that begin with the prompts and answers of the former.
func turns(t *testing.T, m *headed, b *state.Pool, tokens int) (list []answered, truth *oracle) {
	t.Helper()
	plain, err := New(m, b, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	truth = &oracle{vocab: int32(m.Info().Vocab)}
	options := samplings()
	for i := range 6 {
		a := answered{Request: Request{Prompt: prompt(11+i, i), Sampling: options[2*i], MaxTokens: tokens, Hash: true, IgnoreEnd: true}}
		if i >= 3 {
			first := list[i-3]
			a.Prompt, a.Sampling = slices.Concat(first.Prompt, first.ids), first.Sampling
		}
		ids, res, err := collect(plain, a.Request)
		if err != nil {
			t.Fatal(err)
		}
		a.ids, a.hash = ids, res.LogitsHash
		list = append(list, a)
		truth.answers = append(truth.answers, slices.Concat(a.Prompt, ids))
	}
	slices.Reverse(truth.answers) // the continuations first: they are longer
	return list, truth
}

// TestLongCopiesChangeNothing drafts copies and blocks of up to 31 tokens, right and wrong ones, in batches, with rounds
// of few rows, with a cache, and with memory that is enough for deepened states, for some of them or for none. Tokens
// and bits of logits are those without drafts. Where passes take the same time whatever their rows, no copy is missed.
func TestLongCopiesChangeNothing(t *testing.T) {
	const tokens = 98 // the first, and three rounds of 31 copies and one more token each; one is over
	for _, name := range []string{"dense", "moe"} {
		b := &untimed{Backend: backendtest.Open(t, backend.Options{})}
		m := load(t, golden.Dir(t, name), model.Options{Quantize: 8}, b)
		list, truth := turns(t, m, state.NewPool(b, 1<<30), tokens)
		one := promised(m, nil, len(list[5].Prompt)+tokens)
		deep := m.Layout().DeepBytes()
		for i, c := range []struct {
			wrong  func(position, index int) bool
			budget int64
			round  int
			rounds int // of a request at most; 0: whatever
		}{
			{func(int, int) bool { return false }, 1 << 30, 512, 5},
			{func(_, j int) bool { return j == 20 }, 1 << 30, 512, 6},
			{func(_, j int) bool { return j == 30 }, 1 << 30, 100, 0},
			{func(p, _ int) bool { return p%13 == 0 }, 1 << 30, 40, 0},
			{func(int, int) bool { return true }, 1 << 30, 512, 0},
			{func(int, int) bool { return false }, one, 512, 0},
			{func(p, _ int) bool { return p%29 == 0 }, one + deep - 1, 19, 0},
			{func(p, _ int) bool { return p%29 == 0 }, one + deep, 512, 0},
			{func(p, _ int) bool { return p%29 == 0 }, 2*one + deep, 70, 0},
		} {
			pool := state.NewPool(b, c.budget)
			e, err := New(m, pool, Options{Drafter: &copier{oracle: truth.with(c.wrong), source: spec.CopyOf8 * spec.Source(i%2)}, Cache: true, RoundTokens: c.round, Log: quiet})
			if err != nil {
				t.Fatal(err)
			}
			tell(&e.drafting.controller, time.Hour, 1)
			cached := 0
			for turn := range 2 {
				var all sync.WaitGroup
				var mu sync.Mutex // protects cached
				for j, a := range list[3*turn : 3*turn+3] {
					all.Go(func() {
						ids, res, err := collect(e, a.Request)
						if err != nil || !slices.Equal(ids, a.ids) || res.LogitsHash != a.hash {
							t.Errorf("%s, case %d, request %d of turn %d: %v %x %v, want %v %x", name, i, j, turn, ids, res.LogitsHash, err, a.ids, a.hash)
						}
						if n := res.Speculation.Rounds; c.rounds > 0 && n > c.rounds {
							t.Errorf("%s, case %d, request %d of turn %d: %d rounds, want at most %d", name, i, j, turn, n, c.rounds)
						}
						mu.Lock()
						defer mu.Unlock()
						cached += res.Cached
					})
				}
				all.Wait()
			}
			if c.budget == 1<<30 && cached < 3*tokens {
				t.Errorf("%s, case %d: %d tokens from the cache", name, i, cached)
			}
			e.Close()
			if n := pool.Used(); n != 0 {
				t.Errorf("%s, case %d: %d bytes still in use", name, i, n)
			}
		}
	}
}

// TestDeepenedStatesFitTheirMemory fills the context of an engine with copies, for budgets from what one
// sequence is said to need on.
func TestDeepenedStatesFitTheirMemory(t *testing.T) {
	m, b := openOn(t, golden.Dir(t, "dense"), model.Options{Quantize: 8})
	const context = 200
	text := slices.Concat(prompt(20, 1), prompt(20, 1), prompt(20, 1))
	truth := &oracle{answers: [][]int32{}, vocab: int32(m.Info().Vocab), wrong: func(int, int) bool { return false }}
	for more := int64(0); more <= m.Layout().DeepBytes(); more += m.Layout().DeepBytes() / 4 {
		e, err := New(m, state.NewPool(b, promised(m, nil, context)+more), Options{Context: context, Drafter: &copier{oracle: truth}, Cache: true, Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		r := Request{Prompt: text, IgnoreEnd: true}
		if len(truth.answers) == 0 {
			ids, _, err := collect(e, r)
			if err != nil {
				t.Fatal(err)
			}
			truth.answers = append(truth.answers, slices.Concat(text, ids))
		}
		var all sync.WaitGroup
		for i := range 2 {
			all.Go(func() { fills(t, e, r, context, fmt.Sprintf("%d bytes more, request %d", more, i)) })
		}
		all.Wait()
		e.Close()
	}
}
