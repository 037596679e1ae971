//go:build !noasm

package kernel

var promptNEON = Prompt{
	Rows32: promptRows32NEON, Rows16: promptRows16NEON, Values32: promptValues32, Values16: promptValues16NEON,
	Scores: promptScoresNEON, Softmax: promptSoftmaxNEON, Factors: promptFactorsNEON, Weigh: promptWeighNEON,
}

// promptSoftmaxNEON is promptSoftmax.
func promptSoftmaxNEON(scores, top, weight []float32) {
	for i := range len(scores) / PageTokens {
		top[i], weight[i] = softmaxNEON(scores[i*PageTokens:][:PageTokens])
	}
}

// promptRows32NEON is promptRows32.
//
//go:noescape
func promptRows32NEON(dst, rows []float32, d int)

// promptRows16NEON is promptRows16.
//
//go:noescape
func promptRows16NEON(dst []float32, rows []uint16, d int)

// promptValues16NEON is promptValues16.
//
//go:noescape
func promptValues16NEON(dst []float32, values []uint16, d int)

// promptScoresNEON is promptScores.
//
//go:noescape
func promptScoresNEON(dst, q, keys, sums []float32, next []int8, d int, scale float32)

// promptFactorsNEON is promptFactors.
//
//go:noescape
func promptFactorsNEON(old, more, allTop, allWeight, nowTop, nowWeight []float32)

// promptWeighNEON is promptWeigh.
//
//go:noescape
func promptWeighNEON(out []*float32, weights, values, old, more []float32, next []int8, column int)
