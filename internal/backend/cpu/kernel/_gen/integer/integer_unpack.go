package main

// unpackKernel unpacks a format, the way of AVX-512. It is all that a format needs for AMX.
type unpackKernel struct {
	*avx512Kernel
	form amxForm // signed: of codes with a middle, or with zero points, which become zero
}

// unpackSteps is how many steps of 16 columns are written one after another. Groups have 1, 2, 4 or 8 of them.
const unpackSteps = 4

func (k unpackKernel) write() {
	k.line("\nTEXT integerUnpack%s%s<>(SB), NOSPLIT, $0-0", k.name, k.form)
	k.op("MOVQ CX, R13")
	if k.levels {
		k.constants("integerLevels")
	} else {
		k.constants("integerSigned")
	}
	if k.form == amxSigned {
		k.zeros()
	}
	k.ops("MOVQ R13, CX", "MOVQ R8, SI", "MOVQ R9, R14")
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
			if k.form == amxSigned {
				k.op("VPSUBB Z29, %[1]s, %[1]s", w)
			}
			k.op("VMOVDQU32 %s, %d(R14)", w, 256*i+64*v)
		})
	}
	k.skip = 0
	if !k.fp4 { // which has no more
		k.op("CMPQ integerArgs_steps(AX), $%d", unpackSteps)
		k.ops("JEQ unpacked", "CMPQ R14, R9", "JNE unpacked")
		k.op("ADDQ $%d, R14", 256*unpackSteps)
		k.op("ADDQ $%d, SI", unpackSteps*step16(k.low()))
		if k.high() > 0 {
			k.op("ADDQ $%d, DI", unpackSteps*step16(k.high()))
		}
		k.op("JMP steps")
	}
	k.line("unpacked:")
	k.arg("scalesAt", "R14")
	k.ops("ADDQ R9, R14", "ADDQ integerArgs_slot(AX), R9")
	k.aside = nil
	if k.form != amxBiased {
		k.arg("codes", "R13")
		k.op("ADDQ R8, R13")
		k.signedScales()
		if k.form == amxPoints {
			k.arg("zeros", "R13")
			k.ops("VPMOVZXBD (R8)(R13*1), Z24", "VMOVDQU32 Z24, 64(R14)")
		}
	} else {
		k.loadScales(0, 1, func() {
			k.op("VMOVUPS Z24, (R14)")
			if !k.fp4 {
				k.op("VMOVUPS Z25, 64(R14)")
			}
		}, nil, nil, nil)
	}
	k.ops("ADDQ integerArgs_block(AX), R8", "RET")
	if k.stores() {
		k.points()
	}
	for _, rest := range k.aside {
		rest()
	}
}

// stores reports whether zero points may be stored: codes of 8 bits less them are no bytes, and have the third form.
func (k unpackKernel) stores() bool { return k.form == amxSigned && k.bits < 8 }

// zeros brings what is subtracted from codes into Z29.
func (k unpackKernel) zeros() {
	if k.stores() {
		k.ops("TESTQ $const_scalePoints, integerArgs_scale(AX)", "JNZ points")
	}
	k.op("MOVL $0x%08x, CX", 0x01010101<<(k.bits-1))
	k.op("VPBROADCASTD CX, Z29")
	k.line("zeroed:")
}

// points is the part of zeros for zero points that are stored: four bytes each.
func (k unpackKernel) points() {
	k.line("points:")
	k.arg("zeros", "CX")
	k.ops("VPMOVZXBD (R8)(CX*1), Z29", "VBROADCASTI32X4 integerEach<>(SB), Z28", "VPSHUFB Z28, Z29, Z29", "JMP zeroed")
}

// signedScales writes the scales at R13 to the slot, of which R14 is the place.
func (k unpackKernel) signedScales() {
	k.ops("TESTQ $const_scaleF16, integerArgs_scale(AX)", "JZ other")
	k.loadF16("(R13)", "Z24")
	k.line("scaled:")
	k.op("VMOVUPS Z24, (R14)")
	k.aside = append(k.aside, func() {
		k.line("other:")
		k.ops("TESTQ $const_scaleF32, integerArgs_scale(AX)", "JNZ full")
		k.loadBF16("(R13)", "Z24")
		k.op("JMP scaled")
		k.line("full:")
		k.loadF32("(R13)", "Z24")
		k.op("JMP scaled")
	})
}
