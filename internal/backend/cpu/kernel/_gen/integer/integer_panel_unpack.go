package main

// unpackPanel writes what unpacks a panel.
//
//	AX  arguments    R8  block    R9  group of the panel    R12 groups left    SI, DI  planes of the block
//	CX  steps left   BX  codes    R13 scales                R14 bytes of a plane
type unpackPanel struct{ avx2Kernel }

func (k *unpackPanel) write() {
	planes := k.split()
	if k.vnni && k.bits != 8 && !k.levels {
		return // as AVX2
	}
	k.kernel("integerUnpack%s%s", 0, setName(k.vnni), k.name)
	k.op("MOVQ a+0(FP), AX")
	k.arg("weights", "R8")
	k.arg("slots", "R9")
	k.arg("groups", "R12")
	k.line("group:")
	k.codesOut(planes)
	k.scalesOut()
	k.line("scalesOut:")
	k.ops("LEAQ 128(BX), R9", "ADDQ integerArgs_block(AX), R8", "DECQ R12", "JNZ group", "VZEROUPPER", "RET")
	k.line("")
}

// split is how many planes codes of 8 bits are split into, or 1.
func (k *avx2Kernel) split() int {
	if !k.vnni && (k.bits == 8 || k.levels) {
		return 2
	}
	return 1
}

// codesOut unpacks the codes of a group.
func (k *unpackPanel) codesOut(planes int) {
	k.op("MOVQ R8, SI")
	if k.high() > 0 {
		k.arg("plane", "DI")
		k.op("ADDQ R8, DI")
	}
	k.op("MOVQ R9, BX")
	k.arg("steps", "CX")
	if planes == 2 {
		k.ops("MOVQ CX, R14", "SHLQ $8, R14")
	}
	k.line("step:")
	for v := 0; v < 4; v += 2 {
		for k.half = range 2 {
			k.unpack(v)
			for i := range 2 {
				at := 64*(v+i) + 32*k.half
				if planes == 2 {
					k.op("VPSRLW $4, Y%d, Y14", 12+i)
					k.op("VPAND integerLow4<>(SB), Y%[1]d, Y%[1]d", 12+i)
					k.op("VPAND integerLow4<>(SB), Y14, Y14")
					k.op("VMOVDQU Y14, %d(BX)(R14*1)", at)
				}
				k.op("VMOVDQU Y%d, %d(BX)", 12+i, at)
			}
		}
	}
	k.op("ADDQ $%d, SI", step16(k.low()))
	if k.high() > 0 {
		k.op("ADDQ $%d, DI", step16(k.high()))
	}
	k.ops("ADDQ $256, BX", "DECQ CX", "JNZ step")
	if planes == 2 {
		k.op("ADDQ R14, BX")
	}
}

// scalesOut writes the scales of a group, which R8 points to, to BX.
func (k *unpackPanel) scalesOut() {
	k.ops("MOVQ R8, R13", "ADDQ integerArgs_codes(AX), R13", "TESTQ $const_scaleF32, integerArgs_scale(AX)", "JNZ fullOut")
	k.ops("TESTQ $const_scaleF16, integerArgs_scale(AX)", "JNZ shortOut")
	k.typed(32, k.loadBF16)
	k.line("shortOut:")
	k.typed(32, k.loadF16)
	k.line("fullOut:")
	k.typed(64, k.loadF32)
	if !k.fp4 {
		k.line("pointsOut:")
		for h := range 2 {
			k.op("VPMOVZXBD %d(R13), Y12", 8*h)
			k.op("VMOVDQU Y12, %d(BX)", 64+32*h)
		}
	}
}

// typed is scalesOut for one type of scales, of which a tile has size bytes.
func (k *unpackPanel) typed(size int, load func(at int, y string)) {
	put := func(at, from int) {
		for h := range 2 {
			load(from+size/2*h, "Y12")
			k.op("VMOVUPS Y12, %d(BX)", at+32*h)
		}
	}
	put(0, 0)
	if !k.fp4 {
		k.op("ADDQ $%d, R13", size)
		k.ops("TESTQ $const_scalePoints, integerArgs_scale(AX)", "JNZ pointsOut")
		k.ops("TESTQ $const_scaleZero, integerArgs_scale(AX)", "JNZ scalesOut")
		put(64, 0)
	}
	k.op("JMP scalesOut")
}
