//go:build !noasm

package kernel

// floatAVX512 is Set.Float; the twin is floatTiles. It needs AVX-512 F, BW, DQ
// and VL.
func floatAVX512(out []float32, w *Weight, n, from, to int, x Rows, s *Scratch) {
	avx512Floats.run(out, w, n, from, to, x, s)
}

// floatAVX2 is Set.Float; the twin is floatTiles. It needs AVX2, FMA and F16C.
func floatAVX2(out []float32, w *Weight, n, from, to int, x Rows, s *Scratch) {
	avx2Floats.run(out, w, n, from, to, x, s)
}

var avx512Floats = floatKernels{
	product: [3][2]func(*floatArgs){
		{floatBF16x1AVX512, floatBF16x2AVX512},
		{floatF16x1AVX512, floatF16x2AVX512},
		{floatF32x1AVX512, floatF32x2AVX512},
	},
	rows:      6,
	expanders: best512,
	decode: [decoders]func(*decodeArgs){
		decodeFP4: decodeFP4AVX512, decodeE4M3: decodeE4M3AVX512,
		2: decodeAffine2AVX512, 3: decodeAffine3AVX512, 4: decodeAffine4AVX512,
		5: decodeAffine5AVX512, 6: decodeAffine6AVX512, 8: decodeAffine8AVX512, decodeLevels: decodeLevelsAVX512,
	},
	factors: [Factors2K + 1]func(*integerArgs){FactorsK: factorsKAVX512, Factors6K: factors6KAVX512, FactorsXS: factorsXSAVX512, Factors2K: factors2KAVX512},
}

var avx2Floats = floatKernels{
	product:   [3][2]func(*floatArgs){{floatBF16AVX2}, {floatF16AVX2}, {floatF32AVX2}},
	rows:      3,
	expanders: expandersAVX2,
	decode: [decoders]func(*decodeArgs){
		decodeFP4: decodeFP4AVX2, decodeE4M3: decodeE4M3AVX2,
		2: decodeAffine2AVX2, 3: decodeAffine3AVX2, 4: decodeAffine4AVX2,
		5: decodeAffine5AVX2, 6: decodeAffine6AVX2, 8: decodeAffine8AVX2, decodeLevels: decodeLevelsAVX2,
	},
	factors: [Factors2K + 1]func(*integerArgs){FactorsK: factorsKAVX2, Factors6K: factors6KAVX2, FactorsXS: factorsXSAVX2, Factors2K: factors2KAVX2},
}

// The twin of the products is floatTile, that of the decoders Weight.floats.
