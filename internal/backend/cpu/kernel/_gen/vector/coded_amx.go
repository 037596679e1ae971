package main

// amxCoded writes the kernels of pages of codes that multiply tiles. Products lie in memory
// before vectors take them up: a ring of four, in the third or fourth of which tiles work while
// the first is read.
func (m *machine) amxCoded() {
	m.codedScoresAMX()
	m.codedScoresOf4AMX()
	m.codedWeighAMX(false)
	m.codedWeighAMX(true)
}

// codedFetch asks for a step of what is read next, at a register, and moves it on: 256 bytes,
// unless the blocks of the group are too few to bring all of it like that. R15 has arguments.
func (m *machine) codedFetch(reg string) {
	done := m.label("fetched")
	for i := range 16 {
		m.op("PREFETCHT1 %d(%s)", 64*i, reg)
		if i == 3 {
			m.op("CMPQ CodedPage_Ahead(R15), $256")
			m.op("JEQ %s", done)
		}
	}
	m.at(done)
	m.op("ADDQ CodedPage_Ahead(R15), %s", reg)
}

// codedRing moves the place of products in a register on by one.
func (m *machine) codedRing(reg string, bytes int) {
	m.op("ADDQ $%d, %s", bytes, reg)
	m.op("ANDQ $~%d, %s", 4*bytes, reg)
}

func (m *machine) codedScoresAMX() {
	m.codedFunction("codedScores", "CodedPage", `16 keys and all queries are a tile of products for each group. R15 arguments, AX 0, BX 64, R14 scratch;
		to multiply: DX keys, CX bytes of a key, SI queries, DI products, R8 groups left, R12 turns left; to
		add: R13 scales of keys, R10 queries, R11 products, R9 groups left. Z0 on scores of 16 keys, Z16 scales
		of queries, Z18 on products. Tiles: 0 and 3 products, 1 and 4 keys, 2 and 5 queries, in turn. On the
		stack: turns before the first is added, scores, scales of the first group, what is fetched ahead.
		Twin: codedScores8.`, 32)
	m.ops("MOVQ AX, R15", "LEAQ CodedPage_config(R15), DX", "LDTILECFG_DX", "XORQ AX, AX", "MOVQ $64, BX",
		"MOVQ CodedPage_Keys(R15), DX", "MOVQ CodedPage_Groups(R15), CX", "MOVQ CX, R8", "MOVQ CX, R9",
		"MOVQ CX, R12", "SHLQ $2, R12", "SHLQ $6, CX", "MOVQ CodedPage_Queries(R15), SI", "MOVQ SI, R10",
		"MOVQ CodedPage_tiles(R15), DI", "MOVQ DI, R11", "MOVQ CodedPage_KeyScales(R15), R13", "MOVQ R13, 16(SP)",
		"MOVQ CodedPage_Scores(R15), R14", "MOVQ R14, 8(SP)", "MOVQ CodedPage_Values(R15), R14", "ADDQ CodedPage_SkipValues(R15), R14", "MOVQ R14, 24(SP)",
		"MOVQ $2, 0(SP)")
	turn, odd, stored, multiplied := m.label("turn"), m.label("odd"), m.label("stored"), m.label("multiplied")
	first, added, more, begun := m.label("first"), m.label("added"), m.label("more"), m.label("begun")
	m.at(turn)
	m.ops("TESTQ R12, R12")
	m.op("JZ %s", multiplied)
	m.op("MOVQ 24(SP), R14")
	m.codedFetch("R14")
	m.ops("MOVQ R14, 24(SP)", "TESTQ $1, R12")
	m.op("JNE %s", odd)
	for i, t := range []int{0, 3} {
		if i == 1 {
			m.at(odd)
		}
		m.op("TILELOADD(%d, 1088, 6, 0)", t) // every row
		m.op("TILELOADD(%d, 0, 2, 1)", t+1)
		m.op("TILELOADD(%d, 0, 6, 3)", t+2)
		m.op("TDPBUSD(%d, %d, %d)", t, t+1, t+2)
		m.op("TILESTORED(%d, 0, 7, 3)", t)
		if i == 0 {
			m.op("JMP %s", stored)
		}
	}
	m.at(stored)
	m.ops("ADDQ $64, DX")
	m.op("ADDQ $%d, SI", codedBlock)
	m.codedRing("DI", 1024)
	m.ops("DECQ R12", "DECQ R8")
	m.op("JNZ %s", multiplied)
	m.ops("MOVQ CX, R14", "SHLQ $4, R14", "SUBQ CX, R14", "ADDQ R14, DX", // the next 16 keys
		"MOVQ CodedPage_Queries(R15), SI", "MOVQ CodedPage_Groups(R15), R8")
	m.at(multiplied)
	m.op("DECQ 0(SP)")
	m.op("JGE %s", turn)
	m.op("VMOVUPS 1024(R10), Z16")
	m.ops("CMPQ R9, CodedPage_Groups(R15)")
	m.op("JNE %s", more)
	m.ops("CMPQ CodedPage_More(R15), $0")
	m.op("JEQ %s", first)
	m.op("MOVQ 8(SP), R14")
	for j := range 16 {
		m.op("VMOVUPS %d(R14), Z%d", 64*j, j)
	}
	for i, label := range []string{more, first} {
		m.at(label)
		for j := range 16 {
			t := 18 + j%8
			m.op("VCVTDQ2PS %d(R11), Z%d", 64*j, t)
			m.op("VMULPS Z16, Z%d, Z%d", t, t)
			if i == 0 {
				m.op("VFMADD231PS.BCST %d(R13), Z%d, Z%d", 4*j, t, j)
			} else {
				m.op("VMULPS.BCST %d(R13), Z%d, Z%d", 4*j, t, j)
			}
		}
		if i == 0 {
			m.op("JMP %s", added)
		}
	}
	m.at(added)
	m.ops("MOVQ CodedPage_ScaleStep(R15), R14", "LEAQ (R13)(R14*4), R13")
	m.op("ADDQ $%d, R10", codedBlock)
	m.codedRing("R11", 1024)
	m.ops("DECQ R9")
	m.op("JNZ %s", turn)
	m.op("MOVQ 8(SP), R14")
	for j := range 16 {
		m.op("VMOVUPS Z%d, %d(R14)", j, 64*j)
	}
	m.ops("ADDQ $1024, 8(SP)", "ADDQ $64, 16(SP)", "MOVQ 16(SP), R13", "MOVQ CodedPage_Queries(R15), R10",
		"MOVQ CodedPage_Groups(R15), R9", "MOVQ CodedPage_Scores(R15), R14", "ADDQ $4096, R14", "CMPQ R14, 8(SP)")
	m.op("JNE %s", turn)
	m.at(begun)
	m.ops("TILERELEASE")
	m.end()
}

// codedScoresOf4AMX keeps the queries of four groups in tiles, and the sums of a score in a
// register.
func (m *machine) codedScoresOf4AMX() {
	m.codedFunction("codedScoresOf4", "CodedPage", `codedScores for four groups and nothing to add to. R15 arguments, AX 0, BX 64, DX keys, CX bytes of a
		key, SI queries, DI products, R11 products to add, R13 scales of keys, R14 bytes to the next group's, R10
		three times that, R8 scores, R9 what is fetched ahead, R12 turns left. Z16 to Z19 scales of queries.
		Tiles: 0 and 1 products, 2 and 3 keys, in turn; 4 to 7 queries. Twin: codedScores8.`, 0)
	m.ops("MOVQ AX, R15", "LEAQ CodedPage_config(R15), DX", "LDTILECFG_DX", "XORQ AX, AX", "MOVQ $64, BX",
		"MOVQ CodedPage_Keys(R15), DX", "MOVQ $256, CX", "MOVQ CodedPage_Queries(R15), SI", "MOVQ CodedPage_tiles(R15), DI",
		"MOVQ DI, R11", "MOVQ CodedPage_KeyScales(R15), R13", "MOVQ CodedPage_ScaleStep(R15), R14", "SHLQ $2, R14",
		"LEAQ (R14)(R14*2), R10", "MOVQ CodedPage_Scores(R15), R8", "MOVQ CodedPage_Values(R15), R9",
		"ADDQ CodedPage_SkipValues(R15), R9", "MOVQ $5, R12")
	for g := range 4 {
		m.op("TILELOADD(%d, %d, 6, 3)", 4+g, codedBlock*g)
		m.op("VMOVUPS %d(SI), Z%d", codedBlock*g+1024, 16+g)
	}
	turn, multiplied, done := m.label("turn"), m.label("multiplied"), m.label("done")
	m.at(turn)
	m.op("CMPQ R12, $1")
	m.op("JEQ %s", multiplied)
	for g := range 4 {
		t := g % 2
		m.op("TILELOADD(%d, %d, 6, 0)", t, codedBlock*g+1088) // every row
		m.op("TILELOADD(%d, %d, 2, 1)", 2+t, 64*g)
		m.op("TDPBUSD(%d, %d, %d)", t, 2+t, 4+g)
		m.op("TILESTORED(%d, %d, 7, 3)", t, 1024*g)
		m.codedFetch("R9")
	}
	m.ops("ADDQ $4096, DX", "ADDQ $4096, DI", "ANDQ $~8192, DI")
	m.at(multiplied)
	m.op("CMPQ R12, $5") // the first are added a turn later
	m.op("JEQ %s", done)
	for j := range 16 {
		s := 20 + j%3*4
		for g := range 4 {
			m.op("VCVTDQ2PS %d(R11), Z%d", 1024*g+64*j, s+g)
			m.op("VMULPS Z%d, Z%d, Z%d", 16+g, s+g, s+g)
			at := times(4*j, "R13", "R14", "R10", g)
			if g == 0 {
				m.op("VMULPS.BCST %s, Z%d, Z%d", at, s, j)
			} else {
				m.op("VFMADD231PS.BCST %s, Z%d, Z%d", at, s+g, j)
			}
		}
		m.op("VMOVUPS Z%d, %d(R8)", j, 64*j)
	}
	m.ops("ADDQ $64, R13", "ADDQ $1024, R8", "ADDQ $4096, R11", "ANDQ $~8192, R11")
	m.at(done)
	m.op("DECQ R12")
	m.op("JNZ %s", turn)
	m.ops("TILERELEASE")
	m.end()
}

// codedWeighAMX merges the sums if it is to, and stores them otherwise.
func (m *machine) codedWeighAMX(merge bool) {
	name, twin, params := "codedWeigh", "codedWeigh", []param{{"a", "*CodedPage"}}
	if merge {
		name, twin, params = "codedWeighMerge", "codedWeigh and codedMerge", append(params, param{"b", "*CodedMerge"})
	}
	m.function(name, `16 columns of values and all queries are two tiles of products, of high and of low bytes. R15
		arguments, BX 64, DX values, DI products, R12 and R8 tiles left to multiply and to add, R11 products to
		add, R10 sums, R9 bytes of a row of them, R13 what is fetched ahead, R14 turns before the first is
		added, K1 lanes of a row. Tiles: 0, 1 and 3, 4 products, 2 and 5 values, in turn; 6 and 7 weights.
		Merging, R10 is merged sums, Z30 and Z31 the factors, K1 the lanes that see the page. Twin: `+twin+".", 0, "", params...)
	m.ops("MOVQ a+0(FP), R15", "LEAQ CodedPage_config(R15), DX", "LDTILECFG_DX", "MOVQ $64, BX",
		"MOVQ CodedPage_Weights(R15), SI", "TILELOADD(6, 0, 6, 3)", "TILELOADD(7, 1024, 6, 3)",
		"MOVQ CodedPage_Values(R15), DX", "MOVQ CodedPage_Dims(R15), R12", "SHRQ $4, R12", "MOVQ R12, R8",
		"MOVQ CodedPage_tiles(R15), DI", "MOVQ DI, R11", "MOVQ CodedPage_Next(R15), R13",
		"ADDQ CodedPage_SkipNext(R15), R13", "MOVQ $2, R14")
	if merge {
		m.ops("MOVQ b+8(FP), R9", "MOVQ CodedMerge_Out(R9), R10", "KMOVW CodedMerge_Sees(R9), K1",
			"VMOVUPS CodedMerge_old(R9), Z30", "VMOVUPS CodedMerge_more(R9), Z31")
	} else {
		m.ops("MOVQ CodedPage_Sums(R15), R10", "MOVQ CodedPage_Width(R15), R9", "MOVL $0xffff, SI",
			"BZHIL R9, SI, SI", "KMOVW SI, K1", "SHLQ $2, R9")
	}
	turn, odd, stored, multiplied := m.label("turn"), m.label("odd"), m.label("stored"), m.label("multiplied")
	m.at(turn)
	m.ops("TESTQ R12, R12")
	m.op("JZ %s", multiplied)
	m.codedFetch("R13")
	m.ops("TESTQ $1, R12")
	m.op("JNE %s", odd)
	for i, t := range []int{0, 3} {
		if i == 1 {
			m.at(odd)
		}
		m.op("TILELOADD(%d, 0, 2, 3)", t+2)
		m.op("TILEZERO(%d)", t)
		m.op("TDPBSUD(%d, %d, 6)", t, t+2)
		m.op("TILEZERO(%d)", t+1)
		m.op("TDPBSUD(%d, %d, 7)", t+1, t+2)
		m.op("TILESTORED(%d, 0, 7, 3)", t)
		m.op("TILESTORED(%d, 1024, 7, 3)", t+1)
		if i == 0 {
			m.op("JMP %s", stored)
		}
	}
	m.at(stored)
	m.op("ADDQ $1024, DX")
	m.codedRing("DI", 2048)
	m.op("DECQ R12")
	m.at(multiplied)
	m.op("DECQ R14")
	m.op("JGE %s", turn)
	for j := range 16 {
		m.op("VMOVDQU32 %d(R11), Z%d", 64*j, j)
		m.op("VPSLLD $8, Z%d, Z%d", j, j)
		m.op("VPADDD %d(R11), Z%d, Z%d", 1024+64*j, j, j)
		if merge {
			m.op("VMULPS %d(R10), Z30, Z%d", 64*j, 16+j%8)
			m.op("VCVTDQ2PS Z%d, Z%d", j, j)
			m.op("VFMADD231PS Z%d, Z31, Z%d", j, 16+j%8)
			m.op("VMOVUPS Z%d, K1, %d(R10)", 16+j%8, 64*j)
			continue
		}
		m.op("VMOVDQU32 Z%d, K1, (R10)", j)
		m.op("ADDQ R9, R10")
	}
	if merge {
		m.op("ADDQ $1024, R10")
	}
	m.codedRing("R11", 2048)
	m.op("DECQ R8")
	m.op("JNZ %s", turn)
	m.ops("TILERELEASE")
	m.end()
}
