package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/prefix/store"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/spec/ngram"
	"github.com/foretoken/foretoken/internal/state"
)

// promised is the budget that suffices for one sequence of a number of tokens.
func promised(m *headed, d spec.Drafter, tokens int) int64 {
	n := spec.Needs(m.Layout(), d, m.Info().Width)
	return n.Bytes(tokens)
}

// TestPromisedMemoryIsEnough gives engines exactly the memory that one sequence of the whole
// context is said to need, for contexts around page borders, and has requests fill it: alone
// and several at a time, with and without a cache, at every depth and with every drafter.
func TestPromisedMemoryIsEnough(t *testing.T) {
	m, b := openOn(t, golden.Dir(t, "dense"), model.Options{Quantize: 8})
	lookup, err := ngram.New(ngram.Options{})
	if err != nil {
		t.Fatal(err)
	}
	drafters := []spec.Drafter{m.Drafter(), m.Drafter(), spec.Auto(m.Drafter(), lookup), lookup, nil}
	runs := 24
	switch {
	case testing.Short():
		runs = 15
	case long:
		runs = 120
	}
	for i := range runs {
		rng := rand.New(rand.NewPCG(uint64(i), 5))
		context := backend.PageTokens * (1 + rng.IntN(4))
		context += []int{0, 1, -1, -spec.MaxDepth, -spec.MaxDepth - 1, -spec.MaxDepth + 1, rng.IntN(backend.PageTokens), 32}[i%8]
		d := drafters[rng.IntN(len(drafters))]
		budget := promised(m, d, context)
		pool := state.NewPool(b, budget)
		e, err := New(m, pool, Options{Context: context, Drafter: d, Cache: i%3 > 0, RoundTokens: []int{3, 33, 512}[rng.IntN(3)], Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		text := prompt(context, i)
		together := 1 + rng.IntN(2)
		for range 3 {
			var all sync.WaitGroup
			for range together {
				r := Request{Prompt: text[:1+rng.IntN(context-1)], Depth: spec.Depth(rng.IntN(spec.MaxDepth+2) - 1), IgnoreEnd: true}
				all.Go(func() { fills(t, e, r, context, fmt.Sprintf("run %d, depth %v", i, r.Depth)) })
			}
			all.Wait()
		}
		e.Close()
		if t.Failed() {
			t.Logf("run %d: context %d, budget %d, drafter %v", i, context, budget, d)
			return
		}
	}
}

// TestLongContextFitsItsMemory is the case of a model opened with a context of 4000 and no
// memory named, where 4000 and 4008 tokens need as many pages.
func TestLongContextFitsItsMemory(t *testing.T) {
	m, b := openOn(t, golden.Dir(t, "dense"), model.Options{Quantize: 8})
	const context = 4000
	e, err := New(m, state.NewPool(b, promised(m, m.Drafter(), context)), Options{Context: context, Drafter: m.Drafter(), Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	// The first rounds of an answer whose depth is found are without drafts.
	for _, n := range []int{3900, 3970, 3990} {
		fills(t, e, Request{Prompt: prompt(n, 1), IgnoreEnd: true}, context, fmt.Sprint(n))
	}
}

// fills runs a request that is to fill the context.
func fills(t *testing.T, e *Engine, r Request, limit int, name string) {
	t.Helper()
	s, err := e.Generate(context.Background(), r)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	text := slices.Clone(r.Prompt)
	for token, err := range s.Tokens() {
		if err != nil {
			t.Errorf("%s: after %d tokens: %v", name, len(text), err)
			return
		}
		text = append(text, token.ID)
	}
	if len(text) != limit {
		t.Errorf("%s: %d tokens, want %d", name, len(text), limit)
	}
}

// TestEntryWithoutMemoryIsAMiss has engines with little memory find entries on disk. If there is no memory for the entry
// beside its sequence, the prompt is computed.
func TestEntryWithoutMemoryIsAMiss(t *testing.T) {
	m, b := openOn(t, golden.Dir(t, "dense"), model.Options{Quantize: 8})
	dir := t.TempDir()
	request := Request{Prompt: prompt(129, 1), MaxTokens: 1, Depth: 3, IgnoreEnd: true}
	run := func(budget int64) (cached int) {
		t.Helper()
		disk, err := store.OpenDisk(dir, store.DiskOptions{Bytes: 1 << 30, Fingerprint: "dense"})
		if err != nil {
			t.Fatal(err)
		}
		defer disk.Close()
		e, err := New(m, state.NewPool(b, budget), Options{Drafter: m.Drafter(), Cache: true, Disk: disk, Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		_, r, err := collect(e, request)
		if err != nil {
			t.Errorf("%d bytes: %v", budget, err)
		}
		return r.Cached
	}
	run(1 << 30)
	least, hits, misses := promised(m, m.Drafter(), 130), 0, 0
	for more := int64(0); hits < 2; more += 4096 {
		if run(least+more) > 0 {
			hits++
		} else {
			misses++
		}
	}
	if misses == 0 {
		t.Error("there was always room")
	}
}

// TestCacheOutlivesARequestThatMustWait checks that the cache is not evicted for a request that would not fit even then.
func TestCacheOutlivesARequestThatMustWait(t *testing.T) {
	m, b := openOn(t, golden.Dir(t, "dense"), model.Options{Quantize: 8})
	// For a sequence of 200 tokens, three copies of what layers remember, and two pages.
	budget := promised(m, nil, 200) + 3*m.Layout().RecurrentBytes() + 2*m.Layout().PageBytes()
	gate := &gated{m, make(chan int32), make(chan struct{})}
	e, err := New(gate, state.NewPool(b, budget), Options{Cache: true, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	known := prompt(70, 1)
	gate.passUntil(ended(begin(t, e, Request{Prompt: known, MaxTokens: 1})))
	running := begin(t, e, Request{Prompt: prompt(150, 2), MaxTokens: 50})
	<-gate.begun
	need := e.need()
	waiting := begin(t, e, Request{Prompt: prompt(need.Tokens(budget, 1<<20)-2*spec.MaxDepth, 3), MaxTokens: 1})
	for range 10 {
		gate.let <- struct{}{}
		<-gate.begun
	}
	if s := e.Stats(); s.Waiting != 1 || s.Cache.Evictions != 0 {
		t.Errorf("%d requests wait, and %d entries were evicted for them", s.Waiting, s.Cache.Evictions)
	}
	gate.let <- struct{}{}
	gate.passUntil(ended(running, waiting))
	if r := waiting.Result(); r.Tokens != 1 {
		t.Errorf("%+v of the request that has waited", r)
	}
	e.Close()
}
