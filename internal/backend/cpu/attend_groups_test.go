package cpu

import (
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
	"github.com/foretoken/foretoken/internal/dtype"
)

// TestPromptGroupsAreEven lays out a round of a long prompt for every number of threads: each group is one chunk of the pool,
// so that all threads have equally much to do, but for the rows that do not divide.
func TestPromptGroupsAreEven(t *testing.T) {
	const rows, context = 512, 16_384
	a := &backend.Attention{Heads: 8, KVHeads: 2, HeadDim: 256}
	for threads := 1; threads <= 20; threads++ {
		op := attendOp{b: &Backend{isa: &kernel.Generic}, a: a, at: backend.Place{Type: dtype.F16}, q: backend.Tensor{Rows: rows}}
		op.b.pool = &poolUser{threads: threads}
		op.batch = []backend.Seq{{N: rows, Pos: context}}
		op.shape()
		pages, even := op.layOut()
		sum, most, next := 0, 0, [2]int{}
		for i := range op.groups {
			g := &op.groups[i]
			if g.row != next[g.kv] || g.first != sum || !g.prompt {
				t.Fatalf("%d threads: group %d is %+v, want row %d and page %d", threads, i, *g, next[g.kv], sum)
			}
			next[g.kv] += g.rows
			sum, most = sum+g.pages, max(most, g.rows*g.pages)
		}
		// What a thread computes at most, over the mean.
		turns := above(len(op.groups), threads)
		if x := float64(turns*threads*most) / float64(2*rows*(context+rows)/backend.PageTokens); !even || sum != pages || next != [2]int{rows, rows} || x > 1.13 {
			t.Errorf("%d threads: %d groups (%v) of %d pages, %v rows, %.2f of the mean", threads, len(op.groups), even, sum, next, x)
		}
	}
}
