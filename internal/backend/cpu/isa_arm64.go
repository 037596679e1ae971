//go:build !noasm

package cpu

import "golang.org/x/sys/cpu"

// isas lists the instruction sets of this architecture, the best first.
func isas() []isa {
	return []isa{i8mm(), dotprod(), neon(), generic}
}

// neon has vectors of 16 bytes, as every arm64 processor does.
func neon() isa {
	return isa{
		name: "neon",
		product: productKernels{
			strips:   stripsNEON,
			quantize: quantizeNEON,
			integer:  integerTilesNEON,
			float:    floatNEON,
		},
		vector: vectorNEON,
	}
}

// dotprod is neon with dot products of signed bytes.
func dotprod() isa {
	set := neon()
	set.name = "dotprod"
	set.product.integer = integerTilesDot
	if !cpu.ARM64.HasASIMDDP {
		set.missing = "this processor lacks the dot product extension"
	}
	return set
}

// i8mm is dotprod with dot products of unsigned and signed bytes.
func i8mm() isa {
	set := dotprod()
	set.name = "i8mm"
	set.product.integer = integerTilesI8MM
	if !cpu.ARM64.HasASIMDDP || !cpu.ARM64.HasI8MM {
		set.missing = "this processor lacks the 8-bit matrix extension"
	}
	return set
}
