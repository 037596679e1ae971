package kernel

import (
	"unsafe"

	"github.com/foretoken/foretoken/internal/exactmath"
)

// convolve sets columns numbers of each row of dst to silu of the sum of the taps, the first of them
// first. Rows are stride numbers apart, and their inputs step.
func convolve(dst []float32, stride, columns, rows int, taps []Tap, step int) {
	for r := range rows {
		y := dst[r*stride:][:columns]
		for i, t := range taps {
			w, x := t.row(r, columns, step)
			for c := range y {
				if i == 0 {
					y[c] = w[c] * x[c]
				} else {
					y[c] = exactmath.FMA32(w[c], x[c], y[c])
				}
			}
		}
		for c, v := range y {
			y[c] = exactmath.SiLU32(v)
		}
	}
}

// row is the weights and the input of row r.
func (t Tap) row(r, columns, step int) (w, x []float32) {
	return unsafe.Slice(t.W, columns), unsafe.Slice(t.X, r*step+columns)[r*step:]
}

// keys scales the query and the key that each row of mixed begins with to length one, the query
// times scale, and sets kq to their products. It has as many rows as kq numbers.
func keys(mixed []float32, stride, keys int, scale float32, kq []float32) {
	for r := range kq {
		q, k := mixed[r*stride:][:keys], mixed[r*stride+keys:][:keys]
		normalize(q, scale)
		normalize(k, 1)
		kq[r] = exactmath.Dot32(k, q)
	}
}

// normalize scales x to length one, times scale.
func normalize(x []float32, scale float32) {
	s := exactmath.RSqrt32(exactmath.Dot32(x, x)+1e-6) * scale
	for i := range x {
		x[i] *= s
	}
}

// gatedNorm is rmsNorm of rows of dst, as long as gain, times silu(z). They are stride numbers
// apart, and their z step.
func gatedNorm(dst []float32, stride, rows int, z []float32, step int, gain []float32, eps float32) {
	for r := range rows {
		y := dst[r*stride:][:len(gain)]
		rmsNorm(y, y, gain, eps)
		swiglu(y, z[r*step:][:len(gain)], y)
	}
}

// decays sets dst to exp(rate*softplus(x+bias)).
func decays(dst, x []float32, rate, bias float32) {
	for i, v := range x {
		dst[i] = exactmath.Exp32(rate * exactmath.Softplus32(v+bias))
	}
}

// sigmoids sets dst to sigmoid(x).
func sigmoids(dst, x []float32) {
	for i, v := range x {
		dst[i] = exactmath.Sigmoid32(v)
	}
}

// deltaRead computes the output of some columns of a head for one token, and the update the
// token makes, from the state before it, [key, value]:
//
//	u = Sᵀk, w = Sᵀq           each a sum over key mod 4, then (0+1)+(2+3)
//	delta = beta*(v - decay*u)
//	out = decay*w + (k·q)*delta
//
// which is the delta rule with the decay and the update applied to the sums instead of the
// state, so that the state is read once.
func deltaRead(out, delta, state []float32, stride, _ int, q, k, v []float32, decay, beta, kq float32) {
	for c := 0; c < len(delta); c += lanes {
		n := min(lanes, len(delta)-c)
		var us, ws [4][lanes]float32
		for i, x := range k {
			s := state[i*stride+c:][:n]
			exactmath.AXPY32(us[i%4][:n], s, x)
			exactmath.AXPY32(ws[i%4][:n], s, q[i])
		}
		for j := range n {
			u := (us[0][j] + us[1][j]) + (us[2][j] + us[3][j])
			w := (ws[0][j] + ws[1][j]) + (ws[2][j] + ws[3][j])
			delta[c+j] = exactmath.FMA32(-decay, u, v[c+j]) * beta
			out[c+j] = exactmath.FMA32(kq, delta[c+j], float32(decay*w))
		}
	}
}

// deltaUpdate is dst = decay*src + k⊗delta. dst may be src.
func deltaUpdate(dst []float32, dstStride int, src []float32, srcStride, _ int, k, delta []float32, decay float32) {
	for i, x := range k {
		d, s := dst[i*dstStride:][:len(delta)], src[i*srcStride:][:len(delta)]
		for j := range d {
			d[j] = float32(decay * s[j])
		}
		exactmath.AXPY32(d, delta, x)
	}
}

// deltaSteps runs tokens through the columns of a state, whose rows are adjacent. The first
// token has been read already: delta is its update, and becomes the last token's, which is not
// applied. Rows of mixed have a token's query and key, of keys numbers each, and its values from
// number values on.
func deltaSteps(out []float32, outStride int, delta, state, mixed []float32, stride, keys, values int, decay, beta, kq []float32) {
	w := len(delta)
	for t := 1; t < len(decay); t++ {
		before, now := mixed[(t-1)*stride:], mixed[t*stride:]
		deltaUpdate(state, w, state, w, 0, before[keys:2*keys], delta, decay[t-1])
		deltaRead(out[t*outStride:][:w], delta, state, w, 0, now[:keys], now[keys:2*keys], now[values:][:w], decay[t], beta[t], kq[t])
	}
}
