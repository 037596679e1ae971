//go:build !noasm

package kernel

//go:generate go run -C _gen ./vector

// vectorAVX512 needs AVX-512 F, BW, DQ and VL, and BMI2.
var vectorAVX512 = Vector{
	Dot: dotAVX512, Add: addAVX512, AddScaled: addScaledAVX512,
	Norm: normAVX512, WideNorm: wideNormAVX512, LayerNorm: layerNormAVX512,
	SwiGLU: swigluAVX512, GELU: geluAVX512, GELUTanh: geluTanhAVX512, GateSigmoid: gateSigmoidAVX512,
	Sigmoids: sigmoidsAVX512, Decays: decaysAVX512, Rotate: rotateAVX512, Softmax: softmaxAVX512, Turn: turnAVX512, TurnRows: &TurnRows{16, turnRowsAVX512},
	Narrow: narrowAVX512,
	Page: Page{
		Scores32: scores32AVX512, Scores16: scores16AVX512, Weigh32: weigh32AVX512, Weigh16: weigh16AVX512, Merge: mergeAVX512,
	},
	Coded:  Coded{Scores: codedScoresAVX512, Softmax: codedSoftmaxAVX512, Weigh: codedWeighAVX512, Merge: codedMergeAVX512, UnpackKeys: unpackKeysAVX512, UnpackValues: unpackValuesAVX512},
	Prompt: promptAVX512,
	Mix:    Mix{Product: mixProductAVX512, Weights: mixWeightsAVX512, Divide: mixDivideAVX512},
	Delta: Delta{
		Convolve: convolveAVX512, Keys: keysAVX512, GatedNorm: gatedNormAVX512,
		Read: deltaReadAVX512, Update: deltaUpdateAVX512, Steps: deltaStepsAVX512,
	},
}

// vectorAVX2 needs AVX2, FMA, F16C and BMI2.
var vectorAVX2 = Vector{
	Dot: dotAVX2, Add: addAVX2, AddScaled: addScaledAVX2,
	Norm: normAVX2, WideNorm: wideNormAVX2, LayerNorm: layerNormAVX2,
	SwiGLU: swigluAVX2, GELU: geluAVX2, GELUTanh: geluTanhAVX2, GateSigmoid: gateSigmoidAVX2,
	Sigmoids: sigmoidsAVX2, Decays: decaysAVX2, Rotate: rotateAVX2, Softmax: softmaxAVX2, Turn: turnAVX2, TurnRows: &TurnRows{8, turnRowsAVX2},
	Narrow: narrowAVX2,
	Page: Page{
		Scores32: scores32AVX2, Scores16: scores16AVX2, Weigh32: weigh32AVX2, Weigh16: weigh16AVX2, Merge: mergeAVX2,
	},
	Coded:  Coded{Scores: codedScoresAVX2, Softmax: codedSoftmaxAVX2, Weigh: codedWeighAVX2, Merge: codedMergeAVX2, UnpackKeys: unpackKeysAVX2, UnpackValues: unpackValuesAVX2},
	Prompt: promptAVX2,
	Mix:    Mix{Product: mixProductAVX2, Weights: mixWeightsAVX2, Divide: mixDivideAVX2},
	Delta: Delta{
		Convolve: convolveAVX2, Keys: keysAVX2, GatedNorm: gatedNormAVX2,
		Read: deltaReadAVX2, Update: deltaUpdateAVX2, Steps: deltaStepsAVX2,
	},
}

// dotAVX512 is exactmath.Dot32.
//
//go:noescape
func dotAVX512(x, y []float32) (sum float32)

// addAVX512 is add.
//
//go:noescape
func addAVX512(dst, x []float32)

// addScaledAVX512 is addScaled.
//
//go:noescape
func addScaledAVX512(dst, x []float32, w float32)

// normAVX512 is rmsNorm.
//
//go:noescape
func normAVX512(dst, x, gain []float32, eps float32)

// wideNormAVX512 is wideNorm.
//
//go:noescape
func wideNormAVX512(dst, x, gain []float32, eps float32)

// swigluAVX512 is swiglu.
//
//go:noescape
func swigluAVX512(dst, gate, up []float32)

// gateSigmoidAVX512 is gateSigmoid.
//
//go:noescape
func gateSigmoidAVX512(dst, x []float32, divisor float32)

// sigmoidsAVX512 is sigmoids.
//
//go:noescape
func sigmoidsAVX512(dst, x []float32)

// decaysAVX512 is decays.
//
//go:noescape
func decaysAVX512(dst, x []float32, rate, bias float32)

// rotateAVX512 is rotate.
//
//go:noescape
func rotateAVX512(x, cos, sin []float32)

// softmaxAVX512 is softmax.
//
//go:noescape
func softmaxAVX512(x []float32) (top, sum float32)

// narrowAVX512 is narrow.
//
//go:noescape
func narrowAVX512(dst []uint16, x []float32)

// scores32AVX512 is scores32.
//
//go:noescape
func scores32AVX512(dst, q, keys, next []float32, d, count int, scale float32)

// scores16AVX512 is scores16.
//
//go:noescape
func scores16AVX512(dst, q []float32, keys, next []uint16, d, count int, scale float32)

// weigh32AVX512 is weigh32.
//
//go:noescape
func weigh32AVX512(dst, p, values, next []float32, d, count int)

// weigh16AVX512 is weigh16.
//
//go:noescape
func weigh16AVX512(dst, p []float32, values, next []uint16, d, count int)

// mergeAVX512 is merge.
//
//go:noescape
func mergeAVX512(out, page []float32, all, now *SoftmaxSum)

// convolveAVX512 is convolve.
//
//go:noescape
func convolveAVX512(dst []float32, stride, columns, rows int, taps []Tap, step int)

// keysAVX512 is keys.
//
//go:noescape
func keysAVX512(mixed []float32, stride, keys int, scale float32, kq []float32)

// gatedNormAVX512 is gatedNorm.
//
//go:noescape
func gatedNormAVX512(dst []float32, stride, rows int, z []float32, step int, gain []float32, eps float32)

// deltaReadAVX512 is deltaRead.
//
//go:noescape
func deltaReadAVX512(out, delta, state []float32, stride, ahead int, q, k, v []float32, decay, beta, kq float32)

// deltaUpdateAVX512 is deltaUpdate.
//
//go:noescape
func deltaUpdateAVX512(dst []float32, dstStride int, src []float32, srcStride, ahead int, k, delta []float32, decay float32)

// deltaStepsAVX512 is deltaSteps.
//
//go:noescape
func deltaStepsAVX512(out []float32, outStride int, delta, state, mixed []float32, stride, keys, values int, decay, beta, kq []float32)

// dotAVX2 is exactmath.Dot32.
//
//go:noescape
func dotAVX2(x, y []float32) (sum float32)

// addAVX2 is add.
//
//go:noescape
func addAVX2(dst, x []float32)

// addScaledAVX2 is addScaled.
//
//go:noescape
func addScaledAVX2(dst, x []float32, w float32)

// normAVX2 is rmsNorm.
//
//go:noescape
func normAVX2(dst, x, gain []float32, eps float32)

// wideNormAVX2 is wideNorm.
//
//go:noescape
func wideNormAVX2(dst, x, gain []float32, eps float32)

// swigluAVX2 is swiglu.
//
//go:noescape
func swigluAVX2(dst, gate, up []float32)

// gateSigmoidAVX2 is gateSigmoid.
//
//go:noescape
func gateSigmoidAVX2(dst, x []float32, divisor float32)

// sigmoidsAVX2 is sigmoids.
//
//go:noescape
func sigmoidsAVX2(dst, x []float32)

// decaysAVX2 is decays.
//
//go:noescape
func decaysAVX2(dst, x []float32, rate, bias float32)

// rotateAVX2 is rotate.
//
//go:noescape
func rotateAVX2(x, cos, sin []float32)

// softmaxAVX2 is softmax.
//
//go:noescape
func softmaxAVX2(x []float32) (top, sum float32)

// narrowAVX2 is narrow.
//
//go:noescape
func narrowAVX2(dst []uint16, x []float32)

// scores32AVX2 is scores32.
//
//go:noescape
func scores32AVX2(dst, q, keys, next []float32, d, count int, scale float32)

// scores16AVX2 is scores16.
//
//go:noescape
func scores16AVX2(dst, q []float32, keys, next []uint16, d, count int, scale float32)

// weigh32AVX2 is weigh32.
//
//go:noescape
func weigh32AVX2(dst, p, values, next []float32, d, count int)

// weigh16AVX2 is weigh16.
//
//go:noescape
func weigh16AVX2(dst, p []float32, values, next []uint16, d, count int)

// mergeAVX2 is merge.
//
//go:noescape
func mergeAVX2(out, page []float32, all, now *SoftmaxSum)

// convolveAVX2 is convolve.
//
//go:noescape
func convolveAVX2(dst []float32, stride, columns, rows int, taps []Tap, step int)

// keysAVX2 is keys.
//
//go:noescape
func keysAVX2(mixed []float32, stride, keys int, scale float32, kq []float32)

// gatedNormAVX2 is gatedNorm.
//
//go:noescape
func gatedNormAVX2(dst []float32, stride, rows int, z []float32, step int, gain []float32, eps float32)

// deltaReadAVX2 is deltaRead.
//
//go:noescape
func deltaReadAVX2(out, delta, state []float32, stride, ahead int, q, k, v []float32, decay, beta, kq float32)

// deltaUpdateAVX2 is deltaUpdate.
//
//go:noescape
func deltaUpdateAVX2(dst []float32, dstStride int, src []float32, srcStride, ahead int, k, delta []float32, decay float32)

// deltaStepsAVX2 is deltaSteps.
//
//go:noescape
func deltaStepsAVX2(out []float32, outStride int, delta, state, mixed []float32, stride, keys, values int, decay, beta, kq []float32)

// turnAVX512 is turn.
//
//go:noescape
func turnAVX512(dst, src, scales []float32, places []uint8, turns []float32, rounds int)

// turnAVX2 is turn.
//
//go:noescape
func turnAVX2(dst, src, scales []float32, places []uint8, turns []float32, rounds int)

// turnRowsAVX512 is turn of several rows.
//
//go:noescape
func turnRowsAVX512(dst []float32, dstStride int, src []float32, stride int, scales []float32, places []uint8, turns []float32, rounds int, buffer []float32)

// turnRowsAVX2 is turn of several rows.
//
//go:noescape
func turnRowsAVX2(dst []float32, dstStride int, src []float32, stride int, scales []float32, places []uint8, turns []float32, rounds int, buffer []float32)
