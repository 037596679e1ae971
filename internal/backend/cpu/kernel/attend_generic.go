package kernel

import (
	"math"

	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/exactmath"
)

// rotate turns the pairs (i, i+len(cos)) of x.
func rotate(x, cos, sin []float32) {
	half := len(cos)
	for i, c := range cos {
		a, b, s := x[i], x[i+half], sin[i]
		x[i] = exactmath.FMA32(a, c, -float32(b*s))
		x[i+half] = exactmath.FMA32(b, c, float32(a*s))
	}
}

// RotateNeighbors turns the pairs (2i, 2i+1) of x, as rotate does its pairs.
func RotateNeighbors(x, cos, sin []float32) {
	for i, c := range cos {
		a, b, s := x[2*i], x[2*i+1], sin[i]
		x[2*i] = exactmath.FMA32(a, c, -float32(b*s))
		x[2*i+1] = exactmath.FMA32(b, c, float32(a*s))
	}
}

// SoftmaxSum belongs to a sum of values weighted by exp(score-top).
type SoftmaxSum struct {
	Top    float32 // highest score
	Weight float32 // sum of exactmath.Exp32(score-top)
}

// Attention takes the positions page by page. A page's own softmax sum is computed by
// itself and then merged with the sum of the pages before it, so that the result depends
// on the positions of page borders and on nothing else, and pages can be computed anywhere.
//
// Scores are lane-order dot products, times scale; weights are summed in lane order, and
// values in order of position. Pages of 8 bits are another matter: see Coded.

// scores32 computes the scores of the first count keys for each query.
func scores32(dst, q, keys, _ []float32, d, count int, scale float32) {
	for i := 0; i*d < len(q); i++ {
		for j := range count {
			dst[i*PageTokens+j] = exactmath.Dot32(q[i*d:][:d], keys[j*d:][:d]) * scale
		}
	}
}

// scores16 is scores32 for keys in half precision.
func scores16(dst, q []float32, keys, _ []uint16, d, count int, scale float32) {
	for i := 0; i*d < len(q); i++ {
		for j := range count {
			var acc [lanes]float32
			for k, x := range keys[j*d:][:d] {
				a := &acc[k%lanes]
				*a = exactmath.FMA32(q[i*d+k], dtype.FromF16(x), *a)
			}
			dst[i*PageTokens+j] = exactmath.SumLanes32(&acc) * scale
		}
	}
}

// softmax replaces x by exp(x-top), top being the highest number, and returns top and the
// sum in lane order. NaN stays NaN.
func softmax(x []float32) (top, sum float32) {
	top = float32(math.Inf(-1))
	for _, v := range x {
		if v > top {
			top = v
		}
	}
	var acc [lanes]float32
	for i, v := range x {
		x[i] = exactmath.Exp32(v - top)
		acc[i%lanes] += x[i]
	}
	return top, exactmath.SumLanes32(&acc)
}

// weigh32 computes the sum of the first count values times their weights for each query.
func weigh32(dst, p, values, _ []float32, d, count int) {
	for i := 0; i*d < len(dst); i++ {
		sum := dst[i*d:][:d]
		clear(sum)
		for j := range count {
			exactmath.AXPY32(sum, values[j*d:][:d], p[i*PageTokens+j])
		}
	}
}

// weigh16 is weigh32 for values in half precision.
func weigh16(dst, p []float32, values, _ []uint16, d, count int) {
	for i := 0; i*d < len(dst); i++ {
		sum := dst[i*d:][:d]
		clear(sum)
		for j := range count {
			w := p[i*PageTokens+j]
			for k, x := range values[j*d:][:d] {
				sum[k] = exactmath.FMA32(w, dtype.FromF16(x), sum[k])
			}
		}
	}
}

// merge adds the sum of one page, now, to the sum of the pages before it.
func merge(out, page []float32, all, now *SoftmaxSum) {
	old, more := mergeSums(all, now)
	for j := range out {
		out[j] = exactmath.FMA32(page[j], more, float32(out[j]*old))
	}
}

// mergeSums is merge of the sums of weights. It returns the factors of the sums of values: of the
// old sum, and of the page's.
func mergeSums(all, now *SoftmaxSum) (old, more float32) {
	top := all.Top
	if now.Top > top {
		top = now.Top
	}
	old, more = exactmath.Exp32(all.Top-top), exactmath.Exp32(now.Top-top)
	all.Weight = exactmath.FMA32(now.Weight, more, float32(all.Weight*old))
	all.Top = top
	return old, more
}

// narrow rounds x to half precision.
func narrow(dst []uint16, x []float32) {
	for i, v := range x {
		dst[i] = dtype.ToF16(v)
	}
}
