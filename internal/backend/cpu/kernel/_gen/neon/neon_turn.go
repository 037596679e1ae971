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
	s.ops("SUBS $128, R5", "BLT end", "MOVD rounds+120(FP), R6", "MOVD $buffer-512(SP), R7", "MOVD R0, R8")
	s.ops("TBZ $0, R6, even", "MOVD R7, R9", "MOVD R8, R7", "MOVD R9, R8")
	s.line("even:")
	s.ops("MOVD R7, R9", "MOVD $32, R10")
	s.line("scale:")
	s.ops("FMOVQ.P 16(R1), F0", "FMOVQ.P 16(R2), F1")
	s.fmul(0, 0, 1)
	s.ops("FMOVQ.P F0, 16(R9)", "SUBS $1, R10", "BNE scale")
	s.line("round:")
	s.ops("SUBS $1, R6", "BLT turned", "MOVD $16, R14", "MOVD R8, R15")
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
	s.ops("ADD $4, R3", "ADD $16, R4", "ADD $16, R15", "SUBS $1, R14", "BNE pairs", "ADD $64, R3", "ADD $256, R4")
	s.ops("MOVD R7, R9", "MOVD R8, R7", "MOVD R9, R8", "JMP round")
	s.line("turned:")
	s.op("MOVD $32, R14")
	s.line("order:")
	s.gather(0, 0)
	s.ops("FMOVQ.P F0, 16(R0)", "ADD $4, R3", "SUBS $1, R14", "BNE order", "JMP group")
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
