package main

// What the kernels of AVX2 do otherwise for superblocks: see those of AVX-512. Sums of products in 16
// bits are multiplied by the factor of the group where other formats multiply them by one.

// ones is what sums of products in 16 bits are multiplied by, for half h.
func (k *avx2Kernel) ones(h int) string {
	if k.factors() == "" {
		return "integerOnes<>(SB)"
	}
	return sprint("%d(R14)", k.factorAt(h))
}

// factorAt is where the factors for half h are among those of a group.
func (k *avx2Kernel) factorAt(h int) int { return factorTile*(h/2) + 32*(h%2) }

// openSuper finds out whether there are superblocks, and sets factors to one if there are none.
func (k *avx2Kernel) openSuper() {
	k.arg("decoded", "R14")
	k.op("XORL R15, R15")
	k.op("CMPQ integerArgs_scale(AX), $const_scaleFactors")
	k.op("JEQ super")
	k.op("VMOVDQU integerOnes<>(SB), Y15")
	for h := range 2 * k.streams {
		k.op("VMOVDQU Y15, %s", k.ones(h))
	}
	k.aside = append(k.aside, func() {
		k.line("super:")
		clear := func(register string) {
			for i := range 2 * k.m {
				k.op("VMOVUPS Y0, %d(%s)", 32*i, register)
			}
		}
		clear("R9")
		if k.streams == 2 {
			k.op("TESTQ R11, R11")
			k.op("JZ decode")
			k.op("MOVQ DX, BX")
			k.secondOut()
			k.op("MOVQ BX, DX")
			clear("CX")
		}
		k.line("decode:")
		k.op("MOVL $%d, CX", k.streams)
		k.op("CALL integerFactors%sAVX2<>(SB)", k.factors())
		k.arg("per", "R15")
		k.arg("decoded", "R14")
		k.op("JMP group")
	})
}

// addFactored adds a group's sums, of half h, to those of the superblock.
func (k *avx2Kernel) addFactored(h int) {
	k.line("factors%d:", h)
	for m := range k.m {
		k.op("VPADDD %[1]s, %[2]s, %[2]s", k.int(m), k.float(h, m))
	}
	if h < 2*k.streams-1 {
		k.op("JMP added%d", h)
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
func (k *avx2Kernel) endSuper() {
	for h := range 2 * k.streams {
		if h == 2 {
			k.op("TESTQ R11, R11")
			k.op("JZ next")
		}
		if !k.levels { // which are signed, and have no biases
			k.sums(h)
		}
		k.addSuper(h)
	}
	k.line("next:")
	k.arg("per", "CX")
	k.op("IMULQ $%d, CX", 2*k.m)
	k.op("LEAQ %d(DX)(CX*1), DX", 4*k.m)
	k.op("ADDQ integerArgs_tail(AX), R8")
	k.op("SUBQ integerArgs_per(AX), R12")
	k.op("JNZ decode")
	if k.streams == 2 {
		k.op("TESTQ R11, R11")
		k.op("JZ end")
		k.secondOut()
	}
	k.op("JMP stored")
}

// sums multiplies the sums of the activations' codes by pairs of factors, for half h.
func (k *avx2Kernel) sums(h int) {
	least := k.factors() == "K"
	if least {
		for m := range k.m {
			k.op("VPXOR %[1]s, %[1]s, %[1]s", k.int(m))
		}
	}
	k.op("LEAQ %d(DX), BX", 4*k.m)
	k.arg("decoded", "R14")
	k.arg("per", "CX")
	k.line("pairs%d:", h)
	for m := range k.m {
		sum := k.float(h, m)
		if least {
			sum = k.int(m)
		}
		k.op("VPBROADCASTD %d(BX), Y14", 4*m)
		k.op("VPMADDWD %d(R14), Y14, Y14", k.pairsAt()+k.factorAt(h))
		k.op("VPADDD Y14, %[1]s, %[1]s", sum)
	}
	k.op("ADDQ $%d, BX", 4*k.m)
	k.op("ADDQ $64, R14")
	k.op("SUBQ $2, CX")
	k.op("JNZ pairs%d", h)
}

// addSuper scales the sums of half h and adds them to the output.
func (k *avx2Kernel) addSuper(h int) {
	out, least := "R9", k.factors() == "K"
	k.block(h, 16*(h%2), "R13")
	if h >= 2 {
		out = "CX"
		k.arg("tiles", "CX")
		k.op("SHRQ $1, CX")
		k.op("IMULQ integerArgs_outTile(AX), CX")
		k.op("ADDQ R9, CX")
	}
	k.op("VCVTPH2PS (R13), Y12")
	if least {
		k.op("VCVTPH2PS 32(R13), Y13")
	}
	for m := range k.m {
		t, i := k.float(h, m), k.int(m)
		k.op("VCVTDQ2PS %s, %s", t, t)
		k.op("VMULPS Y12, %s, %s", t, t)
		if least {
			k.op("VCVTDQ2PS %s, %s", i, i)
			k.op("VFNMADD231PS Y13, %s, %s", i, t)
		}
		k.op("VBROADCASTSS %d(DX), Y14", 4*m)
		k.op("VFMADD213PS %d(%s), Y14, %s", 64*m+32*(h%2), out, t)
		k.op("VMOVUPS %s, %d(%s)", t, 64*m+32*(h%2), out)
		k.op("VPXOR %[1]s, %[1]s, %[1]s", t)
	}
}
