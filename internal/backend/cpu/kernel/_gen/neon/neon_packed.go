package main

// packedFile has the kernels that make pages of 8 bits of those of 4.
func packedFile(s *source) {
	s.define("packed", "Nibble", "Sign8")
	s.line(`// func unpackKeysNEON(keys, packed, ranges []byte, groups int)
//
// The twin is unpackKeys.
//
//	R0 keys    R1 packed ones    R2 ranges of the position    R3 ranges of the group    R4 groups    R5 groups left
//	R6 positions left    V0 and V1 first half    V2 and V3 second    V4 ranges    V5-V8 steps and lows    V9 15
TEXT ·unpackKeysNEON(SB), NOSPLIT, $0-80`)
	s.op("MOVD keys_base+0(FP), R0")
	s.op("MOVD packed_base+24(FP), R1")
	s.op("MOVD ranges_base+48(FP), R2")
	s.op("MOVD groups+72(FP), R4")
	s.constant("packed", "Nibble", 9)
	s.op("MOVD $64, R6")
	s.line("positions:")
	s.op("MOVD R2, R3")
	s.op("MOVD R4, R5")
	s.line("groups:")
	s.op("FMOVS (R3), F4")
	for i := range 4 {
		s.op("VDUP V4.B[%d], V%d.B16", i, 5+i)
	}
	s.op("VLD1.P 32(R1), [V0.B16, V1.B16]")
	s.packedLevels()
	for i := range 4 {
		h := i / 2
		s.op("VORR V%d.B16, V%d.B16, V%d.B16", 6+2*h, 6+2*h, 10+i)
		s.mlaBytes(10+i, i, 5+2*h)
	}
	s.op("VST1.P [V10.B16, V11.B16, V12.B16, V13.B16], 64(R0)")
	s.op("ADD $256, R3")
	s.op("SUBS $1, R5")
	s.op("BNE groups")
	s.op("ADD $4, R2")
	s.op("SUBS $1, R6")
	s.op("BNE positions")
	s.line("\tRET\n")

	s.line(`// func unpackValuesNEON(values []int8, packed []byte, groups int)
//
// The twin is unpackValues. It takes 32 positions at a time.
//
//	R0 values    R1 packed ones    R2 ranges    R3 rows left    R4 groups left    R5 and R6 columns of both halves
//	R7 place among packed ones    R8 halves of positions left    V0 and V1 first half    V2 and V3 second    V9 15
//	V16 and V17 steps of the first half    V18 and V19 lows    V20-V23 those of the second    V24 128
TEXT ·unpackValuesNEON(SB), NOSPLIT, $0-56`)
	s.op("MOVD values_base+0(FP), R0")
	s.op("MOVD packed_base+24(FP), R1")
	s.op("MOVD groups+48(FP), R4")
	s.constant("packed", "Nibble", 9)
	s.constant("packed", "Sign8", 24)
	s.op("VMOVI $129, V25.B16") // -127
	s.line("columns:")
	s.op("MOVD $2, R8")
	s.line("halves:")
	s.op("ADD $2048, R1, R2")
	for i := range 4 {
		s.op("VLD1 (R2), [V%d.B16, V%d.B16]", 16+2*i, 17+2*i)
		s.op("ADD $64, R2")
		if i%2 == 1 {
			s.op("VEOR V24.B16, V%d.B16, V%d.B16", 16+2*i, 16+2*i)
			s.op("VEOR V24.B16, V%d.B16, V%d.B16", 17+2*i, 17+2*i)
			// A position that was never written has the low 0, and so the code -128, whose products codedWeighNEON has no room for.
			s.three(0x4e206400, "smax.16b", 16+2*i, 16+2*i, 25)
			s.three(0x4e206400, "smax.16b", 17+2*i, 17+2*i, 25)
		}
	}
	s.op("MOVD R1, R7")
	s.op("MOVD R0, R5")
	s.op("ADD $2048, R0, R6")
	s.op("MOVD $32, R3")
	s.line("rows:")
	s.op("VLD1 (R7), [V0.B16, V1.B16]")
	s.op("ADD $64, R7")
	s.packedLevels()
	for i := range 4 {
		h := i / 2
		s.op("VORR V%d.B16, V%d.B16, V%d.B16", 18+4*h+i%2, 18+4*h+i%2, 10+i)
		s.mlaBytes(10+i, i, 16+4*h+i%2)
	}
	s.op("VST1 [V10.B16, V11.B16], (R5)")
	s.op("VST1 [V12.B16, V13.B16], (R6)")
	s.op("ADD $64, R5")
	s.op("ADD $64, R6")
	s.op("SUBS $1, R3")
	s.op("BNE rows")
	s.op("ADD $32, R0")
	s.op("ADD $32, R1")
	s.op("SUBS $1, R8")
	s.op("BNE halves")
	s.op("ADD $4032, R0")
	s.op("ADD $2240, R1")
	s.op("SUBS $1, R4")
	s.op("BNE columns")
	s.line("\tRET")
}

// packedLevels leaves the high bits of the bytes of V0 and V1 in V2 and V3, and the low ones in V0 and V1.
func (s *source) packedLevels() {
	for i := range 2 {
		s.op("VUSHR $4, V%d.B16, V%d.B16", i, 2+i)
		s.op("VAND V9.B16, V%d.B16, V%d.B16", i, i)
	}
}

// mlaBytes adds products of bytes to d.
func (s *source) mlaBytes(d, n, m int) { s.three(0x4e209400, "mla.16b", d, n, m) }
