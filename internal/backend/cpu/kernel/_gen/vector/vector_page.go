package main

import "fmt"

// page writes the kernels of attention over one page of keys and values, whose rows are a
// multiple of 16 numbers long and have no gaps between them. They need no masks.
func (m *machine) page() {
	m.narrow()
	for _, bytes := range []int{4, 2} {
		m.scores(bytes)
		m.weigh(bytes)
	}
}

func (m *machine) narrow() {
	m.function("narrow", "SI x, DI dst, CX numbers, a multiple of 16. Twin: narrow.", 0, "",
		param{"dst", "[]uint16"}, param{"x", "[]float32"})
	loop, done := m.label("loop"), m.label("done")
	m.take("DI", "*dst", "SI", "*x", "CX", "len(x)")
	m.at(loop)
	m.ops("SUBQ $16, CX")
	m.op("JLT %s", done)
	if m.halves == 1 {
		m.ops("VMOVUPS (SI), Z0", "VCVTPS2PH $0, Z0, (DI)")
	} else {
		m.ops("VMOVUPS (SI), Y0", "VMOVUPS 32(SI), Y1", "VCVTPS2PH $0, Y0, (DI)", "VCVTPS2PH $0, Y1, 16(DI)")
	}
	m.ops("ADDQ $64, SI", "ADDQ $32, DI")
	m.op("JMP %s", loop)
	m.at(done)
	m.end()
}

// element is the Go type of a page's numbers.
func element(bytes int) string {
	return map[int]string{4: "[]float32", 2: "[]uint16"}[bytes]
}

// widen loads numbers of that many bytes as float32.
func (m *machine) widen(bytes int, from string, i int) {
	switch bytes {
	case 4:
		m.op("VMOVUPS %s, %s", from, m.r(i))
	default:
		m.op("VCVTPH2PS %s, %s", from, m.r(i))
	}
}

// times is an operand at base plus offset bytes plus n times a stride, n at most 3; the
// stride is in one register, three times it in another.
func times(offset int, base, stride, three string, n int) string {
	at := ""
	if offset != 0 {
		at = fmt.Sprint(offset)
	}
	switch n {
	case 0:
		return fmt.Sprintf("%s(%s)", at, base)
	case 3:
		return fmt.Sprintf("%s(%s)(%s*1)", at, base, three)
	default:
		return fmt.Sprintf("%s(%s)(%s*%d)", at, base, stride, n)
	}
}

// advance adds n times a stride to a register, n at most 8.
func (m *machine) advance(reg, stride, three string, n int) {
	if n >= 4 {
		m.op("LEAQ (%s)(%s*4), %s", reg, stride, reg)
	}
	switch n % 4 {
	case 1, 2:
		m.op("LEAQ (%s)(%s*%d), %s", reg, stride, n%4, reg)
	case 3:
		m.op("ADDQ %s, %s", three, reg)
	}
	if n == 8 {
		m.op("LEAQ (%s)(%s*4), %s", reg, stride, reg)
	}
}

// What will be read next comes from memory while the queries' blocks compute, each block
// bringing its share: asking for all of it in the first one would only make that one wait.
// Two variables on the stack belong to it: shift, the shares as a power of two, and step,
// how far to move at a time.

// largest is how many queries the largest block has.
func (m *machine) largest() int {
	if m.halves == 1 {
		return 8
	}
	return 2
}

// shareFetch sets shift for CX queries in blocks of some.
func (m *machine) shareFetch(block int) {
	done := m.label("shared")
	m.op("XORQ BX, BX")
	for n := 2 * block; n <= 16; n *= 2 {
		m.op("CMPQ CX, $%d", n)
		m.op("JLT %s", done)
		m.op("INCQ BX")
	}
	m.at(done)
	m.op("MOVQ BX, shift-16(SP)")
}

// setStep sets step to this block's share of bytes bytes.
func (m *machine) setStep(bytes int) {
	m.op("MOVQ $%d, BX", bytes)
	m.ops("MOVQ shift-16(SP), CX", "SHRQ CX, BX", "MOVQ BX, step-24(SP)")
}

// fetchOn prefetches at R11, where bytes bytes are being read, and moves on.
func (m *machine) fetchOn(bytes int) {
	for line := 0; line < bytes; line += 64 {
		m.op("PREFETCHT1 %s(R11)", shift(line))
	}
	m.op("ADDQ step-24(SP), R11")
}

// fetched starts again with what has just been read, and costs nothing, once all of the
// next rows are on their way.
func (m *machine) fetched(now string) {
	more := m.label("more")
	m.take("BX", "count")
	m.ops("IMULQ R13, BX")
	m.op("ADDQ %s, BX", m.arg("next", "_base"))
	m.ops("CMPQ R11, BX")
	m.op("JLT %s", more)
	m.take("R11", "*"+now)
	m.at(more)
}

// block is how many queries and keys are taken together.
type block struct{ queries, keys int }

// scores writes the dot products of queries and keys, times a scale. Blocks are as large
// as registers allow, since every number loaded is used once per row of the other side.
func (m *machine) scores(bytes int) {
	name := fmt.Sprintf("scores%d", 8*bytes)
	m.function(name, fmt.Sprintf(`R8 dst of the current queries, R9 the queries, R12 and SI bytes of a query, once and three
		times, R10 current keys, R13 and DX bytes of a key, likewise, DI keys left, R11 what is fetched ahead,
		BX and AX key and query numbers, CX numbers left; for eight queries DX numbers of the fifth. Twin: %s.`, name), 24, "",
		with(floats("dst", "q"), param{"keys", element(bytes)}, param{"next", element(bytes)},
			param{"d", "int"}, param{"count", "int"}, param{"scale", "float32"})...)
	m.take("R8", "*dst", "R9", "*q", "R11", "*next", "R12", "d", "CX", "len(dst)")
	m.ops("SHRQ $6, CX", "MOVQ CX, queries-8(SP)") // 64 scores per query
	m.shareFetch(m.largest())
	m.op("LEAQ (R12*%d), R13", bytes)
	m.ops("SHLQ $2, R12", "LEAQ (R12)(R12*2), SI", "LEAQ (R13)(R13*2), DX")
	blocks := []block{{8, 2}, {4, 4}, {2, 4}, {1, 4}}
	if m.halves == 2 {
		blocks = []block{{2, 2}, {1, 4}}
	} else {
		m.op("VMOVDQU32 %s, Z30", m.lanes("every4", []uint32{0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12}))
		m.spread("scale", 31)
	}
	for _, b := range blocks {
		again, done := m.label("queries"), m.label("fewer")
		m.at(again)
		m.op("CMPQ queries-8(SP), $%d", b.queries)
		m.op("JLT %s", done)
		m.take("R10", "*keys", "DI", "count")
		m.scoreRows(b, bytes)
		m.scoreRows(block{b.queries, 1}, bytes)
		m.op("ADDQ $%d, R8", 256*b.queries)
		m.advance("R9", "R12", "SI", b.queries)
		if b.queries == 8 {
			m.op("LEAQ (R13)(R13*2), DX")
		}
		m.op("SUBQ $%d, queries-8(SP)", b.queries)
		m.fetched("keys")
		m.op("JMP %s", again)
		m.at(done)
	}
	m.end()
}

// scoreRows writes the loop over blocks of keys.
func (m *machine) scoreRows(b block, bytes int) {
	rows, numbers, done := m.label("rows"), m.label("numbers"), m.label("rest")
	key := b.queries * b.keys * m.halves // the registers after the sums
	query := key + b.keys
	m.setStep(b.keys * bytes * 16)
	m.at(rows)
	m.op("CMPQ DI, $%d", b.keys)
	m.op("JLT %s", done)
	m.zero(0, key)
	m.ops("MOVQ R10, BX", "MOVQ R9, AX")
	if b.queries == 8 {
		m.op("LEAQ (AX)(R12*4), DX")
	}
	m.take("CX", "d")
	m.at(numbers)
	m.fetchOn(b.keys * bytes * 16)
	for h := range m.halves {
		for k := range b.keys {
			m.widen(bytes, times(bytes*8*h, "BX", "R13", "DX", k), key+k)
		}
		for q := range b.queries {
			m.op("VMOVUPS %s, %s", times(32*h, []string{"AX", "DX"}[q/4], "R12", "SI", q%4), m.r(query))
			for k := range b.keys {
				m.op("VFMADD231PS %s, %s, %s", m.r(query), m.r(key+k), m.r((q*b.keys+k)*m.halves+h))
			}
		}
	}
	m.op("ADDQ $%d, BX", 16*bytes)
	if b.queries == 8 {
		m.op("ADDQ $64, DX")
	}
	m.ops("ADDQ $64, AX", "SUBQ $16, CX")
	m.op("JGT %s", numbers)
	m.scoreSums(b)
	m.advance("R10", "R13", "DX", b.keys)
	m.op("ADDQ $%d, R8", 4*b.keys)
	m.op("SUBQ $%d, DI", b.keys)
	m.op("JMP %s", rows)
	m.at(done)
	if b.keys == 1 { // back to the first score
		m.take("BX", "count")
		m.ops("SHLQ $2, BX", "SUBQ BX, R8")
	}
}

// scoreSums folds the sums of every query and key, scales and stores them.
func (m *machine) scoreSums(b block) {
	sums := b.queries * b.keys
	if m.halves == 1 && b.keys > 1 {
		for first := 0; first < sums; first += 4 {
			m.foldFour(first)
			q := first / b.keys
			if b.keys == 4 {
				m.op("VMOVUPS X25, %s", times(256*q, "R8", "", "", 0))
			} else {
				m.op("VMOVLPS X25, %s", times(256*q, "R8", "", "", 0))
				m.op("VMOVHPS X25, %s", times(256*(q+1), "R8", "", "", 0))
			}
		}
		return
	}
	for i := sums - 1; i >= 0; i-- { // fold uses the register after
		acc := i * m.halves
		at := times(256*(i/b.keys)+4*(i%b.keys), "R8", "", "", 0)
		m.fold("VADDPS", acc)
		m.op("VMULSS %s, X%d, X%d", m.arg("scale", ""), acc, acc)
		m.op("VMOVSS X%d, %s", acc, at)
	}
}

// foldFour does what fold does for four registers from first on at once, scales the sums
// and leaves them in the first lanes of register 25.
func (m *machine) foldFour(first int) {
	s := func(k int) string { return m.r(first + k) }
	m.op("VSHUFF64X2 $0x44, %s, %s, Z24", s(1), s(0))
	m.op("VSHUFF64X2 $0xee, %s, %s, Z25", s(1), s(0))
	m.op("VSHUFF64X2 $0x44, %s, %s, Z26", s(3), s(2))
	m.op("VSHUFF64X2 $0xee, %s, %s, Z27", s(3), s(2))
	m.ops("VADDPS Z25, Z24, Z24", "VADDPS Z27, Z26, Z26")
	m.ops("VSHUFF64X2 $0x88, Z26, Z24, Z25", "VSHUFF64X2 $0xdd, Z26, Z24, Z27", "VADDPS Z27, Z25, Z25")
	m.ops("VPERMILPS $0x4e, Z25, Z24", "VADDPS Z24, Z25, Z25", "VPERMILPS $0xb1, Z25, Z24", "VADDPS Z24, Z25, Z25")
	m.ops("VMULPS Z31, Z25, Z25", "VPERMPS Z25, Z30, Z25")
}

// weigh writes the sums of values, each times its position's weight. A block is a few
// queries and a strip of a value.
func (m *machine) weigh(bytes int) {
	name := fmt.Sprintf("weigh%d", 8*bytes)
	m.function(name, fmt.Sprintf(`R8 dst of the current queries and strip, R12 and SI bytes of a query, once and three times,
		R9 weights of the current queries, R10 values of the strip, R13 bytes of a value, DI numbers left,
		R11 what is fetched ahead, BX and AX current value and weights, CX positions left. Twin: %s.`, name), 24, "",
		with(floats("dst", "p"), param{"values", element(bytes)}, param{"next", element(bytes)},
			param{"d", "int"}, param{"count", "int"})...)
	m.take("R8", "*dst", "R9", "*p", "R11", "*next", "R12", "d", "CX", "len(p)")
	m.ops("SHRQ $6, CX", "MOVQ CX, queries-8(SP)")
	m.shareFetch(m.largest())
	m.op("LEAQ (R12*%d), R13", bytes)
	m.ops("SHLQ $2, R12", "LEAQ (R12)(R12*2), SI")
	blocks := []struct{ queries, strip int }{{8, 32}, {4, 64}, {2, 64}, {1, 64}}
	if m.halves == 2 {
		blocks = blocks[2:]
		blocks[0].strip = 32
	}
	for _, b := range blocks {
		again, done := m.label("queries"), m.label("fewer")
		m.at(again)
		m.op("CMPQ queries-8(SP), $%d", b.queries)
		m.op("JLT %s", done)
		m.take("R10", "*values", "DI", "d")
		m.weighStrips(b.queries, b.strip, bytes)
		m.weighStrips(b.queries, 16, bytes)
		m.advance("R8", "R12", "SI", b.queries-1) // it has moved by one query
		m.op("ADDQ $%d, R9", 256*b.queries)
		m.op("SUBQ $%d, queries-8(SP)", b.queries)
		m.fetched("values")
		m.op("JMP %s", again)
		m.at(done)
	}
	m.end()
}

// weighStrips writes the loop over strips of that many numbers.
func (m *machine) weighStrips(queries, strip, bytes int) {
	strips, rows, done := m.label("strips"), m.label("rows"), m.label("rest")
	n := strip / m.wide()
	value := queries * n
	m.setStep(strip * bytes)
	m.at(strips)
	m.op("CMPQ DI, $%d", strip)
	m.op("JLT %s", done)
	m.zero(0, queries*n)
	m.ops("MOVQ R10, BX", "MOVQ R9, AX")
	m.take("CX", "count")
	m.at(rows)
	m.fetchOn(strip * bytes)
	m.weighRow(queries, n, value, bytes)
	m.ops("ADDQ R13, BX", "ADDQ $4, AX", "DECQ CX")
	m.op("JGT %s", rows)
	if queries == 8 {
		m.op("LEAQ (R8)(R12*4), BX")
	}
	for q := range queries {
		for v := range n {
			m.op("VMOVUPS %s, %s", m.r(q*n+v), times(4*v*m.wide(), []string{"R8", "BX"}[q/4], "R12", "SI", q%4))
		}
	}
	m.op("ADDQ $%d, R8", 4*strip)
	m.op("ADDQ $%d, R10", bytes*strip)
	m.op("SUBQ $%d, DI", strip)
	m.op("JMP %s", strips)
	m.at(done)
}

// weighRow adds one position's value, n registers, to the sums of every query.
func (m *machine) weighRow(queries, n, value, bytes int) {
	if m.halves == 1 {
		for v := range n {
			m.widen(bytes, times(bytes*v*m.wide(), "BX", "", "", 0), value+v)
		}
		for q := range queries {
			for v := range n {
				m.op("VFMADD231PS.BCST %d(AX), %s, %s", 256*q, m.r(value+v), m.r(q*n+v))
			}
		}
		return
	}
	for q := range queries {
		m.op("VBROADCASTSS %d(AX), %s", 256*q, m.r(value+q))
	}
	for v := range n {
		m.widen(bytes, times(bytes*v*m.wide(), "BX", "", "", 0), value+queries)
		for q := range queries {
			m.op("VFMADD231PS %s, %s, %s", m.r(value+queries), m.r(value+q), m.r(q*n+v))
		}
	}
}
