package main

// middle is the logarithm of what codes are raised by where they are unpacked, to be unsigned; 0: nothing.
func (f codes) middle() int {
	switch {
	case f.levels:
		return 7
	case f.bits == 6:
		return 5
	}
	return 0
}

// superUnpack writes code for each format that has superblocks, and the code that calls it.
func superUnpack(s *source) {
	s.line("\n// Places of bytes: those of 32 bits shifted by eight, high bytes in even places, low bytes in odd")
	s.line("// ones; the lowest byte in even places, in odd places, and the lowest two twice.")
	for _, c := range []struct {
		name string
		at   func(i int) int
	}{
		{"Shifted", func(i int) int { return (i-1)&15 | negative(i%4 == 0) }},
		{"High", func(i int) int { return i | 1 }},
		{"Low", func(i int) int { return i &^ 1 }},
		{"Even", func(i int) int { return i&^3 | negative(i%2 == 1) }},
		{"Odd", func(i int) int { return i&^3 | negative(i%2 == 0) }},
		{"Words", func(i int) int { return i&^3 | i&1 }},
	} {
		for half := range 2 {
			x := uint64(0)
			for i := range 8 {
				x |= uint64(byte(c.at(8*half+i))) << (8 * i)
			}
			s.line("DATA super%s<>+%d(SB)/8, $0x%016x", c.name, 8*half, x)
		}
		s.line("GLOBL super%s<>(SB), RODATA|NOPTR, $16", c.name)
	}
	s.line("\n// dtype.Levels raised by 128.")
	s.line("DATA superLevels<>+0(SB)/8, $0x766a5d4f3f2d1801")
	s.line("DATA superLevels<>+8(SB)/8, $0xf1d9c5b5a6998d81")
	s.line("GLOBL superLevels<>(SB), RODATA|NOPTR, $16")
	for _, f := range formats {
		if f.factors() != "" {
			superGroup{&avx512Kernel{source: s, codes: f, ahead: ahead, cache: 1}}.write()
		}
	}
	superSome(s)
}

func negative(is bool) int {
	if is {
		return 0x80
	}
	return 0
}

// superGroup unpacks a group of a superblock.
type superGroup struct{ *avx512Kernel }

func (k superGroup) write() {
	k.line("\n// integerPlanes%s writes the planes of the group at R8, whose factors are at SI, to R9.", k.name)
	k.line("TEXT integerPlanes%s<>(SB), NOSPLIT, $0-0", k.name)
	k.op("VMOVDQU32 (SI), Z23")
	for i, name := range []string{"Even", "Odd"} {
		k.op("VBROADCASTI32X4 super%s<>(SB), Z24", name)
		k.op("VPSHUFB Z24, Z23, Z%d", 21+i)
	}
	if k.middle() > 0 {
		k.op("VBROADCASTI32X4 superWords<>(SB), Z24")
		k.op("VPSHUFB Z24, Z23, Z23")
		k.op("VPSLLW $%d, Z23, Z23", k.middle())
	}
	k.op("MOVL $0x0f0f0f0f, R12")
	k.op("VPBROADCASTD R12, Z31")
	switch {
	case k.levels:
		k.op("VBROADCASTI32X4 superLevels<>(SB), Z30")
	case k.high() > 0:
		k.op("MOVL $0x%08x, R12", map[int]uint32{5: 0x10101010, 6: 0x30303030}[k.bits])
		k.op("VPBROADCASTD R12, Z30")
	}
	k.op("MOVQ R8, SI")
	if k.high() > 0 {
		k.arg("plane", "DI")
		k.op("ADDQ R8, DI")
	}
	k.arg("steps", "R12")
	k.line("step:")
	k.vectors(0, func(v int, w string) {
		k.op("VPMADDUBSW Z21, %s, Z28", w)
		k.op("VPMADDUBSW Z22, %s, Z29", w)
		if k.middle() > 0 {
			k.op("VPSUBW Z23, Z28, Z28")
			k.op("VPSUBW Z23, Z29, Z29")
		}
		k.op("VMOVDQA64 Z29, Z17")
		k.op("VPSHUFB Z19, Z28, K3, Z17")
		k.op("VPSHUFB Z20, Z29, K4, Z28")
		k.op("VMOVDQU32 Z28, %d(R9)", 64*v)
		k.op("VMOVDQU32 Z17, %d(R9)", superPlane+64*v)
	})
	k.op("ADDQ $%d, SI", step16(k.low()))
	if k.high() > 0 {
		k.op("ADDQ $%d, DI", step16(k.high()))
	}
	k.op("ADDQ $256, R9")
	k.op("DECQ R12")
	k.op("JNZ step")
	k.op("RET")
}

// superSome writes what unpacks a group.
func superSome(s *source) {
	k := amxKernel{source: s}
	s.line("\n// integerUnpackSome unpacks the next group. Before the first of a superblock it decodes the factors of")
	s.line("// all of its groups, and after the last it finds the next one, in this tile or the next. It changes")
	s.line("// R8, R9, R12, SI, DI and vectors from Z21 on, and Z17.")
	s.line("TEXT integerUnpackSome<>(SB), NOSPLIT, $40-0")
	saved := []string{"CX", "R11", "R13", "R14", "R15"}
	k.arg("unpackLeft", "R12")
	s.op("CMPQ R12, integerArgs_per(AX)")
	s.op("JNE decoded")
	for i, r := range saved {
		s.op("MOVQ %s, %d(SP)", r, 8*i)
	}
	k.move("nextSlots", "unpackSlot")
	k.move("decoded", "factorAt")
	k.arg("nextBlock", "R8")
	s.op("XORL R11, R11")
	s.op("MOVL $1, CX")
	k.arg("factors", "R13")
	s.op("CALL R13")
	k.arg("nextFactors", "R9")
	k.arg("decoded", "R14")
	tailAt(s)
	s.op("VCVTPH2PS (R13), Z24")
	s.op("VCVTPH2PS 32(R13), Z25")
	s.op("VMOVUPS Z24, (R9)")
	s.op("VMOVUPS Z25, 64(R9)")
	for p := range 4 {
		if p == 2 { // what else there is belongs to the other half of a superblock
			s.op("CMPQ integerArgs_per(AX), $4")
			s.op("JEQ part")
		}
		s.op("VMOVDQU32 %d(R14), Z%d", factorPairs+64*p, 24+p/2)
		s.op("VMOVDQU32 Z%d, %d(R9)", 24+p/2, 128+64*p)
	}
	s.line("whole:")
	s.op("ADDQ $%d, R9", superScales)
	s.op("ANDQ $~%d, R9", superRing)
	k.set("R9", "nextFactors")
	for i, r := range saved {
		s.op("MOVQ %d(SP), %s", 8*i, r)
	}
	s.line("decoded:")
	k.arg("nextBlock", "R8")
	k.arg("unpackSlot", "R9")
	k.arg("factorAt", "SI")
	s.op("ADDQ $64, integerArgs_factorAt(AX)")
	k.arg("unpack", "R12")
	s.op("CALL R12")
	k.set("R9", "unpackSlot")
	s.op("ADDQ integerArgs_block(AX), R8")
	s.op("DECQ integerArgs_unpackLeft(AX)")
	s.op("JNZ found")
	s.op("DECQ integerArgs_supersNext(AX)")
	k.arg("slots", "R9")
	s.op("LEAQ %d(R9)(R9*1), R9", superPlanes)
	s.op("SUBQ integerArgs_nextSlots(AX), R9")
	k.set("R9", "nextSlots")
	s.op("ADDQ integerArgs_tail(AX), R8")
	s.op("DECQ integerArgs_nextLeft(AX)")
	s.op("JNZ found")
	k.arg("supers", "R9")
	k.set("R9", "nextLeft")
	k.arg("tileBytes", "R8")
	s.op("ADDQ integerArgs_pairBlock(AX), R8")
	k.set("R8", "pairBlock")
	s.line("found:")
	k.set("R8", "nextBlock")
	s.op("RET")
	s.line("part:")
	s.op("VPXORD Z24, Z24, Z24")
	for p := 2; p < 4; p++ {
		s.op("VMOVDQU32 Z24, %d(R9)", 128+64*p)
	}
	s.op("JMP whole")
}
