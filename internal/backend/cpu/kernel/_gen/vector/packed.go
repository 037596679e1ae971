package main

// packed writes the kernels that make pages of 8 bits of those of 4. A product of a level and a step is less
// than 256, so those of two bytes are one product of words if they have the same step, as the numbers of
// a key do.
func (m *machine) packed() {
	m.packedKeys()
	m.packedValues()
}

// logic is the name of an instruction on the bits of a register.
func (m *machine) logic(name string) string {
	if m.halves == 1 {
		return name + "D"
	}
	return name
}

// picks is an operand that moves byte first of every four bytes to even places, and likewise next to odd ones: in half h
// of a register of AVX-512. 0x80 is zero.
func (m *machine) picks(name string, halves ...uint32) string {
	var lanes []uint32
	for _, x := range halves {
		for range m.wide() / len(halves) {
			lanes = append(lanes, x)
		}
	}
	return m.lanes(name, lanes)
}

func (m *machine) packedKeys() {
	m.function("unpackKeys", `DI keys, SI packed ones, R8 ranges of the position, R9 of the group, CX positions left, R10 groups, DX groups
		left. Register 15 has 15 in every byte, 10 to 13 pick steps and lows. Twin: unpackKeys.`, 0, "",
		param{"keys", "[]byte"}, param{"packed", "[]byte"}, param{"ranges", "[]byte"}, param{"groups", "int"})
	positions, groups := m.label("positions"), m.label("groups")
	m.take("DI", "*keys", "SI", "*packed", "R8", "*ranges", "R10", "groups")
	mov := "VMOVDQU"
	if m.halves == 1 {
		mov = "VMOVDQU32"
		m.op("VMOVDQU32 %s, Z10", m.picks("packedSteps", 0x80008000, 0x80028002))
		m.op("VMOVDQU32 %s, Z11", m.picks("packedLows", 0x01010101, 0x03030303))
		m.op("VMOVDQU32 %s, Z12", m.picks("packedShifts", 0, 0x00040004))
	} else {
		for i, x := range []uint32{0x80008000, 0x01010101, 0x80028002, 0x03030303} {
			m.op("VMOVDQU %s, Y%d", m.picks("packed"+[]string{"Steps0", "Lows0", "Steps1", "Lows1"}[i], x), 10+i)
		}
	}
	m.op("%s %s, %s", mov, m.bits("packedLevels", 0x0f0f0f0f), m.r(15))
	m.op("MOVQ $64, CX")
	m.at(positions)
	m.ops("MOVQ R8, R9", "MOVQ R10, DX")
	m.at(groups)
	m.op("VPBROADCASTD (R9), %s", m.r(0))
	if m.halves == 1 {
		m.ops("VPSHUFB Z10, Z0, Z1", "VPSHUFB Z11, Z0, Z2", "VBROADCASTI64X4 (SI), Z3", "VPSRLVW Z12, Z3, Z3", "VPANDD Z15, Z3, Z3",
			"VPMULLW Z1, Z3, Z3", "VPADDB Z2, Z3, Z3", "VMOVDQU32 Z3, (DI)")
	} else {
		m.ops("VMOVDQU (SI), Y5", "VPSRLW $4, Y5, Y6")
		for h := range 2 {
			m.op("VPSHUFB Y%d, Y0, Y1", 10+2*h)
			m.op("VPSHUFB Y%d, Y0, Y2", 11+2*h)
			m.op("VPAND Y15, Y%d, Y3", 5+h)
			m.ops("VPMULLW Y1, Y3, Y3", "VPADDB Y2, Y3, Y3")
			m.op("VMOVDQU Y3, %d(DI)", 32*h)
		}
	}
	m.ops("ADDQ $32, SI", "ADDQ $64, DI", "ADDQ $256, R9", "DECQ DX")
	m.op("JNZ %s", groups)
	m.ops("ADDQ $4, R8", "DECQ CX")
	m.op("JNZ %s", positions)
	m.end()
}

// packedValues takes even and odd bytes apart, whose steps differ.
func (m *machine) packedValues() {
	m.function("unpackValues", `DI values, SI packed ones, CX groups left, DX rows left. Register 15 has 15 in every byte, 14 ones in even
		bytes. Of the first half of a group, and of the second: 8 and 11 steps of even bytes, 9 and 12 of odd ones, 10 and 13 lows.
		Twin: unpackValues.`, 0, "", param{"values", "[]int8"}, param{"packed", "[]byte"}, param{"groups", "int"})
	groups := m.label("groups")
	m.take("DI", "*values", "SI", "*packed", "CX", "groups")
	mov := "VMOVDQU"
	if m.halves == 1 {
		mov = "VMOVDQU32"
	}
	m.op("%s %s, %s", mov, m.bits("packedLevels", 0x0f0f0f0f), m.r(15))
	m.op("%s %s, %s", mov, m.bits("packedEven", 0x00ff00ff), m.r(14))
	m.at(groups)
	for part := range m.halves {
		rows := m.label("rows")
		for h := range 2 {
			m.op("%s %d(SI), %s", mov, 2048+128*h+32*part, m.r(0))
			m.op("%s %s, %s, %s", m.logic("VPAND"), m.r(14), m.r(0), m.r(8+3*h))
			m.op("VPSRLW $8, %s, %s", m.r(0), m.r(9+3*h))
			m.op("%s %d(SI), %s", mov, 2048+128*h+64+32*part, m.r(0))
			m.op("%s %s, %s, %s", m.logic("VPXOR"), m.bits("packedSign", 0x80808080), m.r(0), m.r(10+3*h))
		}
		m.op("MOVQ $32, DX")
		m.at(rows)
		m.op("%s %d(SI), %s", mov, 32*part, m.r(0))
		m.op("VPSRLW $4, %s, %s", m.r(0), m.r(1))
		for h := range 2 {
			x, even := m.r(h), m.r(2+2*h)
			m.op("%s %s, %s, %s", m.logic("VPAND"), m.r(15), x, x)
			m.op("VPMADDUBSW %s, %s, %s", m.r(8+3*h), x, even)
			m.op("%s %s, %s, %s", m.logic("VPANDN"), x, m.r(14), x)
			m.op("VPMULLW %s, %s, %s", m.r(9+3*h), x, x)
			m.op("VPADDB %s, %s, %s", m.r(10+3*h), even, even)
			m.op("VPADDB %s, %s, %s", x, even, even)
			m.op("%s %s, %d(DI)", mov, even, 2048*h+32*part)
		}
		m.ops("ADDQ $64, SI", "ADDQ $64, DI", "DECQ DX")
		m.op("JNZ %s", rows)
		if part+1 < m.halves {
			m.ops("SUBQ $2048, SI", "SUBQ $2048, DI")
		}
	}
	m.ops("ADDQ $256, SI", "ADDQ $2048, DI", "DECQ CX")
	m.op("JNZ %s", groups)
	m.end()
}
