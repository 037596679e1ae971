package main

import "fmt"

const wideDoc = `// func integerWide8(a *integerArgs), for eight rows and three tiles of 8 bits: likewise, for weights
// that come from the cache since many rows pass over them. The three tiles are read side by side. All
// registers but a few are integer sums, 24 of them, so that the multipliers need not wait for one
// another and an activation is loaded once for three products; the float32 sums stay in the output.
//
// Registers are those of the other kernels, but for
//
//	R9  output    R11  tile to tile    CX  steps left, later tile to tile of the output
//
// Vectors: from Z0 on the int32 sums, of tile after tile, row after row. Z24 to Z26: codes of the
// tiles. Z27: an activation. Z24 to Z29 later: scales and biases.`

// wideRows is the rows of the kernel, wideTiles the tiles that it reads side by side.
const wideRows, wideTiles = 8, 3

// wideKernel writes it. Memory is not asked for in advance: all but the first rows find weights in the
// first cache.
type wideKernel struct{ avx512Kernel }

func wide(s *source) {
	k := &wideKernel{avx512Kernel{source: s, codes: codes{name: "8", bits: 8}, m: wideRows, streams: wideTiles}}
	k.line("\n%s", wideDoc)
	k.kernel("integerWide8", 0)
	k.op("MOVQ a+0(FP), AX")
	k.arg("weights", "R8")
	k.arg("out", "R9")
	k.arg("tileBytes", "R11")
	k.arg("acts", "DX")
	k.arg("groups", "R12")
	k.arg("outTile", "CX")
	k.ops("CMPQ integerArgs_more(AX), $0", "JNE group", "VPXORD Z0, Z0, Z0")
	k.each(func(h, m int) { k.op("VMOVUPS Z0, %s", k.sum(h, m)) })
	k.line("group:")
	k.dots()
	k.loadScales(0, wideTiles, func() {
		k.arg("outTile", "CX")
		k.each(k.scaleRow)
	}, func() {
		k.arg("outTile", "CX")
		k.each(k.scaleSymmetric)
	}, func() {
		k.arg("outTile", "CX")
		k.each(k.scalePointed)
	}, nil)
	k.op("LEAQ %d(BX), DX", 12*wideRows)
	k.ops("ADDQ integerArgs_block(AX), R8", "DECQ R12", "JNZ group", "VZEROUPPER", "RET")
	for _, rest := range k.aside {
		rest()
	}
}

// each does something for every row of every tile.
func (k *wideKernel) each(do func(h, m int)) {
	for m := range wideRows {
		for h := range wideTiles {
			do(h, m)
		}
	}
}

func (k *wideKernel) int(h, m int) string { return fmt.Sprintf("Z%d", h*wideRows+m) }

// sum is the address of the float sums of row m of tile h.
func (k *wideKernel) sum(h, m int) string {
	return fmt.Sprintf("%d(R9)%s", 64*m, [wideTiles]string{"", "(CX*1)", "(CX*2)"}[h])
}

// dots computes the integer sums of a group.
func (k *wideKernel) dots() {
	k.ops("MOVQ R8, SI", "MOVQ DX, BX")
	k.each(func(h, m int) { k.op("VPXORD %[1]s, %[1]s, %[1]s", k.int(h, m)) })
	k.arg("steps", "CX")
	k.line("step:")
	for v := range 4 {
		for h := range wideTiles {
			k.op("VMOVDQU32 %s, Z%d", k.stream(h, 64*v, "SI"), 24+h)
		}
		for m := range wideRows {
			k.op("VPBROADCASTD %d(BX), Z27", 4*(v*wideRows+m))
			for h := range wideTiles {
				k.op("VPDPBUSD Z27, Z%d, %s", 24+h, k.int(h, m))
			}
		}
	}
	k.op("ADDQ $%d, SI", step16(8))
	k.op("ADDQ $%d, BX", 16*wideRows)
	k.ops("DECQ CX", "JNZ step")
}

// scaleRow adds the integer sums of a row of a tile, scaled, to its float sums.
func (k *wideKernel) scaleRow(h, m int) {
	i := k.int(h, m)
	k.op("VCVTDQ2PS %s, %s", i, i)
	k.op("VMULPS.BCST %d(BX), %s, %s", 4*m, i, i)
	k.op("VFMADD213PS %s, Z%d, %s", k.sum(h, m), 24+2*h, i)
	k.op("VFMADD231PS.BCST %d(BX), Z%d, %s", 4*(wideRows+m), 25+2*h, i)
	k.op("VMOVUPS %s, %s", i, k.sum(h, m))
}

// scaleSymmetric is scaleRow for codes that are raised to be unsigned, without biases.
func (k *wideKernel) scaleSymmetric(h, m int) {
	i := k.int(h, m)
	k.op("VPADDD.BCST %d(BX), %s, %s", 4*(2*wideRows+m), i, i)
	k.addRow(h, m)
}

// scalePointed is scaleRow for codes with zero points.
func (k *wideKernel) scalePointed(h, m int) {
	k.op("VPDPWSSD.BCST %d(BX), Z%d, %s", 4*(2*wideRows+m), 25+2*h, k.int(h, m))
	k.addRow(h, m)
}

// addRow adds the integer sums of signed codes.
func (k *wideKernel) addRow(h, m int) {
	i := k.int(h, m)
	k.op("VCVTDQ2PS %s, %s", i, i)
	k.op("VMULPS.BCST %d(BX), %s, %s", 4*m, i, i)
	k.op("VFMADD213PS %s, Z%d, %s", k.sum(h, m), 24+2*h, i)
	k.op("VMOVUPS %s, %s", i, k.sum(h, m))
}
