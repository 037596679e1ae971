package kernel

import (
	"math/bits"
	"unsafe"

	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/exactmath"
)

// Prompt is attention over one page that many queries see whole. It computes what Page and
// Vector.Softmax do, in the same order of additions, but lays queries, keys and values out first,
// as float32: one key per lane, so that a dot product needs no sum across lanes, and values in
// strips that stay in the L1 cache. Queries are padded to a multiple of PromptQueries; the
// results of padding queries are not used.
//
// Rows are d numbers, of queries and keys a multiple of lanes.
type Prompt struct {
	// Rows32 and Rows16 lay out rows of queries or keys, a multiple of PromptStrip: dst is
	// [rows/PromptStrip, lanes, d/lanes, PromptStrip]. Lane i of a dot product is at place
	// promptPlace(i), so that lanes come in the order in which their sums are added.
	Rows32 func(dst, rows []float32, d int)
	Rows16 func(dst []float32, rows []uint16, d int)
	// Values32 and Values16 take PromptStrip columns of PageTokens values, which are d numbers
	// apart: dst is [PageTokens, PromptStrip].
	Values32 func(dst, values []float32, d int)
	Values16 func(dst []float32, values []uint16, d int)
	// Scores computes the scores of queries and PageTokens keys, both laid out: dst is
	// [queries, PageTokens]. sums is its working memory, PromptSums numbers. next is
	// read after this; it is only prefetched.
	Scores func(dst, q, keys, sums []float32, next []int8, d int, scale float32)
	// Softmax replaces scores, [queries, PageTokens], by weights, and writes every query's highest
	// score and sum of weights.
	Softmax func(scores, top, weight []float32)
	// Factors adds the sums of weights of a page, now, to those of the pages before it, all, and
	// writes the factors of the sums of values: of the old sum, and of the page's.
	Factors func(old, more, allTop, allWeight, nowTop, nowWeight []float32)
	// Weigh adds PromptStrip columns of the values of a page, times their weights,
	// [queries, PageTokens], to those from column on of out, a row for each query. Without
	// factors it overwrites them.
	Weigh func(out []*float32, weights, values, old, more []float32, next []int8, column int)
}

const (
	PromptQueries = 4  // queries that are computed together
	PromptStrip   = 64 // rows that are laid out together, or columns of values
	// PromptSums is how many numbers Scores computes in: for each of 16 queries and all keys one for
	// every level of the tree of lanes.
	PromptSums = 16 * PageTokens * 4
)

// promptPlace is the place of lane i of a dot product: its bits in reverse. SumLanes32 adds lane 8 to
// lane 0 first, then the sum of lanes 4 and 12 to that, and so on.
func promptPlace(i int) int { return int(bits.Reverse8(uint8(i)) >> 4) }

var promptGeneric = Prompt{
	Rows32: promptRows32, Rows16: promptRows16, Values32: promptValues32, Values16: promptValues16,
	Scores: promptScores, Softmax: promptSoftmax, Factors: promptFactors, Weigh: promptWeigh,
}

func promptRows32(dst, rows []float32, d int) {
	for i, x := range rows[:len(dst)] {
		dst[promptAt(i/d, i%d, d)] = x
	}
}

func promptRows16(dst []float32, rows []uint16, d int) {
	for i, x := range rows[:len(dst)] {
		dst[promptAt(i/d, i%d, d)] = dtype.FromF16(x)
	}
}

// promptAt is the place of column c of row r.
func promptAt(r, c, d int) int {
	column := promptPlace(c%lanes)*(d/lanes) + c/lanes
	return (r/PromptStrip*d+column)*PromptStrip + r%PromptStrip
}

func promptValues32(dst, values []float32, d int) {
	for j := range PageTokens {
		copy(dst[j*PromptStrip:][:PromptStrip], values[j*d:])
	}
}

func promptValues16(dst []float32, values []uint16, d int) {
	for i := range dst {
		dst[i] = dtype.FromF16(values[i/PromptStrip*d+i%PromptStrip])
	}
}

func promptScores(dst, q, keys, _ []float32, _ []int8, d int, scale float32) {
	for i := range dst {
		x, y := q[promptAt(i/PageTokens, 0, d):], keys[promptAt(i%PageTokens, 0, d):]
		var acc [lanes]float32
		for c := range d {
			a := &acc[promptPlace(c/(d/lanes))]
			*a = exactmath.FMA32(x[c*PromptStrip], y[c*PromptStrip], *a)
		}
		dst[i] = exactmath.SumLanes32(&acc) * scale
	}
}

func promptSoftmax(scores, top, weight []float32) {
	for i := range len(scores) / PageTokens {
		top[i], weight[i] = softmax(scores[i*PageTokens:][:PageTokens])
	}
}

func promptFactors(old, more, allTop, allWeight, nowTop, nowWeight []float32) {
	for i := range old {
		all, now := SoftmaxSum{allTop[i], allWeight[i]}, SoftmaxSum{nowTop[i], nowWeight[i]}
		old[i], more[i] = mergeSums(&all, &now)
		allTop[i], allWeight[i] = all.Top, all.Weight
	}
}

func promptWeigh(out []*float32, weights, values, old, more []float32, _ []int8, column int) {
	for i, p := range out {
		var sum [PromptStrip]float32
		for j := range PageTokens {
			exactmath.AXPY32(sum[:], values[j*PromptStrip:][:PromptStrip], weights[i*PageTokens+j])
		}
		y := unsafe.Slice(p, column+PromptStrip)[column:]
		for c, s := range sum {
			if old != nil {
				s = exactmath.FMA32(s, more[i], float32(y[c]*old[i]))
			}
			y[c] = s
		}
	}
}
