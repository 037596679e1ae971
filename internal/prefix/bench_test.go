package prefix

import (
	"fmt"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/prefix/store"
	"github.com/foretoken/foretoken/internal/state"
)

// The states of the 2B shape.
var (
	benchKV     = state.KV{Type: dtype.F16, Heads: 2, Key: 256, Value: 256}
	benchDelta  = state.Delta{KeyHeads: 16, ValueHeads: 16, KeyDim: 128, ValueDim: 128, Kernel: 4}
	benchTarget = state.Layout{Layers: slices.Repeat([]state.Layer{benchDelta, benchDelta, benchDelta, benchKV}, 6), MaxDrafts: 8}
	benchMemory = state.Layout{Layers: []state.Layer{benchKV}}
)

// BenchmarkHit measures storing an entry, finding it and restoring it. Bytes are those of the recurrent memory, which is
// copied.
func BenchmarkHit(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		be := backendtest.Open(b, backend.Options{})
		pool := state.NewPool(be, 2<<30)
		c := New(pool, Options{Target: benchTarget, Drafts: []state.Layout{benchMemory}})
		target, memory, tokens := benchStates(b, pool, n)
		row, err := be.Alloc(dtype.F32, 1, 2048)
		if err != nil {
			b.Fatal(err)
		}
		put := func() {
			if err := c.Store(Salt{}, Text{Tokens: tokens}, target, Draft{memory, row}); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(fmt.Sprintf("op=store/n=%d", n), func(b *testing.B) {
			b.SetBytes(benchTarget.RecurrentBytes())
			for b.Loop() {
				put()
				c.Shrink(1 << 40)
			}
		})
		put()
		prompt := slices.Concat(tokens, []int32{1})
		b.Run(fmt.Sprintf("op=find/n=%d", n), func(b *testing.B) {
			for b.Loop() {
				c.Find(Salt{}, Text{Tokens: prompt}, true).Release()
			}
		})
		b.Run(fmt.Sprintf("op=keys/n=%d", n), func(b *testing.B) { // of the pages on disk
			text := Text{Tokens: prompt}
			for b.Loop() {
				var k store.Key
				for at := backend.PageTokens; at < n; at += backend.PageTokens {
					k = text.key(k, at-backend.PageTokens, at)
				}
			}
		})
		b.Run(fmt.Sprintf("op=restore/n=%d", n), func(b *testing.B) {
			b.SetBytes(benchTarget.RecurrentBytes())
			for b.Loop() {
				h := c.Find(Salt{}, Text{Tokens: prompt}, true)
				if err := h.Restore(target, memory); err != nil {
					b.Fatal(err)
				}
				h.Release()
			}
		})
		c.Close()
		target.Close()
		memory.Close()
		if err := be.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// benchStates are states that have been fed n tokens.
func benchStates(b *testing.B, pool *state.Pool, n int) (target, memory *state.State, tokens []int32) {
	b.Helper()
	var list [2]*state.State
	for i, l := range []state.Layout{benchTarget, benchMemory} {
		s, err := pool.Open(l)
		if err == nil {
			err = s.Reserve(n)
		}
		if err != nil {
			b.Fatal(err)
		}
		s.Seq(0, n, 0, nil)
		s.Fed(n, 0)
		list[i] = s
	}
	for i := range n {
		tokens = append(tokens, int32(i%backend.PageTokens))
	}
	return list[0], list[1], tokens
}
