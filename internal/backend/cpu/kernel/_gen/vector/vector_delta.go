package main

import "fmt"

// delta writes the kernels of the delta rule. They work on a strip of a head's state, the
// columns being a multiple of 16, and need no masks. A strip that is in a cache already
// has nothing to fetch ahead, and is worth a loop without it: loads are what limits it.
func (m *machine) delta() {
	m.deltaRead()
	m.deltaUpdate()
	m.deltaSteps()
}

// fetch prefetches a row of n registers at a distance.
func (m *machine) fetch(base, distance string, n int) {
	for line := 0; line < 4*n*m.wide(); line += 64 {
		m.op("PREFETCHT1 %s(%s)(%s*1)", shift(line), base, distance)
	}
}

// shift is an offset as it stands before an operand: nothing for zero.
func shift(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func (m *machine) deltaRead() {
	m.function("deltaRead", `R8 out, R9 delta, DI v, R10 state, each of the current columns, R11 bytes between rows of the
		state, SI what is fetched ahead, as a distance, R12 k, R13 q, BX current row, AX current key, CX keys
		left, DX columns left; sums of u in the first registers, of w in the next. Twin: deltaRead.`, 0, "",
		with(floats("out", "delta", "state"), param{"stride", "int"}, param{"ahead", "int"},
			param{"q", "[]float32"}, param{"k", "[]float32"}, param{"v", "[]float32"},
			param{"decay", "float32"}, param{"beta", "float32"}, param{"kq", "float32"})...)
	m.take("R8", "*out", "R9", "*delta", "DX", "len(delta)", "R10", "*state", "R11", "stride", "SI", "ahead", "R13", "*q", "R12", "*k", "DI", "*v")
	m.ops("SHLQ $2, R11", "SHLQ $2, SI")
	for _, n := range m.deltaWidths() {
		columns, near, some, fold, done := m.label("columns"), m.label("near"), m.label("some"), m.label("fold"), m.label("rest")
		m.at(columns)
		m.op("CMPQ DX, $%d", n*m.wide())
		m.op("JLT %s", done)
		m.zero(0, 8*n)
		m.ops("MOVQ R10, BX", "XORQ AX, AX")
		m.take("CX", "len(k)")
		m.ops("TESTQ SI, SI")
		m.op("JE %s", near)
		m.deltaRows(n, true, some)
		m.at(near)
		m.deltaRows(n, false, some)
		m.at(some) // one to three keys are left
		m.ops("ADDQ $4, CX")
		for part := range 3 {
			m.op("JE %s", fold)
			m.deltaRow(part, n)
			m.ops("DECQ CX")
		}
		m.at(fold)
		decay, beta, kq := 8*n+1, 8*n+2, 8*n+3
		m.spread("decay", decay)
		m.spread("beta", beta)
		m.spread("kq", kq)
		m.deltaFold(n)
		m.deltaOut(n, 0, 4*n, 0, decay, beta, kq)
		for c := range n {
			m.op("VMOVUPS %s, %s", m.r(c), times(4*c*m.wide(), "R9", "", "", 0))
		}
		for _, p := range []string{"R8", "R9", "DI", "R10"} {
			m.op("ADDQ $%d, %s", 4*n*m.wide(), p)
		}
		m.op("SUBQ $%d, DX", n*m.wide())
		m.op("JMP %s", columns)
		m.at(done)
	}
	m.end()
}

// deltaWidths are how many registers go side by side, each of which has eight sums.
func (m *machine) deltaWidths() []int {
	if m.halves == 1 {
		return []int{2, 1}
	}
	return []int{1}
}

// deltaRows writes the loop over four keys at a time; fewer are left at label some.
func (m *machine) deltaRows(n int, ahead bool, some string) {
	rows := m.label("rows")
	m.at(rows)
	m.ops("SUBQ $4, CX")
	m.op("JLT %s", some)
	for part := range 4 {
		if ahead {
			m.fetch("BX", "SI", n)
		}
		m.deltaRow(part, n)
	}
	m.op("JMP %s", rows)
}

// deltaRow adds one row of the state to partial sum part.
func (m *machine) deltaRow(part, n int) {
	row := 8 * n
	k, q := m.r(row+1), m.r(row+2)
	m.op("VBROADCASTSS (R12)(AX*4), %s", k)
	m.op("VBROADCASTSS (R13)(AX*4), %s", q)
	for c := range n {
		m.op("VMOVUPS %s, %s", times(4*c*m.wide(), "BX", "", "", 0), m.r(row))
		m.op("VFMADD231PS %s, %s, %s", k, m.r(row), m.r(part*n+c))
		m.op("VFMADD231PS %s, %s, %s", q, m.r(row), m.r((4+part)*n+c))
	}
	m.ops("ADDQ R11, BX", "INCQ AX")
}

// deltaFold adds partial sums up: those of u into the first n registers, those of w from register
// 4n on.
func (m *machine) deltaFold(n int) {
	for c := range n {
		for _, side := range []int{0, 4} {
			s := func(part int) string { return m.r((side+part)*n + c) }
			m.op("VADDPS %s, %s, %s", s(1), s(0), s(0))
			m.op("VADDPS %s, %s, %s", s(3), s(2), s(2))
			m.op("VADDPS %s, %s, %s", s(2), s(0), s(0))
		}
	}
}

// deltaOut computes n registers of delta from u and the values at DI, and the outputs from w, which
// go to R8. The other arguments are the first or only registers; delta may be u.
func (m *machine) deltaOut(n, u, w, delta, decay, beta, kq int) {
	for c := range n {
		u, w, d, at := m.r(u+c), m.r(w+c), m.r(delta+c), 4*c*m.wide()
		m.op("VFNMADD213PS %s, %s, %s", times(at, "DI", "", "", 0), m.r(decay), u)
		m.op("VMULPS %s, %s, %s", m.r(beta), u, d)
		m.op("VMULPS %s, %s, %s", m.r(decay), w, w)
		m.op("VFMADD231PS %s, %s, %s", m.r(kq), d, w)
		m.op("VMOVUPS %s, %s", w, times(at, "R8", "", "", 0))
	}
}

func (m *machine) deltaUpdate() {
	m.function("deltaUpdate", `R8 dst and R10 src of the current columns, R9 and R11 bytes between their rows, R13 what is
		fetched ahead, as a distance, DI delta, R12 k, BX and SI current rows, AX current key, CX number of keys,
		DX columns left. Twin: deltaUpdate.`, 0, "",
		param{"dst", "[]float32"}, param{"dstStride", "int"}, param{"src", "[]float32"}, param{"srcStride", "int"}, param{"ahead", "int"},
		param{"k", "[]float32"}, param{"delta", "[]float32"}, param{"decay", "float32"})
	m.take("R8", "*dst", "R9", "dstStride", "R10", "*src", "R11", "srcStride", "R13", "ahead",
		"R12", "*k", "CX", "len(k)", "DI", "*delta", "DX", "len(delta)")
	m.ops("SHLQ $2, R9", "SHLQ $2, R11", "SHLQ $2, R13")
	m.spread("decay", 10)
	for _, n := range []int{2 * m.halves, m.halves} {
		columns, near, next, done := m.label("columns"), m.label("near"), m.label("next"), m.label("rest")
		m.at(columns)
		m.op("CMPQ DX, $%d", n*m.wide())
		m.op("JLT %s", done)
		for c := range n {
			m.op("VMOVUPS %s, %s", times(4*c*m.wide(), "DI", "", "", 0), m.r(4+c))
		}
		m.ops("MOVQ R8, BX", "MOVQ R10, SI", "XORQ AX, AX", "TESTQ R13, R13")
		m.op("JE %s", near)
		m.updateRows(n, true)
		m.op("JMP %s", next)
		m.at(near)
		m.updateRows(n, false)
		m.at(next)
		for _, p := range []string{"R8", "R10", "DI"} {
			m.op("ADDQ $%d, %s", 4*n*m.wide(), p)
		}
		m.op("SUBQ $%d, DX", n*m.wide())
		m.op("JMP %s", columns)
		m.at(done)
	}
	m.end()
}

// updateRows writes the loop over all keys.
func (m *machine) updateRows(n int, ahead bool) {
	rows := m.label("rows")
	m.at(rows)
	if ahead {
		m.fetch("SI", "R13", n)
	}
	m.op("VBROADCASTSS (R12)(AX*4), %s", m.r(9))
	for c := range n {
		m.op("VMULPS %s, %s, %s", times(4*c*m.wide(), "SI", "", "", 0), m.r(10), m.r(c))
		m.op("VFMADD231PS %s, %s, %s", m.r(9), m.r(4+c), m.r(c))
		m.op("VMOVUPS %s, %s", m.r(c), times(4*c*m.wide(), "BX", "", "", 0))
	}
	m.ops("ADDQ R9, BX", "ADDQ R11, SI", "INCQ AX", "CMPQ AX, CX")
	m.op("JLT %s", rows)
}

// deltaSteps writes the delta rule over many tokens of a strip, which stays in the first cache.
// A token's update is made in the pass over the state in which the next token reads it. Rows go by
// key mod 4, one partial sum after the other, which leaves registers for more columns: loads of
// keys and queries are what would limit it otherwise.
func (m *machine) deltaSteps() {
	widths := []int{2} // registers side by side
	if m.halves == 1 {
		widths = []int{2, 1}
	}
	m.function("deltaSteps", `R8 out and DI v of the current columns, R10 state, R11 and R9 bytes of one and of four of its
		rows, BX current row, R12 key of the token before, R13 query and R14 key of the current, AX place in
		these, CX keys, R15 current token, DX bytes before the current columns, SI addresses for a moment; u
		in the first registers, w in the next; the third partial sums are in the frame. Twin: deltaSteps.`, 8*widths[0]*m.wide(), "",
		param{"out", "[]float32"}, param{"outStride", "int"}, param{"delta", "[]float32"}, param{"state", "[]float32"},
		param{"mixed", "[]float32"}, param{"stride", "int"}, param{"keys", "int"}, param{"values", "int"},
		param{"decay", "[]float32"}, param{"beta", "[]float32"}, param{"kq", "[]float32"})
	tokens, stop := m.label("tokens"), m.label("stop")
	m.take("R8", "*out", "R10", "*state", "R11", "len(delta)", "R13", "*mixed", "R14", "keys", "DI", "values", "CX", "keys")
	m.ops("SHLQ $2, R11", "LEAQ (R11*4), R9", "LEAQ (R13)(R14*4), R14", "LEAQ (R13)(DI*4), DI", "XORQ R15, R15")
	m.at(tokens)
	m.ops("INCQ R15")
	m.op("CMPQ R15, %s", m.arg("decay", "_len"))
	m.op("JGE %s", stop)
	m.take("SI", "outStride")
	m.ops("LEAQ (R8)(SI*4), R8")
	m.take("SI", "stride")
	m.ops("MOVQ R14, R12", "LEAQ (R13)(SI*4), R13", "LEAQ (R14)(SI*4), R14", "LEAQ (DI)(SI*4), DI", "XORQ DX, DX")
	for _, n := range widths {
		columns, done := m.label("columns"), m.label("rest")
		m.at(columns)
		m.ops("MOVQ R11, BX", "SUBQ DX, BX")
		m.op("CMPQ BX, $%d", 4*n*m.wide())
		m.op("JLT %s", done)
		m.deltaStep(n)
		for _, p := range []string{"R8", "DI", "DX"} {
			m.op("ADDQ $%d, %s", 4*n*m.wide(), p)
		}
		m.op("JMP %s", columns)
		m.at(done)
	}
	m.ops("SUBQ DX, R8", "SUBQ DX, DI")
	m.op("JMP %s", tokens)
	m.at(stop)
	m.end()
}

// deltaStep writes the pass over n registers of each row of the state.
func (m *machine) deltaStep(n int) {
	decay, delta, saved := 2*n+4, 2*n+5, 3*n+5
	column := func(c int) string { return times(4*c*m.wide(), "SI", "DX", "", 1) }
	m.take("SI", "outStride") // stores that must wait for their line hold up those of the state
	for line := 0; line < 4*n*m.wide(); line += 64 {
		m.op("PREFETCHT0 %s", times(line, "R8", "SI", "", 8))
	}
	m.take("SI", "*delta")
	for c := range n {
		m.op("VMOVUPS %s, %s", column(c), m.r(delta+c))
	}
	m.take("SI", "*decay")
	m.op("VBROADCASTSS -4(SI)(R15*4), %s", m.r(decay))
	for part := range 4 {
		m.zero(0, 2*n)
		m.deltaPart(n, part, decay, delta)
		for i := range 2 * n { // (0+1)+(2+3)
			sum, save, frame := m.r(i), m.r(saved+i), fmt.Sprintf("sums-%d(SP)", 4*m.wide()*(i+1))
			switch part {
			case 0:
				m.op("VMOVAPS %s, %s", sum, save)
			case 1:
				m.op("VADDPS %s, %s, %s", sum, save, save)
			case 2:
				m.op("VMOVUPS %s, %s", sum, frame)
			default:
				m.op("VADDPS %s, %s, %s", frame, sum, sum)
				m.op("VADDPS %s, %s, %s", sum, save, sum)
			}
		}
	}
	beta, kq := 2*n+1, 2*n+2
	for i, name := range []string{"beta", "kq"} {
		m.take("SI", "*"+name)
		m.op("VBROADCASTSS (SI)(R15*4), %s", m.r(beta+i))
	}
	m.take("SI", "*decay")
	m.op("VBROADCASTSS (SI)(R15*4), %s", m.r(decay))
	m.deltaOut(n, 0, n, delta, decay, beta, kq)
	m.take("SI", "*delta")
	for c := range n {
		m.op("VMOVUPS %s, %s", m.r(delta+c), column(c))
	}
}

// deltaPart writes the loop over every fourth row from row part on, two at a time.
func (m *machine) deltaPart(n, part, decay, delta int) {
	before, key, query := 2*n+1, 2*n+2, 2*n+3
	row := func(i int) { // the row i parts from here
		m.op("VBROADCASTSS %s, %s", times(16*i, "R12", "AX", "", 4), m.r(before))
		m.op("VBROADCASTSS %s, %s", times(16*i, "R14", "AX", "", 4), m.r(key))
		m.op("VBROADCASTSS %s, %s", times(16*i, "R13", "AX", "", 4), m.r(query))
		for c := range n {
			s, place := m.r(2*n), times(4*c*m.wide(), "BX", "R9", "", i)
			m.op("VMULPS %s, %s, %s", place, m.r(decay), s)
			m.op("VFMADD231PS %s, %s, %s", m.r(before), m.r(delta+c), s)
			m.op("VMOVUPS %s, %s", s, place)
			m.op("VFMADD231PS %s, %s, %s", m.r(key), s, m.r(c))
			m.op("VFMADD231PS %s, %s, %s", m.r(query), s, m.r(n+c))
		}
	}
	pairs, last, done := m.label("pairs"), m.label("last"), m.label("part")
	m.ops("LEAQ (R10)(DX*1), BX")
	for range part {
		m.ops("ADDQ R11, BX")
	}
	m.op("MOVQ $%d, AX", part)
	m.ops("LEAQ -4(CX), SI") // more than one row is left before it
	m.at(pairs)
	m.ops("CMPQ AX, SI")
	m.op("JGE %s", last)
	row(0)
	row(1)
	m.ops("LEAQ (BX)(R9*2), BX", "ADDQ $8, AX")
	m.op("JMP %s", pairs)
	m.at(last)
	m.ops("CMPQ AX, CX")
	m.op("JGE %s", done)
	row(0)
	m.at(done)
}
