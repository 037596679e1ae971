package main

const amxDoc = `// integerUnpack<format>
//
// Writes the codes of the block at R8 to R9, one byte each, as [group/4, 16 rows, 4], and
// behind them the 16 scales and 16 biases as float32, and moves R8 and R9 on. The twins are
// Weight.integers and Weight.scales. The kernels below call it.
//
//	AX  arguments     R8  block           SI  first plane    DI  second plane
//	                  R9  slot            R14 steps left     R13 scales
//
// Vectors as in the kernels of AVX-512.
//
// func integerAMX(a *integerArgs), func integerAMXSigned(a *integerArgs)
//
// Multiply tiles of a weight with strips of up to 16 rows: see integerTiles, the twin. The
// first half of the tiles and the second are read side by side, as two streams. Of an odd number
// the last is computed at the end, without another. A panel is some groups of two tiles. It is
// multiplied with two strips at a time, or with the last one: first all products are written to
// memory, and meanwhile the next panel is unpacked; then the products are scaled and added. That
// tiles and sums do not take turns by the group is because half of the multipliers of vectors
// rest while tiles are in use: 64 multiplications of 16 numbers take 13 ns, and 25 ns with one
// tile instruction among them. Of the signed form codes are signed, and there are no biases.
//
//	AX  arguments
//
//	to multiply:                      to add:
//	R10 activations                   R10 scales of the weight
//	R11 activations, second strip     R13 scales of activations, SI sums
//	DX  slot                          R11 products
//	R15 products                      R15 output
//	BX  64                            BX  group to group of products
//	CX  row to row of activations     CX  what to ask memory for, DI bytes
//	R12 groups left                   R12 groups left
//	R8, R9: to unpack                 R8  strips left of these, R9 products of the strip
//	                                  R14 rows, DX activations of the strip
//
// Vectors: Z0 on: float32 sums of the rows; Z16, Z17: scales and biases; Z18 to Z21: products.
// Tiles: 0 to 3 products, 4 and 5 activations, 6 and 7 codes. Activations, slots and products
// are aligned to 64 bytes.`

const (
	amxHeight = 16 // rows of a strip at most
	amxLeast  = 9  // rows at least
)

// amxKernel unpacks and multiplies.
type amxKernel struct {
	*source
	signed bool
}

func amx(s *source) {
	s.line("\n// The values of E2M1 codes in halves.")
	s.line("DATA integerSigned<>+0(SB)/8, $0x0c08060403020100")
	s.line("DATA integerSigned<>+8(SB)/8, $0xf4f8fafcfdfeff00")
	s.line("GLOBL integerSigned<>(SB), RODATA|NOPTR, $16")
	s.line("\n// dtype.Levels.")
	s.line("DATA integerLevels<>+0(SB)/8, $0xf6eaddcfbfad9881")
	s.line("DATA integerLevels<>+8(SB)/8, $0x7159453526190d01")
	s.line("GLOBL integerLevels<>(SB), RODATA|NOPTR, $16")
	s.local = true
	factorsAVX512(s)
	for _, f := range formats {
		k := &avx512Kernel{source: s, codes: f, ahead: ahead, cache: 1}
		unpackKernel{k, false}.write()
		if f.symmetric() {
			unpackKernel{k, true}.write()
		}
	}
	superUnpack(s)
	for _, signed := range []bool{false, true} {
		amxKernel{s, signed}.write()
		manyKernel{amxKernel{s, signed}}.write()
	}
	superKernel{amxKernel{source: s}, false}.write()
	superKernel{amxKernel{source: s}, true}.write()
}

func (k amxKernel) write() {
	name := ""
	if k.signed {
		name = "Signed"
	}
	k.line("\nTEXT ·integerAMX%s(SB), NOSPLIT, $0-8", name)
	k.op("MOVQ a+0(FP), AX")
	k.op("LEAQ integerArgs_config(AX), DX")
	k.op("LDTILECFG_DX")
	k.choose()
	k.magic("R11", "Z22")
	k.arg("tiles", "R10")
	k.op("SHRQ $1, R10")
	k.op("JZ last")
	for _, c := range [][4]string{{"tileBytes", "second", "weights", "pairBlock"}, {"outTile", "outSecond", "out", "pairOut"}} {
		k.arg(c[0], "R11")
		k.op("IMULQ R10, R11")
		k.set("R11", c[1])
		k.move(c[2], c[3])
	}
	k.line("begin:")
	k.first()
	k.line("tile:")
	k.move("acts", "panelActs")
	k.move("more", "panelMore")
	k.move("groups", "groupsLeft")
	k.line("panel:")
	k.next()
	k.move("strips", "stripsLeft")
	k.move("panelActs", "stripActs")
	k.move("pairOut", "stripOut")
	k.line("strip:")
	k.multiply()
	k.line("rest:")
	k.op("CMPQ integerArgs_unpackLeft(AX), $0")
	k.op("JEQ sum")
	k.unpack("rest")
	k.op("JMP rest")
	k.line("sum:")
	k.sum()
	k.op("CMPQ integerArgs_stripsLeft(AX), $0")
	k.op("JNE strip")
	k.op("MOVQ $1, integerArgs_panelMore(AX)")
	k.arg("panelGroups", "R10")
	k.op("IMULQ integerArgs_actGroup(AX), R10")
	k.op("ADDQ R10, integerArgs_panelActs(AX)")
	k.op("CMPQ integerArgs_groupsLeft(AX), $0")
	k.op("JNE panel")
	k.arg("outTile", "R10")
	k.op("ADDQ R10, integerArgs_pairOut(AX)")
	k.op("DECQ integerArgs_pairsLeft(AX)")
	k.op("JNZ tile")
	k.last()
	k.op("TILERELEASE")
	k.op("VZEROUPPER")
	k.op("RET")
}

// set stores a register in a field of the arguments.
func (k amxKernel) set(register, field string) { k.op("MOVQ %s, integerArgs_%s(AX)", register, field) }

// move copies a field of the arguments to another.
func (k amxKernel) move(from, to string) {
	k.arg(from, "R11")
	k.set("R11", to)
}

// choose finds the code that unpacks the format.
func (k amxKernel) choose() {
	for _, f := range formats {
		switch {
		case f.fp4 == k.signed:
			k.op("LEAQ integerUnpack%s<>(SB), R11", f.name)
		case f.symmetric():
			k.op("LEAQ integerUnpack%sSigned<>(SB), R11", f.name)
		default:
			continue
		}
		k.op("CMPQ integerArgs_format(AX), $const_integer%s", f.name)
		k.op("JEQ chosen")
	}
	k.line("chosen:")
	k.set("R11", "unpack")
}

// first unpacks the first panel of R10 pairs.
func (k amxKernel) first() {
	k.set("R10", "pairsLeft")
	k.set("R10", "pairsNext")
	k.move("pairBlock", "nextBlock")
	k.move("slots", "nextSlots")
	k.move("groups", "nextLeft")
	k.upTo("R11", "R12")
	k.set("R12", "nextGroups")
	k.arg("nextBlock", "R8")
	k.arg("nextSlots", "R9")
	k.line("unpack:")
	k.unpack("unpack")
	k.op("DECQ R12")
	k.op("JNZ unpack")
}

// upTo sets register to the groups of a panel, of left that there are.
func (k amxKernel) upTo(left, register string) {
	k.op("MOVQ $const_amxPanel, %s", register)
	k.op("CMPQ %s, %s", register, left)
	k.op("CMOVQGT %s, %s", left, register)
}

// unpack unpacks a group of both tiles.
func (k amxKernel) unpack(name string) {
	k.arg("unpack", "R13")
	k.op("CALL R13")
	k.op("CMPQ integerArgs_second(AX), $0")
	k.op("JEQ %sAlone", name)
	k.op("SUBQ integerArgs_block(AX), R8")
	k.op("SUBQ integerArgs_slot(AX), R9")
	k.op("ADDQ integerArgs_second(AX), R8")
	k.op("ADDQ $const_amxSlotBytes, R9")
	k.arg("unpack", "R13")
	k.op("CALL R13")
	k.op("SUBQ integerArgs_second(AX), R8")
	k.op("SUBQ $const_amxSlotBytes, R9")
	k.line("%sAlone:", name)
	k.op("DECQ integerArgs_unpackLeft(AX)")
}

// next begins with the panel that has been unpacked, and finds the one after it, in the same
// tiles or in the next.
func (k amxKernel) next() {
	k.move("nextSlots", "panelSlots")
	k.arg("slots", "R10")
	k.op("LEAQ (2*const_amxSlotBytes)(R10)(R10*1), R10")
	k.op("SUBQ R11, R10")
	k.set("R10", "nextSlots")
	k.arg("nextGroups", "R12")
	k.set("R12", "panelGroups")
	k.op("SUBQ R12, integerArgs_groupsLeft(AX)")
	k.arg("nextLeft", "R11")
	k.op("SUBQ R12, R11")
	k.op("IMULQ integerArgs_block(AX), R12")
	k.op("ADDQ R12, integerArgs_nextBlock(AX)")
	k.op("TESTQ R11, R11")
	k.op("JNZ found")
	k.op("DECQ integerArgs_pairsNext(AX)")
	k.op("JZ found // no group")
	k.arg("tileBytes", "R10")
	k.op("ADDQ integerArgs_pairBlock(AX), R10")
	k.set("R10", "pairBlock")
	k.set("R10", "nextBlock")
	k.arg("groups", "R11")
	k.line("found:")
	k.set("R11", "nextLeft")
	k.upTo("R11", "R12")
	k.set("R12", "nextGroups")
	k.set("R12", "unpackLeft")
}

// last goes back to begin with the last of an odd number of tiles, once.
func (k amxKernel) last() {
	k.line("last:")
	k.arg("tiles", "R10")
	k.op("TESTQ $1, R10")
	k.op("JZ end")
	k.op("MOVQ $0, integerArgs_tiles(AX)")
	k.op("DECQ R10")
	for _, c := range [][4]string{{"tileBytes", "second", "weights", "pairBlock"}, {"outTile", "outSecond", "out", "pairOut"}} {
		k.op("MOVQ $0, integerArgs_%s(AX)", c[1])
		k.arg(c[0], "R11")
		k.op("IMULQ R10, R11")
		k.op("ADDQ integerArgs_%s(AX), R11", c[2])
		k.set("R11", c[3])
	}
	k.op("MOVQ $1, R10")
	k.op("JMP begin")
	k.line("end:")
}

// Registers by their numbers.
const (
	regCX  = 1
	regDX  = 2
	regBX  = 3
	regSI  = 6
	regDI  = 7
	regR10 = 10
	regR11 = 11
	regR15 = 15
)

// multiply multiplies the panel with the next strips and unpacks the next panel.
func (k amxKernel) multiply() {
	k.op("MOVQ $64, BX")
	k.arg("actRow", "CX")
	k.arg("panelSlots", "DX")
	k.arg("products", "R15")
	k.arg("panelGroups", "R12")
	k.arg("nextBlock", "R8")
	k.arg("nextSlots", "R9")
	k.arg("stripActs", "R10")
	k.op("CMPQ integerArgs_stripsLeft(AX), $1")
	k.op("JEQ one")
	k.op("MOVQ $2, integerArgs_stripsNow(AX)")
	k.two()
	k.op("JMP rest")
	k.line("one:")
	k.op("MOVQ $1, integerArgs_stripsNow(AX)")
	k.one()
}

// also unpacks a group of the next panel, if one is left. It comes between tile instructions,
// which leave vectors of integers alone.
func (k amxKernel) also(name string) {
	k.op("CMPQ integerArgs_unpackLeft(AX), $0")
	k.op("JEQ %s", name)
	k.unpack(name)
	k.line("%s:", name)
}

// dot multiplies tiles.
func (k amxKernel) dot(sum, acts, codes int) {
	name := "TDPBSUD"
	if k.signed {
		name = "TDPBSSD"
	}
	k.op("%s(%d, %d, %d)", name, sum, acts, codes)
}

// acts loads tile t with activations, from column 64*half of the group on.
func (k amxKernel) acts(t, half, register int) {
	k.op("TILELOADD(%d, %d, %d, %d)", t, 64*half, register, regCX)
}

// codes loads tile 6 or 7 with the codes of the first or second tile of the weight.
func (k amxKernel) codes(tile, half int) {
	k.op("TILELOADD(%d, (%d+%d*const_amxSlotBytes), %d, %d)", 6+tile, 1024*half, tile, regDX, regBX)
}

// store stores the products in tile t as number i of a group, ago bytes before the current one.
func (k amxKernel) store(t, i, ago int) {
	k.op("TILESTORED(%d, %d, %d, %d)", t, 1024*i-ago, regR15, regBX)
}

// wide does something if the group has a second half, as those of 128 columns have.
func (k amxKernel) wide(label string, do func()) {
	if k.signed { // which has no groups of 128
		return
	}
	k.op("CMPQ integerArgs_steps(AX), $4")
	k.op("JLE %s", label)
	do()
	k.line("%s:", label)
}

// two multiplies two strips. Products are stored when the next group has begun: to wait for
// them would keep the tiles from work.
func (k amxKernel) two() {
	k.op("MOVQ R10, R11")
	k.op("ADDQ integerArgs_actStrip(AX), R11")
	k.twoGroup("twoFirst", true)
	k.op("DECQ R12")
	k.op("JZ twoStored")
	k.line("twoNext:")
	k.twoGroup("twoThen", false)
	k.op("DECQ R12")
	k.op("JNZ twoNext")
	k.line("twoStored:")
	for i := range 4 {
		k.store(i, i, 4096)
	}
}

func (k amxKernel) twoGroup(name string, first bool) {
	dots := func(half int, before func(i int)) {
		k.acts(4, half, regR10)
		k.codes(0, half)
		k.codes(1, half)
		k.acts(5, half, regR11)
		for i := range 4 {
			before(i)
			k.dot(i, 4+i/2, 6+i%2)
		}
	}
	dots(0, func(i int) {
		if !first {
			k.store(i, i, 4096)
		}
		k.op("TILEZERO(%d)", i)
	})
	k.wide(name+"Whole", func() { dots(1, func(int) {}) })
	k.also(name)
	k.op("ADDQ integerArgs_actGroup(AX), R10")
	k.op("ADDQ integerArgs_actGroup(AX), R11")
	k.op("ADDQ integerArgs_slot(AX), DX")
	k.op("ADDQ $4096, R15")
}

// one multiplies one strip. Even and odd groups have tiles of their own.
func (k amxKernel) one() {
	k.line("oneNext:")
	k.op("TESTQ $1, R12")
	k.op("JNZ odd")
	k.oneGroup("even", 0)
	k.op("JMP stored")
	k.line("odd:")
	k.oneGroup("odd", 1)
	k.line("stored:")
	k.also("oneAlso")
	k.op("ADDQ integerArgs_actGroup(AX), R10")
	k.op("ADDQ integerArgs_slot(AX), DX")
	k.op("ADDQ $2048, R15")
	k.op("DECQ R12")
	k.op("JNZ oneNext")
	k.store(2, 0, 2048) // the last group is odd
	k.store(3, 1, 2048)
}

func (k amxKernel) oneGroup(name string, odd int) {
	dots := func(half int) {
		k.acts(4+odd, half, regR10)
		for i := range 2 {
			k.codes(i, half)
			k.dot(2*odd+i, 4+odd, 6+i)
		}
	}
	for i := range 2 {
		k.op("TILEZERO(%d)", 2*odd+i)
	}
	dots(0)
	k.wide(name+"Whole", func() { dots(1) })
	k.op("CMPQ R12, integerArgs_panelGroups(AX)")
	k.op("JEQ stored")
	for i := range 2 {
		k.store(2-2*odd+i, i, 2048)
	}
}
