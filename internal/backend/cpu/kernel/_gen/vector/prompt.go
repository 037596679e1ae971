package main

import (
	"fmt"
	"math/bits"
)

// Sizes of package kernel: PageTokens, PromptStrip and PromptQueries.
const pageTokens, promptStrip, promptQueries = 64, 64, 4

// prompt writes the kernels of attention over a page that many queries see.
func (m *machine) prompt() {
	for _, bytes := range []int{4, 2} {
		m.promptRows(bytes)
		m.promptValues(bytes)
	}
	m.promptScores()
	m.promptSoftmax()
	m.promptFactors()
	m.promptWeigh()
}

// promptPlace is that of package kernel.
func promptPlace(i int) int { return int(bits.Reverse8(uint8(i)) >> 4) }

// promptWide is how many registers of keys, or columns of values, are computed together.
func (m *machine) promptWide() int { return 4 / m.halves }

// promptRows transposes squares of rows, as many as a register has numbers.
func (m *machine) promptRows(bytes int) {
	name := fmt.Sprintf("promptRows%d", 8*bytes)
	m.function(name, fmt.Sprintf(`SI rows of a square, R12 and DX bytes of a row, once and three times, DI dst of a square,
		R8 bytes of a lane in it, R9 squares left across, R10 squares left down, AX and BX places. Twin: %s.`, name), 0, "",
		with(floats("dst"), param{"rows", element(bytes)}, param{"d", "int"})...)
	down, across := m.label("down"), m.label("across")
	n := m.wide()
	m.take("DI", "*dst", "SI", "*rows", "R12", "d")
	m.ops("MOVQ R12, R8", "SHLQ $4, R8") // d/16 rows of 256 bytes
	m.op("SHLQ $%d, R12", bytes/2)
	m.take("AX", "len(dst)", "R10", "d") // rows are the quotient
	m.ops("XORQ DX, DX", "DIVQ R10", "MOVQ AX, R10")
	m.op("SHRQ $%d, R10", map[int]int{16: 4, 8: 3}[n])
	m.op("LEAQ (R12)(R12*2), DX")
	m.at(down)
	m.take("R9", "d")
	m.op("SHRQ $4, R9")
	m.at(across)
	for h := range m.halves {
		m.ops("MOVQ SI, AX")
		for i := range n {
			if i > 0 && i%4 == 0 {
				m.op("LEAQ (AX)(R12*4), AX")
			}
			m.widen(bytes, times(bytes*8*h, "AX", "R12", "DX", i%4), i)
		}
		at := m.transpose()
		for p := range 16 { // places in order, for the place to run on
			if p > 0 && p%4 == 0 {
				m.op("LEAQ (BX)(R8*4), BX")
			} else if p == 0 {
				m.ops("MOVQ DI, BX", "LEAQ (R8)(R8*2), CX")
			}
			lane := promptPlace(p)
			if lane/n == h {
				m.op("VMOVUPS %s, %s", m.r(at(lane%n)), times(0, "BX", "R8", "CX", p%4))
			}
		}
	}
	m.op("ADDQ $%d, SI", 16*bytes)
	m.op("ADDQ $%d, DI", 4*promptStrip)
	m.ops("DECQ R9")
	m.op("JNZ %s", across)
	m.promptDown(bytes)
	m.ops("DECQ R10")
	m.op("JNZ %s", down)
	m.end()
}

// promptDown moves SI and DI, which have passed d columns, to the next rows: those beside in the
// strip, or in the next.
func (m *machine) promptDown(bytes int) {
	beside := m.label("beside")
	n := m.wide()
	m.ops("SUBQ R12, SI", "MOVQ R12, AX")
	m.op("SHLQ $%d, AX", map[int]int{16: 4, 8: 3}[n])
	m.ops("ADDQ AX, SI", "SUBQ R8, DI")
	m.op("ADDQ $%d, DI", 4*n)
	m.op("LEAQ -1(R10), AX")
	m.op("TESTQ $%d, AX", promptStrip/n-1)
	m.op("JNZ %s", beside)
	m.op("SUBQ $%d, DI", 4*promptStrip)
	m.ops("MOVQ R8, AX", "SHLQ $4, AX", "ADDQ AX, DI")
	m.at(beside)
}

// transpose turns the square in registers 0 on. Row i of the result is in register at(i).
func (m *machine) transpose() (at func(i int) int) {
	if m.halves == 1 {
		return m.transpose16()
	}
	for i := 0; i < 8; i += 2 { // [row pair, low or high]
		m.op("VUNPCKLPS Y%d, Y%d, Y%d", i+1, i, 8+i)
		m.op("VUNPCKHPS Y%d, Y%d, Y%d", i+1, i, 9+i)
	}
	for i := 0; i < 8; i += 4 {
		for j := range 2 {
			a, b, c := 8+i+j, 8+i+2+j, i+2*j
			m.op("VUNPCKLPD Y%d, Y%d, Y%d", b, a, c)
			m.op("VUNPCKHPD Y%d, Y%d, Y%d", b, a, c+1)
		}
	}
	for j := range 4 {
		m.op("VPERM2F128 $0x20, Y%d, Y%d, Y%d", 4+j, j, 8+j)
		m.op("VPERM2F128 $0x31, Y%d, Y%d, Y%d", 4+j, j, 12+j)
	}
	return func(i int) int { return 8 + i }
}

func (m *machine) transpose16() (at func(i int) int) {
	for i := 0; i < 16; i += 2 {
		m.op("VUNPCKLPS Z%d, Z%d, Z%d", i+1, i, 16+i)
		m.op("VUNPCKHPS Z%d, Z%d, Z%d", i+1, i, 17+i)
	}
	for i := 0; i < 16; i += 4 {
		for j := range 2 {
			a, b, c := 16+i+j, 16+i+2+j, i+2*j
			m.op("VUNPCKLPD Z%d, Z%d, Z%d", b, a, c)
			m.op("VUNPCKHPD Z%d, Z%d, Z%d", b, a, c+1)
		}
	}
	// Register 4i+j has column j of every quarter of the columns, for rows 4i and on.
	for j := range 4 {
		for i := range 2 {
			a, b, c := 8*i+j, 8*i+4+j, 16+4*j+2*i
			m.op("VSHUFF32X4 $0x88, Z%d, Z%d, Z%d", b, a, c)
			m.op("VSHUFF32X4 $0xdd, Z%d, Z%d, Z%d", b, a, c+1)
		}
	}
	for j := range 4 {
		for i := range 2 { // quarters 0 and 2, or 1 and 3
			a, b, c := 16+4*j+i, 16+4*j+2+i, 4*j+2*i
			m.op("VSHUFF32X4 $0x88, Z%d, Z%d, Z%d", b, a, c)
			m.op("VSHUFF32X4 $0xdd, Z%d, Z%d, Z%d", b, a, c+1)
		}
	}
	return func(i int) int { return 4*(i%4) + i/4%2*2 + i/8 }
}

func (m *machine) promptValues(bytes int) {
	name := fmt.Sprintf("promptValues%d", 8*bytes)
	m.function(name, fmt.Sprintf(`SI values, R12 bytes of a value, DI dst, CX values left. Twin: %s.`, name), 0, "",
		with(floats("dst"), param{"values", element(bytes)}, param{"d", "int"})...)
	rows := m.label("rows")
	m.take("DI", "*dst", "SI", "*values", "R12", "d")
	m.op("SHLQ $%d, R12", bytes/2)
	m.op("MOVQ $%d, CX", pageTokens)
	m.at(rows)
	for v := range promptStrip / m.wide() {
		m.widen(bytes, times(bytes*v*m.wide(), "SI", "", "", 0), v)
		m.op("VMOVUPS %s, %s", m.r(v), times(4*v*m.wide(), "DI", "", "", 0))
	}
	m.ops("ADDQ R12, SI")
	m.op("ADDQ $%d, DI", 4*promptStrip)
	m.ops("DECQ CX")
	m.op("JNZ %s", rows)
	m.end()
}

// promptFetch asks for some lines at R15 and moves on, at most to what is in fetched-8(SP).
func (m *machine) promptFetch(lines int) {
	for i := range lines {
		m.op("PREFETCHT1 %s(R15)", shift(64*i))
	}
	m.op("ADDQ $%d, R15", 64*lines)
	m.ops("CMPQ R15, fetched-8(SP)", "CMOVQGT fetched-8(SP), R15")
}

// promptFetched loads what promptFetch wants.
func (m *machine) promptFetched() {
	m.take("R15", "*next", "AX", "len(next)")
	m.ops("ADDQ R15, AX", "MOVQ AX, fetched-8(SP)")
}

// promptBatch is how many tiles of queries go through the lanes together: the keys of a lane stay
// in the first cache, and so do the sums that wait.
const promptBatch = 4

// promptScores takes a tile of queries and some registers of keys at a time, and of their dot
// products one lane after another. Lanes come in the order in which the tree adds their sums: with
// the sum of a lane goes one of each level that waits for it.
func (m *machine) promptScores() {
	m.function("promptScores", `R8 keys, R9 queries of the batch, R12 bytes of a lane, SI bytes of lanes before, R10 lane, DI dst of the tile, R13 and DX bytes of
		queries in the batch, before and all, R14 bytes of keys before the block, AX and R11 places in queries and keys, BX sums that
		wait, CX numbers left, R15 what is fetched ahead. Registers 0 on sums, then keys and queries. Twin: promptScores.`, 32, "",
		with(floats("dst", "q", "keys", "sums"), param{"next", "[]int8"}, param{"d", "int"}, param{"scale", "float32"})...)
	batches, lanes, blocks, tiles, whole := m.label("batches"), m.label("lanes"), m.label("blocks"), m.label("tiles"), m.label("whole")
	m.promptFetched()
	m.take("R8", "*keys", "R9", "*q", "R12", "d", "AX", "*dst", "CX", "len(dst)")
	m.ops("MOVQ AX, batch-16(SP)", "SHRQ $6, CX", "MOVQ CX, left-24(SP)", "MOVQ $0, strip-32(SP)")
	m.op("SHLQ $%d, R12", 4) // d/16 rows of 256 bytes
	m.at(batches)
	m.op("MOVQ $%d, DX", promptBatch*promptQueries)
	m.ops("CMPQ DX, left-24(SP)", "CMOVQGT left-24(SP), DX", "SUBQ DX, left-24(SP)", "SHLQ $2, DX", "XORQ SI, SI", "XORQ R10, R10")
	m.at(lanes)
	m.take("BX", "*sums")
	m.op("XORQ R14, R14")
	m.at(blocks)
	m.ops("XORQ R13, R13", "MOVQ batch-16(SP), DI", "ADDQ R14, DI")
	m.at(tiles)
	m.ops("LEAQ (R8)(SI*1), R11", "ADDQ R14, R11", "LEAQ (R9)(SI*1), AX", "ADDQ R13, AX")
	m.promptLane()
	m.promptTree()
	m.op("ADDQ $%d, R13", 4*promptQueries)
	m.op("ADDQ $%d, BX", 4*promptQueries*m.promptWide()*4*m.wide())
	m.op("ADDQ $%d, DI", 4*pageTokens*promptQueries)
	m.ops("CMPQ R13, DX")
	m.op("JLT %s", tiles)
	if bytes := 4 * m.promptWide() * m.wide(); bytes < 4*pageTokens {
		m.op("ADDQ $%d, R14", bytes)
		m.op("CMPQ R14, $%d", 4*pageTokens)
		m.op("JLT %s", blocks)
		m.op("SUBQ $%d, DI", 4*pageTokens-bytes)
	}
	m.ops("ADDQ R12, SI", "INCQ R10", "CMPQ R10, $16")
	m.op("JLT %s", lanes)
	m.ops("MOVQ DI, batch-16(SP)", "ADDQ DX, R9", "ADDQ DX, strip-32(SP)")
	m.op("TESTQ $%d, strip-32(SP)", 4*promptStrip-1)
	m.op("JNZ %s", whole)
	m.op("LEAQ -%d(R9)(SI*1), R9", 4*promptStrip) // the next strip
	m.at(whole)
	m.ops("CMPQ left-24(SP), $0")
	m.op("JNZ %s", batches)
	m.end()
}

// promptLane adds up one lane of a tile's dot products.
func (m *machine) promptLane() {
	const unroll = 4
	many, rest, one, done := m.label("many"), m.label("rest"), m.label("one"), m.label("lane")
	m.promptFetch(2)
	m.zero(0, promptQueries*m.promptWide())
	m.take("CX", "d")
	m.op("SUBQ $%d, CX", 16*unroll)
	m.op("JLT %s", rest)
	m.at(many)
	m.promptSteps(unroll)
	m.op("JGE %s", many)
	m.at(rest)
	m.op("ADDQ $%d, CX", 16*unroll)
	m.op("JZ %s", done)
	m.at(one)
	m.promptSteps(1)
	m.op("JNZ %s", one)
	m.at(done)
}

// promptSteps adds n products to each sum.
func (m *machine) promptSteps(n int) {
	for u := range n {
		m.promptStep(u, 4*promptStrip*u, 4)
	}
	m.op("ADDQ $%d, R11", 4*promptStrip*n)
	m.op("ADDQ $%d, AX", 4*promptStrip*n)
	m.op("SUBQ $%d, CX", 16*n)
}

// promptStep multiplies registers of row u at R11 with the numbers at AX, which begin some bytes on
// and are apart bytes apart, one per query.
func (m *machine) promptStep(u, at, apart int) {
	n := m.promptWide()
	vector := promptQueries * n
	for v := range n {
		m.op("VMOVUPS %s, %s", times(4*(u*promptStrip+v*m.wide()), "R11", "", "", 0), m.r(vector+v))
	}
	for q := range promptQueries {
		one := m.r(vector + n + q%2)
		m.op("VBROADCASTSS %s, %s", times(at+q*apart, "AX", "", "", 0), one)
		for v := range n {
			m.op("VFMADD231PS %s, %s, %s", m.r(vector+v), one, m.r(n*q+v))
		}
	}
}

// promptTree adds the sums that wait to those of lane R10, as many as the number has ones at its
// end, and lets the result wait unless it was the last lane: that is scaled and stored.
func (m *machine) promptTree() {
	wide := m.promptWide()
	n, bytes := promptQueries*wide, 4*m.wide()
	done, wait := m.label("done"), make([]string, 4)
	for level := range wait {
		wait[level] = m.label("wait")
		m.op("TESTQ $%d, R10", 1<<level)
		m.op("JZ %s", wait[level])
		for i := range n {
			m.op("VADDPS %d(BX), %s, %s", (level*n+i)*bytes, m.r(i), m.r(i))
		}
	}
	m.spread("scale", n)
	for i := range n {
		m.op("VMULPS %s, %s, %s", m.r(n), m.r(i), m.r(i))
		m.op("VMOVUPS %s, %s", m.r(i), times(4*(i/wide*pageTokens+i%wide*m.wide()), "DI", "", "", 0))
	}
	m.op("JMP %s", done)
	for level, label := range wait {
		m.at(label)
		for i := range n {
			m.op("VMOVUPS %s, %d(BX)", m.r(i), (level*n+i)*bytes)
		}
		if level < len(wait)-1 {
			m.op("JMP %s", done)
		}
	}
	m.at(done)
}
