package main

import "fmt"

const amxDoc = `// func integerUnpack<format>(a *integerArgs)
//
// Writes the codes of a.groups blocks from a.weights on to a.slots, one byte each, as
// [group/4, 16 rows, 4], and behind each group's its 16 scales and 16 biases as float32.
// The twins are Weight.integers and Weight.scales.
//
//	AX  arguments     R8  block           SI  first plane    DI  second plane
//	R12 groups left   R9  slot            R14 steps left     R13 scales
//
// Vectors as in the kernels of AVX-512. a.slots is aligned to 64 bytes.
//
// func integerAMX(a *integerArgs), func integerAMXFP4(a *integerArgs)
//
// Multiply unpacked groups of one tile with strips of 16 rows: see integerTiles, the twin.
// The groups of one strip after another are multiplied in tiles, and two turns later, when
// memory has the products, scaled and added. Of the FP4 form codes are signed, and there
// are no biases.
//
//	AX  arguments                   to multiply:            to add:
//	BX  64                          DX  activations         R13 scales of activations
//	CX  row to row of activations   SI  slot                R10 slot
//	R14 scratch                     DI  products            R11 products
//	R15 output                      R8  groups left         R9  groups left
//	                                R12 turns left          0(SP) strips left
//
// 8(SP): turns before the first is added. Vectors: Z0 on: float32 sums of the rows; Z16, Z17:
// scales and biases; Z18 to Z21: products. Tiles: 0 and 3 products, 1 and 4 activations, 2
// and 5 codes, in turn. Activations and a.slots are aligned to 64 bytes, the ring of four
// products to 8192.`

// amxHeight is the number of rows of a strip.
const amxHeight = 16

// unpackKernel unpacks a format, the way of AVX-512.
type unpackKernel struct{ *avx512Kernel }

// amxKernel multiplies unpacked groups.
type amxKernel struct {
	*source
	fp4 bool
}

func amx(s *source) {
	s.line("\n// The values of E2M1 codes in halves.")
	s.line("DATA integerSigned<>+0(SB)/8, $0x0c08060403020100")
	s.line("DATA integerSigned<>+8(SB)/8, $0xf4f8fafcfdfeff00")
	s.line("GLOBL integerSigned<>(SB), RODATA|NOPTR, $16")
	for _, f := range formats {
		unpackKernel{&avx512Kernel{source: s, codes: f}}.write()
	}
	amxKernel{s, false}.write()
	amxKernel{s, true}.write()
	for _, f := range formats {
		stripKernel{&avx512Kernel{source: s, codes: f, ahead: stripAhead}, amxKernel{s, f.fp4}}.write()
	}
}

func (k unpackKernel) write() {
	k.line("\nTEXT ·integerUnpack%s(SB), NOSPLIT, $0-8", k.name)
	k.op("MOVQ a+0(FP), AX")
	k.arg("weights", "R8")
	k.arg("slots", "R9")
	k.arg("groups", "R12")
	k.constants("integerSigned")
	k.line("group:")
	k.unpackBlock("R9")
	k.loadScales(0, 1, func() {
		k.op("VMOVUPS Z24, (R9)")
		if !k.fp4 {
			k.op("VMOVUPS Z25, 64(R9)")
		}
	})
	k.op("ADDQ $128, R9")
	k.op("ADDQ integerArgs_block(AX), R8")
	k.op("DECQ R12")
	k.op("JNZ group")
	k.op("VZEROUPPER")
	k.op("RET")
	for _, rest := range k.aside {
		rest()
	}
}

// unpackBlock writes the codes of the block at R8 to the slot at a register, and moves that
// behind them.
func (k *avx512Kernel) unpackBlock(slot string) {
	k.op("MOVQ R8, SI")
	if k.high() > 0 {
		k.arg("plane", "DI")
		k.op("ADDQ R8, DI")
	}
	k.arg("steps", "R14")
	k.line("step:")
	k.vectors(0, func(v int, w string) { k.op("VMOVDQU32 %s, %d(%s)", w, 64*v, slot) })
	k.op("ADDQ $%d, SI", step16(k.low()))
	if k.high() > 0 {
		k.op("ADDQ $%d, DI", step16(k.high()))
	}
	k.op("ADDQ $256, %s", slot)
	k.op("DECQ R14")
	k.op("JNZ step")
}

func (k amxKernel) write() {
	name := ""
	if k.fp4 {
		name = "FP4"
	}
	k.line("\nTEXT ·integerAMX%s(SB), NOSPLIT, $16-8", name)
	k.op("MOVQ a+0(FP), AX")
	k.op("LEAQ integerArgs_config(AX), DX")
	k.op("LDTILECFG_DX")
	k.op("MOVQ $64, BX")
	k.arg("actRow", "CX")
	k.arg("acts", "DX")
	k.op("MOVQ DX, R13")
	k.op("ADDQ integerArgs_actTail(AX), R13")
	k.arg("products", "DI")
	k.op("MOVQ DI, R11")
	k.arg("slots", "SI")
	k.op("MOVQ SI, R10")
	k.arg("groups", "R8")
	k.op("MOVQ R8, R9")
	k.arg("strips", "R12")
	k.op("MOVQ R12, 0(SP)")
	k.op("IMULQ R8, R12")
	k.op("MOVQ $2, 8(SP)")
	k.arg("out", "R15")
	k.line("strip:")
	k.begin()
	k.line("turn:")
	k.multiply()
	k.add()
	k.end()
	k.op("TILERELEASE")
	k.op("VZEROUPPER")
	k.op("RET")
}

// begin sets the sums of a strip.
func (k amxKernel) begin() {
	k.op("CMPQ integerArgs_more(AX), $0")
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

// multiply lets the tiles work on a group. Turns use two sets of tiles, so that one may
// begin before the last has ended.
func (k amxKernel) multiply() {
	k.op("TESTQ R12, R12")
	k.op("JZ multiplied")
	k.ahead()
	k.op("TESTQ $1, R12")
	k.op("JNE odd")
	k.dots(0)
	k.store(0)
	k.op("JMP stored")
	k.line("odd:")
	k.dots(3)
	k.store(3)
	k.line("stored:")
	k.op("ADDQ integerArgs_actGroup(AX), DX")
	k.op("ADDQ integerArgs_slot(AX), SI")
	k.ring("DI")
	k.op("DECQ R12")
	k.op("DECQ R8")
	k.op("JNZ multiplied")
	k.op("ADDQ integerArgs_actSkip(AX), DX")
	k.arg("slots", "SI")
	k.arg("groups", "R8")
	k.line("multiplied:")
	k.op("DECQ 8(SP)")
	k.op("JGE turn")
}

// ahead asks for some of the blocks that will be unpacked next. To ask while the tiles work
// is worth 40 ns a block of 4 bits against asking while unpacking, when nothing else is done.
func (k amxKernel) ahead() {
	const lines = 12 // with two strips enough for any format
	k.arg("ahead", "R14")
	k.op("CMPQ R14, integerArgs_aheadEnd(AX)")
	k.op("JCC asked")
	for i := range lines {
		k.op("PREFETCHT0 %d(R14)", 64*i)
	}
	k.op("ADDQ $%d, integerArgs_ahead(AX)", 64*lines)
	k.line("asked:")
}

// ring moves the place of products in register on by one.
func (k amxKernel) ring(register string) {
	k.op("ADDQ $1024, %s", register)
	k.op("ANDQ $~4096, %s", register)
}

// dots multiplies a group with tiles t to t+2: products, activations, codes.
func (k amxKernel) dots(t int) {
	dot := "TDPBSUD"
	if k.fp4 {
		dot = "TDPBSSD"
	}
	k.op("TILEZERO(%d)", t)
	k.op("TILELOADD(%d, 0, 2, 1)", t+1)
	k.op("TILELOADD(%d, 0, 6, 3)", t+2)
	k.op("%s(%d, %d, %d)", dot, t, t+1, t+2)
	if !k.fp4 { // which has no groups of 128
		k.op("CMPQ integerArgs_steps(AX), $4")
		k.op("JLE whole%d", t)
		k.op("TILELOADD(%d, 64, 2, 1)", t+1)
		k.op("TILELOADD(%d, 1024, 6, 3)", t+2)
		k.op("%s(%d, %d, %d)", dot, t, t+1, t+2)
		k.line("whole%d:", t)
	}
}

// store stores the products in tile t.
func (k amxKernel) store(t int) { k.op("TILESTORED(%d, 0, 7, 3)", t) }

// add scales the products of a group and adds them to the sums.
func (k amxKernel) add() {
	k.arg("steps", "R14")
	k.op("SHLQ $8, R14")
	k.op("VMOVUPS (R10)(R14*1), Z16")
	if !k.fp4 {
		k.op("VMOVUPS 64(R10)(R14*1), Z17")
	}
	for m := range amxHeight {
		t := fmt.Sprintf("Z%d", 18+m%4)
		k.op("VCVTDQ2PS %d(R11), %s", 64*m, t)
		k.op("VMULPS.BCST %d(R13), %s, %s", 4*m, t, t)
		k.op("VFMADD231PS Z16, %s, Z%d", t, m)
		if !k.fp4 {
			k.op("VFMADD231PS.BCST %d(R13), Z17, Z%d", 4*(amxHeight+m), m)
		}
	}
	k.op("ADDQ integerArgs_actGroup(AX), R13")
	k.op("ADDQ integerArgs_slot(AX), R10")
	k.ring("R11")
	k.op("DECQ R9")
	k.op("JNZ turn")
}

// end stores a strip's sums and goes on to the next strip.
func (k amxKernel) end() {
	for m := range amxHeight {
		k.op("VMOVUPS Z%d, %d(R15)", m, 64*m)
	}
	k.op("ADDQ $%d, R15", 64*amxHeight)
	k.op("ADDQ integerArgs_actSkip(AX), R13")
	k.arg("slots", "R10")
	k.arg("groups", "R9")
	k.op("DECQ 0(SP)")
	k.op("JNZ strip")
}
