package main

// middle is the logarithm of what codes are raised by where they are unpacked, to be unsigned; 0: nothing.
func (f codes) middle() int {
	switch {
	case f.levels:
		return 7
	case f.grid:
		return 6
	case f.bits == 6:
		return 5
	case f.bits == 3:
		return 2
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
	for _, f := range append(formats, expanded) {
		if f.factors() != "" {
			superGroup{&avx512Kernel{source: s, codes: f}}.write()
		}
	}
	superNext(s)
}

func negative(is bool) int {
	if is {
		return 0x80
	}
	return 0
}

// superGroup unpacks the groups of a superblock.
type superGroup struct{ *avx512Kernel }

func (k superGroup) write() {
	k.line("\n// integerPlanes%s writes the planes of the superblock at R8, whose factors are at R14, to R9, and moves", k.name)
	k.line("// R8 to the end of its groups.")
	k.line("TEXT integerPlanes%s<>(SB), NOSPLIT, $0-0", k.name)
	single := k.least() && k.sixteen() // products are less than 256, and one plane
	switch {
	case single:
	case k.least():
		k.ops("MOVL $0x00070007, R12", "VPBROADCASTD R12, Z8")
	default:
		for i, name := range []string{"Even", "Odd", "Words"} {
			k.op("VBROADCASTI32X4 super%s<>(SB), Z%d", name, 8+i)
		}
	}
	k.op("MOVL $0x%08x, R12", 0x01010101*(1<<k.low()-1))
	k.op("VPBROADCASTD R12, Z31")
	switch {
	case k.levels:
		k.op("VBROADCASTI32X4 superLevels<>(SB), Z30")
	case k.high() > 0:
		k.op("MOVL $0x%08x, R12", map[int]uint32{3: 0x04040404, 5: 0x10101010, 6: 0x30303030}[k.bits])
		k.op("VPBROADCASTD R12, Z30")
	}
	k.arg("per", "R13")
	k.line("group:")
	k.op("VMOVDQU32 (R14), Z23")
	switch {
	case single:
		k.ops("VPSLLD $16, Z23, Z21", "VPORD Z21, Z23, Z21")
	case k.least():
		k.digits()
	default:
		k.bytes()
	}
	k.op("MOVQ R8, SI")
	if k.high() > 0 {
		k.arg("plane", "DI")
		k.op("ADDQ R8, DI")
	}
	k.arg("steps", "R12")
	k.line("step:")
	k.vectors(0, func(v int, w string) {
		high := "Z17"
		if k.least() {
			high = "Z29"
			k.op("VPMULLW Z21, %s, Z28", w)
		} else {
			k.products(w)
		}
		k.op("VMOVDQU32 Z28, %d(R9)", 64*v)
		if single {
			return
		}
		if k.least() {
			k.op("VPMULLW Z22, %s, Z29", w)
		}
		k.op("VMOVDQU32 %s, %d(R9)", high, superPlane+64*v)
	})
	k.op("ADDQ $%d, SI", step16(k.low()))
	if k.high() > 0 {
		k.op("ADDQ $%d, DI", step16(k.high()))
	}
	k.ops("ADDQ $256, R9", "DECQ R12", "JNZ step", "ADDQ integerArgs_block(AX), R8", "ADDQ $64, R14", "DECQ R13")
	k.ops("JNZ group", "RET")
}

// digits prepares factors, in Z23, where planes are those of their digits: 3 bits each, so that no product of
// a code is above 255, and one multiplication has those of two codes.
func (k superGroup) digits() {
	k.ops("VPSLLD $16, Z23, Z22", "VPORD Z22, Z23, Z22", "VPANDD Z8, Z22, Z21", "VPSRLW $3, Z22, Z22")
}

// bytes prepares factors where planes are the bytes of products.
func (k superGroup) bytes() {
	k.ops("VPSHUFB Z8, Z23, Z21", "VPSHUFB Z9, Z23, Z22", "VPSHUFB Z10, Z23, Z23")
	k.op("VPSLLW $%d, Z23, Z23", k.middle())
}

// products multiplies codes by factors, and leaves the low bytes in Z28 and the high ones in Z17.
func (k superGroup) products(w string) {
	k.op("VPMADDUBSW Z21, %s, Z28", w)
	k.op("VPMADDUBSW Z22, %s, Z29", w)
	k.ops("VPSUBW Z23, Z28, Z28", "VPSUBW Z23, Z29, Z29", "VMOVDQA64 Z29, Z17", "VPSHUFB Z19, Z28, K3, Z17")
	k.op("VPSHUFB Z20, Z29, K4, Z28")
}

// superNext writes what unpacks a superblock.
func superNext(s *source) {
	k := amxKernel{source: s}
	s.line("\n// integerUnpackSuper unpacks the next superblock and finds the one after it: that of the second tile of a pair,")
	s.line("// or the next one of the first. It changes R8, R9, R12, SI, DI, vectors from Z21 on, Z8 to Z10 and Z17.")
	s.line("TEXT integerUnpackSuper<>(SB), NOSPLIT, $40-0")
	saved := []string{"CX", "R11", "R13", "R14", "R15"}
	for i, r := range saved {
		s.op("MOVQ %s, %d(SP)", r, 8*i)
	}
	k.arg("nextBlock", "R8")
	s.ops("XORL R11, R11", "MOVL $1, CX")
	k.arg("factors", "R13")
	s.op("CALL R13")
	k.arg("nextFactors", "R9")
	k.arg("decoded", "R14")
	tailAt(s)
	s.ops("VCVTPH2PS (R13), Z24", "VCVTPH2PS 32(R13), Z25", "CMPQ integerArgs_format(AX), $const_integerGrid", "JNE halves")
	s.op("VMOVUPS (R13), Z24")
	s.line("halves:")
	s.ops("VMOVUPS Z24, (R9)", "VMOVUPS Z25, 64(R9)")
	s.op("ADDQ $%d, R14", factorPairs)
	s.ops("CMPQ integerArgs_per(AX), $16", "JNE pairs")
	s.op("ADDQ $%d, R14", factorPairs6K-factorPairs)
	s.line("pairs:")
	for p := range 8 { // of eight groups there are four
		s.op("VMOVDQU32 %d(R14), Z%d", 64*p, 24+p/2)
		s.op("VMOVDQU32 Z%d, %d(R9)", 24+p/2, 128+64*p)
	}
	k.arg("decoded", "R14")
	s.op("ADDQ $%d, R9", superScales)
	s.op("ANDQ $~%d, R9", superRing)
	k.set("R9", "nextFactors")
	k.arg("nextSlots", "R9")
	k.arg("unpack", "R12")
	s.op("CALL R12")
	for i, r := range saved {
		s.op("MOVQ %d(SP), %s", 8*i, r)
	}
	s.ops("DECQ integerArgs_supersNext(AX)", "CMPQ integerArgs_second(AX), $0", "JEQ alone")
	k.arg("nextSlots", "R9")
	s.op("SUBQ integerArgs_slots(AX), R9")
	s.op("XORQ $%d, R9", superPlanes)
	s.ops("MOVQ R9, R12", "ADDQ integerArgs_slots(AX), R9")
	k.set("R9", "nextSlots")
	s.ops("TESTQ R12, R12", "JZ both")
	k.arg("nextBlock", "R8")
	s.ops("ADDQ integerArgs_second(AX), R8", "JMP found")
	s.line("both:")
	s.op("SUBQ integerArgs_second(AX), R8")
	s.line("alone:")
	s.ops("ADDQ integerArgs_tail(AX), R8", "DECQ integerArgs_nextLeft(AX)", "JNZ near")
	k.arg("supers", "R9")
	k.set("R9", "nextLeft")
	k.arg("tileBytes", "R8")
	s.op("ADDQ integerArgs_pairBlock(AX), R8")
	k.set("R8", "pairBlock")
	s.line("near:")
	k.arg("per", "R9")
	s.ops("IMULQ integerArgs_block(AX), R9", "ADDQ integerArgs_tail(AX), R9")
	k.arg("fetchSkip", "R12")
	s.op("ADDQ R8, R12")
	k.set("R12", "fetchAt")
	s.op("ADDQ R9, R12")
	k.set("R12", "fetchEnd")
	s.line("found:")
	k.set("R8", "nextBlock")
	s.op("RET")
}
