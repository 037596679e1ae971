package main

import "fmt"

const stripDoc = `//
// func integerStrip<format>(a *integerArgs)
//
// Multiplies tiles with one strip of 4 to 16 rows: see integerTiles, the twin. In a turn a
// group is multiplied in tiles, the products of the group before are stored, the block after
// next is unpacked, and the products of the group before the last are scaled and added.
// Codes of 8 bits are multiplied where they lie.
//
//	AX  arguments                   to multiply:            to add:
//	BX  64                          DX  activations         R10 scales of activations
//	CX  row to row of activations   R9  groups left         SI  sums of activations
//	R8  next block                  SI  codes               R11 groups left
//	R12 turn                        DI  products            R13 scales of weights
//	R14 scratch, rows                                       DI  products
//	R15 output
//
// To unpack: SI, DI planes, BX slot. Vectors and tiles as above; Z24 on as in the kernels of
// AVX-512. Activations and a.slots are aligned to 64 bytes; there are four slots of 2048
// bytes and four products.`

// stripKernel unpacks and multiplies a format.
type stripKernel struct {
	*avx512Kernel
	tiles amxKernel
}

// stripLag is how many turns products are added after they are multiplied.
const stripLag = 2

// stripLeast is the least number of rows; to ask for every further one costs nothing.
const stripLeast = 4

// stripAhead is the distance of the software prefetch. There is one stream, not two.
const stripAhead = 2 * ahead

// lead is how many turns blocks are unpacked before they are multiplied.
func (k stripKernel) lead() int {
	if k.bits == 8 {
		return 0
	}
	return 2
}

func (k stripKernel) write() {
	k.line("\nTEXT ·integerStrip%s(SB), NOSPLIT, $0-8", k.name)
	k.op("MOVQ a+0(FP), AX")
	k.op("LEAQ integerArgs_config(AX), DX")
	k.op("LDTILECFG_DX")
	k.constants("integerSigned")
	k.op("MOVQ $64, BX")
	k.arg("actRow", "CX")
	k.arg("acts", "DX")
	k.arg("weights", "R8")
	k.arg("groups", "R9")
	k.arg("codes", "R13")
	k.op("ADDQ R8, R13")
	k.arg("out", "R15")
	k.op("XORL R12, R12")
	k.line("tile:")
	k.arg("acts", "R10")
	k.op("ADDQ integerArgs_actTail(AX), R10")
	k.arg("groups", "R11")
	for m := range amxHeight {
		k.op("VPXORD Z%d, Z%d, Z%d", m, m, m)
	}
	k.line("turn:")
	k.multiply()
	k.keep()
	if k.lead() > 0 {
		k.unpack()
	}
	k.op("INCQ R12")
	k.op("CMPQ R12, $%d", k.lead()+stripLag)
	k.op("JLE turn")
	k.scalesAt(0, 1, k.add)
	k.store()
	k.op("TILERELEASE")
	k.op("VZEROUPPER")
	k.op("RET")
	for _, rest := range k.aside {
		rest()
	}
}

// unless jumps if there was or will be no group ago turns before this one.
func (k stripKernel) unless(ago int, label string) {
	k.op("LEAQ %d(R12), R14", -ago)
	k.op("CMPQ R14, integerArgs_turns(AX)")
	k.op("JCC %s", label)
}

// place points a register at what a ring of four, each of 1<<shift bytes, has for the group
// of ago turns before this one.
func (k stripKernel) place(ring string, ago, shift int, register string) {
	k.op("LEAQ %d(R12), %s", -ago, register)
	k.op("ANDQ $3, %s", register)
	k.op("SHLQ $%d, %s", shift, register)
	k.op("ADDQ integerArgs_%s(AX), %s", ring, register)
}

func (k stripKernel) slot(ago int, register string)    { k.place("slots", ago, 11, register) }
func (k stripKernel) product(ago int, register string) { k.place("products", ago, 10, register) }

// alternate uses one set of tiles in even turns, the other in odd ones.
func (k stripKernel) alternate(name string, even, odd func()) {
	k.op("TESTQ $1, R12")
	k.op("JNE %sOdd", name)
	even()
	k.op("JMP %s", name)
	k.line("%sOdd:", name)
	odd()
	k.line("%s:", name)
}

// keep stores the products of the turn before: to wait for a turn's own would keep what
// follows from starting, which costs a tenth.
func (k stripKernel) keep() {
	k.unless(k.lead()+1, "kept")
	k.product(k.lead()+1, "DI")
	k.alternate("kept", func() { k.tiles.store(3) }, func() { k.tiles.store(0) })
}

// multiply lets the tiles work on a group.
func (k stripKernel) multiply() {
	k.unless(k.lead(), "multiplied")
	if k.lead() > 0 {
		k.slot(k.lead(), "SI")
	} else {
		k.bytes()
	}
	k.alternate("begun", func() { k.tiles.dots(0) }, func() { k.tiles.dots(3) })
	k.op("ADDQ integerArgs_actGroup(AX), DX")
	k.op("DECQ R9")
	k.op("JNZ multiplied")
	k.arg("acts", "DX")
	k.arg("groups", "R9")
	k.line("multiplied:")
}

// bytes points SI at a block of bytes, and asks for one in advance.
func (k stripKernel) bytes() {
	k.op("MOVQ R8, SI")
	k.arg("steps", "R14")
	k.line("step:")
	for v := range 4 {
		k.prefetch(0, 64*v, "R8")
	}
	k.op("ADDQ $256, R8")
	k.op("DECQ R14")
	k.op("JNZ step")
	k.op("MOVQ SI, R8")
	k.op("ADDQ integerArgs_block(AX), R8")
}

// unpack writes the codes of a block to a slot, one byte each.
func (k stripKernel) unpack() {
	k.unless(0, "unpacked")
	k.slot(0, "BX")
	k.unpackBlock("BX")
	k.op("ADDQ integerArgs_block(AX), R8")
	k.op("MOVQ $64, BX")
	k.line("unpacked:")
}

// rows does something for every row there is. R14 is their number.
func (k stripKernel) rows(end string, do func(m int)) {
	for m := range amxHeight {
		if m >= stripLeast {
			k.op("CMPQ R14, $%d", m)
			k.op("JEQ %s", end)
		}
		do(m)
	}
	k.line("%s:", end)
}

// add scales the products of a group and adds them to the sums.
func (k stripKernel) add() {
	k.product(k.lead()+stripLag+1, "DI")
	k.arg("rows", "R14")
	k.op("LEAQ (R10)(R14*4), SI")
	k.rows("added", func(m int) {
		t := fmt.Sprintf("Z%d", 18+m%4)
		k.op("VCVTDQ2PS %d(DI), %s", 64*m, t)
		k.op("VMULPS.BCST %d(R10), %s, %s", 4*m, t, t)
		k.op("VFMADD231PS Z24, %s, Z%d", t, m)
		if !k.fp4 {
			k.op("VFMADD231PS.BCST %d(SI), Z25, Z%d", 4*m, m)
		}
	})
	k.op("ADDQ integerArgs_actGroup(AX), R10")
	k.op("ADDQ integerArgs_block(AX), R13")
	k.op("DECQ R11")
	k.op("JNZ turn")
}

// store writes the sums of a tile and goes on to the next.
func (k stripKernel) store() {
	k.rows("finished", func(m int) { k.op("VMOVUPS Z%d, %d(R15)", m, 64*m) })
	k.op("ADDQ integerArgs_outTile(AX), R15")
	k.op("LEAQ %d(R12), R14", -k.lead()-stripLag)
	k.op("CMPQ R14, integerArgs_turns(AX)")
	k.op("JLT tile")
}
