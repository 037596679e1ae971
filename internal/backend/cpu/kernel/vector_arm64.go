//go:build !noasm

package kernel

import "github.com/foretoken/foretoken/internal/exactmath"

// vectorNEON runs on every arm64 processor.
var vectorNEON = Vector{
	Dot: dotNEON, Add: addNEON, AddScaled: addScaledNEON,
	Norm: normNEON, WideNorm: wideNormNEON, LayerNorm: layerNormNEON,
	SwiGLU: swigluNEON, GELU: geluNEON, GELUTanh: geluTanhNEON, GateSigmoid: gateSigmoidNEON,
	Sigmoids: sigmoidsNEON, Decays: decaysNEON, Rotate: rotateNEON, Softmax: softmaxNEON, Turn: turnNEON,
	Narrow: narrowNEON,
	Page: Page{
		Scores32: scores32NEON, Scores16: scores16NEON, Weigh32: weigh32NEON, Weigh16: weigh16NEON, Merge: mergeNEON,
	},
	Coded:  Coded{Scores: codedScoresNEON, Softmax: codedSoftmaxNEON, Weigh: codedWeighNEON, Merge: codedMergeNEON, UnpackKeys: unpackKeysNEON, UnpackValues: unpackValuesNEON},
	Prompt: promptNEON,
	Mix:    Mix{Product: mixProductNEON, Weights: mixWeightsNEON, Divide: mixDivideNEON},
	Delta: Delta{
		Convolve: convolveNEON, Keys: keysNEON, GatedNorm: gatedNormNEON,
		Read: deltaReadNEON, Update: deltaUpdateNEON, Steps: deltaStepsNEON,
	},
}

// normNEON is rmsNorm.
func normNEON(dst, x, gain []float32, eps float32) {
	scaleGainNEON(dst, x, gain, exactmath.RSqrt32(dotNEON(x, x)/float32(len(x))+eps))
}

// wideNormNEON is wideNorm.
func wideNormNEON(dst, x, gain []float32, eps float32) {
	scaleGainNEON(dst, x, gain, exactmath.RSqrt32(sumSquaresNEON(x)/float32(len(x))+eps))
}

// normalizeNEON is normalize.
func normalizeNEON(x []float32, scale float32) {
	scaleRowNEON(x, float32(exactmath.RSqrt32(dotNEON(x, x)+1e-6)*scale))
}

// keysNEON is keys.
func keysNEON(mixed []float32, stride, keys int, scale float32, kq []float32) {
	for r := range kq {
		q, k := mixed[r*stride:][:keys], mixed[r*stride+keys:][:keys]
		normalizeNEON(q, scale)
		normalizeNEON(k, 1)
		kq[r] = dotNEON(k, q)
	}
}

// gatedNormNEON is gatedNorm.
func gatedNormNEON(dst []float32, stride, rows int, z []float32, step int, gain []float32, eps float32) {
	for r := range rows {
		if r+fetchRows < rows {
			Fetch(z[(r+fetchRows)*step:][:len(gain)])
		}
		y := dst[r*stride:][:len(gain)]
		normNEON(y, y, gain, eps)
		swigluNEON(y, z[r*step:][:len(gain)], y)
	}
}

// convolveNEON is convolve.
func convolveNEON(dst []float32, stride, columns, rows int, taps []Tap, step int) {
	for r := range rows {
		y := dst[r*stride:][:columns]
		for i, t := range taps {
			w, x := t.row(r, columns, step)
			if i == 0 {
				mulRowNEON(y, w, x)
			} else {
				fmaRowNEON(y, w, x)
			}
		}
		if r+fetchRows < rows {
			_, ahead := taps[len(taps)-1].row(r+fetchRows, columns, step)
			Fetch(ahead)
		}
		siluRowNEON(y)
	}
}

// fetchRows is the number of rows ahead that inputs of a head are prefetched: its part of a row is too short
// for the processor to predict the next one's.
const fetchRows = 4

// softmaxNEON is softmax.
func softmaxNEON(x []float32) (top, sum float32) {
	top = topNEON(x)
	return top, expSumNEON(x, top)
}

// mergeNEON is merge.
func mergeNEON(out, page []float32, all, now *SoftmaxSum) {
	old, more := mergeSums(all, now)
	mergeRowNEON(out, page, more, old)
}

// scores32NEON is scores32.
func scores32NEON(dst, q, keys, _ []float32, d, count int, scale float32) {
	for i := 0; i*d < len(q); i++ {
		scoreRow32NEON(&dst[i*PageTokens:][:count][0], &q[i*d:][:d][0], &keys[:count*d][0], d, count, scale)
	}
}

// scores16NEON is scores16.
func scores16NEON(dst, q []float32, keys, _ []uint16, d, count int, scale float32) {
	for i := 0; i*d < len(q); i++ {
		scoreRow16NEON(&dst[i*PageTokens:][:count][0], &q[i*d:][:d][0], &keys[:count*d][0], d, count, scale)
	}
}

// weigh32NEON is weigh32.
func weigh32NEON(dst, p, values, _ []float32, d, count int) {
	for i := 0; i*d < len(dst); i++ {
		weighRow32NEON(&dst[i*d:][:d][0], &p[i*PageTokens:][:count][0], &values[:count*d][0], d, count)
	}
}

// weigh16NEON is weigh16.
func weigh16NEON(dst, p []float32, values, _ []uint16, d, count int) {
	for i := 0; i*d < len(dst); i++ {
		weighRow16NEON(&dst[i*d:][:d][0], &p[i*PageTokens:][:count][0], &values[:count*d][0], d, count)
	}
}

// dotNEON is exactmath.Dot32.
//
//go:noescape
func dotNEON(x, y []float32) (sum float32)

// sumSquaresNEON is exactmath.SumSquares32.
//
//go:noescape
func sumSquaresNEON(x []float32) (sum float32)

// addNEON is add.
//
//go:noescape
func addNEON(dst, x []float32)

// addScaledNEON is addScaled.
//
//go:noescape
func addScaledNEON(dst, x []float32, w float32)

// scaleRowNEON is the last step of normalize.
//
//go:noescape
func scaleRowNEON(dst []float32, scale float32)

// scaleGainNEON is the last step of rmsNorm and wideNorm.
//
//go:noescape
func scaleGainNEON(dst, x, y []float32, scale float32)

// mulRowNEON sets dst to x*y, for the first tap of convolve.
//
//go:noescape
func mulRowNEON(dst, x, y []float32)

// fmaRowNEON is a later tap of convolve.
//
//go:noescape
func fmaRowNEON(dst, x, y []float32)

// siluRowNEON is the last step of convolve.
//
//go:noescape
func siluRowNEON(dst []float32)

// swigluNEON is swiglu.
//
//go:noescape
func swigluNEON(dst, x, y []float32)

// gateSigmoidNEON is gateSigmoid.
//
//go:noescape
func gateSigmoidNEON(dst, x []float32, divisor float32)

// sigmoidsNEON is sigmoids.
//
//go:noescape
func sigmoidsNEON(dst, x []float32)

// decaysNEON is decays.
//
//go:noescape
func decaysNEON(dst, x []float32, rate, bias float32)

// mergeRowNEON is the sums of merge.
//
//go:noescape
func mergeRowNEON(dst, x []float32, more, old float32)

// topNEON is the highest number of softmax.
//
//go:noescape
func topNEON(x []float32) (top float32)

// expSumNEON is softmax with the highest number known.
//
//go:noescape
func expSumNEON(x []float32, top float32) (sum float32)

// rotateNEON is rotate.
//
//go:noescape
func rotateNEON(x, cos, sin []float32)

// narrowNEON is narrow.
//
//go:noescape
func narrowNEON(dst []uint16, x []float32)

// scoreRow32NEON is scores32 for one query.
//
//go:noescape
func scoreRow32NEON(dst, q *float32, keys *float32, d, count int, scale float32)

// scoreRow16NEON is scores16 for one query.
//
//go:noescape
func scoreRow16NEON(dst, q *float32, keys *uint16, d, count int, scale float32)

// weighRow32NEON is weigh32 for one query.
//
//go:noescape
func weighRow32NEON(dst, p *float32, values *float32, d, count int)

// weighRow16NEON is weigh16 for one query.
//
//go:noescape
func weighRow16NEON(dst, p *float32, values *uint16, d, count int)

// deltaReadNEON is deltaRead.
//
//go:noescape
func deltaReadNEON(out, delta, state []float32, stride, ahead int, q, k, v []float32, decay, beta, kq float32)

// deltaUpdateNEON is deltaUpdate.
//
//go:noescape
func deltaUpdateNEON(dst []float32, dstStride int, src []float32, srcStride, ahead int, k, delta []float32, decay float32)

// deltaStepsNEON is deltaSteps.
//
//go:noescape
func deltaStepsNEON(out []float32, outStride int, delta, state, mixed []float32, stride, keys, values int, decay, beta, kq []float32)

// turnNEON is turn.
//
//go:noescape
func turnNEON(dst, src, scales []float32, places []uint8, turns []float32, rounds int)
