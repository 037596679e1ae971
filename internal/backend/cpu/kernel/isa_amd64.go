//go:build !noasm

package kernel

import "golang.org/x/sys/cpu"

// Sets lists the instruction sets of this architecture, the best first.
func Sets() []Set {
	return []Set{amx(), avx512(), avxvnni(), avx2(), Generic}
}

// amx is avx512 with tiles of bytes for many rows.
func amx() Set {
	i := avx512()
	i.Name = "amx"
	if i.Missing == "" {
		i.Missing = absent("AMX", cpu.X86.HasAMXTile && cpu.X86.HasAMXInt8)
	}
	if i.Missing == "" {
		i.Missing = allowAMX()
	}
	i.strips = stripsAMX
	i.Integer = integerTilesAMX
	c := &i.Vector.Coded
	c.Scores, c.Weigh, c.WeighMerge = scoresAMX, codedWeighAMX, weighMergeAMX
	return i
}

// avx512 has vectors of 64 bytes and dot products of bytes.
func avx512() Set {
	x := &cpu.X86
	return Set{
		Name: "avx512",
		Missing: absent("AVX-512 F, BW, DQ, VL, VNNI", x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ &&
			x.HasAVX512VL && x.HasAVX512VNNI),
		Vector:    vectorAVX512,
		Integer:   integerTilesAVX512,
		Float:     floatAVX512,
		strips:    stripsAVX512,
		expanders: best512,
		quantize:  quantizeRowAVX512,
		scatter:   scatterAVX2,
	}
}

// avxvnni is avx2 with dot products of bytes.
func avxvnni() Set {
	i := avx2()
	i.Name = "avxvnni"
	if i.Missing == "" {
		i.Missing = absent("AVX-VNNI", hasVNNI())
	}
	i.Integer = integerTilesVNNI
	i.Vector.Coded.Scores, i.Vector.Coded.Weigh = codedScoresVNNI, codedWeighVNNI
	return i
}

// avx2 has vectors of 32 bytes and fused multiply-add.
func avx2() Set {
	x := &cpu.X86
	return Set{
		Name:      "avx2",
		Missing:   absent("AVX2, FMA, F16C", x.HasAVX2 && x.HasFMA && x.HasF16C),
		Vector:    vectorAVX2,
		Integer:   integerTilesAVX2,
		Float:     floatAVX2,
		strips:    stripsPanel,
		expanders: expandersAVX2,
		quantize:  quantizeRowAVX2,
		scatter:   scatterAVX2,
	}
}

// absent reports missing features of a processor, or "".
func absent(features string, has bool) string {
	if has {
		return ""
	}
	return "this processor lacks " + features
}
