package main

import "fmt"

const avx2Doc = `// Multiply tiles of a weight with strips of rows: see integerTiles, the twin. Half a tile, 8 rows, fills a vector. An
// activation is loaded once for both halves.
//
// func integer<set><format>Rows<m>(a *integerArgs), for m rows and the sets AVX2 and VNNI, which is AVX-VNNI: unpacks codes to
// registers, and the scales of a group to memory. Superblocks have these kernels only. The first half of the tiles and the second are read side by
// side, as two streams; of an odd number the last is computed at the end. There may be several strips, but one with superblocks.
//
// func integer<kind>Rows<m>(a *integerArgs) multiplies a panel: some groups of a tile, which integerUnpack<set><format> has written
// as bytes, for all strips.
//
//	group of a panel  codes [columns/4, 16 rows, 4]; of 8 bits with AVX2 two planes of these, low halves and high ones
//	                  scales as float32, then biases, or zero points as 32 bits
//
// Kinds, which packed codes have too:
//
//	Panel  AVX-VNNI: sums of products in 32 bits
//	Plain  AVX2: codes of up to 4 bits, or halves of 8 bits: sums in 16 bits for 32 columns, 16*15*127 < 2^15 for
//	       each of two sums, which then are multiplied by one, by 16 or, in superblocks, by the factor of their group
//	Wide   AVX2: codes of up to 6 bits: the same for 8 columns, 4*63*127 < 2^15
//
//	AX  arguments    SI  codes          DX  activations of the group    R9  output     R12 groups left
//	CX  steps left   R10 planes left    BX  activations of the step     R11 lines that are asked for
//	R13 int32 sums   R14 factors        R15 whether R13 has sums
//
// and with packed codes
//
//	R8 block   SI, DI planes   R10 pairs of tiles left   R11 from the first to the second
//
// Vectors: from Y0 on sums, those of both halves of a row side by side. Y8 to Y11: packed codes. Y12 to Y15: codes,
// activations, products; later scales. The float32 sums are in the output. No alignment is required, and nothing is read
// past the last block or the last group.`

// panelRows is the maximum number of rows of a panel kernel.
const panelRows = 6

// panelKernel writes what multiplies a panel, or packed codes.
type panelKernel struct {
	*source
	kind   string
	m      int
	packed *unpackPanel // nil: there is a panel
}

func panels(s *source) {
	for _, f := range formats {
		for _, vnni := range []bool{false, true} {
			(&unpackPanel{avx2Kernel{source: s, codes: f, vnni: vnni}}).write()
		}
	}
	for _, kind := range panelKinds {
		for m := 1; m <= panelRows; m++ {
			panelKernel{source: s, kind: kind, m: m}.write()
		}
	}
}

// panelKinds are the kinds of kernels: see panelDoc.
var panelKinds = []string{"Panel", "Plain", "Wide"}

// panelKind is the kernel of AVX2 for a format.
func (f codes) panelKind() string {
	if f.bits == 5 || f.bits == 6 || f.fp4 && !f.levels {
		return "Wide"
	}
	return "Plain"
}

func (k panelKernel) sum(h, m int) string { return fmt.Sprintf("Y%d", 2*m+h) }

// each does something for each half of each row.
func (k panelKernel) each(do func(h, m int, sum string)) {
	for m := range k.m {
		for h := range 2 {
			do(h, m, k.sum(h, m))
		}
	}
}

func (k panelKernel) write() {
	if k.packed != nil {
		k.writePacked()
		return
	}
	k.kernel("integer%sRows%d", 0, k.kind, k.m)
	k.op("MOVQ a+0(FP), AX")
	k.arg("slots", "SI")
	k.arg("out", "R9")
	k.arg("acts", "DX")
	k.arg("groups", "R12")
	k.arg("fetchAt", "R11")
	k.arg("decoded", "R13")
	k.op("ADDQ $%d, R13", superSums)
	k.ops("XORL R15, R15", "LEAQ integerTimes<>(SB), R14")
	k.line("group:")
	k.op("MOVQ DX, BX")
	k.arg("fetchLines", "CX")
	k.ops("TESTQ CX, CX", "JZ fetched")
	k.line("fetch:")
	for i := range 3 {
		k.op("PREFETCHT0 %d(R11)", 64*i)
	}
	k.ops("ADDQ $192, R11", "SUBQ $3, CX", "JG fetch")
	k.line("fetched:")
	k.arg("steps", "CX")
	k.dots()
	k.scale()
	k.line("added:")
	if k.kind == "Plain" {
		k.op("XORL R15, R15")
	}
	k.op("ADDQ $128, SI")
	k.op("LEAQ %d(BX), DX", 12*k.m)
	k.ops("DECQ R12", "JNZ group", "VZEROUPPER", "RET")
	k.otherScales()
	k.line("")
}

// dots computes the sums of a group.
func (k panelKernel) dots() {
	switch {
	case k.kind != "Plain":
		k.whole()
	case k.packed != nil:
		k.packedParts()
	default:
		k.planes()
	}
}

// planes multiplies a group by 32 columns of a plane at a time.
func (k panelKernel) planes() {
	k.arg("planes", "R10")
	k.line("part:")
	k.ops("CMPQ CX, $1", "JEQ half")
	k.quarters(8, 0)
	k.op("ADDQ $512, SI")
	k.op("ADDQ $%d, BX", 32*k.m)
	k.op("SUBQ $2, CX")
	k.line("widen:")
	k.times()
	k.ops("TESTQ R15, R15", "JZ first")
	k.addSums()
	k.line("first:")
	k.ops("TESTQ CX, CX", "JNZ more", "DECQ R10", "JZ planesEnd", "ADDQ $64, R14", "MOVQ DX, BX")
	k.arg("steps", "CX")
	k.line("more:")
	k.put()
	k.ops("MOVL $1, R15", "JMP part")
	k.line("half:")
	k.quarters(4, 0)
	k.op("ADDQ $256, SI")
	k.op("ADDQ $%d, BX", 16*k.m)
	k.ops("XORL CX, CX", "JMP widen")
	k.line("planesEnd:")
	k.ops("CMPQ integerArgs_planes(AX), $1", "JEQ whole", "SUBQ $64, R14")
	k.line("whole:")
}

// times multiplies sums in 16 bits by their factors.
func (k panelKernel) times() {
	k.each(func(h, _ int, sum string) { k.op("VPMADDWD %d(R14), %s, %s", 32*h, sum, sum) })
}

// addSums adds the sums in memory.
func (k panelKernel) addSums() {
	k.each(func(h, m int, sum string) { k.op("VPADDD %d(R13), %s, %s", 64*m+32*h, sum, sum) })
}

// put stores the sums.
func (k panelKernel) put() {
	k.each(func(h, m int, sum string) { k.op("VMOVDQU %s, %d(R13)", sum, 64*m+32*h) })
}

// vectors hands the registers over that have the codes of two halves for four columns, n times.
func (k panelKernel) vectors(n, plane int, use func(v, first, second int)) {
	for v := range n {
		if k.packed == nil {
			k.op("VMOVDQU %d(SI), Y14", 64*v)
			k.op("VMOVDQU %d(SI), Y15", 64*v+32)
			use(v, 14, 15)
			continue
		}
		if v%2 == 0 {
			k.unpackBoth(v%4, plane)
		}
		use(v, 8+v%2, 10+v%2)
		if v%4 == 3 {
			k.nextStep()
		}
	}
}

// quarters multiplies n vectors of a plane, and sums them in 16 bits.
func (k panelKernel) quarters(n, plane int) {
	k.vectors(n, plane, func(v, first, second int) {
		for m := range k.m {
			k.op("VPBROADCASTD %d(BX), Y13", 4*(v*k.m+m))
			if v == 0 {
				k.op("VPMADDUBSW Y13, Y%d, %s", first, k.sum(0, m))
				k.op("VPMADDUBSW Y13, Y%d, %s", second, k.sum(1, m))
				continue
			}
			k.op("VPMADDUBSW Y13, Y%d, Y12", first)
			k.op("VPMADDUBSW Y13, Y%d, Y13", second)
			k.op("VPADDW Y12, %[1]s, %[1]s", k.sum(0, m))
			k.op("VPADDW Y13, %[1]s, %[1]s", k.sum(1, m))
		}
	})
}

// whole multiplies a group with sums in 32 bits.
func (k panelKernel) whole() {
	chains := 1 // sums of a row that grow beside each other, so that they need not wait for one another
	if k.kind == "Panel" && (k.m <= 2 || k.m == 3 && k.packed == nil) {
		chains = 2
	}
	for i := range 2 * k.m * chains {
		k.op("VPXOR Y%[1]d, Y%[1]d, Y%[1]d", i)
	}
	k.line("step:")
	switch {
	case k.kind == "Panel":
		k.vectors(4, 0, func(v, first, second int) {
			for m := range k.m {
				k.op("VPBROADCASTD %d(BX), Y13", 4*(v*k.m+m))
				k.op("DPBUSD(13, %d, %d)", first, 2*(v%chains*k.m+m))
				k.op("DPBUSD(13, %d, %d)", second, 2*(v%chains*k.m+m)+1)
			}
		})
	case k.packed != nil:
		for v := 0; v < 4; v += 2 {
			k.unpackBoth(v, 0)
			k.packedPairs(v)
		}
		k.nextStep()
	default:
		for v := 0; v < 4; v += 2 {
			for h := range 2 {
				k.pairs(h, v)
			}
		}
	}
	if k.packed == nil {
		k.op("ADDQ $256, SI")
	}
	k.op("ADDQ $%d, BX", 16*k.m)
	k.ops("DECQ CX", "JNZ step")
	for i := 2 * k.m; i < 2*k.m*chains; i++ {
		k.op("VPADDD Y%d, Y%[2]d, Y%[2]d", i, i-2*k.m)
	}
}

// pairs multiplies vectors v and v+1 of half h of a panel.
func (k panelKernel) pairs(h, v int) {
	k.op("VMOVDQU %d(SI), Y12", 64*v+32*h)
	k.op("VMOVDQU %d(SI), Y13", 64*v+64+32*h)
	for m := range k.m {
		k.op("VPBROADCASTD %d(BX), Y14", 4*(v*k.m+m))
		k.op("VPBROADCASTD %d(BX), Y15", 4*((v+1)*k.m+m))
		k.ops("VPMADDUBSW Y14, Y12, Y14", "VPMADDUBSW Y15, Y13, Y15", "VPADDW Y15, Y14, Y14")
		k.op("VPMADDWD %d(R14), Y14, Y14", 32*h)
		k.op("VPADDD Y14, %[1]s, %[1]s", k.sum(h, m))
	}
}

// scale adds the sums of a group to the output, with biases.
func (k panelKernel) scale() {
	k.ops("CMPQ integerArgs_form(AX), $const_panelOffset", "JGE other")
	k.line("scaled:")
	k.loadScales()
	for m := range k.m {
		k.scaleRow(m)
		k.op("VBROADCASTSS %d(BX), Y13", 4*(k.m+m))
		for h := range 2 {
			k.op("VFMADD231PS %d(SI), Y13, %s", 64+32*h, k.sum(h, m))
			k.op("VMOVUPS %s, %d(R9)", k.sum(h, m), 64*m+32*h)
		}
	}
}

func (k panelKernel) loadScales() {
	for h := range 2 {
		k.op("VMOVUPS %d(SI), Y%d", 32*h, 14+h)
	}
}

// scaleRow multiplies the sums of row m by the scales, and adds the output.
func (k panelKernel) scaleRow(m int) {
	k.op("VBROADCASTSS %d(BX), Y13", 4*m)
	for h := range 2 {
		sum := k.sum(h, m)
		k.op("VCVTDQ2PS %s, %s", sum, sum)
		k.op("VMULPS Y13, %s, %s", sum, sum)
		k.op("VFMADD213PS %d(R9), Y%d, %s", 64*m+32*h, 14+h, sum)
	}
}

// otherScales is scale for codes without biases.
func (k panelKernel) otherScales() {
	stored := func(row func(m int)) {
		for m := range k.m {
			row(m)
			for h := range 2 {
				k.op("VMOVUPS %s, %d(R9)", k.sum(h, m), 64*m+32*h)
			}
		}
		k.op("JMP added")
	}
	k.line("other:")
	k.ops("CMPQ integerArgs_form(AX), $const_panelPoints", "JEQ points")
	for m := range k.m {
		k.op("VPBROADCASTD %d(BX), Y13", 4*(2*k.m+m))
		for h := range 2 {
			k.op("VPADDD Y13, %[1]s, %[1]s", k.sum(h, m))
		}
	}
	k.loadScales()
	k.ops("CMPQ integerArgs_form(AX), $const_panelFirst", "JEQ early")
	k.line("multiply:")
	stored(k.scaleRow)
	k.line("points:")
	for h := range 2 {
		k.op("VMOVDQU %d(SI), Y%d", 64+32*h, 14+h)
	}
	for m := range k.m {
		k.op("VPBROADCASTD %d(BX), Y13", 4*(2*k.m+m))
		for h := range 2 {
			k.op("VPMADDWD Y%d, Y13, Y12", 14+h)
			k.op("VPADDD Y12, %[1]s, %[1]s", k.sum(h, m))
		}
	}
	k.loadScales()
	k.op("JMP multiply")
	k.line("early:")
	stored(func(m int) {
		k.op("VBROADCASTSS %d(BX), Y13", 4*m)
		for h := range 2 {
			sum := k.sum(h, m)
			k.op("VCVTDQ2PS %s, %s", sum, sum)
			k.op("VMULPS Y%d, %s, %s", 14+h, sum, sum)
			k.op("VFMADD213PS %d(R9), Y13, %s", 64*m+32*h, sum)
		}
	})
}
