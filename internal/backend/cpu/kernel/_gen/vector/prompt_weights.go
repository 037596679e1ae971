package main

import "math"

// promptSoftmax takes four queries at a time with AVX-512, so that chains of one overlap with those
// of others and their lanes are folded together.
func (m *machine) promptSoftmax() {
	m.function("promptSoftmax", `SI scores, R8 top, R9 weight, CX queries left; registers 0 on highest of each query, then their sums, 12 on
		the exponential, 16 on constants. Twin: promptSoftmax.`, 0, "", floats("scores", "top", "weight")...)
	m.take("SI", "*scores", "R8", "*top", "R9", "*weight", "CX", "len(scores)")
	m.op("SHRQ $6, CX")
	queries := 4 / (3*m.halves - 2) // one with AVX2
	m.hold(func() {
		rows := m.label("rows")
		m.at(rows)
		m.promptTops(queries)
		m.promptExps(queries)
		m.op("ADDQ $%d, R8", 4*queries)
		m.op("ADDQ $%d, R9", 4*queries)
		m.op("ADDQ $%d, SI", 4*pageTokens*queries)
		m.op("SUBQ $%d, CX", queries)
		m.op("JNZ %s", rows)
	})
	m.end()
}

// promptScore is the operand of register i of a query's scores.
func (m *machine) promptScore(q, i int) string {
	return times(4*(q*pageTokens+i*m.wide()), "SI", "", "", 0)
}

// promptTops stores the highest scores at R8.
func (m *machine) promptTops(queries int) {
	for q := range queries {
		for h := range m.halves {
			m.op("VMOVUPS %s, %s", m.number("lowest", float32(math.Inf(-1))), m.r(q+h))
		}
		for i := range pageTokens / m.wide() {
			acc := m.r(q + i%m.halves)
			m.op("VMOVUPS %s, %s", m.promptScore(q, i), m.r(8+i%4))
			m.op("VMAXPS %s, %s, %s", acc, m.r(8+i%4), acc)
		}
	}
	m.promptFold("VMAXPS", 0, queries, "R8")
}

// promptExps replaces scores by weights and stores their sums at R9.
func (m *machine) promptExps(queries int) {
	for q := range queries {
		acc := 4 + q
		m.zero(acc, m.halves)
		m.op("VBROADCASTSS %d(R8), %s", 4*q, m.r(10))
		for i := range pageTokens / m.wide() {
			m.op("VMOVUPS %s, %s", m.promptScore(q, i), m.r(11))
			m.op("VSUBPS %s, %s, %s", m.r(10), m.r(11), m.r(11))
			m.exp(11, 9, 12, 0)
			m.op("VMOVUPS %s, %s", m.r(9), m.promptScore(q, i))
			m.op("VADDPS %s, %s, %s", m.r(9), m.r(acc+i%m.halves), m.r(acc+i%m.halves))
		}
	}
	m.promptFold("VADDPS", 4, queries, "R9")
}

// promptFold combines the lanes of each query's registers from first on and stores the results. Of
// four queries it does together what fold does for one. It uses registers 8 to 11.
func (m *machine) promptFold(op string, first, queries int, to string) {
	if queries == 1 {
		m.fold(op, first)
		m.op("VMOVSS X%d, (%s)", first, to)
		return
	}
	for i := range 2 { // lanes and those eight on, of two queries
		a, b, c := first+2*i, first+2*i+1, 8+2*i
		m.op("VSHUFF64X2 $0x44, Z%d, Z%d, Z%d", b, a, c)
		m.op("VSHUFF64X2 $0xee, Z%d, Z%d, Z%d", b, a, c+1)
		m.op("%s Z%d, Z%d, Z%d", op, c+1, c, c)
	}
	m.ops("VSHUFF64X2 $0x88, Z10, Z8, Z9", "VSHUFF64X2 $0xdd, Z10, Z8, Z11")
	m.op("%s Z11, Z9, Z9", op)
	m.op("VPERMILPS $0x4e, Z9, Z8")
	m.op("%s Z8, Z9, Z9", op)
	m.op("VPERMILPS $0xb1, Z9, Z8")
	m.op("%s Z8, Z9, Z9", op)
	for q := range queries { // the first lane of each quarter
		m.op("VEXTRACTF32X4 $%d, Z9, X8", q)
		m.op("VMOVSS X8, %d(%s)", 4*q, to)
	}
}

func (m *machine) promptFactors() {
	m.function("promptFactors", `DI old, SI more, R8 and R9 tops and weights of all, R10 and R11 of now, CX numbers, AX index. Twin:
		promptFactors.`, 0, "", floats("old", "more", "allTop", "allWeight", "nowTop", "nowWeight")...)
	m.take("DI", "*old", "SI", "*more", "R8", "*allTop", "R9", "*allWeight", "R10", "*nowTop", "R11", "*nowWeight", "CX", "len(old)")
	m.each(func(half int, masked bool) {
		m.load("R8", half, masked, 0)
		m.load("R10", half, masked, 1)
		m.op("VMAXPS %s, %s, %s", m.r(0), m.r(1), m.r(2)) // what was there if now is not a number
		m.store(2, "R8", half, masked)
		m.op("VSUBPS %s, %s, %s", m.r(2), m.r(0), m.r(0))
		m.op("VSUBPS %s, %s, %s", m.r(2), m.r(1), m.r(1))
		m.exp(0, 8, 2, 0)
		m.exp(1, 9, 2, 0)
		m.store(8, "DI", half, masked)
		m.store(9, "SI", half, masked)
		m.load("R9", half, masked, 0)
		m.load("R11", half, masked, 1)
		m.op("VMULPS %s, %s, %s", m.r(8), m.r(0), m.r(0))
		m.op("VFMADD231PS %s, %s, %s", m.r(9), m.r(1), m.r(0))
		m.store(0, "R9", half, masked)
	})
	m.end()
}

// promptWeigh takes a tile of queries and some registers of columns at a time.
func (m *machine) promptWeigh() {
	m.function("promptWeigh", `SI out of the tile, DI bytes of columns before the block, R8 its values, R9 weights of the tile, R10 queries left,
		R11 and AX places in values and weights, CX positions left, R12 and R13 old and more, or zero, BX a row, R14 blocks left, R15
		what is fetched ahead. Registers 0 on sums, then values and weights. Twin: promptWeigh.`, 8, "",
		append([]param{{"out", "[]*float32"}}, with(floats("weights", "values", "old", "more"), param{"next", "[]int8"}, param{"column", "int"})...)...)
	blocks, tiles := m.label("blocks"), m.label("tiles")
	columns := m.promptWide() * m.wide()
	m.promptFetched()
	m.take("R8", "*values", "DI", "column")
	m.op("SHLQ $2, DI")
	m.op("MOVQ $%d, R14", promptStrip/columns)
	m.at(blocks)
	m.take("SI", "*out", "R10", "len(out)", "R9", "*weights", "R12", "*old", "R13", "*more")
	m.at(tiles)
	m.promptFetch(8)
	m.promptColumns()
	m.op("ADDQ $%d, SI", 8*promptQueries)
	m.op("ADDQ $%d, R9", 4*pageTokens*promptQueries)
	m.op("SUBQ $%d, R10", promptQueries)
	m.op("JNZ %s", tiles)
	m.op("ADDQ $%d, DI", 4*columns)
	m.op("ADDQ $%d, R8", 4*columns)
	m.op("DECQ R14")
	m.op("JNZ %s", blocks)
	m.end()
}

// promptColumns computes a tile of columns.
func (m *machine) promptColumns() {
	const unroll = 4
	rows, store, done := m.label("rows"), m.label("store"), m.label("done")
	n := m.promptWide()
	for q := range promptQueries {
		m.op("MOVQ %d(SI), BX", 8*q)
		for line := 0; line < 4*n*m.wide(); line += 64 {
			m.op("PREFETCHT0 %s(BX)(DI*1)", shift(line))
		}
	}
	m.zero(0, promptQueries*n)
	m.ops("MOVQ R8, R11", "MOVQ R9, AX")
	m.op("MOVQ $%d, CX", pageTokens/unroll)
	m.at(rows)
	for u := range unroll {
		m.promptStep(u, 4*u, 4*pageTokens)
	}
	m.op("ADDQ $%d, R11", 4*promptStrip*unroll)
	m.op("ADDQ $%d, AX", 4*unroll)
	m.op("DECQ CX")
	m.op("JNZ %s", rows)
	m.ops("TESTQ R12, R12")
	m.op("JZ %s", store)
	m.promptMerge()
	m.op("ADDQ $%d, R12", 4*promptQueries)
	m.op("ADDQ $%d, R13", 4*promptQueries)
	m.op("JMP %s", done)
	m.at(store)
	m.promptOut(0, promptQueries, func(q, v int) string { return m.r(n*q + v) })
	m.at(done)
}

// promptOut stores registers to the rows of queries [from, to).
func (m *machine) promptOut(from, to int, register func(q, v int) string) {
	for q := from; q < to; q++ {
		m.op("MOVQ %d(SI), BX", 8*q)
		for v := range m.promptWide() {
			m.op("VMOVUPS %s, %d(BX)(DI*1)", register(q, v), 4*v*m.wide())
		}
	}
}

// promptMerge merges the sums of a tile with what is in its rows. Rows of the usual width are 4096
// bytes apart, four by four: a load that follows a store to another would wait for it.
func (m *machine) promptMerge() {
	wide := m.promptWide()
	n := promptQueries / m.halves // queries at a time: AVX2 has no more registers
	for first := 0; first < promptQueries; first += n {
		old := func(q, v int) int { return promptQueries*wide + wide*(q-first) + v }
		for q := first; q < first+n; q++ {
			m.op("MOVQ %d(SI), BX", 8*q)
			for v := range wide {
				m.op("VMOVUPS %d(BX)(DI*1), %s", 4*v*m.wide(), m.r(old(q, v)))
			}
			m.promptScale(q, old(q, 0), wide*q)
		}
		m.promptOut(first, first+n, func(q, v int) string { return m.r(old(q, v)) })
	}
}

// promptScale writes registers from old on = old times the factor of query q for what was there,
// plus those from sum on times that for what is added.
func (m *machine) promptScale(q, old, sum int) {
	n := m.promptWide()
	if m.halves == 1 {
		for v := range n {
			m.op("VMULPS.BCST %d(R12), %s, %s", 4*q, m.r(old+v), m.r(old+v))
			m.op("VFMADD231PS.BCST %d(R13), %s, %s", 4*q, m.r(sum+v), m.r(old+v))
		}
		return
	}
	const one = "Y15"
	m.op("VBROADCASTSS %d(R12), %s", 4*q, one)
	for v := range n {
		m.op("VMULPS %s, %s, %s", one, m.r(old+v), m.r(old+v))
	}
	m.op("VBROADCASTSS %d(R13), %s", 4*q, one)
	for v := range n {
		m.op("VFMADD231PS %s, %s, %s", one, m.r(sum+v), m.r(old+v))
	}
}
