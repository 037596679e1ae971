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

// packedKernel is the kernel of a format and m rows.
func packedKernel(s *source, f codes, vnni bool, m int) panelKernel {
	k := panelKernel{s, f.panelKind(), m, &unpackPanel{avx2Kernel{source: s, codes: f, vnni: vnni, m: m}}}
	if vnni {
		k.kind = "Panel"
	}
	return k
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
	k.line("TEXT ·integer%sRows%d(SB), NOSPLIT, $0-8", k.kind, k.m)
	k.op("MOVQ a+0(FP), AX")
	k.arg("slots", "SI")
	k.arg("out", "R9")
	k.arg("acts", "DX")
	k.arg("groups", "R12")
	k.arg("fetchAt", "R11")
	k.arg("decoded", "R13")
	k.op("ADDQ $%d, R13", superSums)
	k.op("XORL R15, R15")
	k.op("LEAQ integerTimes<>(SB), R14")
	k.line("group:")
	k.op("MOVQ DX, BX")
	k.arg("fetchLines", "CX")
	k.op("TESTQ CX, CX")
	k.op("JZ fetched")
	k.line("fetch:")
	for i := range 3 {
		k.op("PREFETCHT0 %d(R11)", 64*i)
	}
	k.op("ADDQ $192, R11")
	k.op("SUBQ $3, CX")
	k.op("JG fetch")
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
	k.op("DECQ R12")
	k.op("JNZ group")
	k.op("VZEROUPPER")
	k.op("RET")
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

// writePacked writes a kernel that reads packed codes.
func (k panelKernel) writePacked() {
	p := k.packed
	k.line("TEXT ·integer%s%sRows%d(SB), NOSPLIT, $0-8", setName(p.vnni), p.name, k.m)
	k.op("MOVQ a+0(FP), AX")
	k.arg("weights", "R8")
	k.arg("out", "R9")
	k.arg("tiles", "R10")
	k.op("SHRQ $1, R10")
	k.op("JZ last")
	k.arg("tileBytes", "R11")
	k.op("IMULQ R10, R11")
	k.arg("outTile", "R12")
	k.op("IMULQ R10, R12")
	k.op("MOVQ R12, integerArgs_outSecond(AX)")
	k.line("tile:")
	k.arg("acts", "DX")
	k.arg("groups", "R12")
	k.clearOut()
	if p.factors() != "" {
		k.op("CMPQ integerArgs_scale(AX), $const_scaleFactors")
		k.op("JEQ super")
	}
	k.op("LEAQ integerTimes<>(SB), R14")
	k.line("group:")
	k.arg("decoded", "BX")
	k.op("ADDQ $%d, BX", superSums+factorTile)
	p.scalesOut()
	k.line("scalesOut:")
	k.arg("decoded", "R13")
	k.op("ADDQ $%d, R13", superSums)
	if k.strips() {
		k.arg("strips", "CX")
		k.op("MOVQ CX, integerArgs_stripsLeft(AX)")
		k.line("strip:")
	}
	k.op("XORL R15, R15")
	k.line("codes:")
	k.op("MOVQ DX, BX")
	k.op("MOVQ R8, SI")
	if p.high() > 0 {
		k.arg("plane", "DI")
		k.op("ADDQ R8, DI")
	}
	k.arg("steps", "CX")
	k.dots()
	if p.factors() != "" {
		k.op("CMPQ integerArgs_scale(AX), $const_scaleFactors")
		k.op("JEQ factors")
	}
	k.op("LEAQ %d(R13), SI", factorTile)
	k.scale()
	k.line("added:")
	if k.strips() {
		k.op("DECQ integerArgs_stripsLeft(AX)")
		k.op("JZ strips")
		k.op("ADDQ integerArgs_actStrip(AX), DX")
		k.op("ADDQ $%d, R9", 64*k.m)
		k.op("JMP strip")
		k.line("strips:")
		k.op("SUBQ integerArgs_actsBack(AX), DX")
		k.op("SUBQ integerArgs_outBack(AX), R9")
	}
	k.bothTiles("group", "passed")
	k.line("passed:")
	if k.strips() {
		k.op("SUBQ integerArgs_actsBack(AX), BX")
	}
	k.op("LEAQ %d(BX), DX", 12*k.m)
	k.op("ADDQ integerArgs_block(AX), R8")
	k.op("DECQ R12")
	k.op("JNZ group")
	k.line("tileEnd:")
	k.op("ADDQ integerArgs_outTile(AX), R9")
	k.op("DECQ R10")
	k.op("JNZ tile")
	k.op("ADDQ R11, R8")
	k.op("ADDQ integerArgs_outSecond(AX), R9")
	k.line("last:")
	k.op("TESTQ $1, integerArgs_tiles(AX)")
	k.op("JZ end")
	k.op("DECQ integerArgs_tiles(AX)")
	k.op("XORL R11, R11")
	k.op("MOVQ R11, integerArgs_outSecond(AX)")
	k.op("MOVQ $1, R10")
	k.op("JMP tile")
	k.line("end:")
	k.op("VZEROUPPER")
	k.op("RET")
	k.otherScales()
	if p.factors() != "" {
		k.superGroups()
	}
	k.line("")
}

// strips reports whether a kernel of packed codes multiplies several strips.
func (k panelKernel) strips() bool { return k.packed != nil && k.m > 2 }

// clearOut sets the output of two tiles to zero.
func (k panelKernel) clearOut() {
	k.op("VPXOR Y0, Y0, Y0")
	k.op("MOVQ R9, SI")
	if k.strips() {
		k.arg("strips", "CX")
		k.line("clear:")
	}
	k.op("MOVQ SI, DI")
	k.op("ADDQ integerArgs_outSecond(AX), DI")
	for i := range 2 * k.m {
		k.op("VMOVUPS Y0, %d(SI)", 32*i)
		k.op("VMOVUPS Y0, %d(DI)", 32*i)
	}
	if k.strips() {
		k.op("ADDQ $%d, SI", 64*k.m)
		k.op("DECQ CX")
		k.op("JNZ clear")
	}
}

// bothTiles goes on with a group of the second tile after that of the first, and then to the first again.
func (k panelKernel) bothTiles(next, passed string) {
	k.op("TESTQ R11, R11")
	k.op("JZ %s", passed)
	k.op("XORQ $1, integerArgs_panelHalf(AX)")
	k.op("JZ %sBack", next)
	k.op("ADDQ R11, R8")
	k.op("ADDQ integerArgs_outSecond(AX), R9")
	k.op("JMP %s", next)
	k.line("%sBack:", next)
	k.op("SUBQ R11, R8")
	k.op("SUBQ integerArgs_outSecond(AX), R9")
}

// superGroups is what packed codes of superblocks have in place of scales.
func (k panelKernel) superGroups() {
	p := k.packed
	k.line("super:")
	k.op("MOVL $2, CX")
	k.op("CALL integerFactors%sAVX2<>(SB)", p.factors())
	k.arg("decoded", "R14")
	k.op("LEAQ %d(R14), R13", superSums)
	k.op("XORL R15, R15")
	k.arg("per", "CX")
	k.op("MOVQ CX, integerArgs_nextLeft(AX)")
	k.op("JMP codes")
	k.line("tiles:") // the second
	k.op("ADDQ $%d, R13", factorTile)
	k.op("ADDQ $%d, R14", factorTile)
	k.op("JMP codes")
	k.factors()
	k.bothTiles("tiles", "superPassed")
	k.op("SUBQ $%d, R13", factorTile)
	k.op("SUBQ $%d, R14", factorTile)
	k.line("superPassed:")
	k.op("MOVL $1, R15")
	k.op("ADDQ $64, R14")
	k.op("MOVQ BX, DX")
	k.op("ADDQ integerArgs_block(AX), R8")
	k.op("DECQ integerArgs_nextLeft(AX)")
	k.op("JNZ codes")
	k.op("MOVL $%d, CX", k.m)
	k.op("CALL integerSuper%s<>(SB)", p.factors()+"AVX2")
	k.op("JNZ super")
	k.op("JMP tileEnd")
}

// planes multiplies a group by 32 columns of a plane at a time.
func (k panelKernel) planes() {
	k.arg("planes", "R10")
	k.line("part:")
	k.op("CMPQ CX, $1")
	k.op("JEQ half")
	k.quarters(8, 0)
	k.op("ADDQ $512, SI")
	k.op("ADDQ $%d, BX", 32*k.m)
	k.op("SUBQ $2, CX")
	k.line("widen:")
	k.times()
	k.op("TESTQ R15, R15")
	k.op("JZ first")
	k.addSums()
	k.line("first:")
	k.op("TESTQ CX, CX")
	k.op("JNZ more")
	k.op("DECQ R10")
	k.op("JZ planesEnd")
	k.op("ADDQ $64, R14")
	k.op("MOVQ DX, BX")
	k.arg("steps", "CX")
	k.line("more:")
	k.put()
	k.op("MOVL $1, R15")
	k.op("JMP part")
	k.line("half:")
	k.quarters(4, 0)
	k.op("ADDQ $256, SI")
	k.op("ADDQ $%d, BX", 16*k.m)
	k.op("XORL CX, CX")
	k.op("JMP widen")
	k.line("planesEnd:")
	k.op("CMPQ integerArgs_planes(AX), $1")
	k.op("JEQ whole")
	k.op("SUBQ $64, R14")
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

// packedParts is planes for packed codes. Of those of 8 bits it multiplies the low halves first and then the high ones.
func (k panelKernel) packedParts() {
	for plane := range k.packed.split() {
		if plane > 0 {
			k.put()
			k.op("MOVQ DX, BX")
			k.op("MOVQ R8, SI")
			k.arg("steps", "CX")
		}
		k.line("part%d:", plane)
		k.op("CMPQ CX, $1")
		k.op("JEQ half%d", plane)
		k.quarters(8, plane)
		k.op("ADDQ $%d, BX", 32*k.m)
		k.op("SUBQ $2, CX")
		k.line("widen%d:", plane)
		k.times()
		if plane > 0 {
			k.each(func(_, _ int, sum string) { k.op("VPSLLD $4, %[1]s, %[1]s", sum) })
		} else {
			k.op("TESTQ R15, R15")
			k.op("JZ first%d", plane)
		}
		k.addSums()
		k.line("first%d:", plane)
		k.op("TESTQ CX, CX")
		k.op("JZ whole%d", plane)
		k.put()
		k.op("MOVL $1, R15")
		k.op("JMP part%d", plane)
		k.line("half%d:", plane)
		k.quarters(4, plane)
		k.op("ADDQ $%d, BX", 16*k.m)
		k.op("XORL CX, CX")
		k.op("JMP widen%d", plane)
		k.line("whole%d:", plane)
	}
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

// unpackBoth unpacks a plane of vectors v and v+1, of the first half to Y8 and Y9 and of the second to Y10 and Y11.
func (k panelKernel) unpackBoth(v, plane int) {
	p := k.packed
	if p.m = k.m; plane > 0 { // memory has been asked for what follows
		p.m = 0
	}
	for h := range 2 {
		p.half, p.at = h, 2*h-4
		p.unpack(v)
	}
	for i := 8; i < 12 && p.split() == 2; i++ {
		if plane > 0 {
			k.op("VPSRLW $4, Y%[1]d, Y%[1]d", i)
		}
		k.op("VPAND integerLow4<>(SB), Y%[1]d, Y%[1]d", i)
	}
}

// nextStep goes on with the next 16 columns of packed codes.
func (k panelKernel) nextStep() {
	k.op("ADDQ $%d, SI", step16(k.packed.low()))
	if k.packed.high() > 0 {
		k.op("ADDQ $%d, DI", step16(k.packed.high()))
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
	k.op("DECQ CX")
	k.op("JNZ step")
	for i := 2 * k.m; i < 2*k.m*chains; i++ {
		k.op("VPADDD Y%d, Y%[2]d, Y%[2]d", i, i-2*k.m)
	}
}

// packedPairs multiplies vectors v and v+1 of both halves.
func (k panelKernel) packedPairs(v int) {
	for m := range k.m {
		k.op("VPBROADCASTD %d(BX), Y12", 4*(v*k.m+m))
		k.op("VPBROADCASTD %d(BX), Y13", 4*((v+1)*k.m+m))
		for h := range 2 {
			k.op("VPMADDUBSW Y12, Y%d, Y14", 8+2*h)
			k.op("VPMADDUBSW Y13, Y%d, Y15", 9+2*h)
			k.op("VPADDW Y15, Y14, Y14")
			k.op("VPMADDWD %d(R14), Y14, Y14", 32*h)
			k.op("VPADDD Y14, %[1]s, %[1]s", k.sum(h, m))
		}
	}
}

// pairs multiplies vectors v and v+1 of half h of a panel.
func (k panelKernel) pairs(h, v int) {
	k.op("VMOVDQU %d(SI), Y12", 64*v+32*h)
	k.op("VMOVDQU %d(SI), Y13", 64*v+64+32*h)
	for m := range k.m {
		k.op("VPBROADCASTD %d(BX), Y14", 4*(v*k.m+m))
		k.op("VPBROADCASTD %d(BX), Y15", 4*((v+1)*k.m+m))
		k.op("VPMADDUBSW Y14, Y12, Y14")
		k.op("VPMADDUBSW Y15, Y13, Y15")
		k.op("VPADDW Y15, Y14, Y14")
		k.op("VPMADDWD %d(R14), Y14, Y14", 32*h)
		k.op("VPADDD Y14, %[1]s, %[1]s", k.sum(h, m))
	}
}

// scale adds the sums of a group to the output, with biases.
func (k panelKernel) scale() {
	k.op("CMPQ integerArgs_form(AX), $const_panelOffset")
	k.op("JGE other")
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
	k.op("CMPQ integerArgs_form(AX), $const_panelPoints")
	k.op("JEQ points")
	for m := range k.m {
		k.op("VPBROADCASTD %d(BX), Y13", 4*(2*k.m+m))
		for h := range 2 {
			k.op("VPADDD Y13, %[1]s, %[1]s", k.sum(h, m))
		}
	}
	k.loadScales()
	k.op("CMPQ integerArgs_form(AX), $const_panelFirst")
	k.op("JEQ early")
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

// factors adds the sums of a group to those of the superblock.
func (k panelKernel) factors() {
	k.line("factors:")
	if k.kind == "Panel" {
		for h := range 2 {
			k.op("VMOVDQU %d(R14), Y%d", 32*h, 14+h)
			k.op("VPSRAD $16, Y%[1]d, Y%[1]d", 14+h)
		}
		k.each(func(h, _ int, sum string) { k.op("VPMULLD Y%d, %s, %s", 14+h, sum, sum) })
	}
	if k.kind != "Plain" { // which has added them
		k.op("TESTQ R15, R15")
		k.op("JZ begin")
		k.each(func(h, m int, sum string) { k.op("VPADDD %d(R13), %s, %s", 64*m+32*h, sum, sum) })
		k.line("begin:")
	}
	k.put()
}

// unpackPanel writes what unpacks a panel.
//
//	AX  arguments    R8  block    R9  group of the panel    R12 groups left    SI, DI  planes of the block
//	CX  steps left   BX  codes    R13 scales                R14 bytes of a plane
type unpackPanel struct{ avx2Kernel }

func (k *unpackPanel) write() {
	planes := k.split()
	if k.vnni && k.bits != 8 && !k.levels {
		return // as AVX2
	}
	k.line("TEXT ·integerUnpack%s%s(SB), NOSPLIT, $0-8", setName(k.vnni), k.name)
	k.op("MOVQ a+0(FP), AX")
	k.arg("weights", "R8")
	k.arg("slots", "R9")
	k.arg("groups", "R12")
	k.line("group:")
	k.codesOut(planes)
	k.scalesOut()
	k.line("scalesOut:")
	k.op("LEAQ 128(BX), R9")
	k.op("ADDQ integerArgs_block(AX), R8")
	k.op("DECQ R12")
	k.op("JNZ group")
	k.op("VZEROUPPER")
	k.op("RET")
	k.line("")
}

// split is how many planes codes of 8 bits are split into, or 1.
func (k *avx2Kernel) split() int {
	if !k.vnni && (k.bits == 8 || k.levels) {
		return 2
	}
	return 1
}

// codesOut unpacks the codes of a group.
func (k *unpackPanel) codesOut(planes int) {
	k.op("MOVQ R8, SI")
	if k.high() > 0 {
		k.arg("plane", "DI")
		k.op("ADDQ R8, DI")
	}
	k.op("MOVQ R9, BX")
	k.arg("steps", "CX")
	if planes == 2 {
		k.op("MOVQ CX, R14")
		k.op("SHLQ $8, R14")
	}
	k.line("step:")
	for v := 0; v < 4; v += 2 {
		for k.half = range 2 {
			k.unpack(v)
			for i := range 2 {
				at := 64*(v+i) + 32*k.half
				if planes == 2 {
					k.op("VPSRLW $4, Y%d, Y14", 12+i)
					k.op("VPAND integerLow4<>(SB), Y%[1]d, Y%[1]d", 12+i)
					k.op("VPAND integerLow4<>(SB), Y14, Y14")
					k.op("VMOVDQU Y14, %d(BX)(R14*1)", at)
				}
				k.op("VMOVDQU Y%d, %d(BX)", 12+i, at)
			}
		}
	}
	k.op("ADDQ $%d, SI", step16(k.low()))
	if k.high() > 0 {
		k.op("ADDQ $%d, DI", step16(k.high()))
	}
	k.op("ADDQ $256, BX")
	k.op("DECQ CX")
	k.op("JNZ step")
	if planes == 2 {
		k.op("ADDQ R14, BX")
	}
}

// scalesOut writes the scales of a group, which R8 points to, to BX.
func (k *unpackPanel) scalesOut() {
	k.op("MOVQ R8, R13")
	k.op("ADDQ integerArgs_codes(AX), R13")
	k.op("TESTQ $const_scaleF32, integerArgs_scale(AX)")
	k.op("JNZ fullOut")
	k.op("TESTQ $const_scaleF16, integerArgs_scale(AX)")
	k.op("JNZ shortOut")
	k.typed(32, k.loadBF16)
	k.line("shortOut:")
	k.typed(32, k.loadF16)
	k.line("fullOut:")
	k.typed(64, k.loadF32)
	if !k.fp4 {
		k.line("pointsOut:")
		for h := range 2 {
			k.op("VPMOVZXBD %d(R13), Y12", 8*h)
			k.op("VMOVDQU Y12, %d(BX)", 64+32*h)
		}
	}
}

// typed is scalesOut for one type of scales, of which a tile has size bytes.
func (k *unpackPanel) typed(size int, load func(at int, y string)) {
	put := func(at, from int) {
		for h := range 2 {
			load(from+size/2*h, "Y12")
			k.op("VMOVUPS Y12, %d(BX)", at+32*h)
		}
	}
	put(0, 0)
	if !k.fp4 {
		k.op("ADDQ $%d, R13", size)
		k.op("TESTQ $const_scalePoints, integerArgs_scale(AX)")
		k.op("JNZ pointsOut")
		k.op("TESTQ $const_scaleZero, integerArgs_scale(AX)")
		k.op("JNZ scalesOut")
		put(64, 0)
	}
	k.op("JMP scalesOut")
}
