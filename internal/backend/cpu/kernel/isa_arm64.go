//go:build !noasm

package kernel

import "golang.org/x/sys/cpu"

// Sets lists the instruction sets of this architecture, the best first.
func Sets() []Set {
	return []Set{i8mm(), dotprod(), neon(), Generic}
}

// neon has vectors of 16 bytes, as every arm64 processor does.
func neon() Set {
	return Set{
		Name:      "neon",
		Vector:    vectorNEON,
		Integer:   integerTilesNEON,
		Float:     floatNEON,
		strips:    stripsNEON,
		expanders: expandersNEON,
		quantize:  quantizeNEON,
	}
}

// dotprod is neon with dot products of signed bytes.
func dotprod() Set {
	set := neon()
	set.Name = "dotprod"
	set.Integer = integerTilesDot
	set.Vector.Coded.Scores, set.Vector.Coded.Weigh = codedScoresDot, codedWeighDot
	if !cpu.ARM64.HasASIMDDP {
		set.Missing = "this processor lacks the dot product extension"
	}
	return set
}

// i8mm is dotprod with dot products of unsigned and signed bytes.
func i8mm() Set {
	set := dotprod()
	set.Name = "i8mm"
	set.Integer = integerTilesI8MM
	if !cpu.ARM64.HasASIMDDP || !hasI8MM() {
		set.Missing = "this processor lacks the 8-bit matrix extension"
	}
	return set
}
