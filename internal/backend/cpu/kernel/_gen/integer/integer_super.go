package main

const superAMXDoc = `//
// func integerSuper(a *integerArgs), func integerSuperLeast(a *integerArgs), func integerSuperLeast2(a *integerArgs)
//
// The same for superblocks, the second with biases, and the third with those of 16 groups. Codes are multiplied by the factors of their groups
// when they are unpacked, and the products are two planes: the low bytes, unsigned, and the high ones. With
// biases a plane is the products with one digit of the factor, three bits. Those of Q2_K are one plane, since
// they are less than 256 with the whole factor. So tiles add up a whole
// superblock, and vectors have little to do.
//
// A turn is a superblock of a tile and two strips. Two things go on in it: its products are
// multiplied, in four steps of 64 columns; and those of two turns before, which memory has by now, are
// scaled and added to the output, a quarter of the rows in each step. What is to be done with products is
// in a queue meanwhile. The first half of the tiles and the second are multiplied side by side, or there is
// one tile: two turns have the same strips, which the second finds in the first cache. Turns of two whole
// strips, nearly all, have code of their own, without conditions.
//
//	AX  arguments                   to multiply:        to add:
//	BX  64                          DX  activations     R11 products     R13, R12 scales, sums of activations
//	CX  step to step of activations R10 planes          R15 output       R8, R9 those of the second strip
//	R8, R9, R12, SI, DI: to unpack                      R14 rows left    DI  strip to strip of the output
//	                                                                     SI  pair to pair of sums
//
// With whole strips R8 is the scales and R12 the activations of the second strip.
//
// Vectors: Z0: scales, Z1: scales of biases, Z2 to Z7, Z11 and Z16: pairs of factors of biases; Z12 to Z14: products;
// Z15, Z18 to Z20: constants; Z8 to Z10, Z17 and Z21 on: to unpack. K3 and K4 are even and odd bytes, K5 is none
// before the output has sums. Tiles: 0 to 3 products, low and high of each strip, 4 and 5 activations, 6 and 7
// planes. Products of two turns have every other line of memory: what is loaded while another line with
// the same place in a page is about to be stored has to wait.`

// superKernel multiplies superblocks.
type superKernel struct {
	amxKernel
	least bool // there are biases
	pairs int  // of groups, if there are
}

// single reports whether products of codes and factors are one plane.
func (k superKernel) single() bool { return k.pairs == 8 }

// absent reports whether tile t of products is not used.
func (k superKernel) absent(t int) bool { return k.single() && t%2 == 1 }

// pair is the vector with the factors of the biases of pair p of groups.
func (k superKernel) pair(p int) string { return sprint("Z%d", []int{4, 5, 6, 7, 2, 3, 11, 16}[p]) }

// From plane to plane, and of the scales of a superblock; of the ring of these.
const (
	superPlane                     = 4096
	superPlanes                    = 1 << superPlanesLog // two of them
	superPlanesLog, superScalesLog = 13, 10
	superScales                    = 1 << superScalesLog
	superRing                      = 4 * superScales
	superStep                      = 4 // steps of a turn, and rows of a step
	queueEntry                     = 64
	queueEntries                   = 4
)

func (k superKernel) write() {
	name := ""
	if k.least {
		name = "Least"
	}
	if k.pairs == 8 {
		name = "Least2"
	}
	k.kernel("integerSuper%s", 0, name)
	k.ops("MOVQ a+0(FP), AX", "LEAQ integerArgs_config(AX), DX", "LDTILECFG_DX")
	k.chooseSuper()
	k.open()
	k.begin()
	k.full()
	k.line("step:")
	k.step()
	k.fetch("some")
	k.ops("DECQ integerArgs_stepsLeft(AX)", "JNZ step")
	k.line("end:")
	k.end()
	k.ops("TILERELEASE", "VZEROUPPER", "RET")
}

// chooseSuper finds the code of the format.
func (k superKernel) chooseSuper() {
	for _, f := range append(formats, expanded) {
		if f.factors() == "" || f.least() != k.least || k.least && f.superPairs() != k.pairs {
			continue
		}
		k.op("LEAQ integerPlanes%s<>(SB), R11", f.name)
		k.op("LEAQ integerFactors%sAVX512<>(SB), R12", f.factors())
		k.op("CMPQ integerArgs_format(AX), $const_integer%s", f.name)
		k.op("JEQ chosen")
	}
	k.line("chosen:")
	k.set("R11", "unpack")
	k.set("R12", "factors")
}

// open unpacks the first superblock of the first tile.
func (k superKernel) open() {
	if k.least {
		k.magic("R8", "Z15")
	} else {
		k.ops("MOVQ $0x5555555555555555, R8", "KMOVQ R8, K3", "KNOTQ K3, K4")
		for i, name := range []string{"Shifted", "High", "Low"} {
			k.op("VBROADCASTI32X4 super%s<>(SB), Z%d", name, 18+i)
		}
	}
	for _, c := range [][2]string{
		{"weights", "pairBlock"},
		{"weights", "nextBlock"},
		{"slots", "nextSlots"},
		{"scaled", "nextFactors"},
		{"scaled", "panelFactors"},
		{"supers", "nextLeft"},
		{"supers", "groupsLeft"},
		{"acts", "panelActs"},
		{"acts", "stripActs"},
		{"out", "pairOut"},
		{"out", "stripOut"},
		{"more", "panelMore"},
		{"strips", "stripsLeft"},
	} {
		k.move(c[0], c[1])
	}
	k.op("XORL R11, R11")
	k.set("R11", "queueAt")
	k.set("R11", "panelHalf")
	k.arg("tiles", "R12")
	k.ops("MOVQ R12, R11", "SHRQ $1, R11")
	for _, c := range [][2]string{{"tileBytes", "second"}, {"outTile", "outSecond"}} {
		k.arg(c[0], "R13")
		k.op("IMULQ R11, R13")
		k.set("R13", c[1])
	}
	k.op("IMULQ integerArgs_supers(AX), R12")
	k.set("R12", "supersNext")
	k.arg("strips", "R11")
	k.ops("INCQ R11", "SHRQ $1, R11", "IMULQ R11, R12")
	k.set("R12", "turnsLeft")
	k.ops("MOVQ $2, integerArgs_lag(AX)", "MOVQ $64, BX")
	k.arg("rows", "CX")
	k.ops("SHLQ $6, CX", "CALL integerUnpackSuper<>(SB)", "CMPQ integerArgs_second(AX), $0", "JEQ turn")
	k.op("CALL integerUnpackSuper<>(SB)")
	k.line("turn:")
}

// unpack unpacks another superblock, if there is one.
func (k superKernel) unpack(done string) {
	k.op("CMPQ integerArgs_supersNext(AX), $0")
	k.op("JEQ %s", done)
	k.op("CALL integerUnpackSuper<>(SB)")
	k.line("%s:", done)
}

// begin puts what this turn multiplies in the queue, and takes out what it adds.
func (k superKernel) begin() {
	k.arg("products", "R11")
	k.op("XORQ $64, R11")
	k.set("R11", "products")
	k.op("MOVQ $%d, integerArgs_stepsLeft(AX)", superStep)
	k.op("XORL R14, R14")
	k.set("R14", "multiplyLeft")
	k.arg("queueAt", "R9")
	k.ops("LEAQ integerArgs_queue(AX), R8", "CMPQ integerArgs_turnsLeft(AX), $0", "JLE drained")
	k.op("MOVQ $%d, integerArgs_multiplyLeft(AX)", superStep)
	k.arg("stripActs", "DX")
	k.arg("panelHalf", "R10")
	k.ops("ADDQ R8, R9", "MOVQ DX, R12", "ADDQ integerArgs_actTail(AX), R12", "MOVQ R12, (R9)", "XORL R12, R12")
	k.ops("TESTQ R10, R10", "CMOVQNE integerArgs_outSecond(AX), R12", "ADDQ integerArgs_stripOut(AX), R12")
	k.op("MOVQ R12, 8(R9)")
	k.arg("stripsLeft", "R12")
	k.ops("DECQ R12", "MOVQ R12, 16(R9)", "CMOVQNE integerArgs_actStrip(AX), R12")
	k.set("R12", "actSecond")
	k.op("MOVQ R10, R12")
	k.op("SHRQ $%d, R12", superPlanesLog-superScalesLog)
	k.ops("ADDQ integerArgs_panelFactors(AX), R12", "MOVQ R12, 24(R9)")
	k.arg("panelMore", "R12")
	k.ops("NEGQ R12", "MOVQ R12, 32(R9)", "SUBQ R8, R9", "ADDQ integerArgs_slots(AX), R10")
	k.line("drained:")
	k.arg("products", "R11")
	k.ops("CMPQ integerArgs_lag(AX), $0", "JNE step")
	k.op("XORQ $%d, R9", 2*queueEntry)
	k.ops("ADDQ R8, R9", "MOVQ (R9), R13", "MOVQ 8(R9), R15", "MOVQ 16(R9), R12")
	k.set("R12", "addSecond")
	k.ops("KMOVW 32(R9), K5", "MOVQ 24(R9), R9")
	k.arg("rows", "R14")
	k.op("VMOVUPS (R9), Z0")
	if k.least {
		k.op("VMOVUPS 64(R9), Z1")
		for p := range k.pairs {
			k.op("VMOVDQU32 %d(R9), %s", 128+64*p, k.pair(p))
		}
	}
}

// full is a turn of four steps with two strips of 16 rows to multiply, and two to add, if this is one.
func (k superKernel) full() {
	k.ops("CMPQ integerArgs_turnsLeft(AX), $0", "JLE step")
	k.op("CMPQ R14, $%d", amxHeight)
	k.ops("JNE step", "CMPQ integerArgs_actSecond(AX), $0", "JEQ step", "CMPQ integerArgs_addSecond(AX), $0", "JEQ step")
	k.seconds()
	k.ops("MOVQ R11, R9", "XORQ $64, R9")
	k.fullStep(true)
	k.line("fullNext:")
	k.ops("DECQ integerArgs_stepsLeft(AX)", "JZ end")
	k.fetch("full")
	k.fullStep(false)
	k.op("JMP fullNext")
}

// fetch asks memory for some lines of each of the superblocks that follow those to be unpacked next.
func (k superKernel) fetch(name string) {
	k.arg("fetchAt", "SI")
	k.op("CMPQ SI, integerArgs_fetchEnd(AX)")
	k.op("JCC %sFetched", name)
	k.arg("second", "DI")
	k.arg("fetchLines", "R9")
	k.line("%sFetch:", name)
	k.ops("PREFETCHT1 (SI)", "PREFETCHT1 (SI)(DI*1)", "ADDQ $64, SI", "DECQ R9")
	k.op("JNZ %sFetch", name)
	k.set("SI", "fetchAt")
	k.line("%sFetched:", name)
}

// seconds points R12 and R8 at the activations and scales of the second strips.
func (k superKernel) seconds() {
	k.arg("actStrip", "R8")
	k.ops("LEAQ (DX)(R8*1), R12", "ADDQ R13, R8")
}

// fullStep is a step without conditions.
func (k superKernel) fullStep(first bool) {
	k.op("TILELOADD(4, 0, %d, %d)", regDX, regBX)
	k.op("TILELOADD(6, 0, %d, %d)", regR10, regBX)
	if !k.single() {
		k.op("TILELOADD(7, %d, %d, %d)", superPlane, regR10, regBX)
	}
	k.op("TILELOADD(5, 0, %d, %d)", regR12, regBX)
	if first {
		k.op("SHLQ $1, BX")
	}
	for t := range 4 {
		if first && !k.absent(t) {
			k.op("TILESTORED(%d, %d, %d, %d)", t, 2048*t, regR9, regBX)
			k.op("TILEZERO(%d)", t)
		}
		k.product(t)
		k.row(t, 0, "(R15)", "(R13)", func(p int) string { return sprint("+%d(R13)", 64*(1+p)) })
		k.row(t, 1, "+1024(R15)", "(R8)", func(p int) string { return sprint("+%d(R8)", 64*(1+p)) })
	}
	if first {
		k.op("SHRQ $1, BX")
	}
	k.op("ADDQ $%d, R11", 128*superStep)
	k.op("ADDQ $%d, R13", 4*superStep)
	k.op("ADDQ $%d, R8", 4*superStep)
	k.op("ADDQ $%d, R15", 64*superStep)
	k.ops("ADDQ $1024, DX", "ADDQ $1024, R12", "ADDQ $1024, R10")
}

// step multiplies 64 columns, and adds four rows of both strips. Tiles and vectors take turns by one
// instruction and two rows. In the first step the products of the turn before are stored, before the first
// turn nothing of use.
func (k superKernel) step() {
	if k.least {
		k.arg("rows", "SI")
		k.op("SHLQ $2, SI")
		k.op("LEAQ (R13)(SI*%d), R12", k.pairs/2)
		if k.pairs == 8 {
			k.op("LEAQ (SI)(SI*2), CX")
		}
		k.ops("MOVQ R12, R9", "ADDQ integerArgs_actStrip(AX), R9")
	}
	k.ops("MOVQ R13, R8", "ADDQ integerArgs_actStrip(AX), R8", "CMPQ integerArgs_multiplyLeft(AX), $0", "JEQ loaded")
	for _, t := range []int{4, 6, 7, 5} {
		if t != 7 || !k.single() {
			k.load(t)
		}
	}
	k.line("loaded:")
	k.arg("rows", "DI")
	k.op("SHLQ $6, DI")
	for t := range 4 {
		k.dot(t)
		k.addRow(t)
	}
	k.op("SUBQ $%d, R14", superStep)
	k.op("ADDQ $%d, R11", 128*superStep)
	k.op("ADDQ $%d, R13", 4*superStep)
	k.op("ADDQ $%d, R15", 64*superStep)
	if k.pairs == 8 {
		k.arg("rows", "CX")
		k.op("SHLQ $6, CX")
	}
	k.ops("ADDQ CX, DX", "ADDQ $1024, R10", "CMPQ integerArgs_multiplyLeft(AX), $1")
	k.op("ADCQ $-1, integerArgs_multiplyLeft(AX)")
}

// load loads tile t for a step.
func (k superKernel) load(t int) {
	switch t {
	case 4:
		k.op("TILELOADD(4, 0, %d, %d)", regDX, regBX)
	case 5:
		k.arg("actSecond", "DI")
		k.op("ADDQ DX, DI")
		k.op("TILELOADD(5, 0, %d, %d)", regDI, regBX)
	default:
		k.op("TILELOADD(%d, %d, %d, %d)", t, superPlane*(t-6), regR10, regBX)
	}
}

// product multiplies by plane t%2. Low ones are unsigned, and high ones too where they are digits.
func (k superKernel) product(t int) {
	if k.absent(t) {
		return
	}
	name := "TDPBSUD"
	if t%2 == 1 && !k.least {
		name = "TDPBSSD"
	}
	k.op("%s(%d, %d, %d)", name, t, 4+t/2, 6+t%2)
}

// dot is tile instruction t of a step.
func (k superKernel) dot(t int) {
	if k.absent(t) {
		return
	}
	k.op("CMPQ integerArgs_stepsLeft(AX), $%d", superStep)
	k.op("JNE kept%d", t)
	k.ops("XORQ $64, R11", "SHLQ $1, BX")
	k.op("TILESTORED(%d, %d, %d, %d)", t, 2048*t, regR11, regBX)
	k.ops("SHRQ $1, BX", "XORQ $64, R11")
	k.op("TILEZERO(%d)", t)
	k.line("kept%d:", t)
	k.op("CMPQ integerArgs_multiplyLeft(AX), $0")
	k.op("JEQ multiplied%d", t)
	if t >= 2 {
		k.op("CMPQ integerArgs_actSecond(AX), $0")
		k.op("JEQ multiplied%d", t)
	}
	k.product(t)
	k.line("multiplied%d:", t)
}

// addRow adds row m of both strips, if there is one.
func (k superKernel) addRow(m int) {
	k.op("CMPQ R14, $%d", m)
	k.op("JLE added%d", m)
	k.row(m, 0, "(R15)", "(R13)", func(p int) string { return k.sumsAt(p, "(R13)", "(R12)") })
	k.op("CMPQ integerArgs_addSecond(AX), $0")
	k.op("JEQ added%d", m)
	k.row(m, 1, "(R15)(DI*1)", "(R8)", func(p int) string { return k.sumsAt(p, "(R8)", "(R9)") })
	k.line("added%d:", m)
}

// sumsAt is the address of pair p of the sums of a row's activations: of the first half of the pairs from one
// register, and of the others from another. CX is three times SI.
func (k superKernel) sumsAt(p int, first, second string) string {
	half := k.pairs / 2
	return []string{first, second}[p/half] + []string{"(SI*1)", "(SI*2)", "(CX*1)", "(SI*4)"}[p%half]
}

// row scales the products of row m of a strip and adds them.
func (k superKernel) row(m, strip int, out, scales string, sums func(p int) string) {
	at := 4096*strip + 128*m
	switch {
	case k.single():
		k.op("VCVTDQ2PS %d(R11), Z12", at)
	case k.least:
		k.op("VPSLLD $3, %d(R11), Z12", at+2048)
	default:
		k.op("VMOVDQU32 %d(R11), Z12", at+2048)
		k.op("VPSHUFB Z18, Z12, Z12")
	}
	if !k.single() {
		k.op("VPADDD %d(R11), Z12, Z12", at)
		k.op("VCVTDQ2PS Z12, Z12")
	}
	k.op("VMULPS Z0, Z12, Z12")
	if k.least {
		k.op("VMOVDQA64 Z15, Z13")
		for p := range k.pairs {
			k.op("VPDPWSSD.BCST %d%s, %s, Z13", 4*m, sums(p), k.pair(p))
		}
		k.ops("VSUBPS Z15, Z13, Z13", "VFNMADD231PS Z1, Z13, Z12")
	}
	k.op("VMOVUPS.Z %d%s, K5, Z14", 64*m, out)
	k.op("VFMADD231PS.BCST %d%s, Z12, Z14", 4*m, scales)
	k.op("VMOVUPS Z14, %d%s", 64*m, out)
}

// end goes on to the other tile, the next strips, superblock and tiles. A tile is unpacked as soon as its
// place is free, a turn before it is multiplied: what has just been stored is not yet to be loaded. So the
// first tile of a pair is unpacked before the last turn of the second one, and that before the first turn of
// the first.
func (k superKernel) end() {
	k.arg("queueAt", "R9")
	k.op("ADDQ $%d, R9", queueEntry)
	k.op("ANDQ $%d, R9", queueEntry*queueEntries-1)
	k.set("R9", "queueAt")
	k.ops("CMPQ integerArgs_lag(AX), $1", "ADCQ $-1, integerArgs_lag(AX)", "CMPQ integerArgs_turnsLeft(AX), $0", "JLE next")
	k.ops("CMPQ integerArgs_second(AX), $0", "JEQ whole")
	k.op("XORQ $%d, integerArgs_panelHalf(AX)", superPlanes)
	k.ops("JZ whole", "CMPQ integerArgs_stripsLeft(AX), $2", "JGT next")
	k.unpack("first")
	k.op("JMP next")
	k.line("whole:")
	k.arg("rows", "R8")
	k.ops("SHLQ $7, R8", "ADDQ R8, integerArgs_stripOut(AX)")
	k.arg("actStrip", "R8")
	k.ops("LEAQ (R8)(R8*1), R8", "ADDQ R8, integerArgs_stripActs(AX)", "SUBQ $2, integerArgs_stripsLeft(AX)", "JGT next")
	k.unpack("second")
	k.arg("panelFactors", "R9")
	k.op("ADDQ $%d, R9", superScales)
	k.ops("CMPQ integerArgs_second(AX), $0", "JEQ alone")
	k.op("ADDQ $%d, R9", superScales)
	k.line("alone:")
	k.op("ANDQ $~%d, R9", superRing)
	k.set("R9", "panelFactors")
	k.move("strips", "stripsLeft")
	k.op("MOVQ $1, integerArgs_panelMore(AX)")
	k.arg("panelActs", "R8")
	k.ops("ADDQ integerArgs_actGroup(AX), R8", "DECQ integerArgs_groupsLeft(AX)", "JNZ same")
	k.move("supers", "groupsLeft")
	k.move("more", "panelMore")
	k.arg("outTile", "R8")
	k.op("ADDQ R8, integerArgs_pairOut(AX)")
	k.arg("acts", "R8")
	k.line("same:")
	k.set("R8", "panelActs")
	k.set("R8", "stripActs")
	k.move("pairOut", "stripOut")
	k.line("next:")
	k.ops("DECQ integerArgs_turnsLeft(AX)", "CMPQ integerArgs_turnsLeft(AX), $-1", "JGE turn")
}
