package main

import "fmt"

const manyDoc = `//
// func integerMany(a *integerArgs), func integerManySigned(a *integerArgs)
//
// The same for many strips of 16 rows. A panel is some groups of one tile. The groups of one
// strip after another are multiplied; the turn after that the products are stored, and two
// turns later, when memory has them, scaled and added.
//
//	AX  arguments                   to multiply:            to add:
//	BX  64                          DX  activations         R13 scales of activations
//	CX  row to row of activations   SI  slot                R10 slot
//	R15 output                      DI  products            R11 products
//	R12 turns left                  R8  groups left         R9  groups left
//
// Vectors as above. Tiles: 0 and 1 products, 4 and 5 activations, 6 and 7 codes, in turn. The
// ring of four products is aligned to 8192 bytes.`

// manyKernel unpacks and multiplies for many strips.
type manyKernel struct{ amxKernel }

// manyLag is how many turns products are added after they are multiplied.
const manyLag = 3

func (k manyKernel) write() {
	name := ""
	if k.signed {
		name = "Signed"
	}
	k.line("\nTEXT ·integerMany%s(SB), NOSPLIT, $0-8", name)
	k.op("MOVQ a+0(FP), AX")
	k.op("LEAQ integerArgs_config(AX), DX")
	k.op("LDTILECFG_DX")
	k.choose()
	k.magic("R11", "Z22")
	k.move("weights", "pairBlock")
	k.move("out", "pairOut")
	k.op("MOVQ $0, integerArgs_second(AX)")
	k.line("tile:")
	k.move("acts", "panelActs")
	k.move("more", "panelMore")
	k.move("groups", "groupsLeft")
	k.move("pairBlock", "nextBlock")
	k.line("panel:")
	k.unpackPanel()
	k.begin()
	k.line("strip:")
	k.load()
	k.line("turn:")
	k.multiply()
	k.keep()
	k.op("DECQ R12")
	k.op("DECQ integerArgs_lag(AX)")
	k.op("JGE turn")
	k.add()
	k.finish()
	k.op("TILERELEASE")
	k.op("VZEROUPPER")
	k.op("RET")
}

// unpackPanel unpacks some groups.
func (k manyKernel) unpackPanel() {
	k.arg("groupsLeft", "R11")
	k.arg("panel", "R12")
	k.op("CMPQ R12, R11")
	k.op("CMOVQGT R11, R12")
	k.set("R12", "panelGroups")
	k.op("SUBQ R12, R11")
	k.set("R11", "groupsLeft")
	k.arg("nextBlock", "R8")
	k.arg("slots", "R9")
	k.line("unpack:")
	k.unpack("unpack")
	k.op("DECQ R12")
	k.op("JNZ unpack")
	k.set("R8", "nextBlock")
}

// begin prepares the turns of all strips.
func (k manyKernel) begin() {
	k.op("MOVQ $64, BX")
	k.arg("actRow", "CX")
	k.arg("panelGroups", "R8")
	k.op("MOVQ R8, R9")
	k.arg("strips", "R12")
	k.set("R12", "stripsLeft")
	k.op("IMULQ R8, R12")
	k.op("MOVQ $%d, integerArgs_lag(AX)", manyLag)
	k.arg("panelActs", "DX")
	k.op("MOVQ DX, R13")
	k.op("ADDQ integerArgs_actTail(AX), R13")
	k.arg("slots", "SI")
	k.op("MOVQ SI, R10")
	k.op("ADDQ integerArgs_slotTail(AX), R10")
	k.arg("products", "DI")
	k.op("MOVQ DI, R11")
	k.arg("pairOut", "R15")
	k.arg("actStrip", "R14") // from the end of a strip's groups to the next strip's
	k.set("R14", "actSkip")
	k.op("MOVQ R8, R14")
	k.op("IMULQ integerArgs_actGroup(AX), R14")
	k.op("SUBQ R14, integerArgs_actSkip(AX)")
}

// load sets the sums of a strip.
func (k manyKernel) load() {
	k.op("CMPQ integerArgs_panelMore(AX), $0")
	k.op("JNE more")
	for m := range amxHeight {
		k.op("VPXORD Z%d, Z%d, Z%d", m, m, m)
	}
	k.op("JMP turn")
	k.line("more:")
	for m := range amxHeight {
		k.op("VMOVUPS %d(R15), Z%d", 64*m, m)
	}
}

// multiply lets the tiles work on a group, in turn with two sets of them.
func (k manyKernel) multiply() {
	k.op("TESTQ R12, R12")
	k.op("JLE multiplied")
	k.op("TESTQ $1, R12")
	k.op("JNZ odd")
	k.dots(0)
	k.op("JMP begun")
	k.line("odd:")
	k.dots(1)
	k.line("begun:")
	k.op("ADDQ integerArgs_actGroup(AX), DX")
	k.op("ADDQ integerArgs_slot(AX), SI")
	k.op("DECQ R8")
	k.op("JNZ multiplied")
	k.op("ADDQ integerArgs_actSkip(AX), DX")
	k.arg("slots", "SI")
	k.arg("panelGroups", "R8")
	k.line("multiplied:")
}

// dots multiplies a group with a set of tiles.
func (k manyKernel) dots(set int) {
	k.op("TILEZERO(%d)", set)
	half := func(half int) {
		k.acts(4+set, half, regDX)
		k.op("TILELOADD(%d, %d, %d, %d)", 6+set, 1024*half, regSI, regBX)
		k.dot(set, 4+set, 6+set)
	}
	half(0)
	k.wide(fmt.Sprintf("whole%d", set), func() { half(1) })
}

// keep stores the products of the turn before.
func (k manyKernel) keep() {
	k.op("CMPQ integerArgs_lag(AX), $%d", manyLag)
	k.op("JEQ kept")
	k.op("TESTQ R12, R12")
	k.op("JLT kept")
	k.op("TESTQ $1, R12")
	k.op("JNZ even")
	k.op("TILESTORED(1, 0, %d, %d)", regDI, regBX)
	k.op("JMP stored")
	k.line("even:")
	k.op("TILESTORED(0, 0, %d, %d)", regDI, regBX)
	k.line("stored:")
	k.ring("DI")
	k.line("kept:")
}

// ring moves the place of products in register on by one.
func (k manyKernel) ring(register string) {
	k.op("ADDQ $1024, %s", register)
	k.op("ANDQ $~4096, %s", register)
}

// add scales the products of a group and adds them to the sums.
func (k manyKernel) add() {
	k.op("VMOVUPS (R10), Z16")
	if !k.signed {
		k.op("VMOVUPS 64(R10), Z17")
	}
	for m := range amxHeight {
		k.addRow(m, "R13", 4*amxHeight)
	}
	k.op("ADDQ integerArgs_actGroup(AX), R13")
	k.op("ADDQ integerArgs_slot(AX), R10")
	k.ring("R11")
	k.op("DECQ R9")
	k.op("JNZ turn")
}

// finish stores a strip's sums and goes on to the next strip, panel and tile.
func (k manyKernel) finish() {
	for m := range amxHeight {
		k.op("VMOVUPS Z%d, %d(R15)", m, 64*m)
	}
	k.op("ADDQ $%d, R15", 64*amxHeight)
	k.op("ADDQ integerArgs_actSkip(AX), R13")
	k.arg("slots", "R10")
	k.op("ADDQ integerArgs_slotTail(AX), R10")
	k.arg("panelGroups", "R9")
	k.op("DECQ integerArgs_stripsLeft(AX)")
	k.op("JNZ strip")
	k.op("MOVQ $1, integerArgs_panelMore(AX)")
	k.op("IMULQ integerArgs_actGroup(AX), R9")
	k.op("ADDQ R9, integerArgs_panelActs(AX)")
	k.op("CMPQ integerArgs_groupsLeft(AX), $0")
	k.op("JNE panel")
	k.arg("outTile", "R10")
	k.op("ADDQ R10, integerArgs_pairOut(AX)")
	k.arg("tileBytes", "R10")
	k.op("ADDQ R10, integerArgs_pairBlock(AX)")
	k.op("DECQ integerArgs_tiles(AX)")
	k.op("JNZ tile")
}
