package main

// superAVX2 writes what ends a superblock of formats like f. R11 is zero if there is one tile only.
//
//	R13 scale of the row's activations    SI  sums of these    R14 sums of the row
//	R15 from pair to pair of them         BX  factors          DI  output
func superAVX2(s *source, f codes) {
	s.line(superDoc, f.factors()+"AVX2", "")
	askTail(s, f)
	s.ops("MOVQ CX, R15", "SHLQ $2, R15", "MOVQ R8, SI", "MOVQ R9, DI")
	s.arg("decoded", "BX")
	s.line("tile:")
	for h := range 2 {
		s.op("VCVTPH2PS %d(SI), Y%d", 16*h, h)
		if f.least() {
			s.op("VCVTPH2PS %d(SI), Y%d", 32+16*h, 2+h)
		}
	}
	s.op("MOVQ DX, R13")
	s.op("LEAQ %d(BX), R14", superSums)
	s.line("row:")
	for h := range 2 {
		s.op("VMOVDQU %d(R14), Y%d", 32*h, 4+h)
	}
	sum := 4
	if f.least() {
		sum = 6
		s.ops("VPXOR Y6, Y6, Y6", "VPXOR Y7, Y7, Y7")
	}
	s.op("LEAQ (R13)(R15*1), SI")
	s.arg("per", "CX")
	s.line("pair:")
	s.op("VPBROADCASTD (SI), Y14")
	for h := range 2 {
		s.op("VPMADDWD %d(BX), Y14, Y15", f.pairsAt()+32*h)
		s.op("VPADDD Y15, Y%[1]d, Y%[1]d", sum+h)
	}
	s.ops("ADDQ R15, SI", "ADDQ $64, BX", "SUBQ $2, CX", "JNZ pair")
	s.arg("per", "CX")
	s.ops("SHLQ $5, CX", "SUBQ CX, BX", "VBROADCASTSS (R13), Y14")
	for h := range 2 {
		t := sprint("Y%d", 4+h)
		s.op("VCVTDQ2PS %s, %s", t, t)
		s.op("VMULPS Y%d, %s, %s", h, t, t)
		if f.least() {
			s.op("VCVTDQ2PS Y%[1]d, Y%[1]d", 6+h)
			s.op("VFNMADD231PS Y%d, Y%d, %s", 2+h, 6+h, t)
		}
		s.op("VFMADD213PS %d(DI), Y14, %s", 32*h, t)
		s.op("VMOVUPS %s, %d(DI)", t, 32*h)
	}
	s.ops("ADDQ $64, DI", "ADDQ $64, R14", "ADDQ $4, R13")
	s.op("LEAQ (DX)(R15*1), CX") // where the row after the last would be
	s.ops("CMPQ R13, CX", "JNE row", "TESTQ R11, R11", "JZ end")
	s.arg("decoded", "CX")
	s.ops("CMPQ BX, CX", "JNE end // of the second tile")
	s.op("ADDQ $%d, BX", factorTile)
	s.arg("tiles", "DI")
	s.ops("SHRQ $1, DI", "IMULQ integerArgs_outTile(AX), DI", "ADDQ R9, DI", "LEAQ (R8)(R11*1), SI", "JMP tile")
	s.line("end:")
	s.op("ADDQ R15, DX")
	for i := range 8 {
		s.op("VPXOR Y%[1]d, Y%[1]d, Y%[1]d", i)
	}
	endSuper(s)
}
