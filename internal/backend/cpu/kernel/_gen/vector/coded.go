package main

import "math"

// coded writes the kernels of pages of 8-bit codes that have no multiplication of bytes: those
// of AVX-512 and of AVX2 differ as other kernels do. A block has 16 queries, one per lane.

// codedArg loads a field of the arguments, whose address is in AX.
func (m *machine) codedArg(kind, field, reg string) { m.op("MOVQ %s_%s(AX), %s", kind, field, reg) }

// codedFunction begins a kernel, and puts the address of its arguments into AX.
func (m *machine) codedFunction(name, kind, comment string, frame int) {
	m.function(name, comment, frame, "", param{"a", "*" + kind})
	m.op("MOVQ a+0(FP), AX")
}

func (m *machine) coded() {
	m.codedSoftmax()
	m.codedMerge()
	if m.halves == 1 {
		m.codedScores512()
		m.codedWeigh512()
	} else {
		m.codedScores2()
		m.codedWeigh2()
	}
}

// seen sets the mask of the lanes that see position j from BX on: K1, or registers i and on.
func (m *machine) seen(j, i int) {
	if m.halves == 1 {
		m.op("KMOVW %d(BX), K1", 2*j)
		return
	}
	m.op("VPBROADCASTW %d(BX), Y%d", 2*j, i)
	m.op("VPAND %s, Y%d, Y%d", m.lanes("laneBits8", []uint32{1 << 8, 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15}), i, i+1)
	m.op("VPAND %s, Y%d, Y%d", m.lanes("laneBits0", []uint32{1, 2, 4, 8, 16, 32, 64, 128}), i, i)
	m.op("VPCMPEQD %s, Y%d, Y%d", m.lanes("laneBits0", nil), i, i)
	m.op("VPCMPEQD %s, Y%d, Y%d", m.lanes("laneBits8", nil), i+1, i+1)
}

// at16 is an operand of half h of 16 numbers at offset bytes from a register.
func at16(offset int, reg string, h int) string { return times(offset+32*h, reg, "", "", 0) }

func (m *machine) codedSoftmax() {
	m.codedFunction("codedSoftmax", "CodedPage", `AX arguments, SI scores, DI scales of values, BX masks, R8 weights, CX positions left. Registers
		10 and 11 tops, 12 and 13 highest products, then their inverses. Twin: codedSoftmax.`, 0)
	n := m.halves
	m.op("MOVQ CodedPage_Scores(AX), SI")
	m.codedArg("CodedPage", "ValueScales", "DI")
	m.codedArg("CodedPage", "Masks", "BX")
	m.codedTop()
	exps := m.label("exps")
	m.zero(12, n)
	m.op("MOVQ $64, CX")
	m.at(exps)
	m.seen(0, 14)
	for h := range n {
		m.op("VMOVUPS %s, %s", at16(0, "SI", h), m.r(0))
		m.op("VSUBPS %s, %s, %s", m.r(10+h), m.r(0), m.r(0))
		m.exp(0, 1, 2, 0)
		if n == 1 {
			m.op("VMOVAPS.Z Z1, K1, Z1")
			m.op("VMULPS.BCST.Z (DI), Z1, K1, Z2")
		} else {
			m.op("VANDPS Y%d, Y1, Y1", 14+h)
			m.op("VBROADCASTSS (DI), Y2")
			m.op("VMULPS Y2, Y1, Y2")
			m.op("VANDPS Y%d, Y2, Y2", 14+h)
		}
		m.op("VMOVUPS %s, %s", m.r(1), at16(0, "SI", h))
		m.op("VPMAXUD %s, %s, %s", m.r(2), m.r(12+h), m.r(12+h))
	}
	m.ops("ADDQ $64, SI", "ADDQ $4, DI", "ADDQ $2, BX", "DECQ CX")
	m.op("JNZ %s", exps)
	m.ops("SUBQ $4096, SI", "SUBQ $256, DI", "SUBQ $128, BX")
	for h := range n {
		m.codedTotal(h)
		most, t, mask := m.r(12+h), m.r(0), m.r(1)
		m.op("VMOVUPS %s, %s", m.number("codedMost", 65535), t)
		m.op("VDIVPS %s, %s, %s", t, most, m.r(2))
		m.op("VMOVUPS %s, CodedPage_Now+%d(AX)", m.r(2), 128+32*h)
		if n == 1 {
			m.op("VCMPPS $0x1d, %s, Z12, K1", m.number("codedTiny", 0x1p-100))
			m.op("VDIVPS.Z Z12, Z0, K1, Z12")
			continue
		}
		m.op("VCMPPS $0x1d, %s, %s, %s", m.number("codedTiny", 0x1p-100), most, mask)
		m.op("VDIVPS %s, %s, %s", most, t, most)
		m.op("VANDPS %s, %s, %s", mask, most, most)
	}
	m.codedPack()
	m.end()
}

// codedTop leaves the highest scores in registers 10 and 11 and stores them.
func (m *machine) codedTop() {
	n := m.halves
	loop := m.label("tops")
	for h := range n {
		for i := range 2 {
			m.op("VMOVUPS %s, %s", m.number("lowest", float32(math.Inf(-1))), m.r(10+h+2*i))
		}
	}
	m.op("MOVQ $32, CX")
	m.at(loop)
	for i := range 2 {
		m.seen(i, 14)
		for h := range n {
			top := m.r(10 + h + 2*i)
			m.op("VMOVUPS %s, %s", at16(64*i, "SI", h), m.r(0))
			if n == 1 {
				m.op("VMAXPS %s, Z0, K1, %s", top, top)
				continue
			}
			m.op("VMAXPS %s, Y0, Y0", top)
			m.op("VBLENDVPS Y%d, Y0, %s, %s", 14+h, top, top)
		}
	}
	m.ops("ADDQ $128, SI", "ADDQ $4, BX", "DECQ CX")
	m.op("JNZ %s", loop)
	m.ops("SUBQ $4096, SI", "SUBQ $128, BX")
	for h := range n {
		m.op("VMAXPS %s, %s, %s", m.r(10+h), m.r(12+h), m.r(10+h))
		m.op("VMOVUPS %s, CodedPage_Now+%d(AX)", m.r(10+h), 32*h)
	}
}

// codedTotal adds up the weights of half h in lane order, and stores them. It uses registers 0
// to 7.
func (m *machine) codedTotal(h int) {
	lane := func(l, reg int) {
		m.op("VMOVUPS %s, %s", at16(64*l, "SI", h), m.r(reg))
		for i := 1; i < 4; i++ {
			m.op("VADDPS %s, %s, %s", at16(64*(l+16*i), "SI", h), m.r(reg), m.r(reg))
		}
	}
	// Lanes l and l+8 meet first, then l and l+4, and so on.
	for i := range 4 {
		for j := range 2 {
			l := i + 4*j
			lane(l, 4+j)
			lane(l+8, 6)
			m.op("VADDPS %s, %s, %s", m.r(6), m.r(4+j), m.r(4+j))
		}
		m.op("VADDPS %s, %s, %s", m.r(5), m.r(4), m.r(i))
	}
	for w := 2; w > 0; w /= 2 {
		for i := range w {
			m.op("VADDPS %s, %s, %s", m.r(i+w), m.r(i), m.r(i))
		}
	}
	m.op("VMOVUPS %s, CodedPage_Now+%d(AX)", m.r(0), 64+32*h)
}

// codedPack writes the weights of 16 bits: four positions to the bytes of a lane.
func (m *machine) codedPack() {
	n := m.halves
	loop := m.label("pack")
	m.codedArg("CodedPage", "Weights", "R8")
	shuffle := []uint32{0x03010200, 0x07050604, 0x0b090a08, 0x0f0d0e0c}
	for len(shuffle) < m.wide() {
		shuffle = append(shuffle, shuffle[:4]...)
	}
	pairs := m.lanes("codedPairs", shuffle)
	if n == 1 {
		m.op("VMOVDQU32 %s, Z20", pairs)
		m.op("VMOVDQU32 %s, Z21", m.bits("codedHigh", 0xffff0000))
	}
	m.op("MOVQ $16, CX")
	m.at(loop)
	for h := range n {
		for i := range 4 {
			x := m.r(i)
			m.op("VMOVUPS %s, %s", at16(64*i, "SI", h), x)
			if n == 1 {
				m.op("KMOVW %d(BX), K1", 2*i)
				m.op("VMULPS.BCST %d(DI), %s, %s", 4*i, x, x)
				m.op("VMULPS Z12, %s, %s", x, x)
				m.op("VCVTPS2DQ.Z %s, K1, %s", x, x)
				continue
			}
			m.seen(i, 14)
			m.op("VBROADCASTSS %d(DI), Y4", 4*i)
			m.op("VMULPS Y4, %s, %s", x, x)
			m.op("VMULPS Y%d, %s, %s", 12+h, x, x)
			m.op("VCVTPS2DQ %s, %s", x, x)
			m.op("VPAND Y%d, %s, %s", 14+h, x, x)
		}
		for i := 0; i < 4; i += 2 { // c0 c1 as [low, low, high, high]
			x, y := m.r(i), m.r(i+1)
			m.op("VPSLLD $16, %s, %s", y, y)
			if n == 1 {
				m.op("VPORD %s, %s, %s", y, x, x)
				m.op("VPSHUFB Z20, %s, %s", x, x)
			} else {
				m.op("VPOR %s, %s, %s", y, x, x)
				m.op("VPSHUFB %s, %s, %s", pairs, x, x)
			}
		}
		x, y, t := m.r(0), m.r(2), m.r(4)
		m.op("VPSLLD $16, %s, %s", y, t)
		m.op("VPSRLD $16, %s, %s", x, m.r(5))
		if n == 1 {
			m.ops("VPTERNLOGD $0xe2, Z0, Z21, Z4", "VPTERNLOGD $0xe2, Z5, Z21, Z2")
			m.ops("VMOVDQU32 Z2, (R8)", "VMOVDQU32 Z4, 1024(R8)")
		} else {
			m.ops("VPBLENDW $0xaa, Y4, Y0, Y4", "VPBLENDW $0xaa, Y2, Y5, Y2")
			m.op("VMOVDQU Y2, %s", at16(0, "R8", h))
			m.op("VMOVDQU Y4, %s", at16(1024, "R8", h))
		}
	}
	m.ops("ADDQ $256, SI", "ADDQ $16, DI", "ADDQ $8, BX", "ADDQ $64, R8", "DECQ CX")
	m.op("JNZ %s", loop)
}

func (m *machine) codedMerge() {
	m.codedFunction("codedMerge", "CodedMerge", `AX arguments, R8 all, R9 now, DI out, SI sums, CX numbers left, BX where the lanes are. Registers 8 and 9 the factors of what was there and of what is added. Twin: codedMerge.`, 0)
	n := m.halves
	m.codedArg("CodedMerge", "All", "R8")
	m.codedArg("CodedMerge", "Now", "R9")
	m.op("LEAQ CodedMerge_Sees(AX), BX")
	for h := range n {
		loop, done := m.label("rows"), m.label("done")
		m.codedArg("CodedMerge", "Out", "DI")
		m.codedArg("CodedMerge", "Sums", "SI")
		m.op("MOVQ CodedMerge_Out+8(AX), CX")
		m.seen(0, 14)
		all, now, top := m.r(0), m.r(1), m.r(2)
		m.op("VMOVUPS %s, %s", at16(0, "R8", h), all)
		m.op("VMOVUPS %s, %s", at16(0, "R9", h), now)
		m.op("VMAXPS %s, %s, %s", all, now, top)
		m.codedStore(2, 0, h)
		m.op("VSUBPS %s, %s, %s", top, all, all)
		m.op("VSUBPS %s, %s, %s", top, now, now)
		m.exp(0, 8, 2, 0)
		m.exp(1, 9, 2, 0)
		m.op("VMULPS %s, %s, %s", at16(64, "R8", h), m.r(8), m.r(0))
		m.op("VFMADD231PS %s, %s, %s", at16(64, "R9", h), m.r(9), m.r(0))
		m.codedStore(0, 64, h)
		m.op("VMULPS %s, %s, %s", at16(128, "R9", h), m.r(9), m.r(9))
		m.op("VMOVUPS %s, CodedMerge_old+%d(AX)", m.r(8), 32*h)
		m.op("VMOVUPS %s, CodedMerge_more+%d(AX)", m.r(9), 32*h)
		m.op("TESTQ CX, CX")
		m.op("JZ %s", done)
		m.at(loop)
		if n == 1 {
			m.op("VMOVDQU32.Z (SI), K1, Z1")
			m.op("VMOVUPS.Z (DI), K1, Z0")
		} else {
			m.op("VPMASKMOVD %s, Y%d, Y1", at16(0, "SI", h), 14+h)
			m.op("VMASKMOVPS %s, Y%d, Y0", at16(0, "DI", h), 14+h)
		}
		m.op("VCVTDQ2PS %s, %s", m.r(1), m.r(1))
		m.op("VMULPS %s, %s, %s", m.r(8), m.r(0), m.r(0))
		m.op("VFMADD231PS %s, %s, %s", m.r(9), m.r(1), m.r(0))
		if n == 1 {
			m.op("VMOVUPS Z0, K1, (DI)")
		} else {
			m.op("VMASKMOVPS Y0, Y%d, %s", 14+h, at16(0, "DI", h))
		}
		m.ops("ADDQ $64, SI", "ADDQ $64, DI", "SUBQ $16, CX")
		m.op("JNZ %s", loop)
		m.at(done)
	}
	m.end()
}

// codedStore stores register i at an offset of the merged sums, in the lanes that see the page.
func (m *machine) codedStore(i, offset, h int) {
	if m.halves == 1 {
		m.op("VMOVUPS %s, K1, %s", m.r(i), at16(offset, "R8", h))
	} else {
		m.op("VMASKMOVPS %s, Y%d, %s", m.r(i), 14+h, at16(offset, "R8", h))
	}
}

// codedScale ends a group of keys: n sums from register i on become scores from register f on.
// DI has the group's scales of keys, R9 its queries, register t is scratch; R13 is zero in the
// first group of all.
func (m *machine) codedScale(i, f, n, t int) {
	first, done := m.label("first"), m.label("scaled")
	m.op("VMOVUPS 1024(R9), Z%d", t)
	for j := range n {
		m.op("VCVTDQ2PS Z%d, Z%d", i+j, i+j)
		m.op("VMULPS Z%d, Z%d, Z%d", t, i+j, i+j)
	}
	m.op("TESTQ R13, R13")
	m.op("JZ %s", first)
	for j := range n {
		m.op("VFMADD231PS.BCST %d(DI), Z%d, Z%d", 4*j, i+j, f+j)
	}
	m.op("JMP %s", done)
	m.at(first)
	for j := range n {
		m.op("VMULPS.BCST %d(DI), Z%d, Z%d", 4*j, i+j, f+j)
	}
	m.at(done)
}

// codedScores512 takes eight keys at a time: four columns of a key, in all lanes, meet those of
// all queries.
func (m *machine) codedScores512() {
	m.codedFunction("codedScores", "CodedPage", `AX arguments, SI keys, R8 keys 4 on, R10 and R11 bytes of a key, once and three times, R9 queries,
		DI scales of keys, DX bytes to those of the next group, BX scores, CX groups left, R12 keys left,
		R13 not the first group. Z0 on sums, Z8 on scores, Z16 queries, Z17 on keys. Twin: codedScores8.`, 8)
	keys, groups, whole := m.label("keys"), m.label("groups"), m.label("whole")
	const n = 8
	m.codedArg("CodedPage", "Keys", "SI")
	m.op("MOVQ CodedPage_Scores(AX), BX")
	m.codedArg("CodedPage", "Groups", "R10")
	m.ops("SHLQ $6, R10", "LEAQ (R10)(R10*2), R11")
	m.codedArg("CodedPage", "ScaleStep", "DX")
	m.ops("SHLQ $2, DX", "MOVQ $64, R12", "MOVQ CodedPage_Values(AX), R14")
	m.op("MOVQ CodedPage_KeyScales(AX), R15")
	m.at(keys)
	m.codedArg("CodedPage", "Queries", "R9")
	m.codedArg("CodedPage", "Groups", "CX")
	m.codedArg("CodedPage", "More", "R13")
	m.ops("MOVQ R15, DI", "LEAQ (SI)(R10*4), R8")
	m.ops("TESTQ R13, R13")
	m.op("JZ %s", groups)
	for j := range n {
		m.op("VMOVUPS %d(BX), Z%d", 64*j, 8+j)
	}
	m.at(groups)
	m.op("VMOVDQU32 1088(R9), Z0")
	for j := 1; j < n; j++ {
		m.op("VMOVDQA32 Z0, Z%d", j)
	}
	for k := range 16 {
		if k%2 == 0 { // lines of values, which are as many as keys have
			m.op("PREFETCHT1 %d(R14)", 32*k)
		}
		m.op("VMOVDQU32 %d(R9), Z16", 64*k)
		for j := range n {
			base := "SI"
			if j >= 4 {
				base = "R8"
			}
			m.op("VPBROADCASTD %s, Z%d", times(4*k, base, "R10", "R11", j%4), 17+j)
			m.op("VPDPBUSD Z16, Z%d, Z%d", 17+j, j)
		}
	}
	m.codedScale(0, 8, n, 16)
	m.ops("MOVQ $1, R13", "ADDQ $512, R14", "ADDQ $64, SI", "ADDQ $64, R8", "ADDQ DX, DI")
	m.op("ADDQ $%d, R9", codedBlock)
	m.op("DECQ CX")
	m.op("JNZ %s", groups)
	for j := range n {
		m.op("VMOVUPS Z%d, %d(BX)", 8+j, 64*j)
	}
	// The groups have moved SI on by one key.
	m.ops("LEAQ (SI)(R10*4), SI", "ADDQ R11, SI", "ADDQ $512, BX", "ADDQ $32, R15", "SUBQ $8, R12")
	m.op("JNZ %s", keys)
	m.at(whole)
	m.end()
}

// codedWeigh512 takes eight columns of values at a time.
func (m *machine) codedWeigh512() {
	m.codedFunction("codedWeigh", "CodedPage", `AX arguments, SI values, DI weights, R8 sums, R9 bytes of a row of them, CX columns left, DX fours of
		positions left, R11 what is fetched ahead, K1 lanes of a row. Z0 on sums of high bytes, Z8 on of low
		ones. Twin: codedWeigh.`, 0)
	columns, fours := m.label("columns"), m.label("fours")
	m.codedArg("CodedPage", "Values", "SI")
	m.codedArg("CodedPage", "Sums", "R8")
	m.codedArg("CodedPage", "Width", "R9")
	m.ops("MOVL $0xffff, BX", "BZHIL R9, BX, BX", "KMOVW BX, K1", "SHLQ $2, R9")
	m.codedArg("CodedPage", "Dims", "CX")
	m.codedArg("CodedPage", "Next", "R11")
	m.at(columns)
	m.codedArg("CodedPage", "Weights", "DI")
	m.op("MOVQ $8, DX")
	m.zero(0, 16)
	m.at(fours)
	m.op("PREFETCHT1 (R11)")
	for k := range 2 {
		m.op("VMOVDQU32 %d(DI), Z16", 64*k)
		m.op("VMOVDQU32 %d(DI), Z17", 1024+64*k)
		for j := range 8 {
			m.op("VPDPBUSD.BCST %d(SI), Z16, Z%d", 64*j+4*k, j)
			m.op("VPDPBUSD.BCST %d(SI), Z17, Z%d", 64*j+4*k, 8+j)
		}
	}
	m.ops("ADDQ $64, R11", "ADDQ $8, SI", "ADDQ $128, DI", "DECQ DX")
	m.op("JNZ %s", fours)
	for j := range 8 {
		m.op("VPSLLD $8, Z%d, Z%d", j, j)
		m.op("VPADDD Z%d, Z%d, Z%d", 8+j, j, j)
		m.op("VMOVDQU32 Z%d, K1, (R8)", j)
		m.op("ADDQ R9, R8")
	}
	m.ops("ADDQ $448, SI", "SUBQ $8, CX")
	m.op("JNZ %s", columns)
	m.end()
}

// codedBlock is the bytes of a group of queries.
const codedBlock = 1216
