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
