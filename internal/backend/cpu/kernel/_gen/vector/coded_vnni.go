package main

import "fmt"

// codedDots writes the kernels of pages of codes that multiply, by the dot products of AVX-VNNI: queries are in lanes, as with
// AVX-512, in two halves.
func (m *machine) codedDots() {
	m.codedScoresDots()
	m.codedWeighDots()
}

// codedScoresDots takes four keys at a time: four columns of a key, in all lanes, meet those of all queries. If queries
// repeat after eight lanes, one half is computed and stored twice.
func (m *machine) codedScoresDots() {
	m.codedFunction("codedScores", "CodedPage", `AX arguments, SI keys, DI place in them, R10 and R11 bytes of a key, once and three times, R9 queries, R8 place
		in them, R15 scales of keys, BX scores, CX groups left, R12 keys left, R13 not the first group, DX columns left,
		R14 what is fetched ahead. Y0 on sums of the first half, Y4 on of the second. Twin: codedScores8.`, 0)
	groups, next := m.label("groups"), m.label("next")
	m.codedArg("CodedPage", "Keys", "SI")
	m.codedArg("CodedPage", "Groups", "CX")
	m.ops("MOVQ CX, R10", "SHLQ $6, R10", "LEAQ (R10)(R10*2), R11")
	m.codedArg("CodedPage", "Queries", "R9")
	m.codedArg("CodedPage", "KeyScales", "R15")
	m.codedArg("CodedPage", "More", "R13")
	m.codedArg("CodedPage", "Values", "R14")
	m.at(groups)
	m.codedArg("CodedPage", "Scores", "BX")
	m.ops("MOVQ $16, R12", "CMPQ CodedPage_Width(AX), $8")
	whole := m.label("whole")
	m.op("JGT %s", whole)
	m.codedKeysDots(1)
	m.op("JMP %s", next)
	m.at(whole)
	m.codedKeysDots(2)
	m.at(next)
	m.ops("MOVQ R10, DX", "SHLQ $6, DX", "SUBQ DX, SI", "ADDQ $64, SI", "MOVQ $1, R13") // 64 keys back, a group on
	m.codedArg("CodedPage", "ScaleStep", "DX")
	m.ops("SUBQ $256, R15", "LEAQ (R15)(DX*4), R15")
	m.op("ADDQ $%d, R9", codedBlock)
	m.op("DECQ CX")
	m.op("JNZ %s", groups)
	m.end()
}

// codedKeysDots is the keys of a group, for queries in some halves of the lanes.
func (m *machine) codedKeysDots(halves int) {
	keys, columns, first, scaled := m.label("keys"), m.label("columns"), m.label("first"), m.label("scaled")
	each := func(do func(j, h, sum int)) {
		for h := range halves {
			for j := range 4 {
				do(j, h, 4*h+j)
			}
		}
	}
	m.at(keys)
	m.ops("PREFETCHT1 (R14)", "PREFETCHT1 64(R14)", "PREFETCHT1 128(R14)", "PREFETCHT1 192(R14)", "ADDQ $256, R14",
		"MOVQ SI, DI", "MOVQ R9, R8", "MOVQ $16, DX")
	each(func(_, h, sum int) { m.op("VMOVDQU %s, Y%d", at16(1088, "R9", h), sum) })
	m.at(columns)
	for h := range halves {
		m.op("VMOVDQU %s, Y%d", at16(0, "R8", h), 8+h)
	}
	for j := range 4 {
		m.op("VPBROADCASTD %s, Y%d", times(0, "DI", "R10", "R11", j), 10+j)
		for h := range halves {
			m.op("DPBUSD(%d, %d, %d)", 8+h, 10+j, 4*h+j)
		}
	}
	m.ops("ADDQ $4, DI", "ADDQ $64, R8", "DECQ DX")
	m.op("JNZ %s", columns)
	for h := range halves {
		m.op("VMOVUPS %s, Y%d", at16(1024, "R9", h), 8+h)
	}
	for j := range 4 {
		m.op("VBROADCASTSS %d(R15), Y%d", 4*j, 10+j)
	}
	each(func(_, h, sum int) {
		m.op("VCVTDQ2PS Y%d, Y%d", sum, sum)
		m.op("VMULPS Y%d, Y%d, Y%d", 8+h, sum, sum)
	})
	m.ops("TESTQ R13, R13")
	m.op("JZ %s", first)
	each(func(j, h, sum int) { m.op("VFMADD213PS %s, Y%d, Y%d", at16(64*j, "BX", h), 10+j, sum) })
	m.op("JMP %s", scaled)
	m.at(first)
	each(func(j, _, sum int) { m.op("VMULPS Y%d, Y%d, Y%d", 10+j, sum, sum) })
	m.at(scaled)
	for h := range 2 {
		for j := range 4 {
			m.op("VMOVUPS Y%d, %s", 4*(h%halves)+j, at16(64*j, "BX", h))
		}
	}
	m.ops("ADDQ $256, BX", "ADDQ $16, R15", "LEAQ (SI)(R10*4), SI", "DECQ R12")
	m.op("JNZ %s", keys)
}

// codedWeighDots multiplies the bytes of weights, of eight queries in lanes, by four columns of values at a time.
func (m *machine) codedWeighDots() {
	m.codedFunction("codedWeigh", "CodedPage", `AX arguments, SI values, R10 weights, DI place in them, R8 sums, R9 bytes of a row of them, CX columns
		left, DX fours of positions left, R11 what is fetched ahead, BX queries done. Y0 on sums of high bytes, Y4 on of
		low ones. Twin: codedWeigh.`, 0)
	lanes, columns, fours, narrow, stored := m.label("lanes"), m.label("columns"), m.label("fours"), m.label("narrow"), m.label("stored")
	m.codedArg("CodedPage", "Weights", "R10")
	m.codedArg("CodedPage", "Sums", "R8")
	m.codedArg("CodedPage", "Width", "R9")
	m.ops("SHLQ $2, R9", "XORL BX, BX")
	m.codedArg("CodedPage", "Next", "R11")
	m.at(lanes)
	m.codedArg("CodedPage", "Values", "SI")
	m.codedArg("CodedPage", "Dims", "CX")
	m.at(columns)
	m.zero(0, 8)
	m.ops("MOVQ R10, DI", "MOVQ $16, DX")
	for i := range 4 {
		m.op("PREFETCHT1 %d(R11)", 64*i)
	}
	m.at(fours)
	m.ops("VMOVDQU (DI), Y8", "VMOVDQU 1024(DI), Y9")
	for j := range 4 {
		m.op("VPBROADCASTD %d(SI), Y%d", 64*j, 10+j)
		m.op("DPBUSD(%d, 8, %d)", 10+j, j)
		m.op("DPBUSD(%d, 9, %d)", 10+j, 4+j)
	}
	m.ops("ADDQ $4, SI", "ADDQ $64, DI", "DECQ DX")
	m.op("JNZ %s", fours)
	for j := range 4 {
		m.op("VPSLLD $8, Y%d, Y%d", j, j)
		m.op("VPADDD Y%d, Y%d, Y%d", 4+j, j, j)
	}
	m.ops("MOVQ R8, DI", "CMPQ R9, $16")
	m.op("JEQ %s", narrow)
	for j := range 4 {
		m.ops(fmt.Sprintf("VMOVDQU Y%d, (DI)", j), "ADDQ R9, DI")
	}
	m.op("JMP %s", stored)
	m.at(narrow)
	for j := range 4 {
		m.ops(fmt.Sprintf("VMOVDQU X%d, (DI)", j), "ADDQ R9, DI")
	}
	m.at(stored)
	m.ops("MOVQ DI, R8", "ADDQ $192, SI", "ADDQ $256, R11", "SUBQ $4, CX")
	m.op("JNZ %s", columns)
	m.ops("ADDQ $32, BX", "CMPQ BX, R9") // the other eight of sixteen
	done := m.label("done")
	m.op("JGE %s", done)
	m.ops("ADDQ $32, R10")
	m.codedArg("CodedPage", "Sums", "R8")
	m.op("ADDQ $32, R8")
	m.codedArg("CodedPage", "Next", "R11")
	m.op("JMP %s", lanes)
	m.at(done)
	m.end()
}
