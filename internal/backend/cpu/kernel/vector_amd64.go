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
