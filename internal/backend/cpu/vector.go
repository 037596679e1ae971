package cpu

import (
	"github.com/foretoken/foretoken/internal/exactmath"
)

// lanes is the number of partial sums of a dot product.
const lanes = exactmath.Lanes

// vectorKernels are the inner loops of everything but matrix products. Each is defined by
// a function of a *_generic.go file; all slices of a call are as long as its first unless
// said otherwise.
type vectorKernels struct {
	dot       func(x, y []float32) float32
	add       func(dst, x []float32)
	addScaled func(dst, x []float32, w float32)

	norm        func(dst, x, gain []float32, eps float32)
	normalize   func(x []float32, scale float32)
	swiglu      func(dst, gate, up []float32)
	gateSilu    func(dst, x []float32)
	gateSigmoid func(dst, x []float32, divisor float32)
	sigmoids    func(dst, x []float32)
	decays      func(dst, x []float32, rate, bias float32)
	convolve    func(dst []float32, taps []tap)
	rotate      func(x, cos, sin []float32)
	softmax     func(x []float32) (top, sum float32)

	narrow func(dst []uint16, x []float32)
	page   pageKernels
	delta  deltaKernels
}

// pageKernels are attention over one page: dst is [queries, PageTokens] or [queries, d], q
// is [queries, d], p is [queries, PageTokens], keys and values are [count, d]. next is what
// will be read after this; it is only fetched ahead. Assembly wants d to be a multiple of
// lanes, as it does for vectorKernels.narrow.
type pageKernels struct {
	scores32 func(dst, q, keys, next []float32, d, count int, scale float32)
	scores16 func(dst, q []float32, keys, next []uint16, d, count int, scale float32)
	scores8  func(dst, q []float32, keys, next []int8, d, count int, scale float32)
	weigh32  func(dst, p, values, next []float32, d, count int)
	weigh16  func(dst, p []float32, values, next []uint16, d, count int)
	weigh8   func(dst, p []float32, values, next []int8, d, count int)
	scale    func(dst, scales []float32) // [queries, PageTokens] times [PageTokens]
	merge    func(out, page []float32, all, now *softmaxSum)
}

// deltaKernels are the delta rule over a strip of columns of one head's state, whose rows
// are stride numbers apart. ahead is the distance to what will be read after this; it is
// only fetched. Assembly wants the number of columns to be a multiple of lanes.
type deltaKernels struct {
	read   func(out, delta, state []float32, stride, ahead int, q, k, v []float32, decay, beta, kq float32)
	update func(dst []float32, dstStride int, src []float32, srcStride, ahead int, k, delta []float32, decay float32)
}

// tap is one term of a convolution: weights and input, one per channel.
type tap struct{ w, x *float32 }

// vectorGeneric defines what the kernels compute.
var vectorGeneric = vectorKernels{
	dot: exactmath.Dot32, add: add, addScaled: addScaled,
	norm: rmsNorm, normalize: normalize, swiglu: swiglu, gateSilu: gateSilu, gateSigmoid: gateSigmoid,
	sigmoids: sigmoids, decays: decays, convolve: convolve, rotate: rotate, softmax: softmax,
	narrow: narrow,
	page: pageKernels{
		scores32: scores32, scores16: scores16, scores8: scores8,
		weigh32: weigh32, weigh16: weigh16, weigh8: weigh8, scale: scalePage, merge: merge,
	},
	delta: deltaKernels{read: deltaRead, update: deltaUpdate},
}

// forWidth is v, or the definition where rows are not a multiple of lanes long.
func (v *vectorKernels) forWidth(n int) *vectorKernels {
	if n%lanes != 0 {
		return &vectorGeneric
	}
	return v
}
