package main

import "math"

// tower writes the kernels that only vision towers have.
func (m *machine) tower() {
	m.layerNorm()
	m.gelus()
	m.mixProduct()
	m.mixWeights()
	m.mixDivide()
}

func (m *machine) layerNorm() {
	m.function("layerNorm", `SI x, R8 gain, R9 bias, DI dst, CX numbers, AX index; register 10 mean, then scale. Twin: layerNorm.`, 0, "",
		with(floats("dst", "x", "gain", "bias"), param{"eps", "float32"})...)
	m.take("DI", "*dst", "SI", "*x", "R8", "*gain", "R9", "*bias", "CX", "len(x)")
	m.wideSum(func(x, acc string) { m.op("VADDPS %s, %s, %s", x, acc, acc) })
	m.ops("VXORPS X1, X1, X1", "VCVTSI2SSQ CX, X1, X1", "VDIVSS X1, X0, X0")
	m.op("VBROADCASTSS X0, %s", m.r(10))
	m.each(func(half int, masked bool) {
		m.load("SI", half, masked, 0)
		m.op("VSUBPS %s, %s, %s", m.r(10), m.r(0), m.r(0))
		m.store(0, "DI", half, masked)
	})
	m.op("MOVQ DI, SI")
	m.squares()
	m.ops("VXORPS X1, X1, X1", "VCVTSI2SSQ CX, X1, X1", "VDIVSS X1, X0, X0")
	m.op("VADDSS %s, X0, X0", m.arg("eps", ""))
	m.rsqrt(0)
	m.op("VBROADCASTSS X0, %s", m.r(10))
	m.each(func(half int, masked bool) {
		m.load("DI", half, masked, 0)
		m.load("R8", half, masked, 1)
		m.load("R9", half, masked, 2)
		m.op("VMULPS %s, %s, %s", m.r(10), m.r(0), m.r(0))
		m.op("VFMADD213PS %s, %s, %s", m.r(2), m.r(1), m.r(0))
		m.store(0, "DI", half, masked)
	})
	m.end()
}

// magnitude writes register a = |x|, or what register limit holds if that is less. What is not a
// number stays so.
func (m *machine) magnitude(x, a, limit int) {
	m.op("VANDPS %s, %s, %s", m.bits("magnitude", 1<<31-1), m.r(x), m.r(a))
	m.op("VMINPS %s, %s, %s", m.r(a), m.r(limit), m.r(a))
}

// above writes register x = max(x, 0) - y. It uses register s.
func (m *machine) above(x, y, s int) {
	m.op("VXORPS %s, %s, %s", m.r(s), m.r(s), m.r(s))
	m.op("VMAXPS %s, %s, %s", m.r(s), m.r(x), m.r(x))
	m.op("VSUBPS %s, %s, %s", m.r(y), m.r(x), m.r(x))
}

func (m *machine) gelus() {
	for _, k := range []struct {
		name  string
		limit float32
		body  func()
	}{{"gelu", 14, m.gelu}, {"geluTanh", 16, m.geluTanh}} {
		m.function(k.name, "SI x, DI dst, CX numbers, AX index; register 13 where the result is x or zero. Twin: "+k.name+".", 0, "", floats("dst", "x")...)
		m.take("DI", "*dst", "SI", "*x", "CX", "len(dst)")
		m.op("VMOVUPS %s, %s", m.number(k.name+"Limit", k.limit), m.r(13))
		m.hold(func() {
			m.each(func(half int, masked bool) {
				m.load("SI", half, masked, 0)
				m.magnitude(0, 1, 13)
				k.body()
				m.store(0, "DI", half, masked)
			})
		})
		m.end()
	}
}

// gelu writes register 0 = gelu of it, register 1 being its magnitude. It uses registers 0 to 9.
func (m *machine) gelu() {
	a, z, low, e, t, p := m.r(1), m.r(2), m.r(3), m.r(4), m.r(5), m.r(6)
	m.op("VMULPS %s, %s, %s", a, a, z)
	m.op("VMOVAPS %s, %s", z, low)
	m.op("VFMSUB231PS %s, %s, %s", a, a, low)
	m.op("VMULPS %s, %s, %s", m.number("minusHalf", -0.5), z, z)
	m.exp(2, 4, 5, 0)
	m.op("VMULPS %s, %s, %s", m.number("minusHalf", -0.5), low, low)
	m.op("VFMADD231PS %s, %s, %s", low, e, e)
	m.op("VMOVUPS %s, %s", m.number("one", 1), p)
	m.op("VMOVAPS %s, %s", p, t)
	m.op("VFMADD231PS %s, %s, %s", m.number("quarter", 0.25), a, p)
	m.op("VDIVPS %s, %s, %s", p, t, t)
	m.op("VMOVUPS %s, %s", m.number("gelu9", 0.0153836033), p)
	m.horner(6, 5, coefficient{"gelu8", -0.0563454643}, coefficient{"gelu7", 0.0366152550}, coefficient{"gelu6", 0.0483180834},
		coefficient{"gelu5", -0.00367795936}, coefficient{"gelu4", 0.0953755683}, coefficient{"gelu3", 0.0690116361},
		coefficient{"gelu2", 0.0961508647}, coefficient{"gelu1", 0.0994166231}, coefficient{"gelu0", 0.0997517922})
	m.op("VMULPS %s, %s, %s", t, a, a)
	m.op("VMULPS %s, %s, %s", p, a, a)
	m.op("VMULPS %s, %s, %s", e, a, a)
	m.above(0, 1, 2)
}

// geluTanh is gelu by tanh. It uses registers 0 to 9.
func (m *machine) geluTanh() {
	a, z, low, c, s, t, u := m.r(1), m.r(2), m.r(3), m.r(4), m.r(6), m.r(7), m.r(8)
	sum, c0, c1 := m.r(5), m.number("tanh0", 1.59576917), m.number("tanh1", 0.0713548139)
	m.op("VMULPS %s, %s, %s", a, a, z)
	m.op("VMOVAPS %s, %s", z, low)
	m.op("VFMSUB231PS %s, %s, %s", a, a, low)
	m.op("VMULPS %s, %s, %s", c1, z, c)
	m.op("VMOVAPS %s, %s", c, sum)
	m.op("VFMSUB231PS %s, %s, %s", c1, z, sum)
	m.op("VFMADD231PS %s, %s, %s", c1, low, sum)
	m.op("VFMADD231PS %s, %s, %s", m.number("tanh1Lo", 2.39883240e-9), z, sum)
	m.op("VMOVUPS %s, %s", c0, z)
	m.op("VADDPS %s, %s, %s", c, z, s)
	m.op("VSUBPS %s, %s, %s", z, s, t)
	m.op("VSUBPS %s, %s, %s", t, s, u)
	m.op("VSUBPS %s, %s, %s", u, z, u)
	m.op("VSUBPS %s, %s, %s", t, c, t)
	m.op("VADDPS %s, %s, %s", t, u, u)
	m.op("VADDPS %s, %s, %s", m.number("tanh0Lo", -4.53406804e-8), u, u)
	m.op("VADDPS %s, %s, %s", u, sum, sum)
	v, e, p, q := m.r(2), m.r(4), m.r(5), m.r(7)
	m.op("VMULPS %s, %s, %s", s, a, v)
	m.op("VMOVAPS %s, %s", v, low)
	m.op("VFMSUB231PS %s, %s, %s", s, a, low)
	m.op("VFMADD231PS %s, %s, %s", sum, a, low)
	m.op("VORPS %s, %s, %s", m.bits("sign", 1<<31), v, v)
	m.exp(2, 4, 5, 0)
	m.op("VFNMADD231PS %s, %s, %s", low, e, e)
	m.op("VMULPS %s, %s, %s", e, a, p)
	m.op("VMOVAPS %s, %s", p, low)
	m.op("VFMSUB231PS %s, %s, %s", e, a, low)
	m.op("VADDPS %s, %s, %s", m.number("one", 1), e, q)
	m.op("VDIVPS %s, %s, %s", q, e, q)
	m.op("VFNMADD231PS %s, %s, %s", q, p, low)
	m.op("VADDPS %s, %s, %s", low, p, p)
	m.above(0, 5, 2)
}

// Sizes of package kernel: MixQueries and MixTile.
const mixQueries, mixTile = 32, 8

// mixProduct multiplies all of a tile at once with AVX-512: 8 rows of 32 queries are 16 registers.
// AVX2 has as many for a quarter of it.
func (m *machine) mixProduct() {
	m.function("mixProduct", `DI dst, SI a, BX b of the tile, R8 and R9 bytes down and across, CX numbers of dst left, R10 scale, R11
		row of a, R12 and R13 of b and four numbers on, R14 three times R9, DX rows left, R15 what is fetched ahead. Registers 0 on
		sums, then those of a and of b. Twin: mixProduct.`, 0, "",
		with(floats("dst", "a", "b", "next"), param{"n", "int"}, param{"down", "int"}, param{"across", "int"}, param{"scale", "*[MixQueries]float32"})...)
	m.take("DI", "*dst", "SI", "*a", "BX", "*b", "R15", "*next", "CX", "len(dst)", "R8", "down", "R9", "across", "R10", "scale")
	m.ops("SHLQ $2, R8", "SHLQ $2, R9", "LEAQ (R9)(R9*2), R14")
	rows, queries := mixTile, mixQueries
	if m.halves == 2 {
		rows, queries = mixTile/2, mixQueries/2
	}
	tiles := m.label("tiles")
	m.at(tiles)
	for r := 0; r < mixTile; r += rows {
		for q := 0; q < mixQueries; q += queries {
			m.mixBlock(r, rows, q, queries/m.wide())
		}
	}
	m.ops("LEAQ (BX)(R9*8), BX")
	m.op("ADDQ $%d, DI", 4*mixTile*mixQueries)
	m.op("SUBQ $%d, CX", mixTile*mixQueries)
	m.op("JNZ %s", tiles)
	m.end()
}

// mixBlock computes rows rows from row r on of a tile, for n registers of queries from query q on.
func (m *machine) mixBlock(r, rows, q, n int) {
	begin, loop := m.label("begin"), m.label("loop")
	a, b := rows*n, rows*n+n
	at := func(i, v int) string { return times(4*((r+i)*mixQueries+q+v*m.wide()), "DI", "", "", 0) }
	m.take("DX", "n")
	m.ops("MOVQ SI, R11", "MOVQ BX, R12", "LEAQ (BX)(R9*4), R13", "TESTQ R10, R10")
	m.op("JNZ %s", begin)
	m.zero(0, rows*n)
	m.op("JMP %s", loop)
	m.at(begin)
	for v := range n {
		m.op("VMOVUPS %s, %s", times(4*(q+v*m.wide()), "R10", "", "", 0), m.r(a+v))
	}
	for i := range rows {
		for v := range n {
			m.op("VMULPS %s, %s, %s", at(i, v), m.r(a+v), m.r(i*n+v))
		}
	}
	m.at(loop)
	if r+q == 0 { // as many bytes as a row of the tile has
		m.op("PREFETCHT0 (R15)")
		m.op("ADDQ $%d, R15", 4*mixTile)
	}
	for v := range n {
		m.op("VMOVUPS %s, %s", times(4*(q+v*m.wide()), "R11", "", "", 0), m.r(a+v))
	}
	for i := range rows {
		one := m.r(b + i%2)
		m.op("VBROADCASTSS %s, %s", times(0, []string{"R12", "R13"}[(r+i)/4], "R9", "R14", (r+i)%4), one)
		for v := range n {
			m.op("VFMADD231PS %s, %s, %s", m.r(a+v), one, m.r(i*n+v))
		}
	}
	m.op("ADDQ $%d, R11", 4*mixQueries)
	m.ops("ADDQ R8, R12", "ADDQ R8, R13", "DECQ DX")
	m.op("JNZ %s", loop)
	for i := range rows {
		for v := range n {
			m.op("VMOVUPS %s, %s", m.r(i*n+v), at(i, v))
		}
	}
}

// mixWeights takes two registers of queries at a time.
func (m *machine) mixWeights() {
	const n = 2
	m.function("mixWeights", `SI scores, DI sums, CX keys, DX keys left, AX place. Registers 10 and 11 sums, 12 and 13 highest,
		16 on constants. Twin: mixWeights.`, 0, "",
		with(floats("scores"), param{"s", "*MixSums"})...)
	m.take("SI", "*scores", "CX", "len(scores)", "DI", "s")
	m.op("SHRQ $5, CX") // keys
	m.hold(func() {
		for q := 0; q < mixQueries; q += n * m.wide() {
			m.mixWeigh(q, n)
		}
	})
	m.end()
}

// mixWeigh writes the weights of n registers of queries from query q on.
func (m *machine) mixWeigh(q, n int) {
	m.mixTops(q, n)
	for v := range n { // the factor of what was summed
		at := 4 * (q + v*m.wide())
		m.op("VMOVUPS MixSums_Top+%d(DI), %s", at, m.r(0))
		m.op("VMOVUPS %s, MixSums_Top+%d(DI)", m.r(12+v), at)
		m.op("VSUBPS %s, %s, %s", m.r(12+v), m.r(0), m.r(0))
		m.exp(0, 1, 2, 0)
		m.op("VMOVUPS %s, MixSums_Scale+%d(DI)", m.r(1), at)
		m.op("VMULPS MixSums_Weight+%d(DI), %s, %s", at, m.r(1), m.r(10+v))
	}
	loop := m.label("exps")
	m.op("LEAQ %d(SI), AX", 4*q)
	m.op("MOVQ CX, DX")
	m.at(loop)
	for v := range n {
		at := times(4*v*m.wide(), "AX", "", "", 0)
		m.op("VMOVUPS %s, %s", at, m.r(0))
		m.op("VSUBPS %s, %s, %s", m.r(12+v), m.r(0), m.r(0))
		m.exp(0, 1, 2, 0)
		m.op("VMOVUPS %s, %s", m.r(1), at)
		m.op("VADDPS %s, %s, %s", m.r(1), m.r(10+v), m.r(10+v))
	}
	m.op("ADDQ $%d, AX", 4*mixQueries)
	m.op("DECQ DX")
	m.op("JNZ %s", loop)
	for v := range n {
		m.op("VMOVUPS %s, MixSums_Weight+%d(DI)", m.r(10+v), 4*(q+v*m.wide()))
	}
}

// mixTops writes registers 12 on = the highest of the scores of n registers of queries from query q
// on and of what was the highest before. Of the chains every fourth key has one. It uses
// registers 0 to 9.
func (m *machine) mixTops(q, n int) {
	const chains = 4
	four, one, rest, done := m.label("tops"), m.label("top"), m.label("rest"), m.label("done")
	for i := range chains {
		for v := range n {
			if i == 0 {
				m.op("VMOVUPS MixSums_Top+%d(DI), %s", 4*(q+v*m.wide()), m.r(12+v))
			} else {
				m.op("VMOVUPS %s, %s", m.number("lowest", float32(math.Inf(-1))), m.r(n*(i-1)+v))
			}
		}
	}
	top := func(i, v int) string {
		if i == 0 {
			return m.r(12 + v)
		}
		return m.r(n*(i-1) + v)
	}
	higher := func(i, v int) {
		m.op("VMOVUPS %s, %s", times(4*(i*mixQueries+v*m.wide()), "AX", "", "", 0), m.r(8+v))
		m.op("VMAXPS %s, %s, %s", top(i, v), m.r(8+v), top(i, v))
	}
	m.op("LEAQ %d(SI), AX", 4*q)
	m.op("MOVQ CX, DX")
	m.at(four)
	m.op("SUBQ $%d, DX", chains)
	m.op("JLT %s", rest)
	for i := range chains {
		for v := range n {
			higher(i, v)
		}
	}
	m.op("ADDQ $%d, AX", 4*chains*mixQueries)
	m.op("JMP %s", four)
	m.at(rest)
	m.op("ADDQ $%d, DX", chains)
	m.op("JZ %s", done)
	m.at(one)
	for v := range n {
		higher(0, v)
	}
	m.op("ADDQ $%d, AX", 4*mixQueries)
	m.op("DECQ DX")
	m.op("JNZ %s", one)
	m.at(done)
	for i := 1; i < chains; i++ {
		for v := range n {
			m.op("VMAXPS %s, %s, %s", top(i, v), top(0, v), top(0, v))
		}
	}
}

func (m *machine) mixDivide() {
	m.function("mixDivide", "SI x, DI y, CX numbers of x left. Registers 8 on y. Twin: mixDivide.", 0, "",
		with(floats("x"), param{"y", "*[MixQueries]float32"})...)
	m.take("SI", "*x", "CX", "len(x)", "DI", "y")
	n := mixQueries / m.wide()
	for v := range n {
		m.op("VMOVUPS %s, %s", times(4*v*m.wide(), "DI", "", "", 0), m.r(8+v))
	}
	loop := m.label("rows")
	m.at(loop)
	for v := range n {
		at := times(4*v*m.wide(), "SI", "", "", 0)
		m.op("VMOVUPS %s, %s", at, m.r(v))
		m.op("VDIVPS %s, %s, %s", m.r(8+v), m.r(v), m.r(v))
		m.op("VMOVUPS %s, %s", m.r(v), at)
	}
	m.op("ADDQ $%d, SI", 4*mixQueries)
	m.op("SUBQ $%d, CX", mixQueries)
	m.op("JNZ %s", loop)
	m.end()
}
