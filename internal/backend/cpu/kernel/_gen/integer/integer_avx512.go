package main

import "fmt"

const avx512Doc = `// func integerAVX512<format>Rows<m>(a *integerArgs), for m rows: see integerTiles, the twin.
//
// The columns of a group go in steps of 16, which are four vectors of 16 rows × 4 columns.
// The first half of the tiles and the second are read side by side, as two streams. Of an
// odd number the last is computed at the end, as both of a pair.
//
//	AX  arguments      R8   block            SI  first plane     DX  activations of the group
//	R9  output         R11  stream to stream    DI  second plane    BX  activations of the step
//	R10 pairs left     R12  groups left      CX  steps left      R13 scales
//	R14 decoded factors of the group         R15 groups left in the superblock; 0: there are none
//
// Vectors: from Z0 on the float32 sums, then the int32 sums, of tile after tile, row after
// row. Z31, Z30: constants of the format. Z24 to Z29: codes, later scales and biases.
// With superblocks the first are int32 sums of a superblock, and the float32 sums are in the
// output; K2 is none before it has them.
// No alignment is required, and nothing is read past the last block or the last group.`

// avx512Rows is the maximum number of rows of a kernel.
const avx512Rows = 8

// avx512Kernel writes one kernel.
type avx512Kernel struct {
	*source
	codes
	m       int
	streams int      // tiles that are read side by side
	inTurn  bool     // and computed one after another, since the registers are few
	super   bool     // there may be superblocks
	selects bool     // codes of 6 bits are put together by sixBits
	ahead   int      // bytes that memory is asked for in advance
	cache   int      // into the first cache (0) or the second (1)
	across  bool     // every other line of the first plane is that of another stream, R13 bytes away
	skip    int      // steps from where SI and DI are
	aside   []func() // what is written after the kernel's end
}

func avx512(s *source) {
	s.line("\n// The values of E2M1 codes in halves, raised by 12.")
	s.line("DATA integerE2M1<>+0(SB)/8, $0x181412100f0e0d0c")
	s.line("DATA integerE2M1<>+8(SB)/8, $0x00040608090a0b0c")
	s.line("GLOBL integerE2M1<>(SB), RODATA|NOPTR, $16")
	s.line("\n// dtype.Levels raised by 132.")
	s.line("DATA integerLevels<>+0(SB)/8, $0x7a6e615343311c05")
	s.line("DATA integerLevels<>+8(SB)/8, $0xf5ddc9b9aa9d9185")
	s.line("GLOBL integerLevels<>(SB), RODATA|NOPTR, $16")
	factorsAVX512(s)
	for _, f := range formats {
		for m := 1; m <= avx512Rows; m++ {
			if !hasRows(m) {
				continue
			}
			k := &avx512Kernel{source: s, codes: f, m: m, streams: 2, inTurn: m > 6, ahead: ahead, super: f.factors() != "", selects: f.bits == 6}
			k.write()
		}
	}
	wide(s)
}

func (k *avx512Kernel) write() {
	k.kernel("integerAVX512%sRows%d", 0, k.name, k.m)
	k.op("MOVQ a+0(FP), AX")
	k.arg("weights", "R8")
	k.arg("out", "R9")
	k.arg("tiles", "R10")
	if k.levels {
		k.constants("integerLevels")
	} else {
		k.constants("integerE2M1")
	}
	k.ops("SHRQ $1, R10", "JZ last")
	k.arg("tileBytes", "R11")
	k.op("IMULQ R10, R11")
	k.line("tile:")
	k.arg("acts", "DX")
	k.arg("groups", "R12")
	for i := range k.streams * k.m {
		k.op("VPXORD Z%d, Z%d, Z%d", i, i, i)
	}
	if k.super {
		k.openSuper()
	}
	k.line("group:")
	if k.inTurn {
		for h := range k.streams {
			k.dots(h, h+1)
			k.scale(h, h+1)
		}
	} else {
		k.dots(0, k.streams)
		k.scale(0, k.streams)
	}
	k.op("LEAQ %d(BX), DX", 12*k.m)
	k.ops("ADDQ integerArgs_block(AX), R8", "DECQ R12", "JNZ group")
	k.store()
	k.ops("VZEROUPPER", "RET")
	for _, rest := range k.aside {
		rest()
	}
}

// constants loads Z31 and Z30, for E2M1 the table of that name.
func (k *avx512Kernel) constants(table string) {
	load := func(x uint32, z string) {
		k.op("MOVL $0x%08x, CX", x)
		k.op("VPBROADCASTD CX, %s", z)
	}
	switch k.low() {
	case 4:
		load(0x0f0f0f0f, "Z31")
	case 2:
		load(0x03030303, "Z31")
	}
	switch {
	case k.fp4:
		k.op("VBROADCASTI32X4 %s<>(SB), Z30", table)
	case k.selects:
		load(0x33333333, "Z30")
	case k.bits == 6:
		load(0x30303030, "Z30")
	case k.bits == 5:
		load(0x10101010, "Z30")
	case k.bits == 3:
		load(0x04040404, "Z30")
	}
}

func (k *avx512Kernel) float(h, m int) string { return fmt.Sprintf("Z%d", h*k.m+m) }

func (k *avx512Kernel) int(h, m int) string {
	if k.inTurn {
		h = 0
	}
	return fmt.Sprintf("Z%d", (k.streams+h)*k.m+m)
}

// stream is the address of a byte of tile h.
func (k *avx512Kernel) stream(h, offset int, register string) string {
	switch register {
	case "SI":
		offset += k.skip * step16(k.low())
	case "DI":
		offset += k.skip * step16(k.high())
	}
	if h > 0 {
		return fmt.Sprintf("%d(%s)(R11*%d)", offset, register, h)
	}
	return fmt.Sprintf("%d(%s)", offset, register)
}

// dots computes the integer sums of a group for tiles [from, to).
func (k *avx512Kernel) dots(from, to int) {
	k.ops("MOVQ R8, SI", "MOVQ DX, BX")
	if k.high() > 0 {
		k.arg("plane", "DI")
		k.op("ADDQ R8, DI")
	}
	k.clear(from, to)
	k.arg("steps", "CX")
	k.line("step%d:", from)
	for h := from; h < to; h++ {
		k.step(h)
	}
	k.op("ADDQ $%d, SI", step16(k.low()))
	if k.high() > 0 {
		k.op("ADDQ $%d, DI", step16(k.high()))
	}
	k.op("ADDQ $%d, BX", 16*k.m)
	k.op("DECQ CX")
	k.op("JNZ step%d", from)
}

// clear sets the integer sums of tiles [from, to) to zero.
func (k *avx512Kernel) clear(from, to int) {
	for h := from; h < to; h++ {
		for m := range k.m {
			k.op("VPXORD %[1]s, %[1]s, %[1]s", k.int(h, m))
		}
	}
}

// step multiplies 16 columns of tile h.
func (k *avx512Kernel) step(h int) {
	k.vectors(h, func(v int, w string) {
		for m := range k.m {
			k.op("VPDPBUSD.BCST %d(BX), %s, %s", 4*(v*k.m+m), w, k.int(h, m))
		}
	})
}

// vectors unpacks the four vectors of a step of tile h, and hands each over in a register.
func (k *avx512Kernel) vectors(h int, use func(v int, w string)) {
	if k.selects {
		k.sixBits(h, use)
		return
	}
	if k.high() == 2 {
		k.op("VMOVDQU32 %s, Z26", k.stream(h, 0, "DI"))
	}
	if k.high() > 0 {
		k.prefetch(h, 0, "DI")
	}
	for v := range 4 {
		w := k.lowBits(h, v)
		k.highBits(h, v, w)
		if k.fp4 {
			k.op("VPSHUFB %s, Z30, %s", w, w)
		}
		use(v, w)
	}
}

// sixBits is vectors for codes of 6 bits. Of the second plane every other field is masked, so that what
// is above a code is zero; what is below gives way to the first plane.
func (k *avx512Kernel) sixBits(h int, use func(v int, w string)) {
	k.op("VMOVDQU32 %s, Z26", k.stream(h, 0, "DI"))
	k.prefetch(h, 0, "DI")
	k.ops("VPSRLD $2, Z26, Z27", "VPANDD Z30, Z26, Z26", "VPANDD Z30, Z27, Z27")
	for v := 0; v < 4; v += 2 {
		k.op("VMOVDQU32 %s, Z25", k.stream(h, 32*v, "SI"))
		k.prefetch(h, 32*v, "SI")
		k.op("VPSRLD $4, Z25, Z24")
		for i, w := range []string{"Z25", "Z24"} {
			high := sprint("Z%d", 26+i)
			if v == 0 {
				k.op("VPSLLD $4, %s, Z28", high)
				high = "Z28"
			}
			k.op("VPTERNLOGD $0xe4, Z31, %s, %s // the low half of a byte stays", high, w)
			use(v+i, w)
		}
	}
}

// lowBits brings the low plane of vector v into the register it returns.
func (k *avx512Kernel) lowBits(h, v int) string {
	switch k.low() {
	case 8:
		w := fmt.Sprintf("Z%d", 24+v)
		k.op("VMOVDQU32 %s, %s", k.stream(h, 64*v, "SI"), w)
		k.prefetch(h, 64*v, "SI")
		return w
	case 4:
		if v%2 == 1 {
			return "Z25"
		}
		k.op("VMOVDQU32 %s, Z25", k.stream(h, 32*v, "SI"))
		k.prefetch(h, 32*v, "SI")
		k.ops("VPANDD Z31, Z25, Z24", "VPSRLD $4, Z25, Z25", "VPANDD Z31, Z25, Z25")
		return "Z24"
	default:
		if v == 0 {
			k.op("VMOVDQU32 %s, Z25", k.stream(h, 0, "SI"))
			k.prefetch(h, 0, "SI")
			k.op("VPANDD Z31, Z25, Z24")
			return "Z24"
		}
		k.op("VPSRLD $%d, Z25, Z24", 2*v)
		k.op("VPANDD Z31, Z24, Z24")
		return "Z24"
	}
}

// highBits adds the bits of the second plane to vector v.
func (k *avx512Kernel) highBits(h, v int, w string) {
	switch k.high() {
	case 1:
		k.op("KMOVQ %s, K1", k.stream(h, 8*v, "DI"))
		k.op("VPADDB Z30, %s, K1, %s", w, w)
	case 2:
		shifted := "Z27"
		switch v {
		case 0:
			k.op("VPSLLD $4, Z26, Z27")
		case 1:
			k.op("VPSLLD $2, Z26, Z27")
		case 2:
			shifted = "Z26"
		case 3:
			k.op("VPSRLD $2, Z26, Z27")
		}
		k.op("VPTERNLOGD $0xf8, Z30, %s, %s // or of and", shifted, w)
	}
}

// ahead is the distance of the software prefetch in bytes. Measured on a Xeon of the fourth
// generation, weights from memory, 4 bits: without it one row takes 1.3 times as long, eight
// rows 1.6 times; half and twice the distance are no better.
const ahead = 4608

// prefetch asks for the line that will be read some blocks later.
func (k *avx512Kernel) prefetch(h, offset int, register string) {
	if k.ahead > 0 {
		at := k.stream(h, offset+k.ahead, register)
		if k.across && register == "SI" && (offset+k.skip*step16(k.low()))%128 != 0 {
			at += "(R13*1)"
		}
		k.op("PREFETCHT%d %s", k.cache, at)
	}
}

// scale adds a group's integer sums, scaled, to the float sums of tiles [from, to). BX is
// at the scales of the activations.
func (k *avx512Kernel) scale(from, to int) {
	if k.super && !k.halves() {
		k.op("TESTQ R15, R15")
		k.op("JNZ factors%d", from)
		k.aside = append(k.aside, func() { k.addFactored(from, to) })
	}
	each := func(do func(h, m int)) func() {
		return func() {
			for m := range k.m {
				for h := from; h < to; h++ {
					do(h, m)
				}
			}
		}
	}
	k.loadScales(from, to, each(k.scaleRow), each(k.scaleSymmetric), each(k.scalePointed), each(k.scaleFirst))
}

// loadScales brings the scales and biases of tiles [from, to) as float32 into Z24 and Z25
// for the first tile, Z26 and Z27 for the second, and then does what follows. If codes are
// symmetric there are no biases, and if they are pointed Z25 and Z27 have zero points; without these two
// they are neither. First is for blocks that are superblocks without factors.
func (k *avx512Kernel) loadScales(from, to int, then, symmetric, pointed, first func()) {
	k.arg("codes", "R13")
	k.op("ADDQ R8, R13")
	for h := from; h < to; h++ {
		k.prefetch(h, 0, "R13")
	}
	k.op("CMPQ integerArgs_scale(AX), $const_scaleF16")
	k.op("JEQ half%d", from)
	k.op("JGT other%d", from)
	for h := from; h < to; h++ {
		k.scales(h, 32, k.loadBF16)
	}
	k.line("scaled%d:", from)
	then()
	k.line("added%d:", from)
	k.aside = append(k.aside, func() {
		k.line("half%d:", from)
		for h := from; h < to; h++ {
			k.scales(h, 32, k.loadF16)
		}
		k.op("JMP scaled%d", from)
		k.line("other%d:", from)
		zeros := !k.fp4 && symmetric != nil
		if k.first() && first != nil {
			k.op("CMPQ integerArgs_scale(AX), $const_scaleFirst")
			k.op("JEQ first%d", from)
		}
		if zeros {
			k.op("CMPQ integerArgs_scale(AX), $const_scaleZeroF16")
			k.op("JEQ zeroHalf%d", from)
			k.op("CMPQ integerArgs_scale(AX), $const_scaleF32")
			k.op("JNE zeros%d", from)
		}
		for h := from; h < to; h++ {
			k.scales(h, 64, k.loadF32)
		}
		k.op("JMP scaled%d", from)
		if zeros {
			k.loadZeros(from, to, symmetric, pointed)
		}
		if k.first() && first != nil {
			k.line("first%d:", from)
			for h := from; h < to; h++ {
				k.op("VCVTPH2PS %s, Z%d", k.stream(h, 0, "R13"), 24+2*h)
			}
			first()
			k.op("JMP added%d", from)
		}
	})
}

// loadZeros is the part of loadScales for codes without biases.
func (k *avx512Kernel) loadZeros(from, to int, symmetric, pointed func()) {
	load := func(name string, zeros int, load func(at, z string), next string) {
		k.line("%s%d:", name, from)
		for h := from; h < to; h++ {
			load(k.stream(h, 0, "R13"), fmt.Sprintf("Z%d", 24+2*h))
			if zeros > 0 {
				k.op("VPMOVZXBD %s, Z%d", k.stream(h, zeros, "R13"), 25+2*h)
			}
		}
		if next != "" {
			k.op("JMP %s%d", next, from)
		}
	}
	load("zeroHalf", 0, k.loadF16, "")
	k.line("symmetric%d:", from)
	symmetric()
	k.op("JMP added%d", from)
	k.line("zeros%d:", from)
	k.op("TESTQ $const_scalePoints, integerArgs_scale(AX)")
	k.op("JNZ points%d", from)
	k.op("TESTQ $const_scaleF32, integerArgs_scale(AX)")
	k.op("JZ zeroShort%d", from)
	load("zeroFull", 0, k.loadF32, "symmetric")
	load("zeroShort", 0, k.loadBF16, "symmetric")
	k.line("points%d:", from)
	k.op("CMPQ integerArgs_scale(AX), $(const_scalePoints+const_scaleF16)")
	k.op("JEQ pointsHalf%d", from)
	k.op("JLT pointsShort%d", from)
	load("pointsFull", 64, k.loadF32, "pointed")
	load("pointsHalf", 32, k.loadF16, "pointed")
	load("pointsShort", 32, k.loadBF16, "")
	k.line("pointed%d:", from)
	pointed()
	k.op("JMP added%d", from)
}

// loadBF16, loadF16 and loadF32 load 16 scales of these types.
func (k *avx512Kernel) loadBF16(at, z string) {
	k.op("VPMOVZXWD %s, %s", at, z)
	k.op("VPSLLD $16, %s, %s", z, z)
}
func (k *avx512Kernel) loadF16(at, z string) { k.op("VCVTPH2PS %s, %s", at, z) }
func (k *avx512Kernel) loadF32(at, z string) { k.op("VMOVUPS %s, %s", at, z) }

// scales loads the scales of tile h, and the biases which lie size bytes further.
func (k *avx512Kernel) scales(h, size int, load func(at, z string)) {
	load(k.stream(h, 0, "R13"), fmt.Sprintf("Z%d", 24+2*h))
	if !k.fp4 {
		load(k.stream(h, size, "R13"), fmt.Sprintf("Z%d", 25+2*h))
	}
}

func (k *avx512Kernel) scaleRow(h, m int) {
	i, f := k.int(h, m), k.float(h, m)
	if k.fp4 {
		k.op("VPADDD.BCST %d(BX), %s, %s", 8*k.m+4*m, i, i)
	}
	k.op("VCVTDQ2PS %s, %s", i, i)
	k.op("VMULPS.BCST %d(BX), %s, %s", 4*m, i, i)
	k.op("VFMADD231PS Z%d, %s, %s", 24+2*h, i, f)
	if !k.fp4 {
		k.op("VFMADD231PS.BCST %d(BX), Z%d, %s", 4*(k.m+m), 25+2*h, f)
	}
}

// scaleSymmetric is scaleRow for codes that are raised to be unsigned, without biases.
func (k *avx512Kernel) scaleSymmetric(h, m int) {
	i := k.int(h, m)
	k.op("VPADDD.BCST %d(BX), %s, %s", 8*k.m+4*m, i, i)
	k.op("VCVTDQ2PS %s, %s", i, i)
	k.op("VMULPS.BCST %d(BX), %s, %s", 4*m, i, i)
	k.op("VFMADD231PS Z%d, %s, %s", 24+2*h, i, k.float(h, m))
}

// scalePointed is scaleRow for codes with zero points, which are words here as the sum is that they are
// multiplied with, negative.
func (k *avx512Kernel) scalePointed(h, m int) {
	i := k.int(h, m)
	k.op("VPDPWSSD.BCST %d(BX), Z%d, %s", 8*k.m+4*m, 25+2*h, i)
	k.op("VCVTDQ2PS %s, %s", i, i)
	k.op("VMULPS.BCST %d(BX), %s, %s", 4*m, i, i)
	k.op("VFMADD231PS Z%d, %s, %s", 24+2*h, i, k.float(h, m))
}

// scaleFirst is scaleSymmetric for blocks that are superblocks without factors.
func (k *avx512Kernel) scaleFirst(h, m int) {
	i := k.int(h, m)
	k.op("VPADDD.BCST %d(BX), %s, %s", 8*k.m+4*m, i, i)
	k.op("VCVTDQ2PS %s, %s", i, i)
	k.op("VMULPS Z%d, %s, %s", 24+2*h, i, i)
	k.op("VFMADD231PS.BCST %d(BX), %s, %s", 4*m, i, k.float(h, m))
}

// store writes the finished tiles and goes on with the next two, or with the last.
func (k *avx512Kernel) store() {
	for m := range k.m {
		k.op("VMOVUPS %s, %d(R9)", k.float(0, m), 64*m)
	}
	k.ops("TESTQ R11, R11", "JZ end")
	k.secondOut()
	for m := range k.m {
		k.op("VMOVUPS %s, %d(CX)", k.float(1, m), 64*m)
	}
	k.line("stored:")
	k.ops("ADDQ DX, R9", "DECQ R10", "JNZ tile", "ADDQ R11, R8", "LEAQ (CX)(DX*1), R9")
	k.line("last:")
	k.ops("XORL R11, R11", "MOVQ $1, R10")
	k.arg("tiles", "CX")
	k.ops("TESTQ $1, CX", "JNZ tile")
	k.line("end:")
}

// secondOut points CX at the output of the second tile, and sets DX to the bytes from tile to tile.
func (k *avx512Kernel) secondOut() {
	k.arg("tiles", "CX")
	k.op("SHRQ $1, CX")
	k.arg("outTile", "DX")
	k.ops("IMULQ DX, CX", "ADDQ R9, CX")
}
