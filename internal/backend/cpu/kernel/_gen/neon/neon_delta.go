package main

func deltaReadKernel(s *source) {
	s.line(`// func deltaReadNEON(out, delta, state []float32, stride, ahead int, q, k, v []float32, decay, beta, kq float32)
//
// The twin is deltaRead, for multiples of 16 columns. Eight of them go together.
//
//	R0 output    R1 delta    R2 state of the first column    R3 bytes of a row
//	R4 columns left    R5 values    R6 keys    R7 queries    R8 rows left    R9 state
//	R10, R11 places in keys and queries    V0-V7 u    V8-V15 w, for each row mod 4
//	V16, V17 state    V18 keys    V19 queries    V20, V21 delta    V24 -decay    V25 decay    V26 beta    V27 kq
TEXT ·deltaReadNEON(SB), NOSPLIT, $0-172`)
	s.ops("MOVD out_base+0(FP), R0", "MOVD delta_base+24(FP), R1", "MOVD delta_len+32(FP), R4")
	s.ops("MOVD state_base+48(FP), R2", "MOVD stride+72(FP), R3", "LSL $2, R3", "MOVD q_base+88(FP), R7")
	s.ops("MOVD k_base+112(FP), R6", "MOVD v_base+136(FP), R5")
	for i, n := range []string{"decay", "beta", "kq"} {
		s.op("FMOVS %s+%d(FP), F%d", n, 160+4*i, 25+i)
		s.op("VDUP V%d.S[0], V%d.S4", 25+i, 25+i)
	}
	s.fneg(24, 25)
	row := func(i, element int) {
		s.load2(16, 0, "R9")
		s.op("ADD R3, R9")
		for j := range 2 {
			s.fmlaAt(2*i+j, 16+j, 18, element)
			s.fmlaAt(8+2*i+j, 16+j, 19, element)
		}
	}
	s.op("CBZ R4, end")
	s.line("columns:")
	s.ops("MOVD k_len+120(FP), R8", "MOVD R2, R9", "MOVD R6, R10", "MOVD R7, R11")
	for i := range 16 {
		s.zero(i)
	}
	s.ops("SUBS $4, R8", "BLT rest")
	s.line("rows:")
	s.ops("FMOVQ.P 16(R10), F18", "FMOVQ.P 16(R11), F19")
	for i := range 4 {
		row(i, i)
	}
	s.ops("SUBS $4, R8", "BGE rows")
	s.line("rest:")
	s.op("ADDS $4, R8")
	for i := range 3 {
		if i > 0 {
			s.op("SUBS $1, R8")
		}
		s.ops("BEQ combine", "FMOVS.P 4(R10), F18", "FMOVS.P 4(R11), F19")
		row(i, 0)
	}
	s.line("combine:")
	deltaCombine(s, 20)
	s.ops("FSTPQ.P (F20, F21), 32(R1)", "ADD $32, R2", "SUBS $8, R4", "BNE columns")
	s.line("end:")
	s.op("RET\n")
}

// deltaCombine adds the sums of eight columns up, computes their deltas in registers delta and
// delta+1 from the values at R5, and writes their outputs to R0. Both move on.
func deltaCombine(s *source, delta int) {
	for j := range 2 {
		for _, base := range []int{0, 8} {
			s.fadd(base+j, base+j, base+2+j)
			s.fadd(base+4+j, base+4+j, base+6+j)
			s.fadd(base+j, base+j, base+4+j)
		}
		s.op("FMOVQ.P 16(R5), F%d", delta+j)
		s.fmla(delta+j, 24, j)
		s.fmul(delta+j, delta+j, 26)
		s.fmul(8+j, 25, 8+j)
		s.fmla(8+j, 27, delta+j)
		s.op("FMOVQ.P F%d, 16(R0)", 8+j)
	}
}

func deltaUpdateKernel(s *source) {
	s.line(`// func deltaUpdateNEON(dst []float32, dstStride int, src []float32, srcStride, ahead int, k, delta []float32, decay float32)
//
// The twin is deltaUpdate, for multiples of 16 columns, which go together.
//
//	R0 output of the first column    R1 its bytes of a row    R2 input    R3 its bytes of a row
//	R4 keys    R5 delta    R6 columns left    R7 rows left    R8-R10 places in output, input
//	and keys    V0-V3 state    V4-V7 delta    V16 key    V24 decay
TEXT ·deltaUpdateNEON(SB), NOSPLIT, $0-124`)
	s.ops("MOVD dst_base+0(FP), R0", "MOVD dstStride+24(FP), R1", "MOVD src_base+32(FP), R2", "MOVD srcStride+56(FP), R3")
	s.ops("MOVD k_base+72(FP), R4", "MOVD delta_base+96(FP), R5", "MOVD delta_len+104(FP), R6", "FMOVS decay+120(FP), F24")
	s.ops("LSL $2, R1", "LSL $2, R3", "CBZ R6, end", "MOVD k_len+80(FP), R7", "CBZ R7, end")
	s.line("columns:")
	s.ops("MOVD k_len+80(FP), R7", "MOVD R0, R8", "MOVD R2, R9", "MOVD R4, R10")
	s.load2(4, 0, "R5")
	s.load2(6, 32, "R5")
	s.op("ADD $64, R5")
	s.line("rows:")
	s.op("FMOVS.P 4(R10), F16")
	s.load2(0, 0, "R9")
	s.load2(2, 32, "R9")
	s.op("ADD R3, R9")
	for i := range 4 {
		s.fmulAt(i, i, 24, 0)
		s.fmlaAt(i, 4+i, 16, 0)
	}
	s.ops("FSTPQ (F0, F1), (R8)", "FSTPQ (F2, F3), 32(R8)", "ADD R1, R8", "SUBS $1, R7", "BNE rows", "ADD $64, R0")
	s.ops("ADD $64, R2", "SUBS $16, R6", "BNE columns")
	s.line("end:")
	s.op("RET\n")
}

func deltaStepsKernel(s *source) {
	s.line(`// func deltaStepsNEON(out []float32, outStride int, delta, state, mixed []float32, stride, keys, values int, decay, beta, kq []float32)
//
// The twin is deltaSteps, for multiples of 16 columns. Eight of them go together.
//
//	R0 output    R1 bytes from the end of a token's output to the next    R2 state of the first
//	column    R3 bytes of a row    R4 columns left    R5 values    R6 key of the token before    R7
//	query    R8 rows left    R9 state    R10-R12 places in those keys, keys and queries    R13 key
//	R14 bytes between tokens    R15 tokens left    R16, R17, R19 decay, beta, kq    R20 delta
//	R21 bytes to the first column    V0-V7 u    V8-V15 w, for each row mod 4    V16, V17 state
//	V18 keys    V19 queries    V20, V21 delta    V22 keys of the token before
//	V24 -decay    V25 decay    V26 beta    V27 kq
TEXT ·deltaStepsNEON(SB), NOSPLIT, $0-200`)
	s.ops("MOVD outStride+24(FP), R1", "LSL $2, R1", "SUB $32, R1", "MOVD delta_base+32(FP), R20")
	s.ops("MOVD delta_len+40(FP), R4", "LSL $2, R4, R3", "MOVD state_base+56(FP), R2", "MOVD stride+104(FP), R14")
	s.ops("LSL $2, R14", "MOVD $0, R21", "CBZ R4, end")
	s.line("columns:")
	s.ops("MOVD out_base+0(FP), R0", "ADD $32, R0", "ADD R21, R0", "MOVD mixed_base+80(FP), R7", "MOVD keys+112(FP), R13")
	s.ops("ADD R13<<2, R7, R13", "MOVD values+120(FP), R5", "ADD R5<<2, R7, R5", "ADD $32, R5", "ADD R21, R5")
	s.ops("MOVD decay_base+128(FP), R16", "MOVD decay_len+136(FP), R15", "MOVD beta_base+152(FP), R17")
	s.ops("MOVD kq_base+176(FP), R19", "ADD $4, R17", "ADD $4, R19", "FMOVS.P 4(R16), F25", "VDUP V25.S[0], V25.S4")
	s.load2(20, 0, "R20")
	row := func(i, element int) {
		s.load2(16, 0, "R9")
		for j := range 2 {
			s.fmul(16+j, 16+j, 25)
			s.fmlaAt(16+j, 20+j, 22, element)
		}
		s.ops("FSTPQ (F16, F17), (R9)", "ADD R3, R9")
		for j := range 2 {
			s.fmlaAt(2*i+j, 16+j, 18, element)
			s.fmlaAt(8+2*i+j, 16+j, 19, element)
		}
	}
	s.line("tokens:")
	s.ops("SUBS $1, R15", "BLE stop", "MOVD R13, R6", "ADD R14, R13", "ADD R14, R7", "ADD R14, R5", "SUB $32, R5")
	s.ops("ADD R1, R0", "MOVD keys+112(FP), R8", "MOVD R2, R9", "MOVD R6, R10", "MOVD R13, R11", "MOVD R7, R12")
	for i := range 16 {
		s.zero(i)
	}
	s.ops("SUBS $4, R8", "BLT rest")
	s.line("rows:")
	s.ops("FMOVQ.P 16(R10), F22", "FMOVQ.P 16(R11), F18", "FMOVQ.P 16(R12), F19")
	for i := range 4 {
		row(i, i)
	}
	s.ops("SUBS $4, R8", "BGE rows")
	s.line("rest:")
	s.op("ADDS $4, R8")
	for i := range 3 {
		if i > 0 {
			s.op("SUBS $1, R8")
		}
		s.ops("BEQ combine", "FMOVS.P 4(R10), F22", "FMOVS.P 4(R11), F18", "FMOVS.P 4(R12), F19")
		row(i, 0)
	}
	s.line("combine:")
	for i, n := range []string{"R16", "R17", "R19"} {
		s.op("FMOVS.P 4(%s), F%d", n, 25+i)
		s.op("VDUP V%d.S[0], V%d.S4", 25+i, 25+i)
	}
	s.fneg(24, 25)
	deltaCombine(s, 20)
	s.op("B tokens")
	s.line("stop:")
	s.ops("FSTPQ.P (F20, F21), 32(R20)", "ADD $32, R21", "ADD $32, R2", "SUBS $8, R4", "BNE columns")
	s.line("end:")
	s.op("RET\n")
}
