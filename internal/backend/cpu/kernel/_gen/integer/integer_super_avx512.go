package main

// What the kernels of AVX-512 do otherwise for superblocks. The sums of a group are integers that are
// multiplied by the group's factor, an integer too, and added to those of the superblock. At its end
// they are scaled, and added to the float32 sums.

// openSuper finds out whether there are superblocks.
func (k *avx512Kernel) openSuper() {
	k.op("XORL R15, R15")
	k.op("CMPQ integerArgs_scale(AX), $const_scaleFactors")
	k.op("JEQ super")
	k.aside = append(k.aside, func() {
		k.line("super:")
		k.op("KXORW K2, K2, K2")
		k.line("decode:")
		k.op("MOVL $%d, CX", k.streams)
		k.op("CALL integerFactors%sAVX512<>(SB)", k.factors())
		k.arg("per", "R15")
		k.arg("decoded", "R14")
		k.op("JMP group")
	})
}

// addFactored adds a group's sums, of tiles [from, to), to those of the superblock.
func (k *avx512Kernel) addFactored(from, to int) {
	k.line("factors%d:", from)
	for h := from; h < to; h++ {
		k.op("VMOVDQU32 %d(R14), Z%d", factorTile*h, 24+h)
	}
	for m := range k.m {
		for h := from; h < to; h++ {
			k.op("VPMULLD Z%d, %[2]s, %[2]s", 24+h, k.int(h, m))
			k.op("VPADDD %[1]s, %[2]s, %[2]s", k.int(h, m), k.float(h, m))
		}
	}
	if to < k.streams {
		k.op("JMP added%d", from)
		return
	}
	k.op("ADDQ $64, R14")
	k.op("MOVQ BX, DX")
	k.op("ADDQ integerArgs_block(AX), R8")
	k.op("DECQ R15")
	k.op("JNZ group")
	k.endSuper()
}

// endSuper adds the sums of a superblock to the float32 sums. DX is at the scales of the activations,
// and R8 at the tail.
func (k *avx512Kernel) endSuper() {
	if k.inTurn {
		for h := range k.streams {
			k.sums(h, h+1)
			k.addSuper(h)
		}
	} else {
		k.sums(0, k.streams)
		for h := range k.streams {
			k.addSuper(h)
		}
	}
	k.line("next:")
	k.op("MOVQ BX, DX")
	k.op("ADDQ integerArgs_tail(AX), R8")
	k.op("KXNORW K2, K2, K2")
	k.op("SUBQ integerArgs_per(AX), R12")
	k.op("JNZ decode")
	k.op("TESTQ R11, R11")
	k.op("JZ end")
	k.secondOut()
	k.op("JMP stored")
}

// sums multiplies the sums of the activations' codes by pairs of factors: those of the biases, or those
// of the scales times what codes are raised by.
func (k *avx512Kernel) sums(from, to int) {
	if k.factors() == "K" {
		for h := from; h < to; h++ {
			for m := range k.m {
				k.op("VPXORD %[1]s, %[1]s, %[1]s", k.int(h, m))
			}
		}
	}
	k.op("LEAQ %d(DX), BX", 4*k.m)
	k.arg("decoded", "R14")
	k.arg("per", "CX")
	k.line("pairs%d:", from)
	for h := from; h < to; h++ {
		k.op("VMOVDQU32 %d(R14), Z%d", k.pairsAt()+factorTile*h, 24+h)
	}
	for m := range k.m {
		for h := from; h < to; h++ {
			sum := k.float(h, m)
			if k.factors() == "K" {
				sum = k.int(h, m)
			}
			k.op("VPDPWSSD.BCST %d(BX), Z%d, %s", 4*m, 24+h, sum)
		}
	}
	k.op("ADDQ $%d, BX", 4*k.m)
	k.op("ADDQ $64, R14")
	k.op("SUBQ $2, CX")
	k.op("JNZ pairs%d", from)
}

// addSuper scales the sums of tile h and adds them to the output. Of an odd tile there is no second.
func (k *avx512Kernel) addSuper(h int) {
	out := "R9"
	if h > 0 {
		out = "CX"
		k.op("TESTQ R11, R11")
		k.op("JZ next")
		k.arg("tiles", "CX")
		k.op("SHRQ $1, CX")
		k.op("IMULQ integerArgs_outTile(AX), CX")
		k.op("ADDQ R9, CX")
	}
	k.op("VCVTPH2PS %s, Z24", k.stream(h, 0, "R8"))
	if k.factors() == "K" {
		k.op("VCVTPH2PS %s, Z25", k.stream(h, 32, "R8"))
	}
	for m := range k.m {
		t, least := k.float(h, m), k.int(h, m)
		k.op("VMOVUPS.Z %d(%s), K2, Z26", 64*m, out)
		k.op("VCVTDQ2PS %s, %s", t, t)
		k.op("VMULPS Z24, %s, %s", t, t)
		if k.factors() == "K" {
			k.op("VCVTDQ2PS %s, %s", least, least)
			k.op("VFNMADD231PS Z25, %s, %s", least, t)
		}
		k.op("VFMADD231PS.BCST %d(DX), %s, Z26", 4*m, t)
		k.op("VPXORD %[1]s, %[1]s, %[1]s", t)
		k.op("VMOVUPS Z26, %d(%s)", 64*m, out)
	}
}
