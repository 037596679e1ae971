package main

import "fmt"

const avx2Doc = `// func integerAVX2<format>Rows<m>(a *integerArgs), and of AVX-VNNI integerVNNI<format>Rows<m>, for one and two rows: see
// integerTiles, the twin. More rows have other kernels: see below.
//
// Half a tile, 8 rows, fills a vector: every group is walked twice. AVX-VNNI sums four products of bytes in
// 32 bits. AVX2 sums two in 16 bits, two vectors together, which codes of up to 6 bits cannot overflow:
// 4*63*127 < 2^15. Of 8-bit codes it multiplies the top bit by itself, unless they are symmetric:
// then they are signed, see signedRows.
//
// The first half of the tiles and the second are read side by side, as two streams; of an odd number
// the last is computed at the end, as both of a pair.
//
//	AX  arguments      R8   block            SI  first plane     DX  activations of the group
//	R9  output         R12  groups left      DI  second plane    BX  activations of the step
//	R10 tiles left,    CX   steps left       R13 scales          R11 stream to stream
//	    or pairs       R14  decoded factors of the group
//	                   R15  groups left in the superblock; 0: there are none
//
// Vectors: Y0 on: float32 sums of the first half, the second, and those of the other tile. Y8 to Y11: int32
// sums. Y12, Y13: codes, later scales and biases. Y14, Y15: products. With superblocks the first
// are int32 sums of a superblock, and the float32 sums are in the output.
// No alignment is required, and nothing is read past the last block or the last group.`

// avx2Rows is the maximum number of rows of these kernels, packedRows of others that read packed codes: see panelDoc.
const avx2Rows, packedRows = 2, 4

// avx2Streams is how many tiles are read side by side.
const avx2Streams = 2

// avx2Kernel writes one kernel.
type avx2Kernel struct {
	*source
	codes
	vnni  bool // by the dot products of AVX-VNNI
	m     int
	half  int      // where SI and DI are those of the first half
	at    int      // from Y12 to where codes are unpacked to
	aside []func() // what is written after the kernel's end
}

// setName is the name of the instruction set in those of kernels.
func setName(vnni bool) string {
	if vnni {
		return "VNNI"
	}
	return "AVX2"
}

func avx2(s *source) {
	constant := func(name string, words ...uint64) {
		for i := range 4 {
			s.line("DATA integer%s<>+%d(SB)/8, $0x%016x", name, 8*i, words[i%len(words)])
		}
		s.line("GLOBL integer%s<>(SB), RODATA|NOPTR, $32\n", name)
	}
	s.line("")
	constant("Low4", 0x0f0f0f0f0f0f0f0f)
	constant("Low2", 0x0303030303030303)
	constant("Low7", 0x7f7f7f7f7f7f7f7f)
	constant("Middle8", 0x8080808080808080)
	constant("Bit0", 0x0101010101010101)
	constant("Bit2", 0x0404040404040404)
	constant("Bit4", 0x1010101010101010)
	constant("Bits45", 0x3030303030303030)
	constant("Ones", 0x0001000100010001)
	constant("Tops", 0x0080008000800080)
	constant("Each", 0x8040201008040201) // one bit of every byte, in turn
	constant("Spread", 0x0000000000000000, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303)
	constant("Values", 0x181412100f0e0d0c, 0x00040608090a0b0c) // of E2M1 codes in halves, raised by 12
	constant("Levels", 0xf6eaddcfbfad9881, 0x7159453526190d01) // of dtype
	constant("Raised", 0x7a6e615343311c05, 0xf5ddc9b9aa9d9185) // the same, by 132
	constant("Nibble", 0x0000000f0000000f)
	constant("Pair", 0x0000003000000030)
	constant("Nibbles", 0x000f000f000f000f)
	constant("Pairs", 0x0030003000300030)
	constant("Signs", 0x8000000080000000)
	constant("Middle", 0x0000002000000020)
	constant("Raise6K", 0xffe0ffe0ffe0ffe0) // -32
	constant("Raise3K", 0xfffcfffcfffcfffc) // -4
	constant("RaiseXS", 0xff7cff7cff7cff7c) // -132
	factorsAVX2(s)
	for _, f := range supers {
		superAVX2(s, f, false)
	}
	superAVX2(s, supers[2], true)
	for _, vnni := range []bool{false, true} {
		for _, f := range formats {
			for m := 1; m <= avx2Rows && !f.packs(vnni); m++ {
				(&avx2Kernel{source: s, codes: f, vnni: vnni, m: m}).write()
			}
			for m := 1; m <= packedRows && f.packs(vnni); m++ {
				packedKernel(s, f, vnni, m).write()
			}
		}
	}
	panels(s)
}

func (k *avx2Kernel) write() {
	k.line("TEXT ·integer%s%sRows%d(SB), NOSPLIT, $0-8", setName(k.vnni), k.name, k.m)
	k.op("MOVQ a+0(FP), AX")
	k.arg("weights", "R8")
	k.arg("out", "R9")
	k.arg("tiles", "R10")
	k.op("SHRQ $1, R10")
	k.op("JZ last")
	k.arg("tileBytes", "R11")
	k.op("IMULQ R10, R11")
	k.line("tile:")
	k.arg("acts", "DX")
	k.arg("groups", "R12")
	for i := range 2 * avx2Streams * k.m {
		k.op("VPXOR Y%d, Y%d, Y%d", i, i, i)
	}
	if k.factors() != "" {
		k.openSuper()
	}
	k.line("group:")
	for h := range 2 * avx2Streams {
		k.dots(h)
		k.scale(h)
	}
	k.op("LEAQ %d(BX), DX", 12*k.m)
	k.op("ADDQ integerArgs_block(AX), R8")
	k.op("DECQ R12")
	k.op("JNZ group")
	k.store()
	k.op("VZEROUPPER")
	k.op("RET")
	for _, rest := range k.aside {
		rest()
	}
	k.line("")
}

// store writes the finished tiles and goes on with the next.
func (k *avx2Kernel) store() {
	put := func(tile int, register string) {
		for m := range k.m {
			for h := range 2 {
				k.op("VMOVUPS %s, %d(%s)", k.float(2*tile+h, m), 64*m+32*h, register)
			}
		}
	}
	put(0, "R9")
	k.op("TESTQ R11, R11")
	k.op("JZ end")
	k.secondOut()
	put(1, "CX")
	k.line("stored:")
	k.op("ADDQ DX, R9")
	k.op("DECQ R10")
	k.op("JNZ tile")
	k.op("ADDQ R11, R8")
	k.op("LEAQ (CX)(DX*1), R9")
	k.line("last:")
	k.op("XORL R11, R11")
	k.op("MOVQ $1, R10")
	k.arg("tiles", "CX")
	k.op("TESTQ $1, CX")
	k.op("JNZ tile")
	k.line("end:")
}

// secondOut points CX at the output of the second tile, and sets DX to the bytes from tile to tile.
func (k *avx2Kernel) secondOut() {
	k.arg("tiles", "CX")
	k.op("SHRQ $1, CX")
	k.arg("outTile", "DX")
	k.op("IMULQ DX, CX")
	k.op("ADDQ R9, CX")
}

// block points a register at offset(R8) of the tile that half h belongs to.
func (k *avx2Kernel) block(h, offset int, register string) {
	if h >= 2 {
		k.op("LEAQ %d(R8)(R11*1), %s", offset, register)
		return
	}
	k.op("LEAQ %d(R8), %s", offset, register)
}

func (k *avx2Kernel) float(h, m int) string { return fmt.Sprintf("Y%d", h*k.m+m) }
func (k *avx2Kernel) int(m int) string      { return fmt.Sprintf("Y%d", 8+m) }

// dots computes the integer sums of a group for half h: two of the first tile, two of the
// second.
func (k *avx2Kernel) dots(h int) {
	k.block(h, 32*(h%2), "SI")
	k.op("MOVQ DX, BX")
	if k.high() > 0 {
		k.block(h, []int{0, 4, 32}[k.high()]*(h%2), "DI")
		k.op("ADDQ integerArgs_plane(AX), DI")
	}
	for i := range k.m * k.chains() {
		k.op("VPXOR %[1]s, %[1]s, %[1]s", k.int(i))
	}
	k.arg("steps", "CX")
	if k.bits == 8 && !k.vnni {
		k.op("TESTQ $const_scaleZero, integerArgs_scale(AX)")
		k.op("JNZ signed%d", h)
		k.aside = append(k.aside, func() { k.signedBytes(h) })
	}
	if k.short() {
		k.op("CMPQ CX, $2")
		k.op("JLE short%d", h)
		k.aside = append(k.aside, func() { k.shortGroup(h) })
	}
	k.line("step%d:", h)
	if h%2 == 0 && k.high() > 0 {
		k.prefetch(0, "DI")
	}
	for v := 0; v < 4; v += 2 {
		switch {
		case k.vnni:
			k.unpack(h, v)
			k.dotProducts(v)
		case k.bits == 8:
			k.bytes(h, v)
			k.bytes(h, v+1)
		case k.levels:
			k.signed(h, v)
			k.signed(h, v+1)
		default:
			k.unpack(h, v)
			k.products(h, v)
		}
	}
	k.nextStep("step", h)
	k.line("summed%d:", h)
	if k.chains() == 2 {
		for m := range k.m {
			k.op("VPADDD %s, %[2]s, %[2]s", k.int(k.m+m), k.int(m))
		}
	}
}

// chains is how many sums of a row grow beside each other, so that they need not wait for one another.
func (k *avx2Kernel) chains() int {
	if k.vnni {
		return 2
	}
	return 1
}

// code is the register that codes are unpacked to.
func (k *avx2Kernel) code(i int) string { return fmt.Sprintf("Y%d", 12+k.at+i) }

// unpack brings vectors v and v+1 of half h into two registers.
func (k *avx2Kernel) unpack(h, v int) {
	k.lowBits(h, v)
	k.highBits(v, k.code(0))
	k.highBits(v+1, k.code(1))
}

// dotProducts multiplies vectors v and v+1 by AVX-VNNI.
func (k *avx2Kernel) dotProducts(v int) {
	for i := range 2 {
		for m := range k.m {
			k.op("VPBROADCASTD %d(BX), Y%d", 4*((v+i)*k.m+m), 14+i)
			k.op("DPBUSD(%d, %d, %d)", 14+i, 12+i, 8+i*k.m+m)
		}
	}
}

// short reports whether there are kernels for short groups.
func (k *avx2Kernel) short() bool { return k.bits <= 4 && !k.fp4 && !k.vnni }

// shortGroup is the loop of dots for groups of 32 codes at most of 4 bits at most, all of whose products can be
// summed in 16 bits: 32*15*127 < 2^15, since each sum has half of them.
func (k *avx2Kernel) shortGroup(h int) {
	k.line("short%d:", h)
	for v := 0; v < 4; v += 2 {
		k.unpack(h, v)
		for m := range k.m {
			k.op("VPBROADCASTD %d(BX), Y14", 4*(v*k.m+m))
			k.op("VPBROADCASTD %d(BX), Y15", 4*((v+1)*k.m+m))
			k.op("VPMADDUBSW Y14, Y12, Y14")
			k.op("VPMADDUBSW Y15, Y13, Y15")
			k.op("VPADDW Y14, %[1]s, %[1]s", k.int(m))
			k.op("VPADDW Y15, %[1]s, %[1]s", k.int(m))
		}
	}
	k.nextStep("short", h)
	for m := range k.m {
		k.op("VPMADDWD %[1]s, %[2]s, %[2]s", k.ones(h), k.int(m))
	}
	k.op("JMP summed%d", h)
}

// nextStep goes on with the next 16 columns.
func (k *avx2Kernel) nextStep(label string, h int) {
	k.op("ADDQ $%d, SI", step16(k.low()))
	if k.high() > 0 {
		k.op("ADDQ $%d, DI", step16(k.high()))
	}
	k.op("ADDQ $%d, BX", 16*k.m)
	k.op("DECQ CX")
	k.op("JNZ %s%d", label, h)
}

// bytes multiplies vector v of 8-bit codes.
func (k *avx2Kernel) bytes(h, v int) {
	k.op("VMOVDQU %d(SI), Y12", 64*v)
	if h%2 == 0 {
		k.prefetch(64*v, "SI")
	}
	k.op("VPSRLW $7, Y12, Y13")
	k.op("VPAND integerBit0<>(SB), Y13, Y13")
	k.op("VPAND integerLow7<>(SB), Y12, Y12")
	for m := range k.m {
		k.op("VPBROADCASTD %d(BX), Y14", 4*(v*k.m+m))
		k.op("VPMADDUBSW Y14, Y12, Y15")
		k.op("VPMADDUBSW Y14, Y13, Y14")
		k.op("VPMADDWD integerOnes<>(SB), Y15, Y15")
		k.op("VPMADDWD integerTops<>(SB), Y14, Y14")
		k.op("VPADDD Y15, %[1]s, %[1]s", k.int(m))
		k.op("VPADDD Y14, %[1]s, %[1]s", k.int(m))
	}
}

// signed multiplies vector v of codes for levels.
func (k *avx2Kernel) signed(h, v int) {
	k.op("VMOVDQU %d(SI), Y12", 64*(v/2))
	if v%2 == 1 {
		k.op("VPSRLW $4, Y12, Y12")
	} else if h%2 == 0 {
		k.prefetch(64*(v/2), "SI")
	}
	k.op("VPAND integerLow4<>(SB), Y12, Y12")
	k.op("VMOVDQU integerLevels<>(SB), Y14")
	k.op("VPSHUFB Y12, Y14, Y12")
	k.signedRows(h, v)
}

// signedBytes computes and adds the sums of half h of symmetric 8-bit codes.
func (k *avx2Kernel) signedBytes(h int) {
	k.line("signed%d:", h)
	for v := range 4 {
		k.op("VMOVDQU %d(SI), Y12", 64*v)
		if h%2 == 0 {
			k.prefetch(64*v, "SI")
		}
		k.op("VPXOR integerMiddle8<>(SB), Y12, Y12")
		k.signedRows(h, v)
	}
	k.nextStep("signed", h)
	k.scalesAt(h)
	k.op("TESTQ $const_scaleF16, integerArgs_scale(AX)")
	k.op("JNZ zeroHalf%d", h)
	k.op("JMP zero%d", h)
}

// signedRows multiplies vector v of signed codes in Y12. Their signs go to the other factor: products
// of magnitudes cannot overflow two by two, 2*128*127 < 2^15.
func (k *avx2Kernel) signedRows(h, v int) {
	k.op("VPABSB Y12, Y13")
	for m := range k.m {
		k.op("VPBROADCASTD %d(BX), Y14", 4*(v*k.m+m))
		k.op("VPSIGNB Y12, Y14, Y14")
		k.op("VPMADDUBSW Y14, Y13, Y14")
		k.op("VPMADDWD %s, Y14, Y14", k.ones(h))
		k.op("VPADDD Y14, %[1]s, %[1]s", k.int(m))
	}
}

// lowBits brings the low plane of vectors v and v+1 into two registers.
func (k *avx2Kernel) lowBits(h, v int) {
	switch k.low() {
	case 8:
		for i := range 2 {
			k.op("VMOVDQU %d(SI), %s", 64*(v+i)+32*k.half, k.code(i))
			if h%2 == 0 {
				k.prefetch(64*(v+i), "SI")
			}
		}
		return
	case 2:
		if h%2 == 0 && v == 0 {
			k.prefetch(0, "SI")
		}
		k.op("VMOVDQU %d(SI), Y14", 32*k.half)
		k.op("VPSRLW $%d, Y14, %s", 2*v, k.code(0))
		k.op("VPSRLW $%d, Y14, %s", 2*v+2, k.code(1))
		for i := range 2 {
			k.op("VPAND integerLow2<>(SB), %[1]s, %[1]s", k.code(i))
		}
		return
	}
	k.op("VMOVDQU %d(SI), %s", 32*v+32*k.half, k.code(0))
	if h%2 == 0 {
		k.prefetch(32*v, "SI")
	}
	k.op("VPSRLW $4, %s, %s", k.code(0), k.code(1))
	for i := range 2 {
		k.op("VPAND integerLow4<>(SB), %[1]s, %[1]s", k.code(i))
	}
	if k.fp4 {
		values := "Values"
		if k.levels {
			values = "Raised"
		}
		k.op("VMOVDQU integer%s<>(SB), Y14", values)
		for i := range 2 {
			k.op("VPSHUFB %[1]s, Y14, %[1]s", k.code(i))
		}
	}
}

// highBits adds the bits of the second plane to vector v.
func (k *avx2Kernel) highBits(v int, w string) {
	switch k.high() {
	case 1:
		k.op("VPBROADCASTD %d(DI), Y14", 8*v+4*k.half)
		k.op("VPSHUFB integerSpread<>(SB), Y14, Y14")
		k.op("VPAND integerEach<>(SB), Y14, Y14")
		k.op("VPCMPEQB integerEach<>(SB), Y14, Y14")
		k.op("VPAND integerBit%d<>(SB), Y14, Y14", k.low())
	case 2:
		k.op("VMOVDQU %d(DI), Y14", 32*k.half)
		switch v {
		case 0:
			k.op("VPSLLW $4, Y14, Y14")
		case 1:
			k.op("VPSLLW $2, Y14, Y14")
		case 3:
			k.op("VPSRLW $2, Y14, Y14")
		}
		k.op("VPAND integerBits45<>(SB), Y14, Y14")
	default:
		return
	}
	k.op("VPOR Y14, %s, %s", w, w)
}

// products multiplies vectors v and v+1.
func (k *avx2Kernel) products(h, v int) {
	for m := range k.m {
		k.op("VPBROADCASTD %d(BX), Y14", 4*(v*k.m+m))
		k.op("VPBROADCASTD %d(BX), Y15", 4*((v+1)*k.m+m))
		k.op("VPMADDUBSW Y14, Y12, Y14")
		k.op("VPMADDUBSW Y15, Y13, Y15")
		k.op("VPADDW Y15, Y14, Y14")
		if k.short() { // and so are superblocks
			k.op("VPMADDWD integerOnes<>(SB), Y14, Y14")
		} else {
			k.op("VPMADDWD %s, Y14, Y14", k.ones(h))
		}
		k.op("VPADDD Y14, %[1]s, %[1]s", k.int(m))
	}
}

func (k *avx2Kernel) prefetch(offset int, register string) {
	if k.m > 0 { // panels ask for lines apart
		k.op("PREFETCHT0 %d(%s)", offset+ahead, register)
	}
}

// scale adds the scaled integer sums of half h to the float sums. BX is at the scales of
// the activations.
func (k *avx2Kernel) scale(h int) {
	if k.factors() != "" {
		k.op("TESTQ R15, R15")
		k.op("JNZ factors%d", h)
		k.aside = append(k.aside, func() { k.addFactored(h) })
	}
	k.scalesAt(h)
	k.op("CMPQ integerArgs_scale(AX), $const_scaleF16")
	k.op("JEQ half%d", h)
	k.op("JGT other%d", h)
	k.scales(16*(h%2), 32, k.loadBF16)
	k.line("scaled%d:", h)
	switch {
	case k.levels && !k.vnni:
		k.scaleRows(h, addNothing)
	case k.fp4:
		k.scaleRows(h, addOffset)
	default:
		k.scaleRows(h, addBiases)
	}
	k.line("added%d:", h)
	k.aside = append(k.aside, func() {
		k.line("half%d:", h)
		k.scales(16*(h%2), 32, k.loadF16)
		k.op("JMP scaled%d", h)
		k.line("other%d:", h)
		if k.first() {
			k.op("CMPQ integerArgs_scale(AX), $const_scaleFirst")
			k.op("JEQ first%d", h)
		}
		if !k.fp4 {
			k.op("CMPQ integerArgs_scale(AX), $const_scaleZeroF16")
			k.op("JEQ zeroHalf%d", h)
			k.op("CMPQ integerArgs_scale(AX), $const_scaleF32")
			k.op("JNE zeros%d", h)
		}
		k.scales(32*(h%2), 64, k.loadF32)
		k.op("JMP scaled%d", h)
		if !k.fp4 {
			k.zeros(h)
		}
		if k.first() {
			k.line("first%d:", h)
			k.op("VCVTPH2PS %d(R13), Y12", 16*(h%2))
			k.scaleFirst(h)
			k.op("JMP added%d", h)
		}
	})
}

// zeros is the part of scale for codes without biases, which are signed or have zero points. Symmetric codes
// of 8 bits were made signed before.
func (k *avx2Kernel) zeros(h int) {
	short, full, points := 16*(h%2), 32*(h%2), 8*(h%2)
	k.line("zeros%d:", h)
	k.op("TESTQ $const_scalePoints, integerArgs_scale(AX)")
	k.op("JNZ points%d", h)
	k.line("zero%d:", h)
	k.op("TESTQ $const_scaleF32, integerArgs_scale(AX)")
	k.op("JNZ zeroFull%d", h)
	k.loadBF16(short, "Y12")
	k.op("JMP symmetric%d", h)
	k.line("zeroFull%d:", h)
	k.loadF32(full, "Y12")
	k.op("JMP symmetric%d", h)
	k.line("zeroHalf%d:", h)
	k.loadF16(short, "Y12")
	k.line("symmetric%d:", h)
	if k.bits == 8 && !k.vnni {
		k.scaleRows(h, addNothing)
	} else {
		k.scaleRows(h, addOffset)
	}
	k.op("JMP added%d", h)
	k.line("points%d:", h)
	k.op("TESTQ $const_scaleF32, integerArgs_scale(AX)")
	k.op("JNZ pointsFull%d", h)
	k.op("VPMOVZXBD %d(R13), Y13", 32+points)
	k.op("TESTQ $const_scaleF16, integerArgs_scale(AX)")
	k.op("JNZ pointsHalf%d", h)
	k.loadBF16(short, "Y12")
	k.op("JMP pointed%d", h)
	k.line("pointsFull%d:", h)
	k.op("VPMOVZXBD %d(R13), Y13", 64+points)
	k.loadF32(full, "Y12")
	k.op("JMP pointed%d", h)
	k.line("pointsHalf%d:", h)
	k.loadF16(short, "Y12")
	k.line("pointed%d:", h)
	k.scaleRows(h, addPoints)
	k.op("JMP added%d", h)
}

// loadBF16, loadF16 and loadF32 load 8 scales of these types.
func (k *avx2Kernel) loadBF16(at int, y string) {
	k.op("VPMOVZXWD %d(R13), %s", at, y)
	k.op("VPSLLD $16, %s, %s", y, y)
}
func (k *avx2Kernel) loadF16(at int, y string) { k.op("VCVTPH2PS %d(R13), %s", at, y) }
func (k *avx2Kernel) loadF32(at int, y string) { k.op("VMOVUPS %d(R13), %s", at, y) }

// scalesAt points R13 at the scales of the tile of half h.
func (k *avx2Kernel) scalesAt(h int) {
	k.block(h, 0, "R13")
	k.op("ADDQ integerArgs_codes(AX), R13")
	if h%2 == 0 {
		k.prefetch(0, "R13")
	}
}

// What scaleRows adds to the sums of codes.
const (
	addNothing = iota // nothing
	addOffset         // the offset, since codes were raised to be unsigned
	addPoints         // the offset times the zero points in Y13
	addBiases         // the biases in Y13
)

// scaleRows scales the integer sums of half h and adds them.
func (k *avx2Kernel) scaleRows(h, kind int) {
	for m := range k.m {
		i, f := k.int(m), k.float(h, m)
		if kind == addOffset || kind == addPoints {
			k.op("VPBROADCASTD %d(BX), Y14", 8*k.m+4*m)
			if kind == addPoints {
				k.op("VPMADDWD Y13, Y14, Y14")
			}
			k.op("VPADDD Y14, %s, %s", i, i)
		}
		k.op("VCVTDQ2PS %s, %s", i, i)
		k.op("VBROADCASTSS %d(BX), Y14", 4*m)
		k.op("VMULPS Y14, %s, %s", i, i)
		k.op("VFMADD231PS Y12, %s, %s", i, f)
		if kind == addBiases {
			k.op("VBROADCASTSS %d(BX), Y14", 4*(k.m+m))
			k.op("VFMADD231PS Y14, Y13, %s", f)
		}
	}
}

// scaleFirst is scaleRows for blocks that are superblocks without factors.
func (k *avx2Kernel) scaleFirst(h int) {
	for m := range k.m {
		i := k.int(m)
		k.op("VPBROADCASTD %d(BX), Y14", 8*k.m+4*m)
		k.op("VPADDD Y14, %s, %s", i, i)
		k.op("VCVTDQ2PS %s, %s", i, i)
		k.op("VMULPS Y12, %s, %s", i, i)
		k.op("VBROADCASTSS %d(BX), Y14", 4*m)
		k.op("VFMADD231PS Y14, %s, %s", i, k.float(h, m))
	}
}

// scales loads the scales at an offset, and the biases size bytes further.
func (k *avx2Kernel) scales(at, size int, load func(at int, y string)) {
	load(at, "Y12")
	if !k.fp4 {
		load(at+size, "Y13")
	}
}
