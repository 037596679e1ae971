package main

const vbmiDoc = `// func expand<format>VBMI(a *expandArgs): see those of AVX-512. Tables of 256 and 512 entries are in registers:
// two bytes for each entry, whose fields of 2 or 3 bits are the numbers of levels. 64 indices are looked up at a time:
// of four entries for each of 16 rows. Registers are those of AVX-512.
//
// Vectors: Z0: indices, Z1 to Z10: scratch. Z11: order of rows, Z12: rows of high bits, Z13 and Z14: bits of these.
// Z15: middle. From Z16 on tables.`

func (g grid) count() int { return 256 << g.bits }

// vbmi reports whether the table fits registers.
func (g grid) vbmi() bool { return !g.ones() && g.bits < 2 }

func vbmi(s *source) {
	for _, c := range []struct {
		name string
		at   func(i int) int
	}{
		{"Rows", func(i int) int { return i%4*4 + i/4 }},
		{"Four", func(i int) int { return i / 4 }},
	} {
		for i := range 8 {
			s.line("DATA gridOrder%s<>+%d(SB)/8, $0x%08x%08x", c.name, 8*i, c.at(2*i+1), c.at(2*i))
		}
		s.line("GLOBL gridOrder%s<>(SB), RODATA|NOPTR, $64", c.name)
	}
	for half := range 2 {
		for i := range 2 {
			s.line("DATA gridBits%d<>+%d(SB)/8, $0x%08x%08x", half, 8*i, 0x01010101<<(4*half+2*i+1), 0x01010101<<(4*half+2*i))
		}
		s.line("GLOBL gridBits%d<>(SB), RODATA|NOPTR, $16", half)
	}
	for _, g := range grids {
		if g.vbmi() {
			expandVBMI{expand512{s, g}}.write()
		}
	}
}

// expandVBMI expands superblocks of a format.
type expandVBMI struct{ expand512 }

// table is the register of 64 bytes of table t.
func (k expandVBMI) table(t, i int) string { return sprint("Z%d", 16+t*k.count()/64+i) }

// level is where the levels of field f are.
func (k expandVBMI) level(f int) string { return sprint("%d(R8)", 2*k.count()+64*min(f, 2)) }

func (k expandVBMI) write() {
	k.open(k.grid, "VBMI")
	k.line("super:")
	k.factorBytes()
	k.scales()
	if k.seven {
		k.evenSigns()
	} else {
		k.op("LEAQ %d(SI), R9", k.signs)
	}
	for i := range 2 * k.count() / 64 {
		k.op("VMOVDQU8 %d(R8), Z%d", 64*i, 16+i)
	}
	k.op("VMOVDQU32 gridOrderRows<>(SB), Z11")
	if k.high > 0 {
		k.ops("VMOVDQU32 gridOrderFour<>(SB), Z12", "VBROADCASTI32X4 gridBits0<>(SB), Z13")
		k.op("VBROADCASTI32X4 gridBits1<>(SB), Z14")
		k.op("LEAQ %d(SI), R11", k.high)
	}
	k.constant(0x80808080, 15)
	k.op("MOVQ SI, BX")
	steps := 256 / k.entry / 8
	k.op("MOVQ $%d, R10", steps)
	k.line("step:")
	if k.high > 0 {
		k.ops("VBROADCASTI32X4 (R11), Z10", "VPERMD Z10, Z12, Z10", "ADDQ $16, R11")
	}
	for i := range 2 {
		k.four(i)
	}
	k.op("ADDQ $128, BX")
	k.op("ADDQ $%d, R9", k.entry*2)
	lines := (k.size/steps + 63) / 64
	for l := range lines {
		k.op("PREFETCHT0 %d(SI)", ahead+64*l)
	}
	k.op("ADDQ $%d, SI", k.size/steps)
	k.op("ADDQ $%d, DI", codesSize/steps)
	k.ops("DECQ R10", "JNZ step")
	k.op("ADDQ $%d, DI", expandedSize-codesSize)
	k.ops("DECQ CX", "JNZ super", "VZEROUPPER", "RET")
}

// four expands 64 indices: four of each row, the first of a step or the second.
func (k expandVBMI) four(i int) {
	k.op("VPERMD %d(BX), Z11, Z0", 64*i)
	k.masks(i)
	for t := range 2 {
		k.op("VMOVDQA64 Z0, Z%d", 1+t)
		for n := range k.count() / 128 {
			k.op("VPERMI2B %s, %s, K%d, Z%d", k.table(t, 2*n+1), k.table(t, 2*n), 3+n, 1+t)
		}
	}
	if k.entry == 4 { // two fields in each byte
		for f := range 4 {
			k.op("VPERMB %s, Z%d, Z%d", k.level(f%2), 1+f/2, 3+f)
		}
		k.interleave(i, 0)
		return
	}
	for t := range 2 {
		for f := range 3 {
			k.op("VPERMB %s, Z%d, Z%d", k.level(f), 1+t, 3+f)
		}
		k.op("VPSRLW $2, Z%[1]d, Z%[1]d", 1+t)
		k.op("VPERMB %s, Z%d, Z6", k.level(3), 1+t)
		k.interleave(i, t)
	}
}

// masks sets K3 and on to the indices that are in each 128 entries of the table.
func (k expandVBMI) masks(i int) {
	if k.high == 0 {
		k.ops("VPMOVB2M Z0, K4", "KNOTQ K4, K3")
		return
	}
	k.op("VPMOVB2M Z0, K1")
	k.op("VPTESTMB Z%d, Z10, K2", 13+i)
	k.op("KANDQ K1, K2, K6")
	k.op("KANDNQ K2, K1, K5") // of the second 256, the first 128
	k.ops("KANDNQ K1, K2, K4", "KORQ K1, K2, K3", "KNOTQ K3, K3")
}

// interleave makes vectors of four columns each of Z3 to Z6, a column each, applies signs and stores them.
func (k expandVBMI) interleave(i, t int) {
	k.ops("VPUNPCKLBW Z4, Z3, Z7", "VPUNPCKHBW Z4, Z3, Z3", "VPUNPCKLBW Z6, Z5, Z8", "VPUNPCKHBW Z6, Z5, Z5")
	k.ops("VPUNPCKLWD Z8, Z7, Z4", "VPUNPCKHWD Z8, Z7, Z7", "VPUNPCKLWD Z5, Z3, Z6", "VPUNPCKHWD Z5, Z3, Z3")
	for n, z := range []string{"Z4", "Z7", "Z6", "Z3"} {
		v := 4*i + n // vector of the step
		if k.entry == 8 {
			v = 2*v + t
		}
		k.op("KMOVQ %d(R9), K7", 64*(4*(v%2)+v%8/2)+8*(v/8))
		k.op("VPSUBB %[1]s, Z15, K7, %[1]s", z)
		k.op("VMOVDQU32 %s, %d(DI)", z, 64*v)
	}
}
