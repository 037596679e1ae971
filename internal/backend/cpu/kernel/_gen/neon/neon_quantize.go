package main

func magnitudeKernel(s *source) {
	s.line(`// func magnitudeNEON(x *float32, n int) (top uint32)
//
// The twin is the first loop of quantizeGroup; n is a multiple of 16.
//
//	R0 numbers    R1 numbers left    V0-V3 highest    V4-V7 numbers
TEXT ·magnitudeNEON(SB), NOSPLIT, $0-20`)
	s.ops("MOVD x+0(FP), R0", "MOVD n+8(FP), R1")
	for i := range 4 {
		s.zero(i)
	}
	s.line("loop:")
	s.load2(4, 0, "R0")
	s.load2(6, 32, "R0")
	for i := range 4 {
		s.fabs(4+i, 4+i)
		s.three(0x6ea06400, "umax.4s", i, i, 4+i)
	}
	s.ops("ADD $64, R0", "SUBS $16, R1", "BNE loop")
	for i := 1; i < 4; i++ {
		s.three(0x6ea06400, "umax.4s", 0, 0, i)
	}
	s.two(0x6eb0a800, "umaxv.4s", 0, 0)
	s.op("FMOVS F0, top+16(FP)")
	s.op("RET\n")
}

func roundKernel(s *source) {
	s.line(`// func roundNEON(dst *byte, x *float32, n, vector int, inverse float32) (total int32)
//
// The twin is the last loop of quantizeGroup; n is a multiple of 16. Codes go four by four,
// vector bytes apart.
//
//	R0 output    R1 numbers    R2 numbers left    R3 vector    V0-V3 numbers    V16 total
//	V24 inverse    V25 the number that rounds    V26 the same as an integer
//	V27, V28 highest and lowest code
TEXT ·roundNEON(SB), NOSPLIT, $0-44`)
	for i, n := range []string{"dst", "x", "n", "vector"} {
		s.op("MOVD %s+%d(FP), R%d", n, 8*i, i)
	}
	s.op("FMOVS inverse+32(FP), F24")
	for _, c := range []struct{ reg, bits int }{{25, 0x4b400000}, {26, 3 << 22}, {27, 127}, {28, -127}} {
		s.op("MOVW $%d, R4", c.bits)
		s.op("VDUP R4, V%d.S4", c.reg)
	}
	s.zero(16)
	s.line("loop:")
	s.load2(0, 0, "R1")
	s.load2(2, 32, "R1")
	for i := range 4 {
		s.fmulAt(i, i, 24, 0)
		s.fadd(i, i, 25)
		s.two(0x4ea1b800, "fcvtzs.4s", i, i)
		s.op("VSUB V26.S4, V%d.S4, V%d.S4", i, i)
		s.three(0x4ea06c00, "smin.4s", i, i, 27)
		s.three(0x4ea06400, "smax.4s", i, i, 28)
		s.op("VADD V%d.S4, V16.S4, V16.S4", i)
	}
	s.two(0x0e612800, "xtn.4h", 4, 0)
	s.two(0x4e612800, "xtn2.8h", 4, 1)
	s.two(0x0e612800, "xtn.4h", 5, 2)
	s.two(0x4e612800, "xtn2.8h", 5, 3)
	s.two(0x0e212800, "xtn.8b", 6, 4)
	s.two(0x4e212800, "xtn2.16b", 6, 5)
	for i := range 4 {
		s.op("VST1 V6.S[%d], (R0)", i)
		s.op("ADD R3, R0")
	}
	s.ops("ADD $64, R1", "SUBS $16, R2", "BNE loop")
	s.two(0x4eb1b800, "addv.4s", 16, 16)
	s.op("FMOVS F16, total+40(FP)")
	s.op("RET\n")
}
