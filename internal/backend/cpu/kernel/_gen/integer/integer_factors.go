package main

// factors names what is in the tails of superblocks, "" if no format with such codes has them.
func (f codes) factors() string {
	switch {
	case f.levels:
		return "XS"
	case f.fp4:
		return ""
	case f.bits == 4 || f.bits == 5:
		return "K"
	case f.bits == 6:
		return "6K"
	}
	return ""
}

// factorBytes is what decoded factors of a group take: scales, and biases that no multiple of
// the scales gives.
func (f codes) factorBytes() int {
	if f.factors() == "K" {
		return 128
	}
	return 64
}

const factorsDoc = `
// integerFactors%[1]s decodes the factors of the superblock at R8, of CX tiles, to where Scratch
// has them. The twin is Weight.factors. It changes SI, DI, CX, R13 to R15 and %[2]s.
TEXT integerFactors%[1]s<>(SB), NOSPLIT, $0-0`

// eachTail writes a loop over the tails of tiles, at R13, and the places for their factors, at
// R14. lines of the next tail are asked for.
func eachTail(s *source, name, changed string, lines int, tile func()) {
	s.line(factorsDoc, name, changed)
	s.arg("per", "R13")
	s.op("IMULQ integerArgs_block(AX), R13")
	s.op("ADDQ R8, R13")
	s.arg("decoded", "R14")
	s.line("tile:")
	for i := range lines {
		s.op("PREFETCHT0 %d(R13)", 64*i+ahead)
	}
	tile()
	s.op("ADDQ R11, R13")
	s.op("ADDQ $1024, R14")
	s.op("DECQ CX")
	s.op("JNZ tile")
	s.op("RET")
	if s.local {
		return
	}
	s.line("\n// func factors%s(a *integerArgs) does it for one tile of which weights is the superblock.", name)
	s.line("TEXT ·factors%s(SB), NOSPLIT, $0-8", name)
	s.op("MOVQ a+0(FP), AX")
	s.arg("weights", "R8")
	s.op("MOVL $1, CX")
	s.op("CALL integerFactors%s<>(SB)", name)
	s.op("VZEROUPPER")
	s.op("RET")
}

// factors512 decodes eight factors of 6 bits for each row: from Z25, low bits, group g in bits
// 4g; and Z26, high bits, in bits at+2g; times Z24. They go to out, apart bytes apart.
func factors512(s *source, at, out, apart int, middle bool) {
	for g := range 8 {
		s.op("VPSRLD $%d, Z25, Z27", 4*g)
		s.op("VPANDD.BCST integerNibble512<>(SB), Z27, Z27")
		if right := at + 2*g - 4; right < 0 {
			s.op("VPSLLD $%d, Z26, Z28", -right)
		} else {
			s.op("VPSRLD $%d, Z26, Z28", right)
		}
		s.op("VPTERNLOGD.BCST $0xf8, integerPair512<>(SB), Z28, Z27 // or of and")
		if middle {
			s.op("VPSUBD.BCST integerMiddle512<>(SB), Z27, Z27")
		}
		s.op("VCVTDQ2PS Z27, Z27")
		s.op("VMULPS Z24, Z27, Z27")
		s.op("VMOVUPS Z27, %d(R14)", out+apart*g)
	}
}

// factorsAVX512 writes what decodes the factors, and the constants of that.
func factorsAVX512(s *source) {
	for _, c := range []struct {
		name  string
		value uint32
	}{{"Nibble", 15}, {"Pair", 0x30}, {"Signs", 1 << 31}, {"Middle", 32}} {
		s.line("DATA integer%s512<>+0(SB)/4, $0x%08x", c.name, c.value)
		s.line("GLOBL integer%s512<>(SB), RODATA|NOPTR, $4", c.name)
	}
	factorsK512(s)
	factors6K512(s)
	factorsXS512(s)
}

func factorsK512(s *source) {
	eachTail(s, "KAVX512", "Z24 to Z28", 4, func() {
		s.op("VCVTPH2PS (R13), Z24")
		s.op("VMOVDQU32 %d(R13), Z25", atNibblesK)
		s.op("VMOVDQU32 %d(R13), Z26", atPairsK)
		factors512(s, 0, 0, 128, false)
		s.op("VCVTPH2PS 32(R13), Z24")
		s.op("VPXORD.BCST integerSigns512<>(SB), Z24, Z24")
		s.op("VMOVDQU32 %d(R13), Z25", atBiasesK)
		factors512(s, 16, 64, 128, false)
	})
}

func factors6K512(s *source) {
	eachTail(s, "6KAVX512", "Z24 to Z28", 5, func() {
		s.op("VCVTPH2PS (R13), Z24")
		s.op("LEAQ 32(R13), SI")
		s.op("MOVQ R14, DI")
		s.arg("per", "R15")
		s.line("group:")
		s.op("VPMOVSXBD (SI), Z27")
		s.op("VCVTDQ2PS Z27, Z27")
		s.op("VMULPS Z24, Z27, Z27")
		s.op("VMOVUPS Z27, (DI)")
		s.op("ADDQ $16, SI")
		s.op("ADDQ $64, DI")
		s.op("DECQ R15")
		s.op("JNZ group")
	})
}

func factorsXS512(s *source) {
	eachTail(s, "XSAVX512", "Z24 to Z28", 2, func() {
		s.op("VCVTPH2PS (R13), Z24")
		s.op("VMOVDQU32 %d(R13), Z25", atNibblesXS)
		s.op("VPMOVZXWD %d(R13), Z26", atPairsXS)
		factors512(s, 0, 0, 64, true)
	})
}

// sixBits is factors512 for half a tile: the low bits are at an address from R13, and load
// brings the high bits to Y14. Y12 is what factors are multiplied by.
func sixBits(s *source, low int, load func(), at, out, apart int, middle bool) {
	for g := range 8 {
		s.op("VMOVDQU %d(R13), Y13", low)
		s.op("VPSRLD $%d, Y13, Y13", 4*g)
		s.op("VPAND integerNibble<>(SB), Y13, Y13")
		load()
		if right := at + 2*g - 4; right < 0 {
			s.op("VPSLLD $%d, Y14, Y14", -right)
		} else {
			s.op("VPSRLD $%d, Y14, Y14", right)
		}
		s.op("VPAND integerPair<>(SB), Y14, Y14")
		s.op("VPOR Y14, Y13, Y13")
		if middle {
			s.op("VPSUBD integerMiddle<>(SB), Y13, Y13")
		}
		s.op("VCVTDQ2PS Y13, Y13")
		s.op("VMULPS Y12, Y13, Y13")
		s.op("VMOVUPS Y13, %d(R14)", out+apart*g)
	}
}

// Places in the tails, as package kernel has them.
const (
	atNibblesK, atBiasesK, atPairsK = 64, 128, 192
	atNibblesXS, atPairsXS          = 32, 96
)

func factorsAVX2(s *source) {
	eachTail(s, "KAVX2", "Y12 to Y14", 4, func() {
		for h := range 2 {
			pairs := func() { s.op("VMOVDQU %d(R13), Y14", atPairsK+32*h) }
			s.op("VCVTPH2PS %d(R13), Y12", 16*h)
			sixBits(s, atNibblesK+32*h, pairs, 0, 32*h, 128, false)
			s.op("VCVTPH2PS %d(R13), Y12", 32+16*h)
			s.op("VXORPS integerSigns<>(SB), Y12, Y12")
			sixBits(s, atBiasesK+32*h, pairs, 16, 64+32*h, 128, false)
		}
	})
	eachTail(s, "6KAVX2", "Y12 to Y14", 5, func() {
		s.op("VCVTPH2PS (R13), Y12")
		s.op("VCVTPH2PS 16(R13), Y13")
		s.op("LEAQ 32(R13), SI")
		s.op("MOVQ R14, DI")
		s.arg("per", "R15")
		s.line("group:")
		for h := range 2 {
			s.op("VPMOVSXBD %d(SI), Y14", 8*h)
			s.op("VCVTDQ2PS Y14, Y14")
			s.op("VMULPS Y%d, Y14, Y14", 12+h)
			s.op("VMOVUPS Y14, %d(DI)", 32*h)
		}
		s.op("ADDQ $16, SI")
		s.op("ADDQ $64, DI")
		s.op("DECQ R15")
		s.op("JNZ group")
	})
	eachTail(s, "XSAVX2", "Y12 to Y14", 2, func() {
		for h := range 2 {
			s.op("VCVTPH2PS %d(R13), Y12", 16*h)
			sixBits(s, atNibblesXS+32*h, func() { s.op("VPMOVZXWD %d(R13), Y14", atPairsXS+16*h) }, 0, 32*h, 64, true)
		}
	})
}

// scales loads the scales at an offset, and the biases size bytes further.
func (k *avx2Kernel) scales(at, size int, load func(at int, y string)) {
	load(at, "Y12")
	if !k.fp4 {
		load(at+size, "Y13")
	}
}
