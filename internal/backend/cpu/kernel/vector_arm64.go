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

// layerNormNEON is layerNorm.
func layerNormNEON(dst, x, gain, bias []float32, eps float32) {
	centerRowNEON(dst, x, sumNEON(x)/float32(len(x)))
	scaleGainBiasNEON(dst, gain, bias, exactmath.RSqrt32(sumSquaresNEON(dst)/float32(len(x))+eps))
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
