package main

import "fmt"

// codedFile has the kernels of pages of 8-bit codes. A block has 16 queries, one per lane of four
// registers. Where only the first of them differ, those are computed, and copied.
func codedFile(s *source) {
	s.table(table)
	s.define("coded", "Sign8", "One8", "LaneBits")
	codedSoftmaxKernel(s)
	codedMergeKernel(s)
	for _, set := range []string{setNEON, setDot} {
		codedScoresKernel(integer{codes: codes{source: s}, set: set})
		codedWeighKernel(integer{codes: codes{source: s}, set: set})
	}
}

// table writes the constants of the elementary functions.
func (s *source) table(list []number) {
	for i, c := range list {
		for j := range 2 {
			s.line("DATA table<>+%d(SB)/8, $0x%08x%08x", 16*i+8*j, c.bits, c.bits)
		}
	}
	s.line("GLOBL table<>(SB), RODATA|NOPTR, $%d\n", 16*len(list))
}

// dotBy adds the products of bytes of n and element i of m, four by four, to d. Without
// instructions for it V28 to V30 are overwritten.
func (k integer) dotBy(d, n, m, i int) {
	if k.set == setDot {
		k.element(0x4f80e000, "sdot.4s", d, n, m, i)
		return
	}
	k.op("VDUP V%d.S[%d], V28.S4", m, i) // sums of two products fit 16 bits
	k.three(0x0e20c000, "smull.8h", 29, n, 28)
	k.three(0x4e20c000, "smull2.8h", 30, n, 28)
	k.three(0x4e60bc00, "addp.8h", 29, 29, 30)
	k.two(0x4e606800, "sadalp.4s", d, 29)
}

// byWidth writes body for 1, 2 and 4 registers of queries that differ.
func byWidth(s *source, body func(registers int, label string)) {
	s.op("CMP $8, R13")
	s.op("BEQ width8")
	s.op("BGT width16")
	for _, n := range []int{1, 2, 4} {
		if n > 1 {
			s.line("width%d:", 4*n)
		}
		body(n, fmt.Sprint(4*n))
	}
}

func codedScoresKernel(k integer) {
	s := k.source
	s.line(`// func codedScores%s(p *CodedPage)
//
// The twin is codedScores8. Four keys go together.
//
//	R0 p    R1 keys    R2 bytes of a key    R3 queries    R4 groups left    R5 columns left, by 16
//	R6 scales of keys    R7 bytes to the next group's    R8 scores    R9 keys left    R10 not the first group
//	R11 scales of the first group    R13 lanes that differ    R15, R19-R21 places in the keys
//	V0-V15 sums    V16-V19 queries    V20-V23 keys    V24-V27 scores    V28-V30 scratch    V31 128
TEXT ·codedScores%s(SB), NOSPLIT, $0-8`, k.set, k.set)
	s.op("MOVD p+0(FP), R0")
	s.constant("coded", "Sign8", 31)
	for _, f := range []struct{ field, reg string }{
		{"Keys", "R1"}, {"Groups", "R2"}, {"ScaleStep", "R7"}, {"Scores", "R8"}, {"KeyScales", "R11"}, {"Width", "R13"},
	} {
		s.op("MOVD CodedPage_%s(R0), %s", f.field, f.reg)
	}
	s.op("LSL $6, R2")
	s.op("LSL $2, R7")
	s.op("MOVD $64, R9")
	byWidth(s, func(n int, label string) {
		s.line("keys%s:", label)
		s.op("MOVD CodedPage_Queries(R0), R3")
		s.op("MOVD CodedPage_Groups(R0), R4")
		s.op("MOVD CodedPage_More(R0), R10")
		s.op("MOVD R11, R6")
		s.op("MOVD R1, R15")
		for i, r := range []string{"R19", "R20", "R21"} {
			s.op("ADD R2, %s, %s", []string{"R15", "R19", "R20"}[i], r)
		}
		s.line("groups%s:", label)
		for i := range 4 * n {
			s.zero(i)
		}
		s.op("MOVD $4, R5")
		s.line("columns%s:", label)
		for j, r := range []string{"R15", "R19", "R20", "R21"} {
			s.op("FMOVQ.P 16(%s), F%d", r, 20+j)
			s.op("VEOR V31.B16, V%d.B16, V%d.B16", 20+j, 20+j)
		}
		for e := range 4 {
			for i := range n {
				s.load(16+i, 64*e+16*i, "R3")
			}
			for j := range 4 {
				for i := range n {
					k.dotBy(j*n+i, 16+i, 20+j, e)
				}
			}
		}
		s.op("ADD $256, R3")
		s.op("SUBS $1, R5")
		s.op("BNE columns%s", label)
		s.load(20, 0, "R6") // scales of the four keys
		for i := range n {
			s.load(16+i, 16*i, "R3")
		}
		for i := range 4 * n {
			s.scvtf(i, i)
			s.fmul(i, i, 16+i%n)
		}
		s.op("CBZ R10, first%s", label)
		for _, first := range []bool{false, true} {
			if first {
				s.line("first%s:", label)
			}
			for j := range 4 {
				for i := range n {
					if first {
						s.fmulAt(24+i, j*n+i, 20, j)
					} else {
						s.load(24+i, 64*j+16*i, "R8")
						s.fmlaAt(24+i, j*n+i, 20, j)
					}
					s.store(24+i, 64*j+16*i, "R8")
				}
			}
			if !first {
				s.op("JMP scaled%s", label)
			}
		}
		s.line("scaled%s:", label)
		s.op("MOVD $1, R10")
		s.op("ADD $192, R3")
		s.op("ADD R7, R6")
		s.op("SUBS $1, R4")
		s.op("BNE groups%s", label)
		for j := 0; j < 4 && n < 4; j++ {
			for i := range 4 {
				if i < n {
					s.load(24+i, 64*j+16*i, "R8")
				} else {
					s.store(24+i%n, 64*j+16*i, "R8")
				}
			}
		}
		s.op("ADD R2<<2, R1")
		s.op("ADD $256, R8")
		s.op("ADD $16, R11")
		s.op("SUBS $4, R9")
		s.op("BNE keys%s", label)
		s.op("RET")
	})
	s.line("")
}

func codedWeighKernel(k integer) {
	s := k.source
	s.line(`// func codedWeigh%s(p *CodedPage)
//
// The twin is codedWeigh. Two columns go together. Bytes of weights are made signed by
// subtracting 128, and 257*128 times the sum of the values is added in the end.
//
//	R0 p    R1 values    R2 signed weights    R3 sums    R4 columns left    R5 positions left, by 16
//	R6 place in the values of the second column    R13 lanes that differ
//	V0-V15 sums of high and low bytes    V16, V17 sums of values    V18, V19 values
//	V20-V23 weights    V27 ones    V28-V30 scratch    V31 128
TEXT ·codedWeigh%s(SB), NOSPLIT, $0-8`, k.set, k.set)
	s.op("MOVD p+0(FP), R0")
	s.constant("coded", "Sign8", 31)
	s.constant("coded", "One8", 27)
	s.op("MOVD CodedPage_Weights(R0), R1")
	s.op("MOVD CodedPage_tiles(R0), R2")
	s.op("MOVD $64, R4")
	s.line("sign:")
	s.op("FLDPQ.P 32(R1), (F0, F1)")
	s.op("VEOR V31.B16, V0.B16, V0.B16")
	s.op("VEOR V31.B16, V1.B16, V1.B16")
	s.op("FSTPQ.P (F0, F1), 32(R2)")
	s.op("SUBS $1, R4")
	s.op("BNE sign")
	for _, f := range []struct{ field, reg string }{{"Values", "R1"}, {"Sums", "R3"}, {"Dims", "R4"}, {"Width", "R13"}} {
		s.op("MOVD CodedPage_%s(R0), %s", f.field, f.reg)
	}
	byWidth(s, func(n int, label string) {
		s.line("columns%s:", label)
		s.op("MOVD CodedPage_tiles(R0), R2")
		s.op("ADD $64, R1, R6")
		s.op("MOVD $4, R5")
		for i := range 4 * n {
			s.zero(i)
		}
		s.zero(16)
		s.zero(17)
		s.line("positions%s:", label)
		s.op("FMOVQ.P 16(R1), F18")
		s.op("FMOVQ.P 16(R6), F19")
		for e := range 4 {
			for half := range 2 {
				for i := range n {
					s.load(20+i, 1024*half+64*e+16*i, "R2")
				}
				for j := range 2 {
					for i := range n {
						k.dotBy((2*j+half)*n+i, 20+i, 18+j, e)
					}
				}
			}
			for j := range 2 {
				k.dotBy(16+j, 27, 18+j, e)
			}
		}
		s.op("ADD $256, R2")
		s.op("SUBS $1, R5")
		s.op("BNE positions%s", label)
		for j := range 2 {
			s.op("VSHL $15, V%d.S4, V20.S4", 16+j)
			s.op("VSHL $7, V%d.S4, V21.S4", 16+j)
			s.op("VADD V20.S4, V21.S4, V20.S4")
			for i := range n {
				high, low := 2*j*n+i, (2*j+1)*n+i
				s.op("VSHL $8, V%d.S4, V%d.S4", high, high)
				s.op("VADD V%d.S4, V%d.S4, V%d.S4", low, high, high)
				s.op("VADD V20.S4, V%d.S4, V%d.S4", high, high)
				s.op("FMOVQ.P F%d, 16(R3)", high)
			}
		}
		s.op("ADD $64, R1")
		s.op("SUBS $2, R4")
		s.op("BNE columns%s", label)
		s.op("RET")
	})
	s.line("")
}

// seen sets V29 to the lanes, of those in V30, whose bit is set in the halfword at R2, which
// moves on by step bytes.
func (s *source) seen(step int) {
	if step == 0 {
		s.op("MOVHU (R2), R7")
	} else {
		s.op("MOVHU.P %d(R2), R7", step)
	}
	s.op("VDUP R7, V29.S4")
	s.op("VCMTST V30.S4, V29.S4, V29.S4")
}

func codedSoftmaxKernel(s *source) {
	s.line(`// func codedSoftmaxNEON(p *CodedPage)
//
// The twin is codedSoftmax. Four lanes go together. Those that are copies of others are not computed: their scores and
// weights stay as they are, the rest is copied.
//
//	R0 p    R1 scores    R2 masks    R3 scales of values    R4 positions left    R5 weights
//	R6 place in the sums    R7 scratch    R8, R9 scores and weights of the four lanes    R10 lanes left
//	V22 tops    V23 highest products, then their inverses    V29 lanes that see a position
//	V30 bits of the lanes
TEXT ·codedSoftmaxNEON(SB), NOSPLIT, $0-8`)
	s.op("MOVD p+0(FP), R0")
	s.op("MOVD $table<>(SB), R14")
	s.constant("coded", "LaneBits", 30)
	s.op("MOVD CodedPage_Scores(R0), R8")
	s.op("MOVD CodedPage_Weights(R0), R9")
	s.op("ADD $CodedPage_Now, R0, R6")
	s.op("MOVD CodedPage_Width(R0), R10")
	s.line("lanes:")
	restart := func() {
		s.op("MOVD R8, R1")
		s.op("MOVD CodedPage_Masks(R0), R2")
		s.op("MOVD CodedPage_ValueScales(R0), R3")
		s.op("MOVD $64, R4")
	}
	restart()
	s.from("-inf", 22)
	s.line("top:")
	s.load(0, 0, "R1")
	s.op("ADD $64, R1")
	s.seen(2)
	s.fcmgt(1, 0, 22)
	s.and(1, 1, 29)
	s.bit(22, 0, 1)
	s.op("SUBS $1, R4")
	s.op("BNE top")
	s.store(22, 0, "R6")
	restart()
	s.zero(23)
	s.line("exp:")
	s.load(0, 0, "R1")
	s.fsub(0, 0, 22)
	s.exp(0, 0)
	s.seen(2)
	s.and(0, 0, 29)
	s.store(0, 0, "R1")
	s.op("ADD $64, R1")
	s.op("FMOVS.P 4(R3), F1")
	s.fmulAt(1, 0, 1, 0)
	s.and(1, 1, 29)
	s.three(0x6ea06400, "umax.4s", 23, 23, 1)
	s.op("SUBS $1, R4")
	s.op("BNE exp")
	codedTotal(s)
	s.from("65535", 0)
	s.fdiv(1, 23, 0)
	s.store(1, 128, "R6")
	s.fdiv(1, 0, 23)
	s.from("2^-100", 2)
	s.three(0x6e20e400, "fcmge.4s", 2, 23, 2)
	s.and(23, 1, 2)
	restart()
	s.op("MOVD R9, R5")
	s.line("pack:")
	s.load(6, 0, "R3")
	s.op("ADD $16, R3")
	for i := range 4 {
		s.load(i, 64*i, "R1")
		s.fmulAt(i, i, 6, i)
		s.fmul(i, i, 23)
		s.two(0x4e21a800, "fcvtns.4s", i, i)
		s.seen(2)
		s.and(i, i, 29)
		s.op("VUSHR $8, V%d.S4, V%d.S4", i, 8+i)
	}
	for _, at := range []int{0, 8} {
		for i := 1; i < 4; i++ {
			s.op("VSLI $%d, V%d.S4, V%d.S4", 8*i, at+i, at)
		}
	}
	s.store(8, 0, "R5")
	s.store(0, 1024, "R5")
	s.op("ADD $64, R5")
	s.op("ADD $256, R1")
	s.op("SUBS $4, R4")
	s.op("BNE pack")
	s.op("VSHL $4, V30.S4, V30.S4")
	s.op("ADD $16, R6")
	s.op("ADD $16, R8")
	s.op("ADD $16, R9")
	s.op("SUBS $4, R10")
	s.op("BNE lanes")
	s.op("ADD $CodedPage_Now, R0, R6")
	s.op("MOVD CodedPage_Width(R0), R10")
	s.op("CMP $8, R10")
	s.op("BEQ width8")
	s.op("BGT done")
	for at := 0; at < 192; at += 64 {
		s.load(0, at, "R6")
		for lane := 16; lane < 64; lane += 16 {
			s.store(0, at+lane, "R6")
		}
	}
	s.op("RET")
	s.line("width8:")
	for at := 0; at < 192; at += 64 {
		s.load2(0, at, "R6")
		s.op("FSTPQ (F0, F1), %d(R6)", at+32)
	}
	s.line("done:")
	s.op("RET\n")
}

// codedTotal adds up the weights from R8 on in lane order, and stores them.
func codedTotal(s *source) {
	lane := func(l, d int) {
		s.load(d, 64*l, "R8")
		for i := 1; i < 4; i++ {
			s.load(7, 64*(l+16*i), "R8")
			s.fadd(d, d, 7)
		}
	}
	// Lanes l and l+8 meet first, then l and l+4, and so on.
	for i := range 4 {
		for j := range 2 {
			lane(i+4*j, 4+j)
			lane(i+4*j+8, 6)
			s.fadd(4+j, 4+j, 6)
		}
		s.fadd(i, 4, 5)
	}
	s.fadd(0, 0, 2)
	s.fadd(1, 1, 3)
	s.fadd(0, 0, 1)
	s.store(0, 64, "R6")
}

func codedMergeKernel(s *source) {
	s.line(`// func codedMergeNEON(m *CodedMerge)
//
// The twin is codedMerge. Four lanes go together.
//
//	R0 m    R1 all    R3 now    R2 the lanes    R4 numbers left    R5 out    R6 sums
//	R8, R9 out and sums of the four lanes    R10 lanes left
//	V22, V23 factors of what was there and of what is added    V29 lanes that see the page
//	V30 bits of the lanes
TEXT ·codedMergeNEON(SB), NOSPLIT, $0-8`)
	s.op("MOVD m+0(FP), R0")
	s.op("MOVD $table<>(SB), R14")
	s.constant("coded", "LaneBits", 30)
	s.op("MOVD CodedMerge_All(R0), R1")
	s.op("MOVD CodedMerge_Now(R0), R3")
	s.op("ADD $CodedMerge_Sees, R0, R2")
	s.op("MOVD CodedMerge_Out(R0), R8")
	s.op("MOVD CodedMerge_Sums(R0), R9")
	s.op("MOVD $16, R10")
	s.line("lanes:")
	s.seen(0)
	s.load(0, 0, "R1")
	s.load(1, 0, "R3")
	s.move(2, 0)
	s.fcmgt(3, 1, 0)
	s.bit(2, 1, 3)
	s.fsub(4, 0, 2)
	s.fsub(5, 1, 2)
	s.bit(0, 2, 29)
	s.store(0, 0, "R1")
	s.exp(22, 4)
	s.exp(23, 5)
	s.load(0, 64, "R1")
	s.load(1, 64, "R3")
	s.fmul(2, 0, 22)
	s.fmla(2, 1, 23)
	s.bit(0, 2, 29)
	s.store(0, 64, "R1")
	s.load(0, 128, "R3")
	s.fmul(23, 23, 0)
	s.op("MOVD CodedMerge_Out+8(R0), R4")
	s.op("MOVD R8, R5")
	s.op("MOVD R9, R6")
	s.line("sums:")
	s.load(0, 0, "R5")
	s.load(1, 0, "R6")
	s.op("ADD $64, R6")
	s.scvtf(1, 1)
	s.fmul(2, 0, 22)
	s.fmla(2, 1, 23)
	s.bit(0, 2, 29)
	s.store(0, 0, "R5")
	s.op("ADD $64, R5")
	s.op("SUBS $16, R4")
	s.op("BNE sums")
	s.op("VSHL $4, V30.S4, V30.S4")
	for _, r := range []string{"R1", "R3", "R8", "R9"} {
		s.op("ADD $16, %s", r)
	}
	s.op("SUBS $4, R10")
	s.op("BNE lanes")
	s.op("RET\n")
}
