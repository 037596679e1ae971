//go:build !noasm

package kernel

var promptAVX512 = Prompt{
	Rows32: promptRows32AVX512, Rows16: promptRows16AVX512, Values32: promptValues32AVX512, Values16: promptValues16AVX512,
	Scores: promptScoresAVX512, Softmax: promptSoftmaxAVX512, Factors: promptFactorsAVX512, Weigh: promptWeighAVX512,
}

var promptAVX2 = Prompt{
	Rows32: promptRows32AVX2, Rows16: promptRows16AVX2, Values32: promptValues32AVX2, Values16: promptValues16AVX2,
	Scores: promptScoresAVX2, Softmax: promptSoftmaxAVX2, Factors: promptFactorsAVX2, Weigh: promptWeighAVX2,
}

// promptRows32AVX512 is promptRows32.
//
//go:noescape
func promptRows32AVX512(dst, rows []float32, d int)

// promptRows16AVX512 is promptRows16.
//
//go:noescape
func promptRows16AVX512(dst []float32, rows []uint16, d int)

// promptValues32AVX512 is promptValues32.
//
//go:noescape
func promptValues32AVX512(dst, values []float32, d int)

// promptValues16AVX512 is promptValues16.
//
//go:noescape
func promptValues16AVX512(dst []float32, values []uint16, d int)

// promptScoresAVX512 is promptScores.
//
//go:noescape
func promptScoresAVX512(dst, q, keys, sums []float32, next []int8, d int, scale float32)

// promptSoftmaxAVX512 is promptSoftmax.
//
//go:noescape
func promptSoftmaxAVX512(scores, top, weight []float32)

// promptFactorsAVX512 is promptFactors.
//
//go:noescape
func promptFactorsAVX512(old, more, allTop, allWeight, nowTop, nowWeight []float32)

// promptWeighAVX512 is promptWeigh.
//
//go:noescape
func promptWeighAVX512(out []*float32, weights, values, old, more []float32, next []int8, column int)

// promptRows32AVX2 is promptRows32.
//
//go:noescape
func promptRows32AVX2(dst, rows []float32, d int)

// promptRows16AVX2 is promptRows16.
//
//go:noescape
func promptRows16AVX2(dst []float32, rows []uint16, d int)

// promptValues32AVX2 is promptValues32.
//
//go:noescape
func promptValues32AVX2(dst, values []float32, d int)

// promptValues16AVX2 is promptValues16.
//
//go:noescape
func promptValues16AVX2(dst []float32, values []uint16, d int)

// promptScoresAVX2 is promptScores.
//
//go:noescape
func promptScoresAVX2(dst, q, keys, sums []float32, next []int8, d int, scale float32)

// promptSoftmaxAVX2 is promptSoftmax.
//
//go:noescape
func promptSoftmaxAVX2(scores, top, weight []float32)

// promptFactorsAVX2 is promptFactors.
//
//go:noescape
func promptFactorsAVX2(old, more, allTop, allWeight, nowTop, nowWeight []float32)

// promptWeighAVX2 is promptWeigh.
//
//go:noescape
func promptWeighAVX2(out []*float32, weights, values, old, more []float32, next []int8, column int)
