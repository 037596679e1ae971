package main

func turnKernel(s *source) {
	s.line(`// func turnNEON(dst, src, scales []float32, places []uint8, turns []float32, rounds int)
//
// The twin is turn. The numbers of a group go between a buffer and dst, so that the buffer is the last.
//
//	R0 dst    R1 src    R2 scales    R3 places    R4 turns    R5 numbers left    R6 rounds left
//	R7 the numbers of a group    R8 those after a round    R9-R13 places    V0, V1 pairs    V2, V3 turns
TEXT ·turnNEON(SB), NOSPLIT, $512-128`)
	for i, name := range []string{"dst", "src", "scales", "places", "turns"} {
		s.op("MOVD %s_base+%d(FP), R%d", name, 24*i, i)
	}
	s.op("MOVD dst_len+8(FP), R5")
	s.line("group:")
	s.op("SUBS $128, R5")
	s.op("BLT end")
	s.op("MOVD rounds+120(FP), R6")
	s.op("MOVD $buffer-512(SP), R7")
	s.op("MOVD R0, R8")
	s.op("TBZ $0, R6, even")
	s.op("MOVD R7, R9")
	s.op("MOVD R8, R7")
	s.op("MOVD R9, R8")
	s.line("even:")
	s.op("MOVD R7, R9")
	s.op("MOVD $32, R10")
	s.line("scale:")
	s.op("FMOVQ.P 16(R1), F0")
	s.op("FMOVQ.P 16(R2), F1")
	s.fmul(0, 0, 1)
	s.op("FMOVQ.P F0, 16(R9)")
	s.op("SUBS $1, R10")
	s.op("BNE scale")
	s.line("round:")
	s.op("SUBS $1, R6")
	s.op("BLT turned")
	s.op("MOVD $16, R14")
	s.op("MOVD R8, R15")
	s.line("pairs:")
	for side := range 2 {
		s.gather(64*side, side)
	}
	s.load(2, 0, "R4")
	s.load(3, 256, "R4")
	s.fmul(4, 1, 3)
	s.fmla(4, 0, 2)
	s.fmul(5, 0, 3)
	s.two(0x6ea0f800, "fneg.4s", 5, 5)
	s.fmla(5, 1, 2)
	s.store(4, 0, "R15")
	s.store(5, 256, "R15")
	s.op("ADD $4, R3")
	s.op("ADD $16, R4")
	s.op("ADD $16, R15")
	s.op("SUBS $1, R14")
	s.op("BNE pairs")
	s.op("ADD $64, R3")
	s.op("ADD $256, R4")
	s.op("MOVD R7, R9")
	s.op("MOVD R8, R7")
	s.op("MOVD R9, R8")
	s.op("JMP round")
	s.line("turned:")
	s.op("MOVD $32, R14")
	s.line("order:")
	s.gather(0, 0)
	s.op("FMOVQ.P F0, 16(R0)")
	s.op("ADD $4, R3")
	s.op("SUBS $1, R14")
	s.op("BNE order")
	s.op("JMP group")
	s.line("end:")
	s.op("RET\n")
}

// gather loads the numbers of R7 at the four places that are at bytes after R3.
func (s *source) gather(at, d int) {
	for i := range 4 {
		s.op("MOVBU %d(R3), R%d", at+i, 9+i)
	}
	for i := range 4 {
		s.op("ADD R%d<<2, R7, R%d", 9+i, 9+i)
		s.op("VLD1 (R%d), V%d.S[%d]", 9+i, d, i)
	}
}
