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
	if !k.vnni {
		k.op("VMOVDQU integerOnes<>(SB), Y15")
		for h := range 2 * avx2Streams {
			k.op("VMOVDQU Y15, %s", k.ones(h))
		}
	}
	k.aside = append(k.aside, func() {
		k.line("super:")
		clear := func(register string) {
			for i := range 2 * k.m {
				k.op("VMOVUPS Y0, %d(%s)", 32*i, register)
			}
		}
		clear("R9")
		k.op("TESTQ R11, R11")
		k.op("JZ decode")
		k.op("MOVQ DX, BX")
		k.secondOut()
		k.op("MOVQ BX, DX")
		clear("CX")
		k.line("decode:")
		k.op("MOVL $%d, CX", avx2Streams)
		k.op("CALL integerFactors%sAVX2<>(SB)", k.factors())
		k.arg("per", "R15")
		k.arg("decoded", "R14")
		k.op("JMP group")
	})
}

// addFactored adds a group's sums, of half h, to those of the superblock.
func (k *avx2Kernel) addFactored(h int) {
	k.line("factors%d:", h)
	if k.vnni {
		k.op("VMOVDQU %s, Y12", k.ones(h))
		k.op("VPSRAD $16, Y12, Y12")
	}
	for m := range k.m {
		if k.vnni {
			k.op("VPMULLD Y12, %[1]s, %[1]s", k.int(m))
		}
		k.op("VPADDD %[1]s, %[2]s, %[2]s", k.int(m), k.float(h, m))
	}
	if h < 2*avx2Streams-1 {
		k.op("JMP added%d", h)
		return
	}
	k.op("ADDQ $64, R14")
	k.op("MOVQ BX, DX")
	k.op("ADDQ integerArgs_block(AX), R8")
	k.op("DECQ R15")
	k.op("JNZ group")
	k.arg("decoded", "R14")
	for h := range 2 * avx2Streams {
		for m := range k.m {
			k.op("VMOVDQU %s, %d(R14)", k.float(h, m), superSums+k.factorAt(h)+64*m)
		}
	}
	k.op("MOVL $%d, CX", k.m)
	k.op("CALL integerSuper%s<>(SB)", superName(k.codes, k.vnni))
	k.op("JNZ decode")
	k.op("TESTQ R11, R11")
	k.op("JZ end")
	k.secondOut()
	k.op("JMP stored")
}

// superName is the name of what ends a superblock. Levels are signed, or raised to be unsigned.
func superName(f codes, raised bool) string {
	if f.levels && raised {
		return "XSRaisedAVX2"
	}
	return f.factors() + "AVX2"
}

// superAVX2 writes what ends a superblock of formats like f. R11 is zero if there is one tile only.
//
//	R13 scale of the row's activations    SI  sums of these    R14 sums of the row
//	R15 from pair to pair of them         BX  factors          DI  output
func superAVX2(s *source, f codes, raised bool) {
	s.line(superDoc, superName(f, raised), "")
	askTail(s, f)
	s.op("MOVQ CX, R15")
	s.op("SHLQ $2, R15")
	s.op("MOVQ R8, SI")
	s.op("MOVQ R9, DI")
	s.arg("decoded", "BX")
	s.line("tile:")
	for h := range 2 {
		s.op("VCVTPH2PS %d(SI), Y%d", 16*h, h)
		if f.least() {
			s.op("VCVTPH2PS %d(SI), Y%d", 32+16*h, 2+h)
		}
	}
	s.op("MOVQ DX, R13")
	s.op("LEAQ %d(BX), R14", superSums)
	s.line("row:")
	for h := range 2 {
		s.op("VMOVDQU %d(R14), Y%d", 32*h, 4+h)
	}
	sum := 4
	if f.least() {
		sum = 6
		s.op("VPXOR Y6, Y6, Y6")
		s.op("VPXOR Y7, Y7, Y7")
	}
	if !f.levels || raised { // signed ones have no biases
		s.op("LEAQ (R13)(R15*1), SI")
		s.arg("per", "CX")
		s.line("pair:")
		s.op("VPBROADCASTD (SI), Y14")
		for h := range 2 {
			s.op("VPMADDWD %d(BX), Y14, Y15", f.pairsAt()+32*h)
			s.op("VPADDD Y15, Y%[1]d, Y%[1]d", sum+h)
		}
		s.op("ADDQ R15, SI")
		s.op("ADDQ $64, BX")
		s.op("SUBQ $2, CX")
		s.op("JNZ pair")
		s.arg("per", "CX")
		s.op("SHLQ $5, CX")
		s.op("SUBQ CX, BX")
	}
	s.op("VBROADCASTSS (R13), Y14")
	for h := range 2 {
		t := sprint("Y%d", 4+h)
		s.op("VCVTDQ2PS %s, %s", t, t)
		s.op("VMULPS Y%d, %s, %s", h, t, t)
		if f.least() {
			s.op("VCVTDQ2PS Y%[1]d, Y%[1]d", 6+h)
			s.op("VFNMADD231PS Y%d, Y%d, %s", 2+h, 6+h, t)
		}
		s.op("VFMADD213PS %d(DI), Y14, %s", 32*h, t)
		s.op("VMOVUPS %s, %d(DI)", t, 32*h)
	}
	s.op("ADDQ $64, DI")
	s.op("ADDQ $64, R14")
	s.op("ADDQ $4, R13")
	s.op("LEAQ (DX)(R15*1), CX") // where the row after the last would be
	s.op("CMPQ R13, CX")
	s.op("JNE row")
	s.op("TESTQ R11, R11")
	s.op("JZ end")
	s.arg("decoded", "CX")
	s.op("CMPQ BX, CX")
	s.op("JNE end // of the second tile")
	s.op("ADDQ $%d, BX", factorTile)
	s.arg("tiles", "DI")
	s.op("SHRQ $1, DI")
	s.op("IMULQ integerArgs_outTile(AX), DI")
	s.op("ADDQ R9, DI")
	s.op("LEAQ (R8)(R11*1), SI")
	s.op("JMP tile")
	s.line("end:")
	s.op("ADDQ R15, DX")
	for i := range 8 {
		s.op("VPXOR Y%[1]d, Y%[1]d, Y%[1]d", i)
	}
	endSuper(s)
}
