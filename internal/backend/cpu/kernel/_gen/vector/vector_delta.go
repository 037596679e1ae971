package main

import "fmt"

// delta writes the kernels of the delta rule. They work on a strip of a head's state, the
// columns being a multiple of 16, and need no masks. A strip that is in a cache already
// has nothing to fetch ahead, and is worth a loop without it: loads are what limits it.
func (m *machine) delta() {
	m.deltaRead()
	m.deltaUpdate()
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
	widths := []int{1} // registers across; each has eight sums
	if m.halves == 1 {
		widths = []int{2, 1}
	}
	for _, n := range widths {
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
		m.deltaFold(n)
		for _, p := range []string{"R8", "R9", "DI", "R10"} {
			m.op("ADDQ $%d, %s", 4*n*m.wide(), p)
		}
		m.op("SUBQ $%d, DX", n*m.wide())
		m.op("JMP %s", columns)
		m.at(done)
	}
	m.end()
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

// deltaFold computes delta and out from the partial sums.
func (m *machine) deltaFold(n int) {
	last := 8*n + 1
	decay, beta, kq := last, last+1, last+2
	m.spread("decay", decay)
	m.spread("beta", beta)
	m.spread("kq", kq)
	for c := range n {
		for _, side := range []int{0, 4} {
			s := func(part int) string { return m.r((side+part)*n + c) }
			m.op("VADDPS %s, %s, %s", s(1), s(0), s(0))
			m.op("VADDPS %s, %s, %s", s(3), s(2), s(2))
			m.op("VADDPS %s, %s, %s", s(2), s(0), s(0))
		}
		u, w, at := m.r(c), m.r(4*n+c), 4*c*m.wide()
		m.op("VFNMADD213PS %s, %s, %s", times(at, "DI", "", "", 0), m.r(decay), u)
		m.op("VMULPS %s, %s, %s", m.r(beta), u, u)
		m.op("VMOVUPS %s, %s", u, times(at, "R9", "", "", 0))
		m.op("VMULPS %s, %s, %s", m.r(decay), w, w)
		m.op("VFMADD231PS %s, %s, %s", m.r(kq), u, w)
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
