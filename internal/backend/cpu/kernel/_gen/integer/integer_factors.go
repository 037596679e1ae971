package main

// factors names what is in the tails of superblocks, "" if no format with such codes has them.
func (f codes) factors() string {
	switch {
	case f.grid:
		return "Grid"
	case f.levels:
		return "XS"
	case f.fp4:
		return ""
	case f.bits == 4 || f.bits == 5:
		return "K"
	case f.bits == 6:
		return "6K"
	case f.bits == 3:
		return "3K"
	case f.bits == 2:
		return "2K"
	}
	return ""
}

// sixteen reports whether superblocks have 16 groups, whose factors are bytes.
func (f codes) sixteen() bool { return f.factors() != "" && !f.fp4 && f.bits != 4 && f.bits != 5 }

// supers are formats of codes with superblocks, one of each kind.
var supers = []codes{{bits: 4}, {bits: 6}, {bits: 4, fp4: true, levels: true}, {bits: 3}, {bits: 2}}

// pairsAt is where the pairs of factors are that sums of activations are multiplied by.
func (f codes) pairsAt() int {
	if f.sixteen() {
		return factorPairs6K
	}
	return factorPairs
}

// superPairs is how many pairs of groups a superblock has that is not cut.
func (f codes) superPairs() int {
	if f.sixteen() {
		return 8
	}
	return 4
}

// tailLines is the size of the tail in cache lines.
func (f codes) tailLines() int {
	return map[string]int{"K": 4, "6K": 5, "XS": 2, "3K": 5, "2K": 5}[f.factors()]
}

// least reports whether superblocks have biases.
func (f codes) least() bool { return f.factors() == "K" || f.factors() == "2K" }

// Scratch.factors: where the pairs of a tile are, where the sums of its superblock, from tile to tile,
// and where the results go of a tile that does not exist.
const (
	factorPairs, factorPairs6K = 512, 2048
	superSums                  = 2560
	factorTile                 = 1024
	superNowhere               = 4096
)

const factorsDoc = `
// integerFactors%[1]s decodes the factors of the superblock at R8, of CX tiles, to where Scratch
// has them. The twin is Weight.smallFactors. It changes SI, DI, CX, R13 to R15 and %[2]s.
TEXT integerFactors%[1]s<>(SB), NOSPLIT, $0-0`

// eachTail writes a loop over the tails of tiles, at R13, and the places for their factors, at
// R14. lines is the size of a tail. widen, unless it is nil, makes floats of the factors of one tile.
func eachTail(s *source, name, changed string, lines int, tile, widen func()) {
	s.line(factorsDoc, name, changed)
	tailAt(s)
	s.arg("decoded", "R14")
	s.line("tile:")
	for i := range lines {
		if s.local { // otherwise the end of a superblock does it
			s.op("PREFETCHT0 %d(R13)", 64*i+ahead)
		}
	}
	tile()
	s.op("ADDQ R11, R13")
	s.op("ADDQ $%d, R14", factorTile)
	s.ops("DECQ CX", "JNZ tile", "RET")
	if s.local || widen == nil {
		return
	}
	s.line("\n// func factors%s(a *integerArgs) makes floats of them, for one tile of which weights is the", name)
	s.line("// superblock. The twin is Weight.factors. Integers are in the place of the second tile meanwhile.")
	s.line("TEXT ·factors%s(SB), NOSPLIT, $0-8", name)
	s.op("MOVQ a+0(FP), AX")
	s.arg("weights", "R8")
	s.op("ADDQ $%d, integerArgs_decoded(AX)", factorTile)
	s.op("MOVL $1, CX")
	s.op("CALL integerFactors%s<>(SB)", name)
	s.op("SUBQ $%d, integerArgs_decoded(AX)", factorTile)
	tailAt(s)
	s.arg("decoded", "R14")
	s.arg("per", "CX")
	widen()
	s.ops("VZEROUPPER", "RET")
}

// tailAt points R13 at the tail of the superblock at R8.
func tailAt(s *source) {
	s.arg("per", "R13")
	s.ops("IMULQ integerArgs_block(AX), R13", "ADDQ R8, R13")
}

// sixBits512 decodes the factor of 6 bits of group g for each row to a register: from Z25, low bits,
// group g in bits 4g; and Z26, high bits, in bits at+2g.
func sixBits512(s *source, g, at int, z string) {
	s.op("VPSRLD $%d, Z25, %s", 4*g, z)
	s.op("VPANDD.BCST integerNibble512<>(SB), %[1]s, %[1]s", z)
	if right := at + 2*g - 4; right < 0 {
		s.op("VPSLLD $%d, Z26, Z28", -right)
	} else {
		s.op("VPSRLD $%d, Z26, Z28", right)
	}
	s.op("VPTERNLOGD.BCST $0xf8, integerPair512<>(SB), Z28, %s // or of and", z)
}

// factorsAVX512 writes what decodes the factors, and the constants of that.
func factorsAVX512(s *source) {
	for _, c := range []struct {
		name  string
		value uint32
	}{
		{"Nibble", 15},
		{"Pair", 0x30},
		{"Nibbles", 0x000f000f},
		{"Pairs", 0x00300030},
		{"Signs", 1 << 31},
		{"Middle", 32},
		{"Word", 0xffff},
		{"Raise6K", 0xffe0ffe0}, // twice -32
		{"Raise3K", 0xfffcfffc}, // twice -4
		{"RaiseXS", 0xff7cff7c}, // twice -132
	} {
		s.line("DATA integer%s512<>+0(SB)/4, $0x%08x", c.name, c.value)
		s.line("GLOBL integer%s512<>(SB), RODATA|NOPTR, $4", c.name)
	}
	factorsK512(s)
	factors6K512(s)
	factorsXS512(s)
	factors3K512(s)
	factors2K512(s)
	if s.local {
		factorsGrid512(s)
		return
	}
	for _, f := range supers {
		superAVX512(s, f)
	}
}

// scalesAVX512 makes float32 scales of the factors of all groups.
func scalesAVX512(s *source, apart int) {
	s.op("VCVTPH2PS (R13), Z24")
	s.op("LEAQ %d(R14), SI", factorTile)
	s.op("MOVQ R14, DI")
	s.line("group:")
	s.ops("VCVTDQ2PS (SI), Z27", "VMULPS Z24, Z27, Z27", "VMOVUPS Z27, (DI)", "ADDQ $64, SI")
	s.op("ADDQ $%d, DI", apart)
	s.ops("DECQ CX", "JNZ group")
}

// factorsK512 has the factors of scales and biases beside each other, in 16 bits, since their high bits
// are.
func factorsK512(s *source) {
	eachTail(s, "KAVX512", "Z24 to Z29", 4, func() {
		s.op("VMOVDQU32 %d(R13), Z26", atNibblesK)
		s.op("VMOVDQU32 %d(R13), Z27", atBiasesK)
		s.op("VMOVDQU32 %d(R13), Z28", atPairsK)
		s.op("VPSLLD $16, Z27, Z24") // low bits of groups 0 to 3
		s.op("VPTERNLOGD.BCST $0xf8, integerWord512<>(SB), Z26, Z24 // or of and")
		s.op("VPSRLD $16, Z26, Z25") // and 4 to 7
		s.op("VPTERNLOGD.BCST $0xf4, integerWord512<>(SB), Z27, Z25 // or of and not")
		for g := range 8 {
			from, z := sprint("Z%d", 24+g/4), sprint("Z%d", 26+g%2)
			if g%4 > 0 {
				s.op("VPSRLW $%d, %s, %s", 4*(g%4), from, z)
				from = z
			}
			s.op("VPANDD.BCST integerNibbles512<>(SB), %s, %s", from, z)
			switch right := 2*g - 4; {
			case right < 0:
				s.op("VPSLLW $%d, Z28, Z29", -right)
			case right == 0:
				s.op("VMOVDQA32 Z28, Z29")
			default:
				s.op("VPSRLW $%d, Z28, Z29", right)
			}
			s.op("VPTERNLOGD.BCST $0xf8, integerPairs512<>(SB), Z29, %s // or of and", z)
			s.op("VPANDD.BCST integerWord512<>(SB), %s, Z29", z)
			s.op("VMOVDQU32 Z29, %d(R14)", 64*g)
			if g%2 == 1 {
				s.ops("VPSRLD $16, Z26, Z26", "VPTERNLOGD.BCST $0xf4, integerWord512<>(SB), Z27, Z26 // or of and not")
				s.op("VMOVDQU32 Z26, %d(R14)", factorPairs+32*(g-1))
			}
		}
	}, func() {
		scalesAVX512(s, 128)
		s.ops("VCVTPH2PS 32(R13), Z24", "VPXORD.BCST integerSigns512<>(SB), Z24, Z24")
		for g := range 8 {
			if g%2 == 0 {
				s.op("VMOVDQU32 %d(R14), Z25", factorTile+factorPairs+32*g)
				s.op("VPANDD.BCST integerWord512<>(SB), Z25, Z27")
			} else {
				s.op("VPSRLD $16, Z25, Z27")
			}
			s.ops("VCVTDQ2PS Z27, Z27", "VMULPS Z24, Z27, Z27")
			s.op("VMOVUPS Z27, %d(R14)", 64+128*g)
		}
	})
}

// pairs512 makes pairs of Z24 and Z27, of the next group, times what codes are raised by, and stores them.
// AMX needs none: its codes are signed.
func pairs512(s *source, at string) {
	s.ops("VPSLLD $16, Z27, Z27", "VPTERNLOGD.BCST $0xf8, integerWord512<>(SB), Z24, Z27 // or of and")
	s.op("VPMULLW Z29, Z27, Z27")
	s.op("VMOVDQU32 Z27, %s", at)
}

// byteTail writes a loop over the factors of a tail at R13, from byte at on, which are bytes: two groups at
// SI for each turn. Factors go to (R14)(R15*2), pairs to (R14)(R15*1).
func byteTail(s *source, at int, pair func()) {
	s.op("LEAQ %d(R13), SI", at)
	s.op("XORL R15, R15")
	s.arg("per", "DI")
	s.op("SHLQ $5, DI")
	s.line("group:")
	pair()
	s.ops("ADDQ $32, SI", "ADDQ $64, R15", "CMPQ R15, DI", "JLT group")
}

// storePair512 stores the factors in two registers.
func storePair512(s *source, first, second string) {
	s.op("VMOVDQU32 %s, (R14)(R15*2)", first)
	s.op("VMOVDQU32 %s, 64(R14)(R15*2)", second)
}

func factors6K512(s *source) {
	eachTail(s, "6KAVX512", "Z24 to Z29", 5, func() {
		if !s.local {
			s.op("VPBROADCASTD integerRaise6K512<>(SB), Z29")
		}
		byteTail(s, atBytes6K, func() {
			s.ops("VPMOVSXBD (SI), Z24", "VPMOVSXBD 16(SI), Z27")
			storePair512(s, "Z24", "Z27")
			if !s.local {
				pairs512(s, sprint("%d(R14)(R15*1)", factorPairs6K))
			}
		})
	}, func() { scalesAVX512(s, 64) })
}

// factorsGrid512 is for AMX.
func factorsGrid512(s *source) {
	eachTail(s, "GridAVX512", "Z24 and Z27", 5, func() {
		byteTail(s, atBytesGrid, func() {
			s.ops("VPMOVZXBD (SI), Z24", "VPMOVZXBD 16(SI), Z27")
			storePair512(s, "Z24", "Z27")
		})
	}, nil)
}

// factors3K512 has factors in 16 bits with zeros above them, as sums of groups are multiplied by: see halves.
func factors3K512(s *source) {
	eachTail(s, "3KAVX512", "Z24 to Z29", 5, func() {
		if !s.local {
			s.op("VPBROADCASTD integerRaise3K512<>(SB), Z29")
		}
		byteTail(s, atBytes6K, func() {
			s.ops("VPMOVSXBW (SI), Z25", "VPMOVZXWD Y25, Z24", "VEXTRACTI64X4 $1, Z25, Y25", "VPMOVZXWD Y25, Z27")
			storePair512(s, "Z24", "Z27")
			if !s.local {
				pairs512(s, sprint("%d(R14)(R15*1)", factorPairs6K))
			}
		})
	}, nil)
}

// factors2K512 has factors of scales and biases in the halves of a byte.
func factors2K512(s *source) {
	eachTail(s, "2KAVX512", "Z24 to Z29", 5, func() {
		s.op("VPBROADCASTD integerNibble512<>(SB), Z29")
		byteTail(s, atBytes2K, func() {
			s.ops("VPMOVZXBD (SI), Z24", "VPMOVZXBD 16(SI), Z27", "VPANDD Z29, Z24, Z25", "VPANDD Z29, Z27, Z26")
			storePair512(s, "Z25", "Z26")
			s.ops("VPSRLD $4, Z24, Z24", "VPANDND Z27, Z29, Z27", "VPSLLD $12, Z27, Z27", "VPORD Z24, Z27, Z27")
			s.op("VMOVDQU32 Z27, %d(R14)(R15*1)", factorPairs6K)
		})
	}, func() {
		s.ops("VCVTPH2PS (R13), Z24", "VCVTPH2PS 32(R13), Z25", "VPXORD.BCST integerSigns512<>(SB), Z25, Z25")
		s.op("LEAQ %d(R13), SI", atBytes2K)
		s.line("group:")
		s.ops("VPMOVZXBD (SI), Z26", "VPANDD.BCST integerNibble512<>(SB), Z26, Z27", "VPSRLD $4, Z26, Z26")
		for i, z := range []string{"Z27", "Z26"} {
			s.op("VCVTDQ2PS %[1]s, %[1]s", z)
			s.op("VMULPS Z%d, %[2]s, %[2]s", 24+i, z)
			s.op("VMOVUPS %s, %d(R14)", z, 64*i)
		}
		s.ops("ADDQ $16, SI", "ADDQ $128, R14", "DECQ CX", "JNZ group")
	})
}

func factorsXS512(s *source) {
	eachTail(s, "XSAVX512", "Z24 to Z29", 2, func() {
		if !s.local {
			s.op("VPBROADCASTD integerRaiseXS512<>(SB), Z29")
		}
		s.op("VMOVDQU32 %d(R13), Z25", atNibblesXS)
		s.op("VPMOVZXWD %d(R13), Z26", atPairsXS)
		for g := range 8 {
			z := []string{"Z24", "Z27"}[g%2]
			sixBits512(s, g, 0, z)
			s.op("VPSUBD.BCST integerMiddle512<>(SB), %[1]s, %[1]s", z)
			s.op("VMOVDQU32 %s, %d(R14)", z, 64*g)
			if g%2 == 1 && !s.local {
				pairs512(s, sprint("%d(R14)", factorPairs+32*(g-1)))
			}
		}
	}, func() { scalesAVX512(s, 64) })
}

// Places in the tails, as package kernel has them.
const (
	atNibblesK, atBiasesK, atPairsK = 64, 128, 192
	atNibblesXS, atPairsXS          = 32, 96
	atBytes6K, atBytes2K            = 32, 64
	atBytesGrid                     = 64
)

// sixBits is sixBits512 for half a tile: the low bits are at an address from R13, and load brings the
// high bits to Y14.
func sixBits(s *source, low int, load func(), g, at int, y string) {
	s.op("VMOVDQU %d(R13), %s", low, y)
	s.op("VPSRLD $%d, %s, %s", 4*g, y, y)
	s.op("VPAND integerNibble<>(SB), %[1]s, %[1]s", y)
	load()
	if right := at + 2*g - 4; right < 0 {
		s.op("VPSLLD $%d, Y14, Y14", -right)
	} else {
		s.op("VPSRLD $%d, Y14, Y14", right)
	}
	s.op("VPAND integerPair<>(SB), Y14, Y14")
	s.op("VPOR Y14, %[1]s, %[1]s", y)
}

// twice stores Y13, 32 bits each, as the 16 bits that count, twice: products of 16 bits are
// multiplied by them and added in one instruction.
func twice(s *source, at string) {
	s.ops("VPSLLD $16, Y13, Y14", "VPBLENDW $0xaa, Y14, Y13, Y14")
	s.op("VMOVDQU Y14, %s", at)
}

// scalesAVX2 makes float32 scales of the factors of all groups.
func scalesAVX2(s *source, apart int) {
	s.ops("VCVTPH2PS (R13), Y12", "VCVTPH2PS 16(R13), Y13")
	s.op("LEAQ %d(R14), SI", factorTile)
	s.op("MOVQ R14, DI")
	s.line("group:")
	for h := range 2 {
		s.op("VMOVDQU %d(SI), Y14", 32*h)
		s.ops("VPSRAD $16, Y14, Y14", "VCVTDQ2PS Y14, Y14")
		s.op("VMULPS Y%d, Y14, Y14", 12+h)
		s.op("VMOVUPS Y14, %d(DI)", 32*h)
	}
	s.op("ADDQ $64, SI")
	s.op("ADDQ $%d, DI", apart)
	s.ops("DECQ CX", "JNZ group")
}

func factorsAVX2(s *source) {
	eachTail(s, "KAVX2", "Y10 to Y14", 4, func() {
		for h := range 2 {
			s.op("VMOVDQU %d(R13), Y13", atNibblesK+32*h)
			s.op("VMOVDQU %d(R13), Y14", atBiasesK+32*h)
			s.ops("VPSLLD $16, Y14, Y12", "VPBLENDW $0x55, Y13, Y12, Y12", "VPSRLD $16, Y13, Y13")
			s.op("VPBLENDW $0xaa, Y14, Y13, Y13")
			for g := range 8 {
				from, y := sprint("Y%d", 12+g/4), sprint("Y%d", 10+g%2)
				if g%4 > 0 {
					s.op("VPSRLW $%d, %s, %s", 4*(g%4), from, y)
					from = y
				}
				s.op("VPAND integerNibbles<>(SB), %s, %s", from, y)
				s.op("VMOVDQU %d(R13), Y14", atPairsK+32*h)
				if right := 2*g - 4; right < 0 {
					s.op("VPSLLW $%d, Y14, Y14", -right)
				} else if right > 0 {
					s.op("VPSRLW $%d, Y14, Y14", right)
				}
				s.op("VPAND integerPairs<>(SB), Y14, Y14")
				s.op("VPOR Y14, %[1]s, %[1]s", y)
				s.op("VPSLLD $16, %s, Y14", y)
				s.op("VPBLENDW $0x55, %s, Y14, Y14 // the scale's twice", y)
				s.op("VMOVDQU Y14, %d(R14)", 64*g+32*h)
				if g%2 == 1 {
					s.ops("VPSRLD $16, Y10, Y10", "VPBLENDW $0xaa, Y11, Y10, Y10")
					s.op("VMOVDQU Y10, %d(R14)", factorPairs+32*(g-1)+32*h)
				}
			}
		}
	}, func() {
		scalesAVX2(s, 128)
		for h := range 2 {
			s.op("VCVTPH2PS %d(R13), Y12", 32+16*h)
			s.op("VXORPS integerSigns<>(SB), Y12, Y12")
			for g := range 8 {
				s.op("VMOVDQU %d(R14), Y13", factorTile+factorPairs+32*(g&^1)+32*h)
				if g%2 == 0 {
					s.op("VPSLLD $16, Y13, Y13")
				}
				s.ops("VPSRLD $16, Y13, Y13", "VCVTDQ2PS Y13, Y13", "VMULPS Y12, Y13, Y13")
				s.op("VMOVUPS Y13, %d(R14)", 64+128*g+32*h)
			}
		}
	})
	bytes := func(kind string, widen func()) {
		eachTail(s, kind+"AVX2", "Y12 to Y14", 5, func() {
			byteTail(s, atBytes6K, func() {
				for h := range 2 {
					s.op("VPMOVSXBD %d(SI), Y13", 8*h)
					twice(s, sprint("%d(R14)(R15*2)", 32*h))
					s.op("VMOVDQA Y13, Y12")
					s.op("VPMOVSXBD %d(SI), Y13", 16+8*h)
					twice(s, sprint("%d(R14)(R15*2)", 64+32*h))
					s.op("VPBLENDW $0xaa, Y14, Y12, Y12")
					s.op("VPMULLW integerRaise%s<>(SB), Y12, Y12", kind)
					s.op("VMOVDQU Y12, %d(R14)(R15*1)", factorPairs6K+32*h)
				}
			})
		}, widen)
	}
	bytes("6K", func() { scalesAVX2(s, 64) })
	bytes("3K", nil)
	factors2KAVX2(s)
	eachTail(s, "XSAVX2", "Y12 to Y14", 2, func() {
		for h := range 2 {
			for g := range 8 {
				sixBits(s, atNibblesXS+32*h, func() { s.op("VPMOVZXWD %d(R13), Y14", atPairsXS+16*h) }, g, 0, "Y13")
				s.op("VPSUBD integerMiddle<>(SB), Y13, Y13")
				twice(s, sprint("%d(R14)", 64*g+32*h))
				if g%2 == 0 {
					s.op("VMOVDQA Y13, Y12")
					continue
				}
				s.ops("VPBLENDW $0xaa, Y14, Y12, Y12", "VPMULLW integerRaiseXS<>(SB), Y12, Y12")
				s.op("VMOVDQU Y12, %d(R14)", factorPairs+32*(g-1)+32*h)
			}
		}
	}, func() { scalesAVX2(s, 64) })
}

func factors2KAVX2(s *source) {
	eachTail(s, "2KAVX2", "Y11 to Y14", 5, func() {
		byteTail(s, atBytes2K, func() {
			for h := range 2 {
				for g, y := range []string{"Y12", "Y11"} {
					s.op("VPMOVZXBD %d(SI), %s", 16*g+8*h, y)
					s.op("VPAND integerNibble<>(SB), %s, Y13", y)
					twice(s, sprint("%d(R14)(R15*2)", 64*g+32*h))
					s.op("VPSRLD $4, %[1]s, %[1]s", y)
				}
				s.ops("VPSLLD $16, Y11, Y11", "VPOR Y11, Y12, Y12")
				s.op("VMOVDQU Y12, %d(R14)(R15*1)", factorPairs6K+32*h)
			}
		})
	}, func() {
		for h := range 2 {
			s.op("VCVTPH2PS %d(R13), Y%d", 16*h, 10+h)
			s.op("VCVTPH2PS %d(R13), Y%d", 32+16*h, 12+h)
			s.op("VXORPS integerSigns<>(SB), Y%[1]d, Y%[1]d", 12+h)
		}
		s.op("LEAQ %d(R13), SI", atBytes2K)
		s.line("group:")
		for h := range 2 {
			s.op("VPMOVZXBD %d(SI), Y15", 8*h)
			s.ops("VPAND integerNibble<>(SB), Y15, Y14", "VPSRLD $4, Y15, Y15")
			for i := range 2 {
				s.op("VCVTDQ2PS Y%[1]d, Y%[1]d", 14+i)
				s.op("VMULPS Y%d, Y%[2]d, Y%[2]d", 10+2*i+h, 14+i)
				s.op("VMOVUPS Y%d, %d(R14)", 14+i, 64*i+32*h)
			}
		}
		s.ops("ADDQ $16, SI", "ADDQ $128, R14", "DECQ CX", "JNZ group")
	})
}
