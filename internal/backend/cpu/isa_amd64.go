//go:build !noasm

package cpu

import "golang.org/x/sys/cpu"

// isas lists the instruction sets of this architecture, the best first.
func isas() []isa {
	return []isa{amx(), avx512(), avx2(), generic}
}

// amx is avx512 with tiles of bytes for many rows.
func amx() isa {
	i := avx512()
	i.name = "amx"
	if i.missing == "" {
		i.missing = absent("AMX", cpu.X86.HasAMXTile && cpu.X86.HasAMXInt8)
	}
	if i.missing == "" {
		i.missing = allowAMX()
	}
	i.product.strips = stripsAMX
	i.product.integer = integerTilesAMX
	return i
}

// avx512 has vectors of 64 bytes and dot products of bytes.
func avx512() isa {
	x := &cpu.X86
	return isa{
		name: "avx512",
		missing: absent("AVX-512 F, BW, DQ, VL, VNNI", x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ &&
			x.HasAVX512VL && x.HasAVX512VNNI),
		product: productKernels{
			strips:   stripsAVX512,
			quantize: quantizeRowAVX512,
			integer:  integerTilesAVX512,
			scatter:  scatterAVX2,
			float:    floatAVX512,
		},
		vector: vectorAVX512,
	}
}

// avx2 has vectors of 32 bytes and fused multiply-add.
func avx2() isa {
	x := &cpu.X86
	return isa{
		name:    "avx2",
		missing: absent("AVX2, FMA, F16C", x.HasAVX2 && x.HasFMA && x.HasF16C),
		product: productKernels{
			strips:   stripsAVX2,
			quantize: quantizeRowAVX2,
			integer:  integerTilesAVX2,
			scatter:  scatterAVX2,
			float:    floatAVX2,
		},
		vector: vectorAVX2,
	}
}

// absent says that a processor lacks features, unless it has them.
func absent(features string, has bool) string {
	if has {
		return ""
	}
	return "this processor lacks " + features
}
