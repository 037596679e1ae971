package main

// fetchRows is how many rows ahead inputs of a head are asked for: its part of a row is too short
// for the processor to foresee the next one's.
const fetchRows = 4

// deltaInputs writes what comes before and after the delta rule. All go over many rows in one
// call: a head's part of a row is short, and the beginning of one hides behind the end of another.
func (m *machine) deltaInputs() {
	m.convolve()
	m.keys()
	m.gatedNorm()
}

// rows writes a loop over as many rows as R15 says.
func (m *machine) rows(body func()) {
	rows, done := m.label("rows"), m.label("end")
	m.at(rows)
	m.ops("DECQ R15")
	m.op("JLT %s", done)
	body()
	m.op("JMP %s", rows)
	m.at(done)
}

// convolve's taps are read anew for every 16 numbers: it is the silu that takes the time.
func (m *machine) convolve() {
	m.function("convolve", `SI taps, R8 their number, R9 the current, R10 taps left, R11 and R12 its weights and input, R13
		bytes from the first row's input to the current one's, R14 to what is fetched ahead, R15 rows left,
		DI dst, CX columns, AX index; register 0 sum. Twin: convolve.`, 0, "",
		with(floats("dst"), param{"stride", "int"}, param{"columns", "int"}, param{"rows", "int"}, param{"taps", "[]Tap"}, param{"step", "int"})...)
	m.take("DI", "*dst", "CX", "columns", "R15", "rows", "SI", "*taps", "R8", "len(taps)", "R14", "step")
	m.op("IMULQ $%d, R14", 4*fetchRows)
	m.op("XORQ R13, R13")
	m.hold(func() {
		m.rows(func() {
			m.each(m.convolved)
			m.take("AX", "step", "BX", "stride")
			m.ops("LEAQ (R13)(AX*4), R13", "LEAQ (DI)(BX*4), DI")
		})
	})
	m.end()
}

// convolved writes the convolution of a register's numbers.
func (m *machine) convolved(half int, masked bool) {
	next, done := m.label("tap"), m.label("silu")
	m.ops("MOVQ SI, R9", "MOVQ R8, R10", "MOVQ (R9), R11", "MOVQ 8(R9), R12", "ADDQ R13, R12")
	m.load("R11", half, masked, 0)
	m.load("R12", half, masked, 1)
	m.op("VMULPS %s, %s, %s", m.r(1), m.r(0), m.r(0))
	m.at(next)
	m.ops("DECQ R10")
	m.op("JLE %s", done)
	m.ops("ADDQ $16, R9", "MOVQ (R9), R11", "MOVQ 8(R9), R12", "ADDQ R13, R12")
	m.load("R11", half, masked, 1)
	m.load("R12", half, masked, 2)
	m.op("VFMADD231PS %s, %s, %s", m.r(1), m.r(2), m.r(0))
	m.op("JMP %s", next)
	m.at(done)
	if half == 0 { // a line of the cache
		m.ops("LEAQ (R12)(AX*4), R12", "PREFETCHT0 (R12)(R14*1)")
	}
	m.silu(0, 1, 2)
	m.store(1, "DI", half, masked)
}

func (m *machine) keys() {
	m.function("keys", `SI query and DI key of the current row, R8 place of their product, R9 bytes between rows, R15 rows left,
		CX numbers, AX index; registers 0 and 1 sums of the query's squares, 2 and 3 of the key's; then 10 and
		11 scales. Twin: keys.`, 0, "",
		with(floats("mixed"), param{"stride", "int"}, param{"keys", "int"}, param{"scale", "float32"}, param{"kq", "[]float32"})...)
	m.take("SI", "*mixed", "R9", "stride", "CX", "keys", "R8", "*kq", "R15", "len(kq)")
	m.ops("SHLQ $2, R9", "LEAQ (SI)(CX*4), DI")
	bases := []string{"SI", "DI"}
	m.rows(func() {
		m.zero(0, 4)
		m.each(func(half int, masked bool) {
			for i, base := range bases {
				x := m.r(4 + i)
				m.load(base, half, masked, 4+i)
				m.accumulate(2*i+half, 6, half, masked, func(acc int) { m.op("VFMADD231PS %s, %s, %s", x, x, m.r(acc)) })
			}
		})
		for i := range bases {
			m.fold("VADDPS", 2*i)
			m.op("VADDSS %s, X%d, X%d", m.number("tiny", 1e-6), 2*i, 2*i)
			m.rsqrt(2 * i)
			if i == 0 {
				m.op("VMULSS %s, X0, X0", m.arg("scale", ""))
			}
			m.op("VBROADCASTSS X%d, %s", 2*i, m.r(10+i))
		}
		m.zero(0, m.halves)
		m.each(func(half int, masked bool) {
			for i, base := range bases {
				m.load(base, half, masked, 4+i)
				m.op("VMULPS %s, %s, %s", m.r(10+i), m.r(4+i), m.r(4+i))
				m.store(4+i, base, half, masked)
			}
			m.accumulate(half, 6, half, masked, func(acc int) { m.op("VFMADD231PS %s, %s, %s", m.r(4), m.r(5), m.r(acc)) })
		})
		m.fold("VADDPS", 0)
		m.ops("VMOVSS X0, (R8)", "ADDQ $4, R8", "ADDQ R9, SI", "ADDQ R9, DI")
	})
	m.end()
}

// gatedNorm's gate is silu.
func (m *machine) gatedNorm() {
	m.function("gatedNorm", `DI dst, SI z, R8 gain, R9 and R10 bytes between rows of dst and of z, R14 to what is fetched ahead, R15
		rows left, CX columns, AX index; register 8 scale. Twin: gatedNorm.`, 0, "",
		with(floats("dst"), param{"stride", "int"}, param{"rows", "int"}, param{"z", "[]float32"}, param{"step", "int"}, param{"gain", "[]float32"}, param{"eps", "float32"})...)
	m.take("DI", "*dst", "R9", "stride", "R15", "rows", "SI", "*z", "R10", "step", "R8", "*gain", "CX", "len(gain)")
	m.ops("SHLQ $2, R9", "SHLQ $2, R10")
	m.op("IMUL3Q $%d, R10, R14", fetchRows)
	m.hold(func() {
		m.rows(func() {
			m.products("DI", "DI")
			m.rootMean(8)
			m.each(func(half int, masked bool) {
				m.load("SI", half, masked, 0)
				if half == 0 {
					m.ops("LEAQ (SI)(AX*4), R11", "PREFETCHT0 (R11)(R14*1)")
				}
				m.silu(0, 1, 2)
				m.load("DI", half, masked, 0)
				m.load("R8", half, masked, 2)
				m.op("VMULPS %s, %s, %s", m.r(8), m.r(0), m.r(0))
				m.op("VMULPS %s, %s, %s", m.r(2), m.r(0), m.r(0))
				m.op("VMULPS %s, %s, %s", m.r(0), m.r(1), m.r(1))
				m.store(1, "DI", half, masked)
			})
			m.ops("ADDQ R9, DI", "ADDQ R10, SI")
		})
	})
	m.end()
}
