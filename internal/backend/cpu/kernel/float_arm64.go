//go:build !noasm

package kernel

// floatNEON is Set.Float; the twin is floatTiles.
func floatNEON(out []float32, w *Weight, n, from, to int, x Rows, s *Scratch) {
	neonFloats.run(out, w, n, from, to, x, s)
}

var neonFloats = floatKernels{
	product:   [3][2]func(*floatArgs){{floatBF16NEON}, {floatF16NEON}, {floatF32NEON}},
	rows:      3,
	expanders: expandersNEON,
	decode: [decoders]func(*decodeArgs){
		decodeFP4: decodeFP4NEON, decodeE4M3: decodeE4M3NEON,
		2: decodeAffine2NEON, 3: decodeAffine3NEON, 4: decodeAffine4NEON,
		5: decodeAffine5NEON, 6: decodeAffine6NEON, 8: decodeAffine8NEON, decodeLevels: decodeLevelsNEON,
	},
	factors: [Factors2K + 1]func(*integerArgs){FactorsK: factorsKNEON, Factors6K: factors6KNEON, FactorsXS: factorsXSNEON, Factors2K: factors2KNEON},
}

// The twin of the products is floatTile, that of the decoders Weight.floats.
