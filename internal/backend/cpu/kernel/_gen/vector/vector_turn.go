package main

// turn writes the rotation of a row.
func (m *machine) turn() {
	comment := `DI dst, SI src, R8 scales, R9 places, R10 turns, R15 groups left, BX rounds left; registers 0 to 7 the numbers of a
		group, 8 to 15 those of the pairs, 24 to 27 scratch, 30 and 31 bits of places. Twin: turn.`
	frame := 0
	if m.halves == 2 {
		frame = 4 * turnGroup
		comment = `DI dst, SI src, R8 scales, R9 places, R10 turns, R15 groups left, BX rounds left; R11 the numbers of a group, R12
		those after a round: a buffer and dst, so that the buffer is the last. Twin: turn.`
	}
	m.function("turn", comment, frame, "", with(floats("dst", "src", "scales"),
		param{"places", "[]uint8"}, param{"turns", "[]float32"}, param{"rounds", "int"})...)
	m.take("DI", "*dst", "R15", "len(dst)", "SI", "*src", "R8", "*scales", "R9", "*places", "R10", "*turns")
	m.op("SHRQ $7, R15")
	if m.halves == 1 {
		m.op("VMOVUPS %s, Z30", m.bits("place32", 32))
		m.op("VMOVUPS %s, Z31", m.bits("place64", 64))
	}
	m.rows(func() {
		m.take("BX", "rounds")
		if m.halves == 1 {
			m.turnRegisters()
		} else {
			m.turnBuffers()
		}
		m.op("ADDQ $%d, R9", turnGroup)
		for _, r := range []string{"DI", "SI", "R8"} {
			m.op("ADDQ $%d, %s", 4*turnGroup, r)
		}
	})
	m.end()
}

// turnGroup is how many numbers are rotated among themselves.
const turnGroup = 128

// turnRegisters rotates a group that is in registers: operands are permuted.
func (m *machine) turnRegisters() {
	round, done := m.label("round"), m.label("turned")
	for i := range 8 {
		m.op("VMOVUPS %d(SI), Z%d", 64*i, i)
		m.op("VMULPS %d(R8), Z%d, Z%d", 64*i, i, i)
	}
	m.at(round)
	m.op("DECQ BX")
	m.op("JLT %s", done)
	m.permute()
	for i := range 4 {
		a, b := 8+i, 12+i
		m.op("VMOVUPS %d(R10), Z24", 64*i)
		m.op("VMOVUPS %d(R10), Z25", 256+64*i)
		m.op("VMULPS Z25, Z%d, Z%d", b, i)
		m.op("VFMADD231PS Z24, Z%d, Z%d", a, i)
		m.op("VMULPS Z25, Z%d, Z%d", a, 4+i)
		m.op("VFMSUB231PS Z24, Z%d, Z%d", b, 4+i)
	}
	m.op("ADDQ $%d, R9", turnGroup)
	m.op("ADDQ $%d, R10", 4*turnGroup)
	m.op("JMP %s", round)
	m.at(done)
	m.permute()
	for i := range 8 {
		m.op("VMOVUPS Z%d, %d(DI)", 8+i, 64*i)
	}
}

// permute brings the numbers of registers 0 to 7 to registers 8 to 15 by the places at R9.
func (m *machine) permute() {
	for i := range 8 {
		to := 8 + i
		m.op("VPMOVZXBD %d(R9), Z%d", 16*i, to)
		m.op("VPTESTMD Z30, Z%d, K1", to)
		m.op("VPTESTMD Z31, Z%d, K2", to)
		for j := 1; j < 4; j++ {
			m.op("VMOVDQA32 Z%d, Z%d", to, 24+j)
			m.op("VPERMI2PS Z%d, Z%d, Z%d", 2*j+1, 2*j, 24+j)
		}
		m.op("VPERMI2PS Z1, Z0, Z%d", to)
		m.op("VMOVAPS Z25, K1, Z%d", to)
		m.op("VMOVAPS Z27, K1, Z26")
		m.op("VMOVAPS Z26, K2, Z%d", to)
	}
}

// turnBuffers rotates a group that is in memory: operands are gathered.
func (m *machine) turnBuffers() {
	round, done, odd := m.label("round"), m.label("turned"), m.label("even")
	m.ops("LEAQ buffer-512(SP), R11", "MOVQ DI, R12", "TESTQ $1, BX")
	m.op("JE %s", odd)
	m.op("XCHGQ R11, R12")
	m.at(odd)
	for i := range 16 {
		m.op("VMOVUPS %d(SI), Y0", 32*i)
		m.op("VMULPS %d(R8), Y0, Y0", 32*i)
		m.op("VMOVUPS Y0, %d(R11)", 32*i)
	}
	m.at(round)
	m.op("DECQ BX")
	m.op("JLT %s", done)
	for i := range 8 {
		m.gather(8*i, 0)
		m.gather(64+8*i, 1)
		m.op("VMOVUPS %d(R10), Y2", 32*i)
		m.op("VMOVUPS %d(R10), Y3", 256+32*i)
		m.ops("VMULPS Y3, Y1, Y4", "VFMADD231PS Y2, Y0, Y4", "VMULPS Y3, Y0, Y5", "VFMSUB231PS Y2, Y1, Y5")
		m.op("VMOVUPS Y4, %d(R12)", 32*i)
		m.op("VMOVUPS Y5, %d(R12)", 256+32*i)
	}
	m.op("ADDQ $%d, R9", turnGroup)
	m.op("ADDQ $%d, R10", 4*turnGroup)
	m.op("XCHGQ R11, R12")
	m.op("JMP %s", round)
	m.at(done)
	for i := range 16 {
		m.gather(8*i, 0)
		m.op("VMOVUPS Y0, %d(DI)", 32*i)
	}
}

// gather loads the numbers at the eight places from number at on into a register.
func (m *machine) gather(at, to int) {
	m.op("VPMOVZXBD %d(R9), Y%d", at, 6+to)
	m.op("VPCMPEQD Y%d, Y%d, Y%d", 8+to, 8+to, 8+to)
	m.op("VGATHERDPS Y%d, (R11)(Y%d*4), Y%d", 8+to, 6+to, to)
}

// turnRows writes the rotation of as many rows as a register has numbers, a row in each lane: the tables are read once for all.
func (m *machine) turnRows() {
	n := m.wide()
	line := 4 * n // bytes of a column of all rows
	m.function("turnRows", `DI dst, R13 bytes of its rows, SI src, R12 bytes of its rows, R8 scales, R9 places, R10 turns, R15 groups left, BX rounds or
		squares left, R11 the columns of a group, R14 those after a round, AX, CX and DX places. Twin: turn.`, 0, "", with(floats("dst"), param{"dstStride", "int"},
		param{"src", "[]float32"}, param{"stride", "int"}, param{"scales", "[]float32"}, param{"places", "[]uint8"}, param{"turns", "[]float32"},
		param{"rounds", "int"}, param{"buffer", "[]float32"})...)
	m.take("DI", "*dst", "R13", "dstStride", "SI", "*src", "R12", "stride", "R8", "*scales", "R15", "len(scales)", "R9", "*places", "R10", "*turns")
	m.ops("SHLQ $2, R13", "SHLQ $2, R12", "SHRQ $7, R15")
	m.rows(func() {
		m.take("R11", "*buffer")
		m.columnSquares(func() {
			m.ops("MOVQ SI, AX", "LEAQ (R12)(R12*2), DX")
			for i := range n {
				if i > 0 && i%4 == 0 {
					m.op("LEAQ (AX)(R12*4), AX")
				}
				m.op("VMOVUPS %s, %s", times(0, "AX", "R12", "DX", i%4), m.r(i))
				m.op("VMULPS (R8), %s, %s", m.r(i), m.r(i))
			}
			at := m.transpose()
			for i := range n {
				m.op("VMOVUPS %s, %d(R11)", m.r(at(i)), line*i)
			}
			m.op("ADDQ $%d, SI", line)
			m.op("ADDQ $%d, R8", line)
			m.op("ADDQ $%d, R11", line*n)
		})
		m.take("R11", "*buffer")
		m.op("LEAQ %d(R11), R14", line*turnGroup)
		m.turnColumns(line)
		m.columnSquares(func() {
			for i := range n {
				m.placed(i, "AX", "", line, i)
			}
			at := m.transpose()
			m.ops("MOVQ DI, AX", "LEAQ (R13)(R13*2), DX")
			for i := range n {
				if i > 0 && i%4 == 0 {
					m.op("LEAQ (AX)(R13*4), AX")
				}
				m.op("VMOVUPS %s, %s", m.r(at(i)), times(0, "AX", "R13", "DX", i%4))
			}
			m.op("ADDQ $%d, DI", line)
			m.op("ADDQ $%d, R9", n)
		})
	})
	m.end()
}

// columnSquares writes a loop over the columns of a group, as many at a time as there are rows.
func (m *machine) columnSquares(body func()) {
	square := m.label("square")
	m.op("MOVQ $%d, BX", turnGroup/m.wide())
	m.at(square)
	body()
	m.op("DECQ BX")
	m.op("JNZ %s", square)
}

// placed loads the column whose place is at R9, some bytes on, and index.
func (m *machine) placed(at int, reg, index string, line, to int) {
	m.op("MOVBLZX %d(R9)%s, %s", at, index, reg)
	m.op("SHLQ $%d, %s", map[int]int{64: 6, 32: 5}[line], reg)
	m.op("VMOVUPS (R11)(%s*1), %s", reg, m.r(to))
}

// turnColumns writes the rounds.
func (m *machine) turnColumns(line int) {
	round, pair, done := m.label("round"), m.label("pair"), m.label("turned")
	m.take("BX", "rounds")
	m.at(round)
	m.op("DECQ BX")
	m.op("JLT %s", done)
	m.op("XORQ AX, AX")
	m.at(pair)
	const unrolled = 2
	for i := range unrolled {
		r := func(j int) string { return m.r(6*i + j) }
		m.placed(i, "CX", "(AX*1)", line, 6*i)
		m.placed(turnGroup/2+i, "DX", "(AX*1)", line, 6*i+1)
		m.op("VBROADCASTSS %d(R10)(AX*4), %s", 4*i, r(2))
		m.op("VBROADCASTSS %d(R10)(AX*4), %s", 2*turnGroup+4*i, r(3))
		m.op("VMULPS %s, %s, %s", r(3), r(1), r(4))
		m.op("VFMADD231PS %s, %s, %s", r(2), r(0), r(4))
		m.op("VMULPS %s, %s, %s", r(3), r(0), r(5))
		m.op("VFMSUB231PS %s, %s, %s", r(2), r(1), r(5))
		m.op("VMOVUPS %s, %d(R14)", r(4), line*i)
		m.op("VMOVUPS %s, %d(R14)", r(5), line*(turnGroup/2+i))
	}
	m.op("ADDQ $%d, R14", unrolled*line)
	m.op("ADDQ $%d, AX", unrolled)
	m.op("CMPQ AX, $%d", turnGroup/2)
	m.op("JLT %s", pair)
	m.op("SUBQ $%d, R14", line*turnGroup/2)
	m.op("XCHGQ R11, R14")
	m.op("ADDQ $%d, R9", turnGroup)
	m.op("ADDQ $%d, R10", 4*turnGroup)
	m.op("JMP %s", round)
	m.at(done)
}
