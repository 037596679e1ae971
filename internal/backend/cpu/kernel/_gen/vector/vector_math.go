package main

import (
	"fmt"
	"math"
)

// floats are n parameters of type []float32.
func floats(names ...string) []param {
	list := make([]param, len(names))
	for i, n := range names {
		list[i] = param{n, "[]float32"}
	}
	return list
}

// with appends parameters.
func with(list []param, more ...param) []param { return append(list, more...) }

// math writes the kernels that go over rows of numbers.
func (m *machine) math() {
	m.dot()
	m.norms()
	m.gates()
	m.sums()
	m.rotate()
	m.softmax()
	m.merge()
}

// coefficient is a number of a polynomial.
type coefficient struct {
	name  string
	value float32
}

// horner writes p = (((p*x + first)*x + second) ...).
func (m *machine) horner(p, x int, list ...coefficient) {
	for _, c := range list {
		m.op("VFMADD213PS %s, %s, %s", m.number(c.name, c.value), m.r(x), m.r(p))
	}
}

// exp writes register p = exp(x), x at most zero or not a number. It overwrites x and uses
// registers s to s+3. Unless limit is zero x may be anything, and register limit holds the
// number 89, above which nothing is finite.
func (m *machine) exp(x, p, s, limit int) {
	X, P, N, R, L, mask := m.r(x), m.r(p), m.r(s), m.r(s+1), m.r(s+2), m.r(s+3)
	if m.halves == 1 {
		mask = "K2"
	}
	magic, one := m.number("round", 3<<22), m.number("one", 1)
	m.op("VCMPPS $0x15, %s, %s, %s", m.number("expMin", -87.33654), X, mask) // not less
	if limit != 0 {
		m.op("VMINPS %s, %s, %s", X, m.r(limit), X) // X itself if it is not a number
	}
	m.op("VMOVUPS %s, %s", magic, N)
	m.op("VFMADD231PS %s, %s, %s", m.number("log2e", 1.44269504), X, N)
	m.op("VSUBPS %s, %s, %s", magic, N, N)
	m.op("VFMADD231PS %s, %s, %s", m.number("minusLn2Hi", -0.693145751953125), N, X)
	m.op("VMULPS %s, %s, %s", m.number("minusLn2Lo", -1.42860682030941723212e-6), N, L)
	m.op("VADDPS %s, %s, %s", L, X, R)
	m.op("VMOVUPS %s, %s", m.number("exp5", 0.000198909882), P)
	m.horner(p, s+1, coefficient{"exp4", 0.00139336474}, coefficient{"exp3", 0.00833331048},
		coefficient{"exp2", 0.0416664667}, coefficient{"exp1", 0.166666672}, coefficient{"exp0", 0.5})
	m.op("VMULPS %s, %s, %s", R, R, R)
	m.op("VFMADD213PS %s, %s, %s", L, R, P)
	m.op("VADDPS %s, %s, %s", one, X, R)
	m.op("VSUBPS %s, %s, %s", one, R, L)
	m.op("VSUBPS %s, %s, %s", L, X, X)
	m.op("VADDPS %s, %s, %s", X, P, P)
	m.op("VADDPS %s, %s, %s", R, P, P)
	if m.halves == 1 {
		m.op("VSCALEFPS.Z %s, %s, K2, %s", N, P, P)
		return
	}
	bias := m.bits("bias", 127)
	m.op("VCVTPS2DQ %s, %s", N, L)
	m.op("VPSRAD $1, %s, %s", L, R)
	m.op("VPSUBD %s, %s, %s", R, L, L)
	for _, r := range []string{R, L} {
		m.op("VPADDD %s, %s, %s", bias, r, r)
		m.op("VPSLLD $23, %s, %s", r, r)
		m.op("VMULPS %s, %s, %s", r, P, P)
	}
	m.op("VANDPS %s, %s, %s", mask, P, P)
}

// quotient writes register e = exp(-|x|) and q = e/(1+e). It uses registers s to s+3.
func (m *machine) quotient(x, e, q, s int) {
	m.op("VORPS %s, %s, %s", m.bits("sign", 1<<31), m.r(x), m.r(q))
	m.exp(q, e, s, 0)
	m.op("VADDPS %s, %s, %s", m.number("one", 1), m.r(e), m.r(q))
	m.op("VDIVPS %s, %s, %s", m.r(q), m.r(e), m.r(q))
}

// reflect writes register y = from-y except where x is less than zero. It uses registers s and s+1.
func (m *machine) reflect(x int, from string, y, s int) {
	X, Y, S, T := m.r(x), m.r(y), m.r(s), m.r(s+1)
	if m.halves == 1 {
		m.op("VCMPPS $0x15, %s, %s, K2", m.number("zero", 0), X) // not less
		m.op("VSUBPS %s, %s, K2, %s", Y, from, Y)
		return
	}
	m.op("VXORPS %s, %s, %s", S, S, S)
	m.op("VCMPPS $0x11, %s, %s, %s", S, X, S)
	m.op("VSUBPS %s, %s, %s", Y, from, T)
	m.op("VBLENDVPS %s, %s, %s, %s", S, Y, T, Y)
}

// sigmoid writes register y = sigmoid(x). It uses registers s to s+4.
func (m *machine) sigmoid(x, y, s int) {
	E, one := m.r(s), m.r(s+1)
	m.quotient(x, s, y, s+1)
	m.op("VFNMADD213PS %s, %s, %s", E, E, m.r(y))
	m.op("VMOVUPS %s, %s", m.number("one", 1), one)
	m.reflect(x, one, y, s+2)
}

// silu writes register y = silu(x). It uses registers s to s+5.
func (m *machine) silu(x, y, s int) {
	X, Y, E, Q, L := m.r(x), m.r(y), m.r(s), m.r(s+1), m.r(s+3)
	m.quotient(x, s, s+1, s+2)
	m.op("VMULPS %s, %s, %s", E, X, Y)
	m.op("VMOVAPS %s, %s", Y, L)
	m.op("VFMSUB231PS %s, %s, %s", E, X, L)
	m.op("VFNMADD231PS %s, %s, %s", Y, Q, L)
	m.op("VADDPS %s, %s, %s", L, Y, Y)
	m.reflect(x, X, y, s+2)
}

// products writes sum over CX of the arrays at x and y in lane order, folded into the
// first lane of register 0. It uses registers 0 to 4.
func (m *machine) products(x, y string) {
	m.zero(0, m.halves)
	m.each(func(half int, masked bool) {
		m.load(x, half, masked, 2)
		if y != x {
			m.load(y, half, masked, 3)
		}
		b := 3
		if y == x {
			b = 2
		}
		m.accumulate(half, 4, half, masked, func(acc int) {
			m.op("VFMADD231PS %s, %s, %s", m.r(2), m.r(b), m.r(acc))
		})
	})
	m.fold("VADDPS", 0)
}

// squares writes the sum of squares of CX numbers at SI in wide lanes.
func (m *machine) squares() {
	m.wideSum(func(x, acc string) { m.op("VFMADD231PS %s, %s, %s", x, x, acc) })
}

// wideSum writes a sum over CX numbers at SI in wide lanes, folded into the first lane of register
// 0. add writes what adds one register to another. It uses registers 0 to 9. Lanes that a tail
// leaves out add a zero, which changes no sum that began with one.
func (m *machine) wideSum(add func(x, acc string)) {
	n := 4 * m.halves // accumulators, behind which one register loads
	bytes := 4 * m.wide()
	loop, rest := m.label("loop"), m.label("rest")
	m.zero(0, n)
	m.ops("MOVQ SI, AX", "MOVQ CX, DX")
	m.at(loop)
	m.op("SUBQ $64, DX")
	m.op("JLT %s", rest)
	for i := range n {
		m.op("VMOVUPS %s, %s", times(i*bytes, "AX", "", "", 0), m.r(n))
		add(m.r(n), m.r(i))
	}
	m.op("ADDQ $256, AX")
	m.op("JMP %s", loop)
	m.at(rest)
	m.op("ADDQ $64, DX")
	if m.halves == 1 {
		m.ops("MOVQ $-1, BX", "BZHIQ DX, BX, BX")
	} else {
		m.op("LEAQ %s+256(SB), BX", m.wideTails())
		m.ops("SHLQ $2, DX", "SUBQ DX, BX")
	}
	for i := range n {
		at := times(i*bytes, "AX", "", "", 0)
		if m.halves == 1 {
			m.ops("KMOVW BX, K1", "SHRQ $16, BX")
			m.op("VMOVUPS.Z %s, K1, %s", at, m.r(n))
		} else {
			m.op("VMOVUPS %s, %s", times(i*bytes, "BX", "", "", 0), m.r(n+1))
			m.op("VMASKMOVPS %s, %s, %s", at, m.r(n+1), m.r(n))
		}
		add(m.r(n), m.r(i))
	}
	for w := n / 2; w >= m.halves; w /= 2 {
		for i := range w {
			m.op("VADDPS %s, %s, %s", m.r(i+w), m.r(i), m.r(i))
		}
	}
	m.fold("VADDPS", 0)
}

func (m *machine) dot() {
	m.function("dot", "SI x, DI y, CX numbers, AX index; register 0 (and 1) sums. Twin: exactmath.Dot32.", 0, "(sum float32)", floats("x", "y")...)
	m.take("SI", "*x", "DI", "*y", "CX", "len(x)")
	m.products("SI", "DI")
	m.op("VMOVSS X0, %s", m.arg("sum", ""))
	m.end()
}

// rsqrt writes Xi = 1/sqrt(Xi). It uses the next register.
func (m *machine) rsqrt(i int) {
	m.op("VSQRTSS X%d, X%d, X%d", i, i, i)
	m.op("VMOVSS %s, X%d", m.constant("one", 1), i+1)
	m.op("VDIVSS X%d, X%d, X%d", i, i+1, i)
}

// rootMean fills a register with what a row of CX numbers is multiplied with, X0 being the sum of
// their squares and eps an argument. It uses register 1.
func (m *machine) rootMean(scale int) {
	m.ops("VXORPS X1, X1, X1", "VCVTSI2SSQ CX, X1, X1", "VDIVSS X1, X0, X0")
	m.op("VADDSS %s, X0, X0", m.arg("eps", ""))
	m.rsqrt(0)
	m.op("VBROADCASTSS X0, %s", m.r(scale))
}

func (m *machine) norms() {
	m.norm("norm", "rmsNorm", func() { m.products("SI", "SI") })
	m.norm("wideNorm", "wideNorm", m.squares)
}

func (m *machine) norm(name, twin string, sum func()) {
	m.function(name, fmt.Sprintf("SI x, R8 gain, DI dst, CX numbers, AX index; register 5 scale. Twin: %s.", twin), 0, "",
		with(floats("dst", "x", "gain"), param{"eps", "float32"})...)
	m.take("DI", "*dst", "SI", "*x", "R8", "*gain", "CX", "len(x)")
	sum()
	m.rootMean(5)
	m.each(func(half int, masked bool) {
		m.load("SI", half, masked, 2)
		m.load("R8", half, masked, 3)
		m.op("VMULPS %s, %s, %s", m.r(5), m.r(2), m.r(2))
		m.op("VMULPS %s, %s, %s", m.r(3), m.r(2), m.r(2))
		m.store(2, "DI", half, masked)
	})
	m.end()
}

func (m *machine) gates() {
	m.function("swiglu", "SI gate, R8 up, DI dst, CX numbers, AX index. Twin: swiglu.", 0, "", floats("dst", "gate", "up")...)
	m.take("DI", "*dst", "SI", "*gate", "R8", "*up", "CX", "len(dst)")
	m.hold(func() {
		m.each(func(half int, masked bool) {
			m.load("SI", half, masked, 0)
			m.silu(0, 1, 2)
			m.load("R8", half, masked, 0)
			m.op("VMULPS %s, %s, %s", m.r(0), m.r(1), m.r(1))
			m.store(1, "DI", half, masked)
		})
	})
	m.end()

	m.function("gateSigmoid", "SI x, DI dst, CX numbers, AX index; register 9 divisor. Twin: gateSigmoid.", 0, "",
		with(floats("dst", "x"), param{"divisor", "float32"})...)
	m.take("DI", "*dst", "SI", "*x", "CX", "len(dst)")
	m.spread("divisor", 9)
	m.each(func(half int, masked bool) {
		m.load("SI", half, masked, 0)
		m.sigmoid(0, 1, 2)
		m.load("DI", half, masked, 0)
		m.op("VDIVPS %s, %s, %s", m.r(9), m.r(0), m.r(0))
		m.op("VMULPS %s, %s, %s", m.r(1), m.r(0), m.r(0))
		m.store(0, "DI", half, masked)
	})
	m.end()

	m.function("sigmoids", "SI x, DI dst, CX numbers, AX index. Twin: sigmoids.", 0, "", floats("dst", "x")...)
	m.take("DI", "*dst", "SI", "*x", "CX", "len(dst)")
	m.each(func(half int, masked bool) {
		m.load("SI", half, masked, 0)
		m.sigmoid(0, 1, 2)
		m.store(1, "DI", half, masked)
	})
	m.end()
	m.decays()
}

// decays is exp(rate*softplus(x+bias)).
func (m *machine) decays() {
	m.function("decays", "SI x, DI dst, CX numbers, AX index; registers 9 rate, 10 bias, 11 limit of exp. Twin: decays.", 0, "",
		with(floats("dst", "x"), param{"rate", "float32"}, param{"bias", "float32"})...)
	m.take("DI", "*dst", "SI", "*x", "CX", "len(dst)")
	m.spread("rate", 9)
	m.spread("bias", 10)
	m.op("VMOVUPS %s, %s", m.number("expLimit", 89), m.r(11))
	m.each(func(half int, masked bool) {
		x, y, s, z, h := m.r(0), m.r(1), m.r(2), m.r(3), m.r(4)
		m.load("SI", half, masked, 0)
		m.op("VADDPS %s, %s, %s", m.r(10), x, x)
		m.op("VORPS %s, %s, %s", m.bits("sign", 1<<31), x, s)
		m.exp(2, 1, 3, 0)
		m.op("VADDPS %s, %s, %s", m.number("two", 2), y, s)
		m.op("VDIVPS %s, %s, %s", s, y, s)
		m.op("VMULPS %s, %s, %s", s, s, z)
		m.op("VMOVUPS %s, %s", m.number("log7", 2.0/17), h)
		m.horner(4, 3, coefficient{"log6", 2.0 / 15}, coefficient{"log5", 2.0 / 13}, coefficient{"log4", 2.0 / 11},
			coefficient{"log3", 2.0 / 9}, coefficient{"log2", 2.0 / 7}, coefficient{"log1", 2.0 / 5}, coefficient{"log0", 2.0 / 3})
		m.op("VFNMADD213PS %s, %s, %s", y, z, h)
		m.op("VFNMADD213PS %s, %s, %s", y, s, h)
		m.op("VXORPS %s, %s, %s", y, y, y)
		m.op("VMAXPS %s, %s, %s", y, x, x)
		m.op("VADDPS %s, %s, %s", h, x, x)
		m.op("VMULPS %s, %s, %s", m.r(9), x, x)
		m.exp(0, 1, 2, 11)
		m.store(1, "DI", half, masked)
	})
	m.end()
}

func (m *machine) sums() {
	m.function("add", "SI x, DI dst, CX numbers, AX index. Twin: add.", 0, "", floats("dst", "x")...)
	m.take("DI", "*dst", "SI", "*x", "CX", "len(dst)")
	m.each(func(half int, masked bool) {
		m.load("SI", half, masked, 0)
		m.load("DI", half, masked, 1)
		m.op("VADDPS %s, %s, %s", m.r(0), m.r(1), m.r(1))
		m.store(1, "DI", half, masked)
	})
	m.end()

	m.function("addScaled", "SI x, DI dst, CX numbers, AX index; register 5 w. Twin: addScaled.", 0, "",
		with(floats("dst", "x"), param{"w", "float32"})...)
	m.take("DI", "*dst", "SI", "*x", "CX", "len(dst)")
	m.spread("w", 5)
	m.each(func(half int, masked bool) {
		m.load("SI", half, masked, 0)
		m.load("DI", half, masked, 1)
		m.op("VMULPS %s, %s, %s", m.r(5), m.r(0), m.r(0))
		m.op("VADDPS %s, %s, %s", m.r(0), m.r(1), m.r(1))
		m.store(1, "DI", half, masked)
	})
	m.end()
}

func (m *machine) rotate() {
	m.function("rotate", "SI first of each pair, DI second, R8 cos, R9 sin, CX pairs, AX index. Twin: rotate.", 0, "", floats("x", "cos", "sin")...)
	m.take("SI", "*x", "R8", "*cos", "R9", "*sin", "CX", "len(cos)")
	m.op("LEAQ (SI)(CX*4), DI")
	m.each(func(half int, masked bool) {
		a, b, c, s, t := m.r(0), m.r(1), m.r(2), m.r(3), m.r(4)
		m.load("SI", half, masked, 0)
		m.load("DI", half, masked, 1)
		m.load("R8", half, masked, 2)
		m.load("R9", half, masked, 3)
		m.op("VMULPS %s, %s, %s", s, b, t)
		m.op("VFMSUB231PS %s, %s, %s", c, a, t)
		m.op("VMULPS %s, %s, %s", s, a, s)
		m.op("VFMADD231PS %s, %s, %s", c, b, s)
		m.store(4, "SI", half, masked)
		m.store(3, "DI", half, masked)
	})
	m.end()
}

func (m *machine) softmax() {
	m.function("softmax", "SI x, CX numbers, AX index; registers 0 and 1 highest, then 10 highest, 11 and 12 sums. Twin: softmax.", 0,
		"(top, sum float32)", floats("x")...)
	m.take("SI", "*x", "CX", "len(x)")
	for h := range m.halves {
		m.op("VMOVUPS %s, %s", m.number("lowest", float32(math.Inf(-1))), m.r(h))
	}
	m.each(func(half int, masked bool) {
		m.load("SI", half, masked, 2)
		m.accumulate(half, 3, half, masked, func(acc int) {
			m.op("VMAXPS %s, %s, %s", m.r(acc), m.r(2), m.r(acc))
		})
	})
	m.fold("VMAXPS", 0)
	m.op("VMOVSS X0, %s", m.arg("top", ""))
	m.op("VBROADCASTSS X0, %s", m.r(10))
	m.zero(11, m.halves)
	m.each(func(half int, masked bool) {
		m.load("SI", half, masked, 0)
		m.op("VSUBPS %s, %s, %s", m.r(10), m.r(0), m.r(0))
		m.exp(0, 1, 2, 0)
		m.store(1, "SI", half, masked)
		m.accumulate(11+half, 2, half, masked, func(acc int) {
			m.op("VADDPS %s, %s, %s", m.r(1), m.r(acc), m.r(acc))
		})
	})
	m.fold("VADDPS", 11)
	m.op("VMOVSS X11, %s", m.arg("sum", ""))
	m.end()
}

func (m *machine) merge() {
	m.function("merge", `SI page, DI out, R8 all, R9 now, CX numbers, AX index;
		registers 8 and 9 the factors of what was there and of what is added. Twin: merge.`, 0, "",
		with(floats("out", "page"), param{"all", "*SoftmaxSum"}, param{"now", "*SoftmaxSum"})...)
	m.take("DI", "*out", "SI", "*page", "CX", "len(out)", "R8", "all", "R9", "now")
	m.op("VBROADCASTSS (R8), %s", m.r(0)) // all.top
	m.op("VBROADCASTSS (R9), %s", m.r(1)) // now.top
	m.op("VMAXPS %s, %s, %s", m.r(0), m.r(1), m.r(2))
	m.ops("VMOVSS X2, (R8)")
	m.op("VSUBPS %s, %s, %s", m.r(2), m.r(0), m.r(0))
	m.op("VSUBPS %s, %s, %s", m.r(2), m.r(1), m.r(1))
	m.exp(0, 8, 2, 0)
	m.exp(1, 9, 2, 0)
	m.ops("VMOVSS 4(R8), X0", "VMULSS X8, X0, X0", "VMOVSS 4(R9), X1", "VFMADD231SS X9, X1, X0", "VMOVSS X0, 4(R8)")
	m.each(func(half int, masked bool) {
		m.load("DI", half, masked, 0)
		m.load("SI", half, masked, 1)
		m.op("VMULPS %s, %s, %s", m.r(8), m.r(0), m.r(0))
		m.op("VFMADD231PS %s, %s, %s", m.r(9), m.r(1), m.r(0))
		m.store(0, "DI", half, masked)
	})
	m.end()
}
