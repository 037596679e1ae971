package main

import "math/bits"

// Sizes of package kernel: PageTokens and PromptStrip are as many, PromptQueries is four.
const promptStrip = 64

// promptFile has the kernels of attention over a page that many queries see.
func promptFile(s *source) {
	s.table(table)
	promptRowsKernel(s, 4)
	promptRowsKernel(s, 2)
	promptValuesKernel(s)
	promptScoresKernel(s)
	promptFactorsKernel(s)
	promptWeighKernel(s)
}

func (s *source) zip1(d, n, m int) { s.three(0x4e803800, "zip1.4s", d, n, m) }
func (s *source) zip2(d, n, m int) { s.three(0x4e807800, "zip2.4s", d, n, m) }

func promptRowsKernel(s *source, bytes int) {
	_, shift := pageKind(bytes)
	kind := map[int]string{4: "[]float32", 2: "[]uint16"}[bytes]
	s.line(`// func promptRows%dNEON(dst []float32, rows %s, d int)
//
// The twin is promptRows%d. Squares of four rows and 16 columns are transposed.
//
//	R0 dst of four rows    R1 rows    R2 bytes of a row    R3 bytes of a lane    R4 columns left
//	R5 fours of rows left    R6 those left in the strip    R7-R10 places in rows    R11, R12 places in dst
//	V0-V15 rows    V16-V27 and every fourth of V0-V15 columns    V28-V31 halves of them
TEXT ·promptRows%dNEON(SB), NOSPLIT, $0-56`, 8*bytes, kind, 8*bytes, 8*bytes)
	s.ops("MOVD dst_base+0(FP), R0", "MOVD dst_len+8(FP), R5", "MOVD rows_base+24(FP), R1", "MOVD d+48(FP), R4")
	s.ops("UDIV R4, R5, R5", "LSR $2, R5")
	s.op("LSL $%d, R4, R2", shift)
	s.op("LSL $4, R4, R3") // d/16 rows of 256 bytes
	s.line("strips:")
	s.op("MOVD $%d, R6", promptStrip/4)
	s.line("rows:")
	s.op("MOVD R1, R7")
	for i := range 3 {
		s.op("ADD R2, R%d, R%d", 7+i, 8+i)
	}
	s.ops("MOVD R0, R11", "MOVD d+48(FP), R4")
	s.line("columns:")
	for r := range 4 {
		s.load16(4*r, []string{"R7", "R8", "R9", "R10"}[r], bytes)
		s.op("ADD $%d, R%d", 16*bytes, 7+r)
	}
	at := func(lane int) int { // of a column
		if lane < 12 {
			return 16 + lane
		}
		return 4 * (lane - 12)
	}
	for k := range 4 {
		s.zip1(28, k, 8+k)
		s.zip2(29, k, 8+k)
		s.zip1(30, 4+k, 12+k)
		s.zip2(31, 4+k, 12+k)
		for i := range 2 {
			s.zip1(at(4*k+2*i), 28+i, 30+i)
			s.zip2(at(4*k+2*i+1), 28+i, 30+i)
		}
	}
	s.op("MOVD R11, R12")
	for p := range 16 {
		s.store(at(int(bits.Reverse8(uint8(p))>>4)), 0, "R12")
		s.op("ADD R3, R12")
	}
	s.op("ADD $%d, R11", 4*promptStrip)
	s.ops("SUBS $16, R4", "BNE columns", "ADD R2<<2, R1", "ADD $16, R0", "SUBS $1, R5", "BEQ end", "SUBS $1, R6")
	s.op("BNE rows")
	s.op("ADD R3<<4, R0") // the strip has 16 lanes, and R0 has passed a row of it
	s.op("SUB $%d, R0", 4*promptStrip)
	s.op("JMP strips")
	s.line("end:")
	s.op("RET\n")
}

func promptValuesKernel(s *source) {
	s.line(`// func promptValues16NEON(dst []float32, values []uint16, d int)
//
// The twin is promptValues16.
//
//	R0 dst    R1 values    R2 bytes of a value    R3 values left    R4 place in a value
TEXT ·promptValues16NEON(SB), NOSPLIT, $0-56`)
	s.ops("MOVD dst_base+0(FP), R0", "MOVD values_base+24(FP), R1", "MOVD d+48(FP), R2", "LSL $1, R2", "MOVD $64, R3")
	s.line("rows:")
	s.op("MOVD R1, R4")
	for range promptStrip / 16 {
		s.load16(0, "R4", 2)
		for i := range 4 {
			s.store(i, 16*i, "R0")
		}
		s.ops("ADD $32, R4", "ADD $64, R0")
	}
	s.ops("ADD R2, R1", "SUBS $1, R3", "BNE rows")
	s.op("RET\n")
}

func promptScoresKernel(s *source) {
	s.line(`// func promptScoresNEON(dst, q, keys, sums []float32, next []int8, d int, scale float32)
//
// The twin is promptScores. Four queries and 16 keys go together, and of their dot products one
// lane after another, in the order in which the tree adds their sums.
//
//	R0 dst of the keys    R1 queries of the tile    R2 keys    R3 sums that wait    R4 d    R5 queries left
//	R6 lane    R7, R8 places in queries and keys    R9 numbers left    R10 dst of the tile
//	R11 tiles left in the strip    R12 blocks of keys left
//	V0-V15 sums    V16-V19 keys or sums that wait    V20 queries    V24 scale
TEXT ·promptScoresNEON(SB), NOSPLIT, $0-132`)
	s.ops("MOVD dst_base+0(FP), R0", "MOVD keys_base+48(FP), R2", "MOVD sums_base+72(FP), R3", "MOVD d+120(FP), R4")
	s.ops("FMOVS scale+128(FP), F24", "MOVD $4, R12")
	s.line("blocks:")
	s.ops("MOVD q_base+24(FP), R1", "MOVD dst_len+8(FP), R5", "LSR $6, R5", "MOVD R0, R10")
	s.op("MOVD $%d, R11", promptStrip/4)
	s.line("tiles:")
	s.ops("MOVD R1, R7", "MOVD R2, R8", "MOVD $0, R6")
	s.line("lanes:")
	for i := range 16 {
		s.zero(i)
	}
	s.op("MOVD R4, R9")
	s.line("steps:")
	s.load2(16, 0, "R8")
	s.load2(18, 32, "R8")
	s.load(20, 0, "R7")
	s.op("ADD $%d, R8", 4*promptStrip)
	s.op("ADD $%d, R7", 4*promptStrip)
	for i := range 16 {
		s.fmlaAt(i, 16+i%4, 20, i/4)
	}
	s.ops("SUBS $16, R9", "BNE steps")
	for level := range 4 {
		s.op("TBZ $%d, R6, wait%d", level, level)
		for i := range 16 {
			s.load(16+i%4, 256*level+16*i, "R3")
			s.fadd(i, i, 16+i%4)
		}
	}
	for i := range 16 {
		s.fmulAt(i, i, 24, 0)
		s.store(i, 4*64*(i/4)+16*(i%4), "R10")
	}
	s.op("JMP stored")
	for level := range 4 {
		s.line("wait%d:", level)
		for i := range 16 {
			s.store(i, 256*level+16*i, "R3")
		}
		s.ops("ADD $1, R6", "JMP lanes")
	}
	s.line("stored:")
	s.op("ADD $%d, R10", 4*4*64)
	s.ops("ADD $16, R1", "SUBS $1, R11", "BNE same")
	s.op("SUB $%d, R7, R1", 4*promptStrip-16) // the next strip
	s.op("MOVD $%d, R11", promptStrip/4)
	s.line("same:")
	s.ops("SUBS $4, R5", "BNE tiles", "ADD $64, R0", "ADD $64, R2", "SUBS $1, R12", "BNE blocks")
	s.op("RET\n")
}

func promptFactorsKernel(s *source) {
	s.line(`// func promptFactorsNEON(old, more, allTop, allWeight, nowTop, nowWeight []float32)
//
// The twin is promptFactors; numbers are a multiple of four.
//
//	R0-R5 arguments    R6 numbers left    V0, V1 tops    V2 the higher    V4, V5 factors
TEXT ·promptFactorsNEON(SB), NOSPLIT, $0-144`)
	for i, n := range []string{"old", "more", "allTop", "allWeight", "nowTop", "nowWeight"} {
		s.op("MOVD %s_base+%d(FP), R%d", n, 24*i, i)
	}
	s.ops("MOVD old_len+8(FP), R6", "MOVD $table<>(SB), R14")
	s.line("loop:")
	s.load(0, 0, "R2")
	s.load(1, 0, "R4")
	s.move(2, 0)
	s.fcmgt(3, 1, 0)
	s.bit(2, 1, 3)
	s.op("FMOVQ.P F2, 16(R2)")
	s.fsub(0, 0, 2)
	s.fsub(1, 1, 2)
	s.exp(4, 0)
	s.exp(5, 1)
	s.ops("FMOVQ.P F4, 16(R0)", "FMOVQ.P F5, 16(R1)")
	s.load(0, 0, "R3")
	s.load(1, 0, "R5")
	s.fmul(0, 0, 4)
	s.fmla(0, 1, 5)
	s.ops("FMOVQ.P F0, 16(R3)", "ADD $16, R4", "ADD $16, R5", "SUBS $4, R6", "BNE loop")
	s.op("RET\n")
}

func promptWeighKernel(s *source) {
	s.line(`// func promptWeighNEON(out []*float32, weights, values, old, more []float32, next []int8, column int)
//
// The twin is promptWeigh. Four queries and 16 columns go together.
//
//	R0 out of the tile    R1 queries left    R2 weights of the tile    R3 values    R4, R5 old and more, or zero
//	R6 bytes of columns before    R7, R8 places in values and weights    R9 positions left    R10 a row
//	R12 blocks of columns left    V0-V15 sums    V16-V19 values    V20-V23 weights
TEXT ·promptWeighNEON(SB), NOSPLIT, $0-152`)
	s.ops("MOVD values_base+48(FP), R3", "MOVD column+144(FP), R6", "LSL $2, R6")
	s.op("MOVD $%d, R12", promptStrip/16)
	s.line("blocks:")
	s.ops("MOVD out_base+0(FP), R0", "MOVD out_len+8(FP), R1", "MOVD weights_base+24(FP), R2", "MOVD old_base+72(FP), R4")
	s.op("MOVD more_base+96(FP), R5")
	s.line("tiles:")
	for i := range 16 {
		s.zero(i)
	}
	s.ops("MOVD R3, R7", "MOVD R2, R8", "MOVD $16, R9")
	s.line("rows:")
	for q := range 4 {
		s.load(20+q, 4*64*q, "R8")
	}
	s.op("ADD $16, R8")
	for u := range 4 {
		s.load2(16, 0, "R7")
		s.load2(18, 32, "R7")
		s.op("ADD $%d, R7", 4*promptStrip)
		for i := range 16 {
			s.fmlaAt(i, 16+i%4, 20+i/4, u)
		}
	}
	s.ops("SUBS $1, R9", "BNE rows", "CBZ R4, store")
	row := func(q int) {
		s.op("MOVD %d(R0), R10", 8*q)
		s.op("ADD R6, R10")
	}
	for q := range 4 {
		row(q)
		s.ops("FMOVS.P 4(R4), F20", "FMOVS.P 4(R5), F21")
		for v := range 4 {
			s.load(16+v, 16*v, "R10")
			s.fmulAt(16+v, 16+v, 20, 0)
			s.fmlaAt(16+v, 4*q+v, 21, 0)
			s.store(16+v, 16*v, "R10")
		}
	}
	s.op("JMP stored")
	s.line("store:")
	for q := range 4 {
		row(q)
		for v := range 4 {
			s.store(4*q+v, 16*v, "R10")
		}
	}
	s.line("stored:")
	s.op("ADD $32, R0")
	s.op("ADD $%d, R2", 4*4*64)
	s.ops("SUBS $4, R1", "BNE tiles", "ADD $64, R3", "ADD $64, R6", "SUBS $1, R12", "BNE blocks")
	s.op("RET\n")
}
