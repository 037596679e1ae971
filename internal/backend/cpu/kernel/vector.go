package kernel

import "github.com/foretoken/foretoken/internal/exactmath"

// lanes is the number of partial sums of a dot product.
const lanes = exactmath.Lanes

// Vector has the inner loops of everything but matrix products. Each is defined by
// a function of a *_generic.go file; all slices of a call are as long as its first unless
// said otherwise.
type Vector struct {
	Dot       func(x, y []float32) float32
	Add       func(dst, x []float32)
	AddScaled func(dst, x []float32, w float32)

	Norm        func(dst, x, gain []float32, eps float32) // of a head
	WideNorm    func(dst, x, gain []float32, eps float32) // of a whole row
	LayerNorm   func(dst, x, gain, bias []float32, eps float32)
	SwiGLU      func(dst, gate, up []float32)
	GELU        func(dst, x []float32)
	GELUTanh    func(dst, x []float32)
	GateSigmoid func(dst, x []float32, divisor float32)
	Sigmoids    func(dst, x []float32)
	Decays      func(dst, x []float32, rate, bias float32)
	Rotate      func(x, cos, sin []float32)
	Softmax     func(x []float32) (top, sum float32)
	Turn        func(dst, src, scales []float32, places []uint8, turns []float32, rounds int) // see Input
	TurnRows    *TurnRows                                                                     // nil: there is none

	Narrow func(dst []uint16, x []float32)
	Page   Page
	Coded  Coded
	Prompt Prompt
	Mix    Mix
	Delta  Delta
}

// Page is attention over one page: dst is [queries, PageTokens] or [queries, d], q
// is [queries, d], p is [queries, PageTokens], keys and values are [count, d]. next is
// read after this; it is only prefetched. Assembly needs d to be a multiple of
// lanes, as for Vector.Narrow.
type Page struct {
	Scores32 func(dst, q, keys, next []float32, d, count int, scale float32)
	Scores16 func(dst, q []float32, keys, next []uint16, d, count int, scale float32)
	Weigh32  func(dst, p, values, next []float32, d, count int)
	Weigh16  func(dst, p []float32, values, next []uint16, d, count int)
	Merge    func(out, page []float32, all, now *SoftmaxSum)
}

// Delta is the delta rule over a strip of columns of one head's state, for a token and, with
// Steps, for many. Rows of the state are stride numbers apart. ahead is the distance to the next
// reads, for prefetching. Assembly needs the number of columns to be a multiple of
// lanes, except in the first three, which come before and after the rule, for the rows of
// a head.
type Delta struct {
	Convolve  func(dst []float32, stride, columns, rows int, taps []Tap, step int)
	Keys      func(mixed []float32, stride, keys int, scale float32, kq []float32)
	GatedNorm func(dst []float32, stride, rows int, z []float32, step int, gain []float32, eps float32)

	Read   func(out, delta, state []float32, stride, ahead int, q, k, v []float32, decay, beta, kq float32)
	Update func(dst []float32, dstStride int, src []float32, srcStride, ahead int, k, delta []float32, decay float32)
	Steps  func(out []float32, outStride int, delta, state, mixed []float32, stride, keys, values int, decay, beta, kq []float32)
}

// Tap is one term of a convolution: weights, and the input of the first row, one per channel.
type Tap struct{ W, X *float32 }

// vectorGeneric is the definition of the kernels.
var vectorGeneric = Vector{
	Dot: exactmath.Dot32, Add: add, AddScaled: addScaled,
	Norm: rmsNorm, WideNorm: wideNorm, LayerNorm: layerNorm,
	SwiGLU: swiglu, GELU: gelu, GELUTanh: geluTanh, GateSigmoid: gateSigmoid,
	Sigmoids: sigmoids, Decays: decays, Rotate: rotate, Softmax: softmax, Turn: turn,
	Narrow: narrow,
	Page: Page{
		Scores32: scores32, Scores16: scores16, Weigh32: weigh32, Weigh16: weigh16, Merge: merge,
	},
	Coded:  codedGeneric,
	Prompt: promptGeneric,
	Mix:    mixGeneric,
	Delta: Delta{
		Convolve: convolve, Keys: keys, GatedNorm: gatedNorm,
		Read: deltaRead, Update: deltaUpdate, Steps: deltaSteps,
	},
}

// ForWidth is v, or the definition where rows are not a multiple of lanes long.
func (v *Vector) ForWidth(n int) *Vector {
	if n%lanes != 0 {
		return &vectorGeneric
	}
	return v
}
