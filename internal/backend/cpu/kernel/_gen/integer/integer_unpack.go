package main

// unpackKernel unpacks a format, the way of AVX-512. It is all that a format needs for AMX.
type unpackKernel struct {
	*avx512Kernel
	signed bool // of codes with a middle: it becomes zero
}

// unpackSteps is how many steps of 16 columns are written one after another. Groups have 1, 2, 4 or 8 of them.
const unpackSteps = 4

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
	k.op("MOVQ R9, R14")
	if k.high() > 0 {
		k.arg("plane", "DI")
		k.op("ADDQ R8, DI")
	}
	k.arg("askAcross", "R13")
	k.line("steps:")
	k.op("CMPQ integerArgs_steps(AX), $2")
	for i := range unpackSteps {
		switch i {
		case 1:
			k.op("JLT unpacked")
		case 2:
			k.op("JEQ unpacked")
		}
		k.skip = i
		k.vectors(0, func(v int, w string) {
			if k.signed {
				k.op("VPADDB Z29, %[1]s, %[1]s", w)
			}
			k.op("VMOVDQU32 %s, %d(R14)", w, 256*i+64*v)
		})
	}
	k.skip = 0
	if !k.signed && !k.fp4 { // which have no more
		k.op("CMPQ integerArgs_steps(AX), $%d", unpackSteps)
		k.op("JEQ unpacked")
		k.op("CMPQ R14, R9")
		k.op("JNE unpacked")
		k.op("ADDQ $%d, R14", 256*unpackSteps)
		k.op("ADDQ $%d, SI", unpackSteps*step16(k.low()))
		if k.high() > 0 {
			k.op("ADDQ $%d, DI", unpackSteps*step16(k.high()))
		}
		k.op("JMP steps")
	}
	k.line("unpacked:")
	k.arg("scalesAt", "R14")
	k.op("ADDQ R9, R14")
	k.op("ADDQ integerArgs_slot(AX), R9")
	k.aside = nil
	if k.signed {
		k.arg("codes", "R13")
		k.op("VCVTPH2PS (R8)(R13*1), Z24")
		k.op("VMOVUPS Z24, (R14)")
	} else {
		k.loadScales(0, 1, func() {
			k.op("VMOVUPS Z24, (R14)")
			if !k.fp4 {
				k.op("VMOVUPS Z25, 64(R14)")
			}
		}, func() {})
	}
	k.op("ADDQ integerArgs_block(AX), R8")
	k.op("RET")
	for _, rest := range k.aside {
		rest()
	}
}
