package main

// AVX2 has no instruction that multiplies bytes and adds up, so that lanes cost an addition for
// every product. Its kernels multiply along a row instead, one query after another, and add up
// four queries across lanes at once.

// codedSums adds the lanes of each of Y0 to Y3 up to the four lanes of X0. Y1 and Y2 are
// overwritten.
func (m *machine) codedSums() {
	m.ops("VPHADDD Y1, Y0, Y0", "VPHADDD Y3, Y2, Y2", "VPHADDD Y2, Y0, Y0", "VEXTRACTI128 $1, Y0, X1", "VPADDD X1, X0, X0")
}

// codedScores2 takes a key at a time. Products of bytes would overflow 16 bits unless one side
// is a magnitude: that of the key, whose sign goes to the query.
func (m *machine) codedScores2() {
	m.codedFunction("codedScores", "CodedPage", `AX arguments, SI keys, R10 bytes of a key, R9 queries, R11 the group's by row, R8 place in them, DI
		scales of keys, BX scores, R14 place in them, CX groups left, R12 keys left, R13 not the first group, DX
		queries left, R15 place in their scales. Y8 and Y9 key, Y10 and Y11 magnitudes, Y14 ones, Y15 128.
		On the stack: keys and scales of the group, what is fetched ahead. Twin: codedScores8.`, 24)
	groups, lane, fours, keys, four := m.label("groups"), m.label("lane"), m.label("fours"), m.label("keys"), m.label("four")
	first, scaled, repeat, whole := m.label("first"), m.label("scaled"), m.label("repeat"), m.label("whole")
	m.codedArg("CodedPage", "Keys", "SI")
	m.codedArg("CodedPage", "Groups", "R10")
	m.ops("MOVQ R10, CX", "SHLQ $6, R10")
	m.codedArg("CodedPage", "Queries", "R9")
	m.codedArg("CodedPage", "KeyScales", "DI")
	m.codedArg("CodedPage", "More", "R13")
	m.codedArg("CodedPage", "Values", "R8")
	m.op("MOVQ R8, ahead-24(SP)")
	m.op("VMOVDQU %s, Y14", m.bits("codedOnes", 0x00010001))
	m.op("VMOVDQU %s, Y15", m.bits("codedSign", 0x80808080))
	m.at(groups)
	m.codedArg("CodedPage", "tiles", "R11")
	m.codedArg("CodedPage", "Width", "DX")
	m.op("MOVQ R9, R8")
	m.at(lane) // a query's codes, four by four, become a row
	m.ops("MOVQ $16, R12", "MOVQ R8, R14")
	m.at(fours)
	m.ops("MOVL (R14), BX", "MOVL BX, (R11)", "ADDQ $64, R14", "ADDQ $4, R11", "DECQ R12")
	m.op("JNZ %s", fours)
	m.ops("ADDQ $4, R8", "DECQ DX")
	m.op("JNZ %s", lane)
	m.ops("MOVQ SI, key-8(SP)", "MOVQ DI, scales-16(SP)", "MOVQ $64, R12")
	m.codedArg("CodedPage", "Scores", "BX")
	m.at(keys)
	m.ops("MOVQ ahead-24(SP), R8", "PREFETCHT1 (R8)", "ADDQ $64, ahead-24(SP)")
	for h := range 2 {
		m.op("VPXOR %s, Y15, Y%d", at16(0, "SI", h), 8+h)
		m.op("VPABSB Y%d, Y%d", 8+h, 10+h)
	}
	m.op("VBROADCASTSS (DI), X13")
	m.codedArg("CodedPage", "tiles", "R8")
	m.codedArg("CodedPage", "Width", "DX")
	m.ops("MOVQ BX, R14", "LEAQ 1024(R9), R15")
	m.at(four)
	for i := range 4 {
		for h := range 2 {
			m.op("VMOVDQU %d(R8), Y%d", 64*i+32*h, 4+h)
			m.op("VPSIGNB Y%d, Y%d, Y%d", 8+h, 4+h, 4+h)
			m.op("VPMADDUBSW Y%d, Y%d, Y%d", 4+h, 10+h, 4+h)
			m.op("VPMADDWD Y14, Y%d, Y%d", 4+h, 4+h)
		}
		m.op("VPADDD Y5, Y4, Y%d", i)
	}
	m.codedSums()
	m.ops("VCVTDQ2PS X0, X0", "VMULPS (R15), X0, X0", "TESTQ R13, R13")
	m.op("JZ %s", first)
	m.ops("VFMADD213PS (R14), X13, X0")
	m.op("JMP %s", scaled)
	m.at(first)
	m.op("VMULPS X13, X0, X0")
	m.at(scaled)
	m.ops("VMOVUPS X0, (R14)", "ADDQ $16, R14", "ADDQ $16, R15", "ADDQ $256, R8", "SUBQ $4, DX")
	m.op("JNZ %s", four)
	m.op("ADDQ $64, BX")
	m.codedArg("CodedPage", "Width", "DX")
	m.op("SHLQ $2, DX") // lanes repeat the value DX bytes before
	m.at(repeat)
	m.ops("CMPQ R14, BX")
	m.op("JEQ %s", whole)
	m.ops("MOVQ R14, R8", "SUBQ DX, R8", "VMOVUPS (R8), X0", "VMOVUPS X0, (R14)", "ADDQ $16, R14")
	m.op("JMP %s", repeat)
	m.at(whole)
	m.ops("ADDQ R10, SI", "ADDQ $4, DI", "DECQ R12")
	m.op("JNZ %s", keys)
	m.ops("MOVQ key-8(SP), SI", "ADDQ $64, SI", "MOVQ scales-16(SP), DI", "MOVQ $1, R13")
	m.codedArg("CodedPage", "ScaleStep", "DX")
	m.op("LEAQ (DI)(DX*4), DI")
	m.op("ADDQ $%d, R9", codedBlock)
	m.op("DECQ CX")
	m.op("JNZ %s", groups)
	m.end()
}

// codedWeigh2 multiplies words, weights less 32768 with values. What was taken from the weights
// is given back as 32768 times the sum of the values.
func (m *machine) codedWeigh2() {
	m.codedFunction("codedWeigh", "CodedPage", `AX arguments, DI weights and then those of a query as words, R10 place in them, SI values, R8 sums, CX
		columns left, DX queries left, R11 what is fetched ahead. Y8 to Y11 values of a column, X12 what all of
		its sums are short of, Y13 32768, Y14 ones. Twin: codedWeigh.`, 0)
	lane, fours, columns, four := m.label("lane"), m.label("fours"), m.label("columns"), m.label("four")
	m.op("VMOVDQU %s, Y13", m.bits("codedHalf", 0x80008000))
	m.op("VMOVDQU %s, Y14", m.bits("codedOnes", 0x00010001))
	m.codedArg("CodedPage", "Weights", "DI")
	m.codedArg("CodedPage", "tiles", "R10")
	m.codedArg("CodedPage", "Width", "DX")
	m.at(lane)
	m.ops("MOVQ $16, CX", "MOVQ DI, R8")
	m.at(fours)
	m.ops("VMOVD (R8), X0", "VMOVD 1024(R8), X1", "VPUNPCKLBW X0, X1, X0", "VPXOR X13, X0, X0", "VMOVQ X0, (R10)",
		"ADDQ $64, R8", "ADDQ $8, R10", "DECQ CX")
	m.op("JNZ %s", fours)
	m.ops("ADDQ $4, DI", "DECQ DX")
	m.op("JNZ %s", lane)
	m.codedArg("CodedPage", "Values", "SI")
	m.codedArg("CodedPage", "Sums", "R8")
	m.codedArg("CodedPage", "Dims", "CX")
	m.codedArg("CodedPage", "Next", "R11")
	m.at(columns)
	m.op("PREFETCHT1 (R11)")
	for i := range 4 {
		m.op("VPMOVSXBW %d(SI), Y%d", 16*i, 8+i)
	}
	m.ops("VPADDW Y8, Y9, Y0", "VPADDW Y10, Y11, Y1", "VPADDW Y1, Y0, Y0", "VPMADDWD Y14, Y0, Y0",
		"VPHADDD Y0, Y0, Y0", "VPHADDD Y0, Y0, Y0", "VEXTRACTI128 $1, Y0, X1", "VPADDD X1, X0, X0", "VPSLLD $15, X0, X12")
	m.codedArg("CodedPage", "tiles", "R10")
	m.codedArg("CodedPage", "Width", "DX")
	m.at(four)
	for i := range 4 {
		m.op("VPMADDWD %d(R10), Y8, Y%d", 128*i, i)
		for j := 1; j < 4; j++ {
			m.op("VPMADDWD %d(R10), Y%d, Y%d", 128*i+32*j, 8+j, 3+j)
		}
		m.op("VPADDD Y4, Y%d, Y%d", i, i)
		m.ops("VPADDD Y6, Y5, Y5")
		m.op("VPADDD Y5, Y%d, Y%d", i, i)
	}
	m.codedSums()
	m.ops("VPADDD X12, X0, X0", "VMOVDQU X0, (R8)", "ADDQ $16, R8", "ADDQ $512, R10", "SUBQ $4, DX")
	m.op("JNZ %s", four)
	m.ops("ADDQ $64, SI", "ADDQ $64, R11", "DECQ CX")
	m.op("JNZ %s", columns)
	m.end()
}
