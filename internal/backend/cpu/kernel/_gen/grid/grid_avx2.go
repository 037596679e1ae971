package main

const avx2Doc = `// func expand<format>AVX2(a *expandArgs): the twin is Weight.expandSuper. Entries of tables are copied one by one:
// gathers are slow on many processors without AVX-512. Signs are applied afterwards.
//
//	AX  arguments    SI  superblock    DI  expanded superblock    R8  table    CX  superblocks left
//	R9  signs, or high bits            BX  indices                R10 loop     R11, DX scratch    R12 codes
//
// func gridAVX2Rows<m>(a *integerArgs): products with expanded superblocks: the twin is superTile. Half a tile,
// 8 rows, fills a vector: every superblock is walked twice. Codes are below 128, so that two products fit 16 bits.
//
//	AX  arguments    R8  superblock, its half    R9  output         R10 halves of tiles left
//	SI  codes        R13 factors                 DX  activations    BX  these of the group
//	R12 superblocks left                         R14 sums of activations           CX  pairs of groups left
//
// Vectors: from Y0 on float32 sums, then int32 sums of the superblock. Y8: codes, Y9, Y10: factors, Y11 to Y13:
// scratch.
//
// No alignment is required.`

const avx2Rows = 4

func avx2(s *source) {
	for _, c := range []struct {
		name  string
		words []uint64
	}{
		{"Middle", []uint64{0x8080808080808080}},
		{"Low", []uint64{0x0f0f0f0f0f0f0f0f}},
		{"One", []uint64{0x0101010101010101}},
		{"Two", []uint64{0x0202020202020202}},
		{"Seven", []uint64{0x7777777777777777}},
		{"Bit0", []uint64{0x1111111111111111}},
		{"Bit1", []uint64{0x2222222222222222}},
		{"Bit2", []uint64{0x4444444444444444}},
		{"ThreeBits", []uint64{0x0007000700070007}},
		{"WordOne", []uint64{0x0001000100010001}},
		{"Each", []uint64{0x8040201008040201}},
		{"Spread", []uint64{0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303}},
		{"Mask1", []uint64{0x0100010001000100}},
		{"Mask2", []uint64{0x0300030003000300}},
		{"Mask3", []uint64{0x0700070007000700}},
		{"Quarter", []uint64{quarter<<32 | quarter}},
		{"Eighth", []uint64{eighth<<32 | eighth}},
	} {
		for i := range 4 {
			s.line("DATA grid%s2<>+%d(SB)/8, $0x%016x", c.name, 8*i, c.words[i%len(c.words)])
		}
		s.line("GLOBL grid%s2<>(SB), RODATA|NOPTR, $32", c.name)
	}
	for _, g := range grids {
		expand2{s, g}.write()
	}
	for m := range avx2Rows {
		product2{s, m + 1}.write()
	}
}

// expand2 expands superblocks of a format.
type expand2 struct {
	*source
	grid
}

func (k expand2) write() {
	k.open(k.grid, "AVX2")
	k.line("super:")
	if k.high > 0 {
		k.indices()
	}
	k.copyEntries()
	k.factorBytes()
	k.scales()
	if k.ones() {
		k.deltas()
	} else {
		k.applySigns()
	}
	for l := range (k.size + 63) / 64 {
		k.op("PREFETCHT0 %d(SI)", ahead+64*l)
	}
	k.op("ADDQ $%d, SI", k.size)
	k.op("ADDQ $%d, DI", expandedSize)
	k.ops("DECQ CX", "JNZ super", "VZEROUPPER", "RET")
}

// indices writes whole indices to the arguments, 16 bits each.
func (k expand2) indices() {
	per, step := 4, 32 // indices that have a number of high bits, and its bytes
	switch k.name {
	case "IQ2XS", "IQ3S":
		per, step = 8, 16
	case "IQ2S":
		step = 16
	}
	bits := map[uint32]int{0x100: 1, 0x300: 2, 0x700: 3}[k.mask]
	k.op("LEAQ %d(SI), R9", k.high)
	k.ops("MOVQ SI, BX", "LEAQ expandArgs_indices(AX), R11")
	k.op("MOVQ $%d, R10", 256/k.entry/per)
	k.line("indices:")
	if step == 32 {
		k.op("VMOVDQU (R9), Y0")
	} else {
		k.op("VPMOVZXBW (R9), Y0")
	}
	for i := range per {
		k.op("VPMOVZXBW %d(BX), Y1", 16*i)
		from := "Y2"
		switch left := 8 - k.bits*i; {
		case left > 0:
			k.op("VPSLLW $%d, Y0, Y2", left)
		case left < 0:
			k.op("VPSRLW $%d, Y0, Y2", -left)
		default:
			from = "Y0"
		}
		k.op("VPAND gridMask%d2<>(SB), %s, Y2", bits, from)
		k.op("VPOR Y2, Y1, Y1")
		k.op("VMOVDQU Y1, %d(R11)", 32*i)
	}
	k.op("ADDQ $%d, R9", step)
	k.op("ADDQ $%d, BX", 16*per)
	k.op("ADDQ $%d, R11", 32*per)
	k.ops("DECQ R10", "JNZ indices")
}

// copyEntries copies the entries of 16 rows, index after index.
func (k expand2) copyEntries() {
	size, load := 1, "MOVBLZX"
	k.op("MOVQ SI, BX")
	if k.high > 0 {
		size, load = 2, "MOVWLZX"
		k.op("LEAQ expandArgs_indices(AX), BX")
	}
	k.op("MOVQ DI, R12")
	k.op("MOVQ $%d, R10", 256/k.entry)
	k.line("entries:")
	for r := range 16 {
		x := []string{"R11", "DX", "R13", "R14"}[r%4]
		k.op("%s %d(BX), %s", load, size*r, x)
		if k.entry == 4 {
			k.op("MOVL (R8)(%s*4), %s", x, x)
			k.op("MOVL %s, %d(R12)", x, 4*r)
			continue
		}
		k.op("MOVQ (R8)(%s*8), %s", x, x)
		k.op("MOVL %s, %d(R12)", x, 4*r)
		k.op("SHRQ $32, %s", x)
		k.op("MOVL %s, %d(R12)", x, 64+4*r)
	}
	k.op("ADDQ $%d, BX", 16*size)
	k.op("ADDQ $%d, R12", 16*k.entry)
	k.ops("DECQ R10", "JNZ entries")
}

// factorBytes writes the factors, 2f+1.
func (k expand2) factorBytes() {
	words := func(g, groups int) {
		k.ops("VPAND gridThreeBits2<>(SB), Y0, Y0", "VPADDW Y0, Y0, Y0", "VPOR gridWordOne2<>(SB), Y0, Y0")
		k.ops("VPACKUSWB Y0, Y0, Y0", "VPERMQ $0x08, Y0, Y0")
		for i := range groups {
			k.op("VMOVDQU X0, %d(DI)", atFactors+16*(g+i))
		}
	}
	switch k.name {
	case "IQ1S":
		for h := range 8 {
			k.op("VMOVDQU %d(SI), Y0", k.high+32*h)
			k.op("VPSRLW $12, Y0, Y0")
			words(2*h, 2)
		}
	case "IQ1M":
		for g := range 16 {
			k.op("VMOVDQU %d(SI), Y0", k.factors+32*(g/4))
			if g%4 > 0 {
				k.op("VPSRLW $%d, Y0, Y0", 3*(g%4))
			}
			words(g, 1)
		}
	default:
		for i := range k.groups / 2 {
			k.op("VPMOVZXBW %d(SI), Y0", k.factors+16*i)
			k.ops("VPSLLW $4, Y0, Y1", "VPOR Y1, Y0, Y0", "VPAND gridLow2<>(SB), Y0, Y0", "VPADDB Y0, Y0, Y0")
			k.op("VPOR gridOne2<>(SB), Y0, Y0")
			if k.groups == 16 {
				k.op("VMOVDQU Y0, %d(DI)", atFactors+32*i)
				continue
			}
			k.ops("VPERM2I128 $0x00, Y0, Y0, Y1", "VPERM2I128 $0x11, Y0, Y0, Y0")
			k.op("VMOVDQU Y1, %d(DI)", atFactors+64*i)
			k.op("VMOVDQU Y0, %d(DI)", atFactors+64*i+32)
		}
	}
}

// scales writes the scales.
func (k expand2) scales() {
	if k.name == "IQ1M" {
		for i := range 4 {
			k.op("VMOVDQU %d(SI), Y1", k.factors+32*i)
			k.op("VPSRLW $12, Y1, Y1")
			if i == 0 {
				k.op("VMOVDQA Y1, Y0")
				continue
			}
			k.op("VPSLLW $%d, Y1, Y1", 4*i)
			k.op("VPOR Y1, Y0, Y0")
		}
		k.ops("VEXTRACTI128 $1, Y0, X1", "VCVTPH2PS X0, Y0", "VCVTPH2PS X1, Y1")
	} else {
		k.op("VCVTPH2PS %d(SI), Y0", k.halves)
		k.op("VCVTPH2PS %d(SI), Y1", k.halves+16)
	}
	for h := range 2 {
		if k.scale != one {
			k.op("VMULPS grid%s2<>(SB), Y%[2]d, Y%[2]d", map[uint32]string{quarter: "Quarter", eighth: "Eighth"}[k.scale], h)
		}
		k.op("VMOVUPS Y%d, %d(DI)", h, codesSize+32*h)
	}
}

// deltas subtracts two where there is one.
func (k expand2) deltas() {
	k.op("LEAQ %d(SI), R9", k.high)
	k.ops("MOVQ DI, R12", "MOVQ $8, R10")
	k.line("deltas:")
	for half := range 2 {
		k.op("VPMOVZXWD %d(R9), Y0", 16*half)
		for n := range 4 {
			if bit := 4*n + 3; k.name == "IQ1M" {
				k.op("VPSLLD $%d, Y0, Y1", 31-bit)
			} else if n == 0 {
				k.op("VPSLLD $16, Y0, Y1")
			}
			if n == 0 || k.name == "IQ1M" {
				k.ops("VPSRAD $31, Y1, Y1", "VPAND gridTwo2<>(SB), Y1, Y1")
			}
			for i := range 2 {
				at := 64*(2*n+i) + 32*half
				k.op("VMOVDQU %d(R12), Y2", at)
				k.op("VPSUBB Y1, Y2, Y2")
				k.op("VMOVDQU Y2, %d(R12)", at)
			}
		}
	}
	k.ops("ADDQ $32, R9", "ADDQ $512, R12", "DECQ R10", "JNZ deltas")
}

// evenSigns writes all signs to the arguments: see expand512.
func (k expand2) evenSigns() {
	k.op("LEAQ expandArgs_signs(AX), R9")
	for half := range 2 {
		at := 32 * half
		for i := range 7 {
			k.op("VMOVDQU %d(SI), Y%d", k.signs+64*i+at, i)
		}
		k.ops("VPSRLQ $3, Y4, Y7", "VPAND gridBit02<>(SB), Y7, Y7")
		for i := range 2 {
			k.op("VPSRLQ $%d, Y%d, Y8", 2-i, 5+i)
			k.op("VPAND gridBit%d2<>(SB), Y8, Y8", 1+i)
			k.op("VPOR Y8, Y7, Y7")
		}
		for n := range 4 {
			if n < 3 {
				k.op("VPAND gridSeven2<>(SB), Y%[1]d, Y%[1]d", 4+n)
			}
			k.op("VPXOR Y%d, Y%d, Y8", n, 4+n)
			for i := 2; i > 0; i-- {
				k.op("VPSRLQ $%d, Y8, Y9", i)
				k.op("VPXOR Y9, Y8, Y8")
			}
			k.ops("VPAND gridBit02<>(SB), Y8, Y8", "VPSLLQ $3, Y8, Y8")
			k.op("VPOR Y8, Y%[1]d, Y%[1]d", 4+n)
			k.op("VMOVDQU Y%d, %d(R9)", n, 64*n+at)
			k.op("VMOVDQU Y%d, %d(R9)", 4+n, 64*(4+n)+at)
		}
	}
}

// applySigns negates codes.
func (k expand2) applySigns() {
	if k.seven {
		k.evenSigns()
	} else {
		k.op("LEAQ %d(SI), R9", k.signs)
	}
	k.ops("VMOVDQU gridSpread2<>(SB), Y4", "VMOVDQU gridEach2<>(SB), Y5", "VMOVDQU gridMiddle2<>(SB), Y6", "MOVQ DI, R12")
	k.op("MOVQ $8, R10")
	k.line("signs:")
	for v := range 8 {
		for half := range 2 {
			k.op("VPBROADCASTD %d(R9), Y0", 64*(4*(v%2)+v/2)+4*half)
			k.ops("VPSHUFB Y4, Y0, Y0", "VPAND Y5, Y0, Y0", "VPCMPEQB Y5, Y0, Y0")
			k.op("VMOVDQU %d(R12), Y1", 64*v+32*half)
			k.ops("VPSUBB Y1, Y6, Y2", "VPBLENDVB Y0, Y2, Y1, Y1")
			k.op("VMOVDQU Y1, %d(R12)", 64*v+32*half)
		}
	}
	k.ops("ADDQ $8, R9", "ADDQ $512, R12", "DECQ R10", "JNZ signs")
}

// product2 multiplies m rows with expanded superblocks.
type product2 struct {
	*source
	m int
}

func (k product2) float(m int) string { return sprint("Y%d", m) }
func (k product2) sum(m int) string   { return sprint("Y%d", k.m+m) }

func (k product2) write() {
	k.kernel("gridAVX2Rows%d", k.m)
	k.ops("MOVQ a+0(FP), AX", "MOVQ integerArgs_weights(AX), R8", "MOVQ integerArgs_out(AX), R9")
	k.ops("MOVQ integerArgs_tiles(AX), R10", "SHLQ $1, R10")
	k.line("tile:")
	for m := range k.m {
		k.op("VPXOR %[1]s, %[1]s, %[1]s", k.float(m))
	}
	k.ops("CMPQ integerArgs_more(AX), $0", "JEQ begin")
	for m := range k.m {
		k.op("VMOVUPS %d(R9), %s", 64*m, k.float(m))
	}
	k.line("begin:")
	k.ops("MOVQ integerArgs_acts(AX), DX", "MOVQ integerArgs_supers(AX), R12", "MOVQ R8, R11")
	k.line("super:")
	k.op("MOVQ R8, SI")
	k.op("LEAQ %d(R8), R13", atFactors)
	// Factors are bytes: those of the second half of a tile lie 8 bytes further, codes and scales 32.
	k.ops("TESTQ $1, R10", "JZ first", "SUBQ $24, R13")
	k.line("first:")
	k.op("LEAQ %d(DX), R14", 256*k.m+4*k.m)
	k.ops("MOVQ DX, BX", "MOVQ $8, CX")
	for m := range k.m {
		k.op("VPXOR %[1]s, %[1]s, %[1]s", k.sum(m))
	}
	k.line("pair:")
	for g := range 2 {
		k.group(g)
	}
	k.ops("VPBLENDW $0xaa, Y10, Y9, Y9", "VPXOR Y10, Y10, Y10", "VPSUBW Y9, Y10, Y9", "VPSLLW $6, Y9, Y9")
	for m := range k.m {
		k.op("VPBROADCASTD %d(R14), Y11", 4*m)
		k.op("VPMADDWD Y9, Y11, Y11")
		k.op("VPADDD Y11, %[1]s, %[1]s", k.sum(m))
	}
	k.ops("ADDQ $512, SI", "ADDQ $32, R13")
	k.op("ADDQ $%d, R14", 4*k.m)
	k.op("ADDQ $%d, BX", 32*k.m)
	k.ops("DECQ CX", "JNZ pair")
	k.op("VMOVUPS %d(R8), Y9", codesSize)
	for m := range k.m {
		k.op("VCVTDQ2PS %[1]s, %[1]s", k.sum(m))
		k.op("VMULPS Y9, %[1]s, %[1]s", k.sum(m))
		k.op("VBROADCASTSS %d(BX), Y11", 4*m)
		k.op("VFMADD231PS Y11, %s, %s", k.sum(m), k.float(m))
	}
	k.op("MOVQ R14, DX")
	k.op("ADDQ $%d, R8", expandedSize)
	k.ops("DECQ R12", "JNZ super")
	for m := range k.m {
		k.op("VMOVUPS %s, %d(R9)", k.float(m), 64*m)
	}
	// The second half of the tile, or the next tile.
	k.ops("DECQ R10", "JZ done", "TESTQ $1, R10", "JZ next", "LEAQ 32(R11), R8", "ADDQ $32, R9", "JMP tile")
	k.line("next:")
	k.ops("SUBQ $32, R8", "SUBQ $32, R9", "ADDQ integerArgs_outTile(AX), R9", "JMP tile")
	k.line("done:")
	k.ops("VZEROUPPER", "RET")
}

// group multiplies a group, the first or second of a pair, and leaves its factors in Y9 or Y10, twice each.
func (k product2) group(g int) {
	f := sprint("Y%d", 9+g)
	k.op("VPMOVZXBD %d(R13), %s", 16*g, f)
	k.op("VPSLLD $16, %s, Y11", f)
	k.op("VPOR Y11, %[1]s, %[1]s", f)
	for v := range 4 {
		k.op("VMOVDQU %d(SI), Y8", 256*g+64*v)
		for m := range k.m {
			k.op("VPBROADCASTD %d(BX), Y%d", 16*k.m*g+4*(v*k.m+m), 11+m%3)
			k.op("VPMADDUBSW Y%[1]d, Y8, Y%[1]d", 11+m%3)
			k.op("VPMADDWD %s, Y%[2]d, Y%[2]d", f, 11+m%3)
			k.op("VPADDD Y%[1]d, %[2]s, %[2]s", 11+m%3, k.sum(m))
		}
	}
}
