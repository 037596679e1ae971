package main

// What the kernels of AVX-512 do otherwise for superblocks. The sums of a group are integers that are
// multiplied by the group's factor, an integer too, and added to those of the superblock. At its end
// they are scaled, and added to the float32 sums.

// openSuper finds out whether there are superblocks.
func (k *avx512Kernel) openSuper() {
	if !k.halves() {
		k.op("XORL R15, R15")
	}
	k.ops("CMPQ integerArgs_scale(AX), $const_scaleFactors", "JEQ super")
	k.aside = append(k.aside, func() {
		k.line("super:")
		k.op("KXORW K2, K2, K2")
		k.line("decode:")
		k.op("MOVL $%d, CX", k.streams)
		k.op("CALL integerFactors%sAVX512<>(SB)", k.factors())
		k.arg("per", "R15")
		k.arg("decoded", "R14")
		if k.halves() {
			k.halfGroups()
		} else {
			k.op("JMP group")
		}
	})
}

// halves reports whether the sums of 16 columns, half a group or all of it, fit 16 bits: 16*15*127 < 2^15.
// Then they are multiplied by the factor and added in one instruction.
func (k *avx512Kernel) halves() bool { return k.bits <= 4 && !k.fp4 }

// halfGroups does for such codes what dots and addFactored do for others.
func (k *avx512Kernel) halfGroups() {
	k.line("superGroup:")
	each := k.streams
	if k.inTurn {
		each = 1
	}
	for from := 0; from < k.streams; from += each {
		k.ops("MOVQ R8, SI", "MOVQ DX, BX")
		for h := from; h < from+each; h++ {
			k.op("VMOVDQU32 %d(R14), Z%d", factorTile*h, 26+h)
		}
		if k.high() > 0 {
			k.arg("plane", "DI")
			k.op("ADDQ R8, DI")
		}
		if !k.sixteen() {
			k.op("MOVL $2, CX")
			k.line("half%dGroup:", from)
		}
		k.clear(from, from+each)
		for h := from; h < from+each; h++ {
			k.step(h)
			for m := range k.m {
				k.op("VPDPWSSD Z%d, %s, %s", 26+h, k.int(h, m), k.float(h, m))
			}
		}
		k.op("ADDQ $%d, BX", 16*k.m)
		if !k.sixteen() {
			k.op("ADDQ $%d, SI", step16(k.low()))
			k.op("DECQ CX")
			k.op("JNZ half%dGroup", from)
		}
	}
	k.endGroup("superGroup")
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
	k.endGroup("group")
}

// endGroup goes on with the next group of the superblock, ends it after the last, and goes on.
func (k *avx512Kernel) endGroup(group string) {
	k.ops("ADDQ $64, R14", "MOVQ BX, DX", "ADDQ integerArgs_block(AX), R8", "DECQ R15")
	k.op("JNZ %s", group)
	k.arg("decoded", "R14")
	for h := range k.streams {
		for m := range k.m {
			k.op("VMOVDQU32 %s, %d(R14)", k.float(h, m), superSums+factorTile*h+64*m)
		}
	}
	k.op("MOVL $%d, CX", k.m)
	k.op("CALL integerSuper%sAVX512<>(SB)", k.factors())
	k.ops("JNZ decode", "TESTQ R11, R11", "JZ end")
	k.secondOut()
	k.op("JMP stored")
}

const superDoc = `
// integerSuper%[1]s ends a superblock: it scales the sums of CX rows and two tiles, which are where
// Scratch has them, and adds them to the output at R9%[2]s. DX goes from the scales
// of the activations to the next superblock, R8 from the tail, R12 is counted down, and flags are those of
// that. It clears the vectors of the sums, and changes others, BX, CX, SI, DI, and R13 to R15.
TEXT integerSuper%[1]s<>(SB), NOSPLIT, $0-0`

// pairOf is the address of pair p of the sums of a row's activations: of the first half of the pairs from
// DX, and of the others from R13. R15 is from pair to pair, R14 three times that.
func pairOf(p, half int) string {
	base := "DX"
	if p >= half {
		base = "R13"
	}
	return sprint("(%s)(%s)", base, []string{"R15*1", "R15*2", "R14*1", "R15*4"}[p%half])
}

// superAVX512 writes what ends a superblock of formats like f.
func superAVX512(s *source, f codes) {
	k := &avx512Kernel{source: s, codes: f, m: 1, streams: 2}
	half := f.superPairs() / 2
	s.line(superDoc, f.factors()+"AVX512", ", if K2 has ones, or else sets it")
	askTail(s, f)
	s.arg("decoded", "BX")
	s.ops("MOVQ CX, R15", "SHLQ $2, R15", "LEAQ (R15)(R15*2), R14")
	s.op("LEAQ (DX)(R15*%d), R13", half)
	pair := func(h, p int) string { return sprint("Z%d", 2*half*h+p) }
	for h := range 2 {
		for p := range 2 * half {
			s.op("VMOVDQU32 %d(BX), %s", f.pairsAt()+factorTile*h+64*p, pair(h, p))
		}
		s.op("VCVTPH2PS %s, Z%d", k.stream(h, 0, "R8"), 24+h)
		if f.least() {
			s.op("VCVTPH2PS %s, Z%d", k.stream(h, 32, "R8"), 26+h)
		}
	}
	s.op("MOVQ R9, DI")
	s.op("LEAQ %d(BX), SI", superNowhere)
	s.ops("TESTQ R11, R11", "JZ row")
	s.arg("tiles", "SI")
	s.ops("SHRQ $1, SI", "IMULQ integerArgs_outTile(AX), SI", "ADDQ R9, SI")
	s.line("row:")
	for h, out := range []string{"DI", "SI"} {
		t, sum, least := sprint("Z%d", 16+h), sprint("Z%d", 18+h), sprint("Z%d", 20+h)
		s.op("VMOVUPS.Z (%s), K2, %s", out, sum)
		if f.least() {
			s.op("VCVTDQ2PS %d(BX), %s", superSums+factorTile*h, t)
			s.op("VPXORD %[1]s, %[1]s, %[1]s", least)
		} else {
			s.op("VMOVDQU32 %d(BX), %s", superSums+factorTile*h, t)
			least = t
		}
		for p := range 2 * half {
			s.op("VPDPWSSD.BCST %s, %s, %s", pairOf(p, half), pair(h, p), least)
		}
		s.op("VCVTDQ2PS %s, %s", least, least)
		s.op("VMULPS Z%d, %s, %s", 24+h, t, t)
		if f.least() {
			s.op("VFNMADD231PS Z%d, %s, %s", 26+h, least, t)
		}
		s.op("VFMADD231PS.BCST (DX), %s, %s", t, sum)
		s.op("VMOVUPS %s, (%s)", sum, out)
		s.op("ADDQ $64, %s", out)
	}
	s.ops("ADDQ $64, BX", "ADDQ $4, DX", "ADDQ $4, R13", "DECQ CX", "JNZ row", "KXNORW K2, K2, K2")
	for i := range 2 * avx512Rows {
		s.op("VPXORD Z%[1]d, Z%[1]d, Z%[1]d", i)
	}
	endSuper(s)
}

// endSuper goes on to the next superblock. DX is at the sums of the activations.
func endSuper(s *source) {
	s.arg("per", "CX")
	s.ops("SHRQ $1, CX", "IMULQ R15, CX", "ADDQ CX, DX", "ADDQ integerArgs_tail(AX), R8", "SUBQ integerArgs_per(AX), R12")
	s.op("RET")
}

// askTail asks for what the codes before it have not asked for: the tail of a later superblock. That this is
// done in the order of the addresses, and not when the tail before is read, is worth a sixth of the time
// with weights from memory.
func askTail(s *source, f codes) {
	for i := range f.tailLines() {
		s.op("PREFETCHT0 %d(R8)", ahead+64*i)
		s.op("PREFETCHT0 %d(R8)(R11*1)", ahead+64*i)
	}
}
