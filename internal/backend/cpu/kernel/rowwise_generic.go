package kernel

import (
	"github.com/foretoken/foretoken/internal/exactmath"
)

// rmsNorm sets dst to x/sqrt(mean(x²)+eps)*gain, for rows of a head. dst may be x.
func rmsNorm(dst, x, gain []float32, eps float32) {
	scale := exactmath.RSqrt32(exactmath.Dot32(x, x)/float32(len(x)) + eps)
	for i, v := range x {
		dst[i] = float32(v*scale) * gain[i]
	}
}

// wideNorm is rmsNorm over a whole row, whose squares are summed in wide lanes.
func wideNorm(dst, x, gain []float32, eps float32) {
	scale := exactmath.RSqrt32(exactmath.SumSquares32(x)/float32(len(x)) + eps)
	for i, v := range x {
		dst[i] = float32(v*scale) * gain[i]
	}
}

// layerNorm sets dst to (x-mean)/sqrt(variance+eps)*gain+bias, both summed in wide lanes. dst may
// be x.
func layerNorm(dst, x, gain, bias []float32, eps float32) {
	mean := exactmath.Sum32(x) / float32(len(x))
	for i, v := range x {
		dst[i] = v - mean
	}
	scale := exactmath.RSqrt32(exactmath.SumSquares32(dst)/float32(len(x)) + eps)
	for i, v := range dst {
		dst[i] = exactmath.FMA32(float32(v*scale), gain[i], bias[i])
	}
}

// gelu sets dst to x·Φ(x). dst may be x.
func gelu(dst, x []float32) {
	for i, v := range x {
		dst[i] = exactmath.GELU32(v)
	}
}

// geluTanh is gelu with the approximation by tanh.
func geluTanh(dst, x []float32) {
	for i, v := range x {
		dst[i] = exactmath.GELUTanh32(v)
	}
}

// swiglu sets dst to silu(gate)*up. dst may be either.
func swiglu(dst, gate, up []float32) {
	for i, g := range gate {
		dst[i] = exactmath.SiLU32(g) * up[i]
	}
}

// gateSigmoid divides dst and multiplies it with sigmoid(x).
func gateSigmoid(dst, x []float32, divisor float32) {
	for i, v := range x {
		dst[i] = float32(dst[i]/divisor) * exactmath.Sigmoid32(v)
	}
}

// add adds x to dst.
func add(dst, x []float32) {
	for i, v := range x {
		dst[i] += v
	}
}

// addScaled adds w*x to dst, each product rounded before it is added.
func addScaled(dst, x []float32, w float32) {
	for i, v := range x {
		dst[i] += float32(w * v)
	}
}

// AddTap adds one tap of a convolution to y: a number of base plus one of delta, times a number of x.
// Neighboring channels have the same number of delta, group by group; y begins with channel first.
func AddTap(y, base, delta, x []float32, first, group int) {
	for from := 0; from < len(y); {
		g := (first + from) / group
		to := min(len(y), (g+1)*group-first)
		d, w, in := delta[g], base[from:to], x[from:to]
		for i := range y[from:to] {
			y[from+i] += float32((w[i] + d) * in[i])
		}
		from = to
	}
}
