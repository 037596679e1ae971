package main

const avx512Doc = `// func expand<format>AVX512(a *expandArgs): the twin is Weight.expandSuper.
//
//	AX  arguments    SI  superblock    DI  expanded superblock    R8  table    CX  superblocks left
//	R9  signs of the 64 columns        BX  indices of these       R10 steps of 64 columns left
//	R11 high bits of these
//
// Vectors: Z31, Z30, Z29: constants; Z28: mask of high bits; Z27, Z26: deltas. Z0: high bits. Others: scratch. K1 is
// the lanes that a gather has yet to load, K2 signs or deltas.
//
// func gridAVX512Rows<m>(a *integerArgs): products with expanded superblocks: the twin is superTile.
//
//	AX  arguments    R8  superblock    R9  output         R10 tiles left
//	SI  codes        R13 factors       DX  activations    BX  these of the group
//	R12 superblocks left               R14 sums of activations           CX  pairs of groups left
//
// Vectors: from Z0 on float32 sums, then int32 sums of the superblock, then of the group. Z24 to Z27: codes,
// Z28 and Z29: factors.
//
// No alignment is required.`

const avx512Rows = 8

// hasRows reports whether there is a kernel for that many rows: see stripsAVX512.
func hasRows(m int) bool { return m <= 4 || m%2 == 0 }

func avx512(s *source) {
	for i, name := range []string{"Even", "Odd"} {
		for j := range 8 {
			s.line("DATA grid%s<>+%d(SB)/8, $0x%08x%08x", name, 8*j, 4*j+2+i, 4*j+i)
		}
		s.line("GLOBL grid%s<>(SB), RODATA|NOPTR, $64", name)
	}
	for _, g := range grids {
		expand512{s, g}.write()
	}
	for m := 1; m <= avx512Rows; m++ {
		if hasRows(m) {
			product512{s, m}.write()
		}
	}
}

// expand512 expands superblocks of a format.
type expand512 struct {
	*source
	grid
}

// constant broadcasts 32 bits.
func (k expand512) constant(x uint32, z int) {
	k.op("MOVL $0x%08x, DX", x)
	k.op("VPBROADCASTD DX, Z%d", z)
}

func (k expand512) write() {
	k.open(k.grid, "AVX512")
	k.constant(0x80808080, 31)
	k.ops("VMOVDQU32 gridEven<>(SB), Z30", "VMOVDQU32 gridOdd<>(SB), Z29")
	if k.mask > 0 {
		k.constant(k.mask, 28)
	}
	if k.ones() {
		k.constant(0x02020202, 27)
		k.constant(0x800, 26) // the delta of an index of IQ1_M
	}
	k.line("super:")
	k.factorBytes()
	k.scales()
	switch {
	case k.seven:
		k.evenSigns()
	case !k.ones():
		k.op("LEAQ %d(SI), R9", k.signs)
	}
	k.op("MOVQ SI, BX")
	if k.high > 0 {
		k.op("LEAQ %d(SI), R11", k.high)
	}
	k.op("MOVQ $4, R10")
	k.line("step:")
	for h := range 2 {
		k.columns(h)
	}
	k.op("ADDQ $%d, BX", 16*64/k.entry)
	if !k.ones() {
		k.op("ADDQ $16, R9")
	}
	if k.high > 0 {
		k.op("ADDQ $%d, R11", k.highStep(2))
	}
	lines := (k.size + 255) / 256
	for l := range lines {
		k.op("PREFETCHT0 %d(SI)", ahead+64*l)
	}
	k.op("ADDQ $%d, SI", k.size/4)
	k.ops("ADDQ $1024, DI", "DECQ R10", "JNZ step")
	k.op("ADDQ $%d, DI", expandedSize-codesSize)
	k.ops("DECQ CX", "JNZ super", "VZEROUPPER", "RET")
}

// highStep is how many bytes high bits of n times 32 columns take.
func (k expand512) highStep(n int) int {
	switch {
	case k.ones():
		return 32 * n
	case k.name == "IQ2XS":
		return 8 * n
	}
	return 16 * n
}

// factorBytes writes the factors, 2f+1.
func (k expand512) factorBytes() {
	switch k.name {
	case "IQ1S":
		k.wordConstants()
		for h := range 8 {
			k.op("VPSRLW $12, %d(SI), Y1", k.high+32*h)
			k.factorWords(2*h, 2)
		}
	case "IQ1M":
		k.wordConstants()
		for g := range 16 {
			at := sprint("%d(SI)", k.factors+32*(g/4))
			if g%4 == 0 {
				k.op("VMOVDQU %s, Y1", at)
			} else {
				k.op("VPSRLW $%d, %s, Y1", 3*(g%4), at)
			}
			k.factorWords(g, 1)
		}
	default:
		k.constant(0x0f0f0f0f, 2)
		k.constant(0x01010101, 3)
		for i := range k.groups / 4 {
			k.op("VPMOVZXBW %d(SI), Z0", k.factors+32*i)
			k.ops("VPSLLW $4, Z0, Z1", "VPORD Z1, Z0, Z0", "VPANDD Z2, Z0, Z0", "VPADDB Z0, Z0, Z0", "VPORD Z3, Z0, Z0")
			if k.groups == 16 {
				k.op("VMOVDQU32 Z0, %d(DI)", atFactors+64*i)
				continue
			}
			k.ops("VSHUFI32X4 $0x50, Z0, Z0, Z1", "VSHUFI32X4 $0xfa, Z0, Z0, Z0")
			k.op("VMOVDQU32 Z1, %d(DI)", atFactors+128*i)
			k.op("VMOVDQU32 Z0, %d(DI)", atFactors+128*i+64)
		}
	}
}

// wordConstants are those of factorWords.
func (k expand512) wordConstants() {
	k.constant(0x00070007, 2)
	k.constant(0x00010001, 3)
}

// factorWords writes factors from the lowest three bits of words in Y1 for groups g and on.
func (k expand512) factorWords(g, groups int) {
	k.ops("VPAND Y2, Y1, Y1", "VPADDW Y1, Y1, Y1", "VPOR Y3, Y1, Y1", "VPMOVWB Y1, X1")
	for i := range groups {
		k.op("VMOVDQU X1, %d(DI)", atFactors+16*(g+i))
	}
}

// scales writes the scales.
func (k expand512) scales() {
	if k.name == "IQ1M" {
		at := func(i int) string { return sprint("%d(SI)", k.factors+32*i) }
		k.op("VPSRLW $12, %s, Y0", at(0))
		for i := 1; i < 4; i++ {
			k.op("VPSRLW $12, %s, Y1", at(i))
			k.op("VPSLLW $%d, Y1, Y1", 4*i)
			k.op("VPOR Y1, Y0, Y0")
		}
		k.op("VCVTPH2PS Y0, Z0")
	} else {
		k.op("VCVTPH2PS %d(SI), Z0", k.halves)
	}
	if k.scale != one {
		k.constant(k.scale, 1)
		k.op("VMULPS Z1, Z0, Z0")
	}
	k.op("VMOVUPS Z0, %d(DI)", codesSize)
}

// evenSigns writes all signs to the arguments: of every eighth column too, and of the last eight of 32.
func (k expand512) evenSigns() {
	quad := func(x string, z int) {
		k.op("MOVQ $0x%s, DX", x)
		k.op("VPBROADCASTQ DX, Z%d", z)
	}
	quad("7777777777777777", 8)
	quad("1111111111111111", 9)
	quad("2222222222222222", 10)
	quad("4444444444444444", 11)
	k.op("LEAQ expandArgs_signs(AX), R9")
	for i := range 7 {
		k.op("VMOVDQU64 %d(SI), Z%d", k.signs+64*i, i)
	}
	k.ops("VPSRLQ $3, Z4, Z7", "VPANDQ Z9, Z7, Z7", "VPSRLQ $2, Z5, Z12", "VPTERNLOGQ $0xf8, Z10, Z12, Z7 // or of and")
	k.ops("VPSRLQ $1, Z6, Z12", "VPTERNLOGQ $0xf8, Z11, Z12, Z7")
	for n := range 4 {
		low, high := n, 4+n
		if n < 3 {
			k.op("VPANDQ Z8, Z%[1]d, Z%[1]d", high)
		}
		k.op("VPXORQ Z%d, Z%d, Z12", low, high)
		k.ops("VPSRLQ $2, Z12, Z13", "VPXORQ Z13, Z12, Z12", "VPSRLQ $1, Z12, Z13", "VPXORQ Z13, Z12, Z12")
		k.ops("VPANDQ Z9, Z12, Z12", "VPSLLQ $3, Z12, Z12")
		k.op("VPORQ Z12, Z%[1]d, Z%[1]d", high)
		k.op("VMOVDQU64 Z%d, %d(R9)", low, 64*low)
		k.op("VMOVDQU64 Z%d, %d(R9)", high, 64*high)
	}
}

// columns expands 32 columns, the first of a step or the second.
func (k expand512) columns(h int) {
	if k.high > 0 {
		k.loadHigh(h)
	}
	for n := range 4 {
		if k.entry == 4 {
			for half := range 2 {
				j := 8*h + 2*n + half
				k.index(j)
				k.ops("KXNORW K1, K1, K1", "VPGATHERDD (R8)(Z1*4), K1, Z2")
				k.sign(h, n, half, "Z2")
				k.op("VMOVDQU32 Z2, %d(DI)", 64*j)
			}
			continue
		}
		if k.name == "IQ1M" {
			k.op("VPTESTMD Z26, Z0, K2")
		}
		k.index(4*h + n)
		k.ops("VEXTRACTI64X4 $1, Z1, Y2", "KXNORW K1, K1, K1", "VPGATHERDQ (R8)(Y1*8), K1, Z3", "KXNORW K1, K1, K1")
		k.ops("VPGATHERDQ (R8)(Y2*8), K1, Z4", "VMOVDQA64 Z30, Z5", "VPERMI2D Z4, Z3, Z5", "VPERMT2D Z4, Z29, Z3")
		for half, z := range []string{"Z5", "Z3"} {
			k.sign(h, n, half, z)
			k.op("VMOVDQU32 %s, %d(DI)", z, 64*(8*h+2*n+half))
		}
	}
}

// loadHigh loads the high bits of 32 columns, eight bits further.
func (k expand512) loadHigh(h int) {
	switch {
	case k.ones():
		k.op("VPMOVZXWD %d(R11), Z0", 32*h)
		if k.name == "IQ1S" {
			k.ops("VPSLLD $16, Z0, Z1", "VPMOVD2M Z1, K2")
		}
		k.op("VPROLD $8, Z0, Z0")
	case k.name == "IQ2XS": // those of the second 32 follow
		if h == 0 {
			k.ops("VPMOVZXBD (R11), Z0", "VPROLD $8, Z0, Z0")
		}
	default:
		k.op("VPMOVZXBD %d(R11), Z0", 16*h)
		k.op("VPROLD $8, Z0, Z0")
	}
}

// index brings index j of a step into Z1.
func (k expand512) index(j int) {
	k.op("VPMOVZXBD %d(BX), Z1", 16*j)
	if k.high > 0 {
		k.op("VPTERNLOGD $0xf8, Z28, Z0, Z1 // or of and")
		k.op("VPRORD $%d, Z0, Z0", k.bits)
	}
}

// sign applies the signs of four columns.
func (k expand512) sign(h, n, half int, z string) {
	if k.ones() {
		k.op("VPSUBD Z27, %[1]s, K2, %[1]s", z)
		return
	}
	k.op("KMOVQ %d(R9), K2", 64*(4*half+n)+8*h)
	k.op("VPSUBB %[1]s, Z31, K2, %[1]s", z)
}

// product512 multiplies m rows with expanded superblocks.
type product512 struct {
	*source
	m int
}

func (k product512) float(m int) string { return sprint("Z%d", m) }
func (k product512) sum(m int) string   { return sprint("Z%d", k.m+m) }
func (k product512) int(m int) string   { return sprint("Z%d", 2*k.m+m) }

func (k product512) write() {
	k.kernel("gridAVX512Rows%d", k.m)
	k.ops("MOVQ a+0(FP), AX", "MOVQ integerArgs_weights(AX), R8", "MOVQ integerArgs_out(AX), R9")
	k.ops("MOVQ integerArgs_tiles(AX), R10", "MOVQ integerArgs_more(AX), CX", "NEGQ CX", "KMOVW CX, K2")
	k.line("tile:")
	for m := range k.m {
		k.op("VMOVUPS.Z %d(R9), K2, %s", 64*m, k.float(m))
	}
	k.ops("MOVQ integerArgs_acts(AX), DX", "MOVQ integerArgs_supers(AX), R12")
	k.line("super:")
	k.op("MOVQ R8, SI")
	k.op("LEAQ %d(R8), R13", atFactors)
	k.op("LEAQ %d(DX), R14", 256*k.m+4*k.m)
	k.ops("MOVQ DX, BX", "MOVQ $8, CX")
	for m := range k.m {
		k.op("VPXORD %[1]s, %[1]s, %[1]s", k.sum(m))
	}
	k.line("pair:")
	for g := range 2 {
		k.group(g)
	}
	k.ops("VPSLLD $16, Z29, Z29", "VPORD Z29, Z28, Z28", "VPXORD Z29, Z29, Z29", "VPSUBW Z28, Z29, Z28")
	k.op("VPSLLW $6, Z28, Z28")
	for m := range k.m {
		k.op("VPDPWSSD.BCST %d(R14), Z28, %s", 4*m, k.sum(m))
	}
	k.ops("ADDQ $512, SI", "ADDQ $32, R13")
	k.op("ADDQ $%d, R14", 4*k.m)
	k.op("ADDQ $%d, BX", 32*k.m)
	k.ops("DECQ CX", "JNZ pair")
	k.op("VMOVUPS %d(R8), Z28", codesSize)
	for m := range k.m {
		k.op("VCVTDQ2PS %[1]s, %[1]s", k.sum(m))
		k.op("VMULPS Z28, %[1]s, %[1]s", k.sum(m))
		k.op("VFMADD231PS.BCST %d(BX), %s, %s", 4*m, k.sum(m), k.float(m))
	}
	k.op("MOVQ R14, DX")
	k.op("ADDQ $%d, R8", expandedSize)
	k.ops("DECQ R12", "JNZ super")
	for m := range k.m {
		k.op("VMOVUPS %s, %d(R9)", k.float(m), 64*m)
	}
	k.ops("ADDQ integerArgs_outTile(AX), R9", "DECQ R10", "JNZ tile", "VZEROUPPER", "RET")
}

// group multiplies a group, the first or second of a pair.
func (k product512) group(g int) {
	for m := range k.m {
		k.op("VPXORD %[1]s, %[1]s, %[1]s", k.int(m))
	}
	for v := range 4 {
		k.op("VMOVDQU32 %d(SI), Z%d", 256*g+64*v, 24+v)
		for m := range k.m {
			k.op("VPDPBUSD.BCST %d(BX), Z%d, %s", 16*k.m*g+4*(v*k.m+m), 24+v, k.int(m))
		}
	}
	f := sprint("Z%d", 28+g)
	k.op("VPMOVZXBD %d(R13), %s", 16*g, f)
	for m := range k.m {
		k.op("VPMULLD %s, %[2]s, %[2]s", f, k.int(m))
		k.op("VPADDD %s, %[2]s, %[2]s", k.int(m), k.sum(m))
	}
}
