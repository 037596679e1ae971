package main

// factors names what is in the tails of superblocks, "" if no format with such codes has them.
func (k integer) factors() string {
	switch {
	case k.grid:
		return "Grid"
	case k.levels:
		return "XS"
	case k.fp4:
		return ""
	case k.bits == 4 || k.bits == 5:
		return "K"
	case k.bits == 6 || k.bits == 3:
		return "6K"
	case k.bits == 2:
		return "2K"
	}
	return ""
}

// least reports whether superblocks have biases.
func (k integer) least() bool { return k.factors() == "K" || k.factors() == "2K" }

// decodeFactors decodes those of the superblock at R1, of blocks of R9 bytes. R21 becomes the
// number of its groups, R20 where decoded factors are.
func (k integer) decodeFactors() {
	k.ops("MOVD integerArgs_per(R0), R21", "MUL R21, R9, R15", "ADD R1, R15", "MOVD integerArgs_decoded(R0), R20")
	switch k.factors() {
	case "6K":
		k.factors6K()
	case "2K":
		k.factors2K()
	default:
		k.sixBits()
	}
}

// factorsKernel does it for one superblock.
func (k integer) factorsKernel() {
	k.line("// func factors%sNEON(a *integerArgs)\n//", k.factors())
	k.line("// The twin is Weight.factors. Registers are those of the products.")
	k.line("TEXT ·factors%sNEON(SB), NOSPLIT, $0-8", k.factors())
	k.ops("MOVD a+0(FP), R0", "MOVD integerArgs_weights(R0), R1", "MOVD integerArgs_block(R0), R9")
	k.decodeFactors()
	k.op("RET\n")
}

// factors6K decodes factors of Q6_K from the tail at R15 to R20.
func (k integer) factors6K() {
	k.halves(16)
	k.ops("MOVD R20, R24", "MOVD R21, R25")
	k.line("factor:")
	k.op("ADD $16, R15")
	k.load(24, 16, "R15")
	k.two(0x4f08a400, "sshll2.8h #0", 26, 24)
	k.two(0x0f08a400, "sshll.8h #0", 24, 24)
	for x := 24; x < 28; x += 2 {
		k.two(0x4f10a400, "sshll2.4s #0", x+1, x)
		k.two(0x0f10a400, "sshll.4s #0", x, x)
	}
	for h := range 4 {
		k.scvtf(24+h, 24+h)
		k.fmul(24+h, 24+h, 16+h)
		k.store(24+h, 16*h, "R24")
	}
	k.ops("ADD $64, R24", "SUBS $1, R25", "BNE factor")
}

// factors2K decodes factors of Q2_K from the tail at R15 to R20, scales and then biases of each group.
func (k integer) factors2K() {
	k.halves(16)
	k.ops("MOVD R20, R24", "MOVD R21, R25", "VMOVI $15, V28.B16", "ADD $32, R15")
	k.halves(20)
	for h := range 4 {
		k.fneg(20+h, 20+h)
	}
	k.op("ADD $%d, R15", atBytes2K-32)
	k.line("factor:")
	k.load(29, 0, "R15")
	for i := range 2 {
		if i == 0 {
			k.and(24, 29, 28)
		} else {
			k.op("VUSHR $4, V29.B16, V24.B16")
		}
		k.two(0x6f08a400, "ushll2.8h #0", 26, 24)
		k.two(0x2f08a400, "ushll.8h #0", 24, 24)
		for x := 24; x < 28; x += 2 {
			k.two(0x4f10a400, "sshll2.4s #0", x+1, x)
			k.two(0x0f10a400, "sshll.4s #0", x, x)
		}
		for h := range 4 {
			k.scvtf(24+h, 24+h)
			k.fmul(24+h, 24+h, 16+4*i+h)
			k.store(24+h, 64*i+16*h, "R24")
		}
	}
	k.ops("ADD $16, R15", "ADD $128, R24", "SUBS $1, R25", "BNE factor")
}

// superFactors2K decodes the factors of a superblock of Q2_K to bytes: 16 of each group, and those of the
// biases after them.
func superFactors2K(s *source) {
	s.line(`// superFactors2K decodes the factors in the tail at R12 to R23: 16 bytes for each of sixteen groups, and
// as many for the biases. The twin is Weight.smallFactors.
//
//	V0 factors    V1, R15 scratch    V22 mask of four bits
TEXT superFactors2K<>(SB), NOSPLIT|NOFRAME, $0`)
	s.op("VMOVI $15, V22.B16")
	s.op("ADD $%d, R12, R15", atBytes2K)
	for g := range 16 {
		s.load(0, 16*g, "R15")
		s.and(1, 0, 22)
		s.store(1, 16*g, "R23")
		s.op("VUSHR $4, V0.B16, V1.B16")
		s.store(1, 256+16*g, "R23")
	}
	s.op("RET\n")
}

// Places in the tails, as package kernel has them.
const (
	atNibblesK, atBiasesK, atPairsK = 64, 128, 192
	atNibblesXS, atPairsXS          = 32, 96
	atBytes2K                       = 64
)

// sixBits decodes factors of 6 bits from the tail at R15 to R20, four rows at a time. R23 is at
// the halves of these, R22 at what has 32 bits, R24 where they go.
func (k integer) sixBits() {
	k.ops("MOVD R15, R22", "MOVD R15, R23", "MOVD R20, R24", "MOVD $4, R25")
	for _, c := range []struct{ reg, value int }{{28, 15}, {29, 0x30}, {31, 32}} {
		k.op("MOVD $%d, R15", c.value)
		k.op("VDUP R15, V%d.S4", c.reg)
	}
	k.line("factor:")
	k.op("FMOVD (R23), F24")
	k.fcvtl(24, 24)
	if k.levels {
		k.load(25, atNibblesXS, "R22")
		k.op("FMOVD %d(R23), F26", atPairsXS)
		k.two(0x2f10a400, "ushll.4s #0", 26, 26)
		k.eight(0, 0, 64)
	} else {
		k.load(25, atNibblesK, "R22")
		k.load(26, atPairsK, "R22")
		k.eight(0, 0, 128)
		k.op("FMOVD 32(R23), F24")
		k.fcvtl(24, 24)
		k.fneg(24, 24)
		k.load(25, atBiasesK, "R22")
		k.eight(16, 64, 128)
	}
	k.ops("ADD $8, R23", "ADD $16, R22", "ADD $16, R24", "SUBS $1, R25", "BNE factor")
}

// eight decodes the factors of eight groups: low bits from V25, high bits, from bit at on, from
// V26, times V24.
func (k integer) eight(at, out, apart int) {
	for g := range 8 {
		if g == 0 {
			k.and(27, 25, 28)
		} else {
			k.op("VUSHR $%d, V25.S4, V27.S4", 4*g)
			k.and(27, 27, 28)
		}
		switch right := at + 2*g - 4; {
		case right < 0:
			k.op("VSHL $%d, V26.S4, V30.S4", -right)
			k.and(30, 30, 29)
		case right == 0:
			k.and(30, 26, 29)
		default:
			k.op("VUSHR $%d, V26.S4, V30.S4", right)
			k.and(30, 30, 29)
		}
		k.or(27, 27, 30)
		if k.levels {
			k.op("VSUB V31.S4, V27.S4, V27.S4")
		}
		k.scvtf(27, 27)
		k.fmul(27, 27, 24)
		k.store(27, out+apart*g, "R24")
	}
}

// superFactors decodes the factors of a superblock to bytes: 16 of each group, and of Q4_K and Q5_K
// the biases' after those of eight groups.
func superFactors(s *source, kind string) {
	s.line(`// superFactors%s decodes the factors in the tail at R12 to R23: 16 bytes for each of eight groups,
// and if there are biases as many for these. The twin is Weight.smallFactors.
//
//	V0-V3 low bits    V4-V7 high bits    V20-V23, R15 scratch    V24 mask of four bits
TEXT superFactors%s<>(SB), NOSPLIT|NOFRAME, $0`, kind, kind)
	const four = "[V%d.B16, V%d.B16, V%d.B16, V%d.B16]"
	s.op("VMOVI $48, V22.B16")
	if kind == "XS" {
		s.op("ADD $%d, R12, R15", atNibblesXS)
		s.op("VLD4 (R15), "+four, 0, 1, 2, 3)
		s.op("ADD $%d, R12, R15", atPairsXS)
		s.ops("VLD2 (R15), [V4.B16, V5.B16]", "VMOVI $32, V23.B16")
		s.smallFactors(4, 0, true)
	} else {
		s.op("ADD $%d, R12, R15", atPairsK)
		s.op("VLD4 (R15), "+four, 4, 5, 6, 7)
		for i, at := range []int{atNibblesK, atBiasesK} {
			s.op("ADD $%d, R12, R15", at)
			s.op("VLD4 (R15), "+four, 0, 1, 2, 3)
			s.smallFactors(4+2*i, 128*i, false)
		}
	}
	s.op("RET\n")
}

// smallFactors decodes factors of eight groups: byte i of a row's low bits, in register i, has those
// of groups 2i and 2i+1, that of its high bits, from register high on, those of groups 4i to 4i+3.
func (s *source) smallFactors(high, at int, signed bool) {
	for g := range 8 {
		if g%2 == 0 {
			s.and(20, g/2, regMask)
		} else {
			s.op("VUSHR $4, V%d.B16, V20.B16", g/2)
		}
		from := high + g/4
		switch shift := 4 - 2*(g%4); {
		case shift > 0:
			s.op("VSHL $%d, V%d.B16, V21.B16", shift, from)
			from = 21
		case shift < 0:
			s.op("VUSHR $%d, V%d.B16, V21.B16", -shift, from)
			from = 21
		}
		s.three(0x6ea01c00, "bit.16b", 20, from, 22)
		if signed {
			s.op("VSUB V23.B16, V20.B16, V20.B16")
		}
		s.store(20, at+16*g, "R23")
	}
}
