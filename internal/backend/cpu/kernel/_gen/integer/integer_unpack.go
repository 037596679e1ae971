package main

// unpackKernel unpacks a format, the way of AVX-512. It is all that a format needs for AMX.
type unpackKernel struct{ *avx512Kernel }

func (k unpackKernel) write() {
	k.line("\nTEXT integerUnpack%s<>(SB), NOSPLIT, $0-0", k.name)
	k.op("MOVQ CX, R13")
	if k.levels {
		k.constants("integerLevels")
	} else {
		k.constants("integerSigned")
	}
	k.op("MOVQ R13, CX")
	k.op("MOVQ R8, SI")
	if k.high() > 0 {
		k.arg("plane", "DI")
		k.op("ADDQ R8, DI")
	}
	k.arg("steps", "R14")
	k.line("step:")
	k.vectors(0, func(v int, w string) { k.op("VMOVDQU32 %s, %d(R9)", w, 64*v) })
	k.op("ADDQ $%d, SI", step16(k.low()))
	if k.high() > 0 {
		k.op("ADDQ $%d, DI", step16(k.high()))
	}
	k.op("ADDQ $256, R9")
	k.op("DECQ R14")
	k.op("JNZ step")
	k.loadScales(0, 1, func() {
		k.op("VMOVUPS Z24, (R9)")
		if !k.fp4 {
			k.op("VMOVUPS Z25, 64(R9)")
		}
	}, func() { k.op("VMOVUPS Z24, (R9)") })
	k.op("ADDQ $128, R9")
	k.op("ADDQ integerArgs_block(AX), R8")
	k.op("RET")
	for _, rest := range k.aside {
		rest()
	}
}

// decode writes what decodes the factors of a superblock of both tiles and keeps registers.
func decode(s *source) {
	s.line("\nTEXT integerDecode<>(SB), NOSPLIT, $24-0")
	s.op("MOVQ CX, 0(SP)")
	s.op("MOVQ R11, 8(SP)")
	s.op("MOVQ R15, 16(SP)")
	s.arg("second", "R11")
	s.op("MOVL $1, CX")
	s.op("CMPQ R11, $1")
	s.op("SBBL $-1, CX // one tile more if there is a second")
	s.arg("factors", "R13")
	s.op("CALL R13")
	s.op("MOVQ 0(SP), CX")
	s.op("MOVQ 8(SP), R11")
	s.op("MOVQ 16(SP), R15")
	for _, f := range [][2]string{{"per", "superLeft"}, {"decoded", "factorAt"}} {
		s.arg(f[0], "R13")
		s.op("MOVQ R13, integerArgs_%s(AX)", f[1])
	}
	s.op("RET")
}
