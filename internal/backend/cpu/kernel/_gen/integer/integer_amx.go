package main

import "math/bits"

const amxDoc = `// integerUnpack<format>
//
// Writes the codes of the block at R8 to the slot at R9, one byte each, as [group/4, 16 rows, 4],
// and the 16 scales and 16 biases as float32 to where scalesAt says, and moves R8 and R9 on. The
// twins are Weight.integers and Weight.scales. The kernels below call it.
//
//	AX  arguments     R8  block           SI  first plane    DI  second plane
//	                  R9  slot            R14 in the slot    R13 scales, before that askAcross
//
// Vectors as in the kernels of AVX-512.
//
// func integerAMX(a *integerArgs), func integerAMXSigned(a *integerArgs), func integerAMXPoints(a *integerArgs)
//
// Multiply tiles of a weight with strips of up to 16 rows: see integerTiles, the twin. Four parts
// of the tiles are read side by side, as four streams; what four do not divide comes at the end. A
// panel is up to four groups of a tile. A run is a panel and a strip, in four turns. A turn
// multiplies a group, unpacks one of the next panel into its slot if this is the last strip,
// stores the products of the turn before, and scales and adds those of the turn before the last
// two, when memory has them: three of these turns are of the run before. So tiles, both ports of
// vectors and memory have work all the time. Offsets within a run are fixed, since
// instructions for addresses and branches take the ports that multiply. Of the signed form codes
// are signed, and there are no biases. The third form is for codes of 8 bits with zero points, which are
// where biases are, as integers: a product has them subtracted before it is scaled.
//
//	AX  arguments                       R10 scales of the run that is added, from a slot on
//	BX  64                              R11 products
//	CX  row to row of activations       R12 groups of the run that is multiplied
//	DX  activations of the next group   R15 scales of activations of the next group to add
//	R8, R9: to unpack                   R13, SI, DI, R14: the same, and sums; scales of the weight; rows
//
// Vectors: Z0 on: float32 sums of the rows; Z16, Z17: scales and biases; Z18 to Z21: products.
// Tiles: 0 and 1 products, 4 and 5 activations, 6 and 7 codes. Activations, slots and products
// are aligned to 64 bytes.`

const (
	amxHeight = 16 // rows of a strip at most
	amxLeast  = 9  // rows at least
	amxPanel  = 4  // groups of a panel
	amxSide   = 4  // tiles side by side, a power of two
	amxLag    = 3  // turns before products are added
)

// amxKernel unpacks and multiplies.
type amxKernel struct {
	*source
	form amxForm
}

// amxForm is what the codes of a kernel are.
type amxForm int

const (
	amxBiased amxForm = iota // unsigned, with biases
	amxSigned
	amxPoints // unsigned, with zero points
)

func (f amxForm) String() string { return [...]string{"", "Signed", "Points"}[f] }

func amx(s *source) {
	s.line("\n// The values of E2M1 codes in halves.")
	s.line("DATA integerSigned<>+0(SB)/8, $0x0c08060403020100")
	s.line("DATA integerSigned<>+8(SB)/8, $0xf4f8fafcfdfeff00")
	s.line("GLOBL integerSigned<>(SB), RODATA|NOPTR, $16")
	s.line("\n// dtype.Levels.")
	s.line("DATA integerLevels<>+0(SB)/8, $0xf6eaddcfbfad9881")
	s.line("DATA integerLevels<>+8(SB)/8, $0x7159453526190d01")
	s.line("GLOBL integerLevels<>(SB), RODATA|NOPTR, $16")
	s.line("\n// The lowest byte of each of four numbers, four times.")
	s.line("DATA integerEach<>+0(SB)/8, $0x0404040400000000")
	s.line("DATA integerEach<>+8(SB)/8, $0x0c0c0c0c08080808")
	s.line("GLOBL integerEach<>(SB), RODATA|NOPTR, $16")
	s.local = true
	factorsAVX512(s)
	for _, f := range formats {
		k := &avx512Kernel{source: s, codes: f, ahead: ahead, cache: 1, across: true}
		unpackKernel{k, amxBiased}.write()
		if !f.fp4 {
			unpackKernel{k, amxSigned}.write()
		}
		if f.bits == 8 {
			unpackKernel{k, amxPoints}.write()
		}
	}
	superUnpack(s)
	s.line("%s", manyMacros)
	for _, form := range []amxForm{amxBiased, amxSigned, amxPoints} {
		amxKernel{s, form}.write()
		manyKernel{amxKernel{s, form}}.write()
	}
	superKernel{amxKernel{source: s}, false, 0}.write()
	superKernel{amxKernel{source: s}, true, 4}.write()
	superKernel{amxKernel{source: s}, true, 8}.write()
}

func (k amxKernel) write() {
	k.kernel("integerAMX%s", 0, k.form)
	k.ops("MOVQ a+0(FP), AX", "LEAQ integerArgs_config(AX), DX", "LDTILECFG_DX")
	k.choose()
	k.magic("R11", "Z22")
	k.op("MOVQ $64, BX")
	k.arg("actRow", "CX")
	k.arg("tiles", "R10")
	k.move("weights", "pairBlock")
	k.move("out", "pairOut")
	k.op("MOVQ $%d, R12", amxSide)
	k.op("SHRQ $%d, R10", bits.Len(amxSide-1))
	k.op("JZ last")
	k.line("begin:")
	k.set("R12", "side")
	for _, c := range [][2]string{{"tileBytes", "toSide"}, {"outTile", "outSide"}} {
		k.arg(c[0], "R11")
		k.op("IMULQ R10, R11")
		k.set("R11", c[1])
	}
	k.first()
	k.line("run:")
	k.arg("products", "R11")
	for turn := range amxPanel {
		k.multiply(turn)
		k.also(turn)
		k.store(turn)
		k.sum(turn)
	}
	k.next()
	k.line("done:")
	k.move("slotTail", "scalesAt")
	k.op("MOVQ $0, integerArgs_askAcross(AX)")
	k.last()
	k.ops("TILERELEASE", "VZEROUPPER", "RET")
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
		form := k.form
		switch {
		case f.fp4 && k.form == amxSigned:
			form = amxBiased
		case f.fp4 || k.form == amxPoints && f.bits < 8:
			continue
		}
		k.op("LEAQ integerUnpack%s%s<>(SB), R11", f.name, form)
		k.op("CMPQ integerArgs_format(AX), $const_integer%s", f.name)
		k.op("JEQ chosen")
	}
	k.line("chosen:")
	k.set("R11", "unpack")
}

// first begins with R10 pairs of tiles: it unpacks the first panel.
func (k amxKernel) first() {
	k.set("R10", "pairsLeft")
	k.op("MOVQ $0, integerArgs_addGroups(AX)")
	k.move("side", "sideLeft")
	k.pair()
	k.upTo("R11", "R10")
	k.set("R10", "nextGroups")
	k.arg("pairBlock", "R8")
	k.arg("slots", "R9")
	k.op("MOVQ R9, R11")
	for i := range amxPanel {
		k.op("MOVQ R11, integerArgs_slotAt+%d(AX)", 8*i)
		k.op("ADDQ integerArgs_slot(AX), R11")
	}
	k.line("unpack:")
	k.unpack()
	k.ops("DECQ R10", "JNZ unpack", "JMP panel")
}

// pair makes the first panel of a pair the next.
func (k amxKernel) pair() {
	for _, c := range [][2]string{{"pairBlock", "nextBlock"}, {"pairOut", "nextOut"}, {"acts", "nextActs"}, {"more", "nextMore"}, {"groups", "nextLeft"}} {
		k.move(c[0], c[1])
	}
}

// upTo sets register to the groups of a panel, of left that there are.
func (k amxKernel) upTo(left, register string) {
	k.op("MOVQ $%d, %s", amxPanel, register)
	k.op("CMPQ %s, %s", register, left)
	k.op("CMOVQGT %s, %s", left, register)
}

// unpack unpacks a block.
func (k amxKernel) unpack() {
	k.arg("unpack", "R13")
	k.op("CALL R13")
}

// next goes on to the next strip, panel, or when there is none to the end of the sums.
func (k amxKernel) next() {
	k.ops("DECQ integerArgs_stripsLeft(AX)", "JZ whole")
	k.arg("actStrip", "R11")
	k.op("ADDQ R11, integerArgs_stripActs(AX)")
	k.arg("rows", "R11")
	k.ops("SHLQ $6, R11", "ADDQ R11, integerArgs_stripOut(AX)", "JMP strip")
	k.line("whole:")
	k.op("XORL R12, R12")
	k.set("R12", "unpackNow")
	k.ops("CMPQ integerArgs_nextGroups(AX), $0", "JEQ run")
	k.line("panel:")
	k.panel()
	k.line("strip:")
	k.arg("stripActs", "DX")
	k.op("CMPQ integerArgs_stripsLeft(AX), $1")
	k.op("JNE run") // slots are still in use
	k.move("nextGroups", "unpackNow")
	k.op("JMP run")
}

// panel begins with the panel that has been unpacked, and finds the one after it: of the second
// tile, or the next of the first, or of the next pair.
func (k amxKernel) panel() {
	for _, c := range [][2]string{{"nextActs", "stripActs"}, {"nextOut", "stripOut"}, {"nextMore", "panelMore"}, {"scalesAt", "panelScales"}, {"strips", "stripsLeft"}} {
		k.move(c[0], c[1])
	}
	k.op("XORQ $128, integerArgs_scalesAt(AX)")
	k.arg("nextGroups", "R12")
	k.arg("slots", "R9")
	k.arg("toSide", "SI")
	k.arg("outSide", "DI")
	k.arg("nextBlock", "R8")
	k.ops("ADDQ SI, R8", "ADDQ DI, integerArgs_nextOut(AX)", "DECQ integerArgs_sideLeft(AX)", "JNZ placed")
	k.arg("side", "R11") // back to the first
	k.set("R11", "sideLeft")
	k.ops("IMULQ R11, SI", "IMULQ R11, DI", "SUBQ SI, R8", "SUBQ DI, integerArgs_nextOut(AX)", "MOVQ R12, R11")
	k.ops("IMULQ integerArgs_block(AX), R11", "ADDQ R11, R8", "MOVQ R12, R11", "IMULQ integerArgs_actGroup(AX), R11")
	k.ops("ADDQ R11, integerArgs_nextActs(AX)", "MOVQ $1, integerArgs_nextMore(AX)")
	k.arg("nextLeft", "R11")
	k.op("SUBQ R12, R11")
	k.set("R11", "nextLeft")
	k.ops("JNZ found", "DECQ integerArgs_pairsLeft(AX)", "JZ found // no group")
	k.arg("tileBytes", "R8")
	k.op("ADDQ integerArgs_pairBlock(AX), R8")
	k.set("R8", "pairBlock")
	k.arg("outTile", "R11")
	k.op("ADDQ R11, integerArgs_pairOut(AX)")
	k.pair()
	k.line("found:")
	k.upTo("R11", "R14")
	k.set("R14", "nextGroups")
	k.line("placed:")
	k.set("R8", "nextBlock")
	k.across()
}

// across finds the stream that shares its lines with that of the next panel, the second after it or before it: of
// both half of the lines are asked for at a time, which memory answers sooner than one stream after another.
func (k amxKernel) across() {
	k.op("XORL R11, R11")
	k.arg("toSide", "SI")
	k.ops("ADDQ SI, SI", "MOVQ SI, DI", "NEGQ DI", "CMPQ integerArgs_sideLeft(AX), $2", "CMOVQLE DI, SI")
	k.op("CMPQ integerArgs_side(AX), $%d", amxSide)
	k.op("CMOVQNE R11, SI") // there are fewer
	k.set("SI", "askAcross")
}

// last goes back to begin with what is left of the tiles, once.
func (k amxKernel) last() {
	k.line("last:")
	k.arg("tiles", "R10")
	k.op("MOVQ R10, R12")
	k.op("ANDQ $%d, R12", amxSide-1)
	k.ops("JZ end", "SUBQ R12, R10", "MOVQ $0, integerArgs_tiles(AX)")
	for _, c := range [][3]string{{"tileBytes", "weights", "pairBlock"}, {"outTile", "out", "pairOut"}} {
		k.arg(c[0], "R11")
		k.op("IMULQ R10, R11")
		k.op("ADDQ integerArgs_%s(AX), R11", c[1])
		k.set("R11", c[2])
	}
	k.ops("MOVQ $1, R10", "JMP begin")
	k.line("end:")
}

// Registers by their numbers.
const (
	regCX  = 1
	regDX  = 2
	regBX  = 3
	regSI  = 6
	regDI  = 7
	regR9  = 9
	regR10 = 10
	regR11 = 11
	regR12 = 12
	regR15 = 15
)

// multiply multiplies a group of the panel with the strip.
func (k amxKernel) multiply(turn int) {
	k.op("CMPQ R12, $%d", turn)
	k.op("JLE multiplied%d", turn)
	k.op("MOVQ integerArgs_slotAt+%d(AX), SI", 8*turn)
	set := turn % 2
	k.op("TILEZERO(%d)", set)
	half := func(half int) {
		k.acts(4+set, half, regDX)
		k.op("TILELOADD(%d, %d, %d, %d)", 6+set, 1024*half, regSI, regBX)
		k.dot(set, 4+set, 6+set)
	}
	half(0)
	k.wide(sprint("whole%d", turn), func() { half(1) })
	k.op("ADDQ integerArgs_actGroup(AX), DX")
	k.line("multiplied%d:", turn)
}

// also unpacks a group of the next panel, if this is the last strip.
func (k amxKernel) also(turn int) {
	k.op("CMPQ integerArgs_unpackNow(AX), $%d", turn)
	k.op("JLE unpacked%d", turn)
	k.unpack()
	k.line("unpacked%d:", turn)
}

// store stores the products of the turn before.
func (k amxKernel) store(turn int) {
	before := (turn + amxPanel - 1) % amxPanel
	k.op("TILESTORED(%d, %d, %d, %d)", before%2, 1024*before, regR11, regBX)
}

// dot multiplies tiles.
func (k amxKernel) dot(sum, acts, codes int) {
	name := "TDPBSUD"
	if k.form == amxSigned {
		name = "TDPBSSD"
	}
	k.op("%s(%d, %d, %d)", name, sum, acts, codes)
}

// acts loads tile t with activations, from column 64*half of the group on.
func (k amxKernel) acts(t, half, register int) {
	k.op("TILELOADD(%d, %d, %d, %d)", t, 64*half, register, regCX)
}

// wide does something if the group has a second half, as those of 128 columns have.
func (k amxKernel) wide(label string, do func()) {
	k.op("CMPQ integerArgs_steps(AX), $4")
	k.op("JLE %s", label)
	do()
	k.line("%s:", label)
}
