package main

import "fmt"

func floatFile(s *source) {
	for _, name := range []string{"BF16", "F16", "F32"} {
		neonProduct(s, name)
	}
	s.define("decode", "Nibble", "Two", "Byte", "Bits", "Spread0", "Spread1", "Spread2", "Spread3", "Halves", "Levels", "Half", "Sign16", "256")
	for _, bits := range []int{2, 3, 4, 5, 6, 8} {
		decoder{codes{s, "decode", bits, false, false, "R1", "R7", false}, fmt.Sprintf("Affine%d", bits)}.function()
	}
	decoder{codes{s, "decode", 4, true, false, "R1", "R7", false}, "FP4"}.function()
	decoder{codes{s, "decode", 4, true, true, "R1", "R7", false}, "Levels"}.function()
	decodeBytes(s)
}

// product is a kernel for one tile and some rows, a quarter of a column per register.
type product struct {
	*source
	elem string
	rows int
}

const mostRows = 3

func neonProduct(s *source, elem string) {
	name := "float" + elem + "NEON"
	s.line("// func %s(a *floatArgs)", name)
	s.line(`//
// One tile of %s weights times 1 to %d rows; the twin is floatTile. Nothing need be
// aligned; exactly the pairs and the tail column that a names are read.
//
//	R0 a    R1 weights    R2 even    R3 odd    R4 pairs left    R5 what to prefetch
//	R6 its step    R8-R10 rows    V0-V23 accumulators: for each row, even and odd
//	V24-V27 a column    V28-V30 numbers of the rows    V31 mask`, elem, mostRows)
	s.line("TEXT ·%s(SB), NOSPLIT, $0-8", name)
	s.ops("MOVD a+0(FP), R0", "MOVD floatArgs_w(R0), R1", "MOVD floatArgs_even(R0), R2", "MOVD floatArgs_odd(R0), R3")
	s.ops("MOVD floatArgs_pairs(R0), R4", "MOVD floatArgs_ahead(R0), R5", "MOVD floatArgs_step(R0), R6")
	s.ops("MOVD floatArgs_x(R0), R8", "MOVD floatArgs_stride(R0), R11", "ADD R11, R8, R9", "ADD R11, R9, R10")
	s.ops("MOVD floatArgs_rows(R0), R12", "MOVD floatArgs_first(R0), R13")
	if elem == "BF16" {
		s.ops("MOVD $0xffff0000, R11", "VDUP R11, V31.S4")
	}
	for r := 1; r < mostRows; r++ {
		s.op("CMP $%d, R12", r)
		s.op("BEQ rows%d", r)
	}
	for r := mostRows; r > 0; r-- {
		product{s, elem, r}.variant()
	}
	s.line("")
}

func (p product) acc(row, odd, quarter int) int { return 8*row + 4*odd + quarter }

func (p product) variant() {
	p.line("rows%d:", p.rows)
	p.op("CBZ R13, load%d", p.rows)
	for i := range 8 * p.rows {
		p.zero(i)
	}
	p.op("JMP begun%d", p.rows)
	p.line("load%d:", p.rows)
	p.each(func(acc, at int, reg string) { p.load2(acc, at, reg) })
	p.line("begun%d:", p.rows)
	p.op("CBZ R4, tail%d", p.rows)
	p.line("loop%d:", p.rows)
	lines, pair := 1, 64
	if p.elem == "F32" {
		lines, pair = 2, 128
	}
	for range lines {
		p.ops("PRFM (R5), PLDL1KEEP", "ADD R6, R5")
	}
	for r := range p.rows {
		p.op("FMOVD.P 8(R%d), F%d", 8+r, 28+r)
	}
	p.column(0)
	p.column(1)
	p.op("ADD $%d, R1", pair)
	p.op("SUBS $1, R4")
	p.op("BNE loop%d", p.rows)
	p.line("tail%d:", p.rows)
	p.op("MOVD floatArgs_tail(R0), R4")
	p.op("CBZ R4, end%d", p.rows)
	for r := range p.rows {
		p.op("FMOVS (R%d), F%d", 8+r, 28+r)
	}
	p.column(0)
	p.line("end%d:", p.rows)
	p.op("MOVD floatArgs_last(R0), R4")
	p.op("CBNZ R4, sum%d", p.rows)
	p.each(func(acc, at int, reg string) { p.op("FSTPQ (F%d, F%d), %d(%s)", acc, acc+1, at, reg) })
	p.op("RET")
	p.line("sum%d:", p.rows)
	for r := range p.rows {
		for q := range 4 {
			p.fadd(p.acc(r, 0, q), p.acc(r, 0, q), p.acc(r, 1, q))
			p.store(p.acc(r, 0, q), 64*r+16*q, "R2")
		}
	}
	p.op("RET")
}

// each visits the accumulators two by two, with where they are kept.
func (p product) each(f func(acc, at int, reg string)) {
	for r := range p.rows {
		for q := 0; q < 4; q += 2 {
			f(p.acc(r, 0, q), 64*r+16*q, "R2")
			f(p.acc(r, 1, q), 64*r+16*q, "R3")
		}
	}
}

// column multiplies the even or odd column of a pair.
func (p product) column(odd int) {
	switch p.elem {
	case "BF16":
		p.load2(24, 0, "R1")
		p.load2(26, 32, "R1")
		for q := 24; q < 28; q++ {
			if odd == 0 {
				p.op("VSHL $16, V%d.S4, V%d.S4", q, q)
			} else {
				p.and(q, q, 31)
			}
		}
	case "F16":
		p.load(24, 32*odd, "R1")
		p.load(26, 32*odd+16, "R1")
		for q := 24; q < 28; q += 2 {
			p.fcvtl2(q+1, q)
			p.fcvtl(q, q)
		}
	default:
		p.load2(24, 64*odd, "R1")
		p.load2(26, 64*odd+32, "R1")
	}
	for r := range p.rows {
		for q := range 4 {
			p.fmlaAt(p.acc(r, odd, q), 24+q, 28+r, odd)
		}
	}
}

// decoder writes the float32 values of a quantized block.
type decoder struct {
	codes
	name string
}

const decoderComment = `// func decode%sNEON(a *decodeArgs)
//
// The twin is Weight.floats, for whole blocks. Nothing need be aligned.
//
//	R0 dst    R8 block    R11 blocks left    R12 stride    R9 scales    R10 columns    R13 their step
//	R1 first plane    R7 second plane    R3 columns, later steps left    R4 type of scales
//	V0-V5 temporaries    V16-V19 scales    V20-V23 biases    V24-V31 constants`

// beginDecoder begins the loop over blocks; constants loads what it needs.
func (s *source) beginDecoder(name string, biases int, constants func()) {
	s.line(decoderComment, name)
	s.line("TEXT ·decode%sNEON(SB), NOSPLIT, $0-8", name)
	s.op("MOVD a+0(FP), R1")
	for _, f := range []struct{ field, reg string }{
		{"dst", "R0"},
		{"block", "R8"},
		{"blocks", "R11"},
		{"stride", "R12"},
		{"scales", "R9"},
		{"columns", "R10"},
		{"scale", "R4"},
		{"step", "R13"},
	} {
		s.op("MOVD decodeArgs_%s(R1), %s", f.field, f.reg)
	}
	constants()
	s.line("block:")
	s.ops("MOVD R8, R1", "MOVD R10, R3", "MOVD R9, R15")
	if biases >= 0 {
		s.ops("TBNZ $3, R4, pointed // decodePoints", "CMP $3, R4", "BGE implied")
	}
	s.scales("R4", 16, biases, "")
}

// endDecoder goes on with the next block, if there is one.
func (s *source) endDecoder(biases int) {
	s.ops("ADD R12, R8", "ADD R13, R9", "SUBS $1, R11", "BNE block", "RET")
	if biases >= 0 {
		s.impliedBiases(biases)
		s.pointed(biases)
	}
	s.line("")
}

// impliedBiases loads scales of which biases are a multiple: of f16 if R4 is 3, or f32.
func (s *source) impliedBiases(biases int) {
	s.line("implied:")
	s.op("BGT wide")
	s.halves(16)
	s.op("JMP multiple")
	s.line("wide:")
	s.load2(16, 0, "R15")
	s.load2(18, 32, "R15")
	s.line("multiple:")
	s.ops("MOVD a+0(FP), R15", "FMOVS decodeArgs_zero(R15), F0")
	for h := range 4 {
		s.fmulAt(biases+h, 16+h, 0, 0)
	}
	s.op("JMP scaled")
}

// zeroScales loads 16 scales at R15 without biases to V16-V19; the lowest bits of kind are their type.
func (s *source) zeroScales(kind string) {
	s.op("TBNZ $0, %s, zeroHalf", kind)
	s.op("TBNZ $1, %s, zeroFull", kind)
	for j := 0; j < 4; j += 2 {
		s.load(16+j, 8*j, "R15")
		s.widen2(17+j, 16+j)
		s.widen(16+j, 16+j)
	}
	s.op("JMP zeroScaled")
	s.line("zeroFull:")
	s.load2(16, 0, "R15")
	s.load2(18, 32, "R15")
	s.op("JMP zeroScaled")
	s.line("zeroHalf:")
	s.halves(16)
	s.line("zeroScaled:")
}

// points loads the 16 bytes at R15 as numbers to four registers from d on.
func (s *source) points(d int) {
	s.load(d, 0, "R15")
	s.op("VUXTL2 V%d.B16, V%d.H8", d, d+2)
	s.op("VUXTL V%d.B8, V%d.H8", d, d)
	for j := 0; j < 4; j += 2 {
		s.op("VUXTL2 V%d.H8, V%d.S4", d+j, d+j+1)
		s.op("VUXTL V%d.H4, V%d.S4", d+j, d+j)
	}
	for j := range 4 {
		s.scvtf(d+j, d+j)
	}
}

// pointed loads the scales of codes that have zero points, and these, negative, instead of biases.
func (s *source) pointed(biases int) {
	s.line("pointed:")
	s.zeroScales("R4")
	s.ops("MOVD a+0(FP), R15", "MOVD decodeArgs_zeros(R15), R5", "CBZ R5, equal", "ADD R9, R5, R15")
	s.points(biases)
	for h := range 4 {
		s.fneg(biases+h, biases+h)
	}
	s.op("JMP scaled")
	s.line("equal:")
	s.op("FMOVS decodeArgs_zero(R15), F0")
	for h := range 4 {
		s.op("VDUP V0.S[0], V%d.S4", biases+h)
	}
	s.op("JMP scaled")
}

// halves loads the 16 halves at R15 as numbers to four registers from d on.
func (s *source) halves(d int) {
	for j := 0; j < 4; j += 2 {
		s.load(d+j, 8*j, "R15")
		s.fcvtl2(d+j+1, d+j)
		s.fcvtl(d+j, d+j)
	}
}

func (d decoder) function() {
	biases := 20
	if d.fp4 {
		biases = -1
	}
	d.beginDecoder(d.name, biases, func() {
		d.prepare()
		if !d.fp4 {
			d.constant(d.prefix, "Byte", 31)
		}
	})
	switch d.bits {
	case 3:
		d.op("ADD R3<<2, R1, R7")
	case 5, 6:
		d.op("ADD R3<<3, R1, R7")
	}
	d.op("LSR $4, R3")
	if !d.fp4 {
		d.op("TBZ $3, R4, step // decodePoints")
		d.steps("points", true)
		d.op("JMP decoded")
	}
	d.steps("step", false)
	d.line("decoded:")
	d.endDecoder(biases)
}

// steps is the loop over the columns, of codes with zero points or others.
func (d decoder) steps(label string, pointed bool) {
	d.line("%s:", label)
	for v := range 4 {
		for h := range 4 {
			d.vector(v, h, 0, 1)
			d.columns(v, h, pointed)
		}
	}
	d.advance()
	d.ops("ADD $1024, R0", "SUBS $1, R3")
	d.op("BNE %s", label)
}

// columns writes the four columns of the codes in V0.
func (d decoder) columns(v, h int, pointed bool) {
	for i := range 4 {
		x := 2 + i
		switch {
		case d.fp4 && i < 3:
			d.op("VSHL $%d, V0.S4, V%d.S4", 24-8*i, x)
			d.two(0x4f280400, "sshr.4s #24", x, x)
		case d.fp4:
			d.two(0x4f280400, "sshr.4s #24", x, 0)
		case i == 0:
			d.and(x, 0, 31)
		case i == 3:
			d.op("VUSHR $24, V0.S4, V%d.S4", x)
		default:
			d.op("VUSHR $%d, V0.S4, V%d.S4", 8*i, x)
			d.and(x, x, 31)
		}
		d.scvtf(x, x)
		if pointed {
			d.fadd(x, x, 20+h)
		}
		d.fmul(x, x, 16+h)
		if !d.fp4 && !pointed {
			d.fadd(x, x, 20+h)
		}
		d.store(x, 256*v+64*i+16*h, "R0")
	}
}

// decodeBytes decodes E4M3: sign-extended and shifted it is a half, 256 times too small.
func decodeBytes(s *source) {
	s.beginDecoder("E4M3", -1, func() {
		s.constant("decode", "Half", 24)
		s.constant("decode", "Sign16", 25)
		s.constant("decode", "256", 26)
	})
	s.line("column:")
	s.op("FMOVQ.P 16(R1), F0")
	s.two(0x4f0fa400, "sshll2.8h #7", 2, 0)
	s.two(0x0f0fa400, "sshll.8h #7", 0, 0)
	for x := 0; x < 4; x += 2 {
		s.and(x, x, 24)
		s.or(4, x, 25)
		s.op("VCMEQ V24.H8, V4.H8, V4.H8")
		s.or(x, x, 4)
		s.fcvtl2(x+1, x)
		s.fcvtl(x, x)
	}
	for q := range 4 {
		s.fmul(q, q, 26)
		s.fmul(q, q, 16+q)
		s.store(q, 16*q, "R0")
	}
	s.ops("ADD $64, R0", "SUBS $1, R3", "BNE column")
	s.endDecoder(-1)
}
