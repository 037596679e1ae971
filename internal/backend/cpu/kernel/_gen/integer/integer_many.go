package main

import "fmt"

const manyDoc = `//
// func integerMany(a *integerArgs), func integerManySigned(a *integerArgs), func integerManyPoints(a *integerArgs)
//
// The same for three strips of 16 rows and more, pairs of tiles that lie behind one another, and groups in
// fours: those are a panel. A turn multiplies a strip with a panel, so that eight tiles of products share
// four of activations, and stores each product when the next group of its tile begins. Meanwhile, from step
// manyLag of 32 on, it adds the products of the turn before, a row of all four groups in each step. The
// rest, the last rows of the second tile, follows in the turn after that: by then memory has had time to
// take what is stored, and two sets of eight products are enough. So it goes on from strip to strip, panel
// to panel and pair to pair. What is added in the first turns is of no use, and goes nowhere, and so is what
// is multiplied in the last two. Between turns a part of the next panel is unpacked.
//
//	AX  arguments                   to multiply:        to add:
//	BX  64                          DX  activations     R8, R9, R10, R13 scales of activations, by group
//	CX  row to row of activations   SI  slot            R11 products
//	R12 group to group of these     DI  products        R15 output
//	R14 slot to slot
//
// Vectors: Z0 to Z3: scales, by group; Z4 to Z7: biases or zero points; Z8 to Z11: sums; Z12 to Z19: products; Z22: see
// magic. K5 is none before the output has sums. Tiles: 0 and 1 products, 4 and 5 activations, 6 and 7 codes;
// 2 and 3 activations and codes of second halves. Products are aligned to 16384 bytes.`

// manyKernel unpacks and multiplies for many strips.
type manyKernel struct{ amxKernel }

const (
	manyGroups = 4 // of a panel
	manySteps  = 2 * amxHeight
	manyLag    = 10
	manySet    = 2 * manyGroups * 1024 // of products, in bytes
)

func (k manyKernel) write() {
	k.kernel("integerMany%s", 32, k.form)
	k.ops("MOVQ a+0(FP), AX", "LEAQ integerArgs_config(AX), DX", "LDTILECFG_DX")
	k.choose()
	k.magic("R11", "Z22")
	k.open()
	k.line("turn:")
	for step := range manySteps {
		k.tile(step/8, step%8)
		k.add((step+manySteps-manyLag)%manySteps/amxHeight, (step+manySteps-manyLag)%amxHeight)
	}
	k.next()
	k.ops("TILERELEASE", "VZEROUPPER", "RET")
}

// manyMacros are what is done with a row of a group: where its products and its scale of activations are, the
// scales and biases or zero points of the weight, a vector for the products, and the sums.
const manyMacros = `
#define MANY_SCALED(acts, row, scales, t, sums) VMULPS.BCST row(acts), t, t; VFMADD231PS scales, t, sums
#define MANY_CONVERTED(products, acts, row, scales, t, sums) VCVTDQ2PS products(R11), t; MANY_SCALED(acts, row, scales, t, sums)
#define MANY_SIGNED(products, acts, row, scales, t, sums) VPADDD products(R11), Z22, t; VSUBPS Z22, t, t; MANY_SCALED(acts, row, scales, t, sums)
#define MANY_BIASED(products, acts, row, scales, biases, t, sums) MANY_SIGNED(products, acts, row, scales, t, sums); VFMADD231PS.BCST (4*16+row)(acts), biases, sums
#define MANY_POINTED(products, acts, row, scales, zeros, t, sums) VPADDD products(R11), Z22, t; VPDPWSSD.BCST (8*16+row)(acts), zeros, t; VSUBPS Z22, t, t; MANY_SCALED(acts, row, scales, t, sums)`

// open prepares the first turn, whose additions go to an unused buffer, and goes to the first panel.
func (k manyKernel) open() {
	k.op("MOVQ $64, BX")
	k.arg("actRow", "CX")
	k.arg("actGroup", "R12")
	k.copy("weights", "pairBlock", "weights", "nextBlock", "slots", "nextSlots", "slots", "unpackSlot")
	k.copy("groups", "nextLeft", "nowhere", "addOut", "nowhere", "addOutSecond")
	k.arg("tiles", "R14")
	k.op("SHRQ $1, R14")
	k.set("R14", "pairsNext")
	k.op("INCQ R14")
	k.set("R14", "pairsLeft")
	k.arg("outTile", "R14")
	k.set("R14", "outSecond")
	k.op("ADDQ R14, R14")
	k.arg("out", "SI")
	k.op("SUBQ R14, SI")
	k.set("SI", "pairOut")
	k.op("XORL R14, R14")
	k.set("R14", "groupsLeft")
	k.set("R14", "addMore")
	k.op("KXORW K5, K5, K5")
	k.op("MOVQ $%d, integerArgs_unpackLeft(AX)", 2*manyGroups)
	k.arg("products", "DI")
	k.op("LEAQ %d(DI), R11", manySet)
	k.arg("nowhere", "R15")
	k.arg("acts", "R8")
	k.op("ADDQ integerArgs_actTail(AX), R8")
	k.set("R8", "addActs")
	k.scalesOfActs()
	k.arg("slots", "R14")
	k.op("ADDQ integerArgs_slotTail(AX), R14")
	k.set("R14", "addSlots")
	k.op("JMP panel")
}

// tile is a step of a group of both tiles: activations and codes are loaded, products of the group before are
// stored, and these are multiplied.
func (k manyKernel) tile(g, step int) {
	acts, before := 4+g%2, (g+manyGroups-1)%manyGroups
	store := func(tile int) {
		k.op("TILESTORED(%d, %d, %d, %d)", tile, 1024*(manyGroups*tile+before), regDI, regBX)
		k.op("TILEZERO(%d)", tile)
	}
	switch step {
	case 0:
		k.op("TILELOADDT1(%d, 0, %d, %d)", acts, regDX, regCX)
	case 1:
		k.codes(0, 6, 0)
	case 2:
		store(0)
	case 3:
		k.dot(0, acts, 6)
		k.wide(fmt.Sprintf("first%d", g), func() {
			k.op("TILELOADDT1(2, 64, %d, %d)", regDX, regCX)
			k.codes(0, 3, 1)
			k.dot(0, 2, 3)
		})
	case 4:
		k.codes(1, 7, 0)
	case 5:
		store(1)
		if g == 0 {
			k.op("XORQ $%d, DI", manySet)
		}
	case 6:
		k.dot(1, acts, 7)
		k.wide(fmt.Sprintf("second%d", g), func() {
			k.codes(1, 3, 1)
			k.dot(1, 2, 3)
		})
	case 7:
		k.ops("ADDQ R12, DX", "ADDQ R14, SI")
	}
}

// codes loads tile t with half of a group's codes, of the first or second tile of the weight.
func (k manyKernel) codes(tile, t, half int) {
	k.op("TILELOADD(%d, (%d+%d*const_manySlotBytes), %d, %d)", t, 1024*half, tile, regSI, regBX)
}

// add scales the products of a row and adds them. The first row of a tile finds its scales, and the first of
// both tiles the strip. So that multiplications, all on one port, do not limit alone what nothing else limits,
// every fourth product of signed codes is converted by an instruction of that port: see magic.
func (k manyKernel) add(tile, m int) {
	if m == 0 {
		k.scales(tile)
	}
	sum := fmt.Sprintf("Z%d", 8+m%4)
	k.op("VMOVUPS.Z %d(R15), K5, %s", 64*m, sum)
	for g, acts := range []string{"R8", "R9", "R10", "R13"} {
		name, scales := "MANY_BIASED", fmt.Sprintf("Z%d, Z%d", g, 4+g)
		switch k.form {
		case amxSigned:
			name, scales = "MANY_SIGNED", fmt.Sprintf("Z%d", g)
			if g == m%4 {
				name = "MANY_CONVERTED"
			}
		case amxPoints:
			name = "MANY_POINTED"
		}
		k.op("%s(%d, %s, %d, %s, Z%d, %s)", name, 1024*(manyGroups*tile+g)+64*m, acts, 4*m, scales, 12+m%2*4+g, sum)
	}
	k.op("VMOVUPS %s, %d(R15)", sum, 64*m)
}

// scales loads the scales and biases of a tile, and finds its output. With the first tile that is of the
// strip multiplied in the turn before.
func (k manyKernel) scales(tile int) {
	k.arg("addSlots", "R15")
	if tile == 1 {
		k.op("ADDQ $const_manySlotBytes, R15")
	}
	for g := range manyGroups {
		k.op("VMOVUPS (R15), Z%d", g)
		if k.form != amxSigned {
			k.op("VMOVUPS 64(R15), Z%d", 4+g)
		}
		k.op("ADDQ R14, R15")
	}
	if tile == 1 {
		k.arg("addOutSecond", "R15")
		return
	}
	k.arg("addOut", "R15")
	k.arg("addActs", "R8")
	k.scalesOfActs()
	k.op("KMOVW integerArgs_addMore(AX), K5")
	k.op("XORQ $%d, R11", manySet)
}

// scalesOfActs finds the scales of the other groups behind those of the first, at R8.
func (k manyKernel) scalesOfActs() {
	k.ops("LEAQ (R8)(R12*1), R9", "LEAQ (R8)(R12*2), R10", "LEAQ (R9)(R12*2), R13")
}

// next says what the next turn adds, and goes on to the next strip, panel and pair of tiles. It leaves the
// registers to add with alone.
func (k manyKernel) next() {
	k.arg("stripActs", "DX")
	k.ops("MOVQ DX, SI", "ADDQ integerArgs_actTail(AX), SI")
	k.set("SI", "addActs")
	k.arg("panelSlots", "SI")
	k.op("ADDQ integerArgs_slotTail(AX), SI")
	k.set("SI", "addSlots")
	k.arg("stripOut", "SI")
	k.set("SI", "addOut")
	k.op("ADDQ $%d, integerArgs_stripOut(AX)", 64*amxHeight)
	k.op("ADDQ integerArgs_outSecond(AX), SI")
	k.set("SI", "addOutSecond")
	k.arg("panelMore", "SI")
	k.op("NEGQ SI")
	k.set("SI", "addMore")
	k.op("ADDQ integerArgs_actStrip(AX), DX")
	k.set("DX", "stripActs")
	k.ops("DECQ integerArgs_stripsLeft(AX)", "JZ panel")
	k.arg("pace", "DX")
	k.unpackSome("some")
	k.line("go:")
	k.arg("stripActs", "DX")
	k.arg("panelSlots", "SI")
	k.arg("slot", "R14")
	k.op("JMP turn")
	k.line("panel:")
	k.op("MOVQ $%d, DX", 2*manyGroups)
	k.unpackSome("rest")
	k.copy("strips", "stripsLeft", "nextSlots", "panelSlots")
	k.op("MOVQ $1, integerArgs_panelMore(AX)")
	k.op("LEAQ (R12*4), DX") // a panel
	k.ops("ADDQ integerArgs_panelActs(AX), DX", "CMPQ integerArgs_groupsLeft(AX), $0", "JNE inside")
	k.arg("nowhere", "R14")
	k.ops("DECQ integerArgs_pairsLeft(AX)", "JZ last", "JLT end")
	k.copy("groups", "groupsLeft", "more", "panelMore")
	k.arg("outTile", "R14")
	k.ops("LEAQ (R14)(R14*1), R14", "ADDQ integerArgs_pairOut(AX), R14")
	k.set("R14", "pairOut")
	k.arg("acts", "DX")
	k.line("inside:")
	k.set("DX", "panelActs")
	k.set("DX", "stripActs")
	k.copy("pairOut", "stripOut")
	k.op("SUBQ $%d, integerArgs_groupsLeft(AX)", manyGroups)
	k.order()
	k.op("JMP go")
	k.line("last:") // two turns
	k.set("R14", "stripOut")
	k.ops("MOVQ $0, integerArgs_outSecond(AX)", "MOVQ $2, integerArgs_stripsLeft(AX)")
	k.copy("acts", "stripActs")
	k.op("JMP go")
	k.line("end:")
}

// order finds the next panel to unpack, in these tiles or the next two.
func (k manyKernel) order() {
	k.arg("slots", "R14") // its slots are those of the panel before this one
	k.ops("LEAQ (2*const_manySlotBytes)(R14)(R14*1), R14", "SUBQ integerArgs_panelSlots(AX), R14")
	k.set("R14", "nextSlots")
	k.set("R14", "unpackSlot")
	k.op("MOVQ $%d, integerArgs_unpackLeft(AX)", 2*manyGroups)
	k.op("SUBQ $%d, integerArgs_nextLeft(AX)", manyGroups)
	k.op("JNZ go")
	k.arg("tileBytes", "R14")
	k.ops("LEAQ (R14)(R14*1), R14", "ADDQ integerArgs_pairBlock(AX), R14")
	k.set("R14", "pairBlock")
	k.set("R14", "nextBlock")
	k.copy("groups", "nextLeft")
	k.ops("DECQ integerArgs_pairsNext(AX)", "JNZ go", "MOVQ $0, integerArgs_unpackLeft(AX)")
}

// unpackSome unpacks up to DX blocks, in turn of the first tile and of the second.
func (k manyKernel) unpackSome(name string) {
	kept := []string{"R8", "R9", "R13", "DI"}
	k.op("CMPQ integerArgs_unpackLeft(AX), $0")
	k.op("JEQ %sUnpacked", name)
	for i, r := range kept {
		k.op("MOVQ %s, %d(SP)", r, 8*i)
	}
	k.arg("nextBlock", "R8")
	k.arg("unpackSlot", "R9")
	k.line("%sUnpack:", name)
	k.arg("unpack", "R13")
	k.op("CALL R13")
	k.arg("tileBytes", "R13")
	k.op("TESTQ $1, integerArgs_unpackLeft(AX)")
	k.op("JNZ %sSecond", name)
	k.ops("SUBQ integerArgs_block(AX), R8", "SUBQ integerArgs_slot(AX), R9", "ADDQ R13, R8")
	k.op("ADDQ $const_manySlotBytes, R9")
	k.op("JMP %sFirst", name)
	k.line("%sSecond:", name)
	k.ops("SUBQ R13, R8", "SUBQ $const_manySlotBytes, R9")
	k.line("%sFirst:", name)
	k.op("DECQ integerArgs_unpackLeft(AX)")
	k.op("JZ %sDone", name)
	k.op("DECQ DX")
	k.op("JNZ %sUnpack", name)
	k.line("%sDone:", name)
	k.set("R8", "nextBlock")
	k.set("R9", "unpackSlot")
	for i, r := range kept {
		k.op("MOVQ %d(SP), %s", 8*i, r)
	}
	k.line("%sUnpacked:", name)
}

// copy copies fields of the arguments to others.
func (k manyKernel) copy(pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		k.arg(pairs[i], "R14")
		k.set("R14", pairs[i+1])
	}
}
