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
