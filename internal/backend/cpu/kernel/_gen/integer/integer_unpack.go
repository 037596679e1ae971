package main

// unpackKernel unpacks a format, the way of AVX-512. It is all that a format needs for AMX.
type unpackKernel struct {
	*avx512Kernel
	signed bool // of codes with a middle: it becomes zero
}

func (k unpackKernel) write() {
	name := k.name
	if k.signed {
		name += "Signed"
	}
	k.line("\nTEXT integerUnpack%s<>(SB), NOSPLIT, $0-0", name)
	k.op("MOVQ CX, R13")
	if k.levels {
		k.constants("integerLevels")
	} else {
		k.constants("integerSigned")
	}
	if k.signed {
		k.op("MOVL $0x%08x, CX", 0x01010101*(256-1<<(k.bits-1)))
		k.op("VPBROADCASTD CX, Z29")
	}
	k.op("MOVQ R13, CX")
	k.op("MOVQ R8, SI")
	if k.high() > 0 {
		k.arg("plane", "DI")
		k.op("ADDQ R8, DI")
	}
	k.arg("steps", "R14")
	k.line("step:")
	k.vectors(0, func(v int, w string) {
		if k.signed {
			k.op("VPADDB Z29, %[1]s, %[1]s", w)
		}
		k.op("VMOVDQU32 %s, %d(R9)", w, 64*v)
	})
	k.op("ADDQ $%d, SI", step16(k.low()))
	if k.high() > 0 {
		k.op("ADDQ $%d, DI", step16(k.high()))
	}
	k.op("ADDQ $256, R9")
	k.op("DECQ R14")
	k.op("JNZ step")
	k.aside = nil
	if k.signed {
		k.arg("codes", "R13")
		k.op("VCVTPH2PS (R8)(R13*1), Z24")
		k.op("VMOVUPS Z24, (R9)")
	} else {
		k.loadScales(0, 1, func() {
			k.op("VMOVUPS Z24, (R9)")
			if !k.fp4 {
				k.op("VMOVUPS Z25, 64(R9)")
			}
		}, func() {})
	}
	k.op("ADDQ $128, R9")
	k.op("ADDQ integerArgs_block(AX), R8")
	k.op("RET")
	for _, rest := range k.aside {
		rest()
	}
}
