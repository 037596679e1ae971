package main

import "fmt"

// Sets of kernels: NEON multiplies bytes and adds up, Dot has dot products of signed bytes,
// I8MM of unsigned with signed bytes, and of two rows with two others at once.
const (
	setNEON = "NEON"
	setDot  = "Dot"
	setI8MM = "I8MM"
)

var integerFormats = []codes{
	{bits: 2}, {bits: 3}, {bits: 4}, {bits: 5}, {bits: 6}, {bits: 8}, {bits: 4, fp4: true},
}

func integerFile(s *source) {
	s.define("integer", "Nibble", "Two", "Bits", "Spread0", "Spread1", "Spread2", "Spread3", "Halves", "Sign8", "One8")
	for _, set := range []string{setNEON, setDot, setI8MM} {
		for _, f := range integerFormats {
			f.source, f.prefix, f.first, f.second = s, "integer", "R8", "R7"
			for rows := 1; rows <= 4; rows++ {
				if set == setI8MM && rows < 4 && f.bits < 8 {
					continue // Dot does as well
				}
				integer{f, set, rows}.function()
			}
		}
	}
	magnitudeKernel(s)
	roundKernel(s)
}

// integer is a kernel for rows rows. V0-V15 are sums: for each row, four quarters of a
// tile. V16-V19 are codes, V20 numbers of the rows. See multiplyPair for another order.
type integer struct {
	codes
	set  string
	rows int
}

func (k integer) name() string {
	format := fmt.Sprint(k.bits)
	if k.fp4 {
		format = "FP4"
	}
	return fmt.Sprintf("integer%s%sRows%d", k.set, format, k.rows)
}

const integerComment = `// func %s(a *integerArgs)
//
// The twin is integerTile. Nothing need be aligned. Sums of a tile are kept in its output.
//
//	R0 a    R1 block    R8, R7 its planes    R5 numbers of the rows    R6 output
//	R2 tiles, R3 groups, R4 steps left    R9 bytes of a block    R10 where its scales begin
//	R11 their type    R13 bytes of an output tile    R15 scratch    R19 second plane
//	V0-V15 sums    V16-V19 codes    V20 numbers of the rows    V21-V23 scratch
//	V24-V31 constants    at the end of a group V16-V19 scales    V20-V23 biases
//	V24, V25 the row's scale and sum    V26-V29 output`

func (k integer) function() {
	k.line(integerComment, k.name())
	k.line("TEXT ·%s(SB), NOSPLIT, $0-8", k.name())
	k.op("MOVD a+0(FP), R0")
	for _, f := range []struct{ field, reg string }{
		{"weights", "R1"},
		{"out", "R6"},
		{"tiles", "R2"},
		{"block", "R9"},
		{"codes", "R10"},
		{"scale", "R11"},
		{"outTile", "R13"},
		{"plane", "R19"},
	} {
		k.op("MOVD integerArgs_%s(R0), %s", f.field, f.reg)
	}
	k.line("tile:")
	k.op("MOVD integerArgs_acts(R0), R5")
	k.op("MOVD integerArgs_groups(R0), R3")
	k.zero(0)
	for q := range 4 * k.rows {
		k.store(0, 16*q, "R6")
	}
	k.line("group:")
	k.group()
	k.op("ADD R9, R1")
	k.op("SUBS $1, R3")
	k.op("BNE group")
	k.op("ADD R13, R6")
	k.op("SUBS $1, R2")
	k.op("BNE tile")
	k.op("RET")
	k.line("")
}

// matrix reports whether rows are multiplied two by two.
func (k integer) matrix() bool { return k.set == setI8MM && k.rows == 4 }

// signed reports whether codes of 8 bits are made signed by subtracting 128.
func (k integer) signed() bool { return k.bits == 8 && k.set != setI8MM }

func (k integer) group() {
	k.op("MOVD R1, R8")
	k.op("ADD R19, R1, R7")
	k.op("MOVD integerArgs_steps(R0), R4")
	k.prepare()
	for i := range 4 * k.rows {
		k.zero(i)
	}
	if k.signed() {
		for r := range k.rows {
			k.zero(24 + r)
		}
		k.constant(k.prefix, "One8", 30)
		k.constant(k.prefix, "Sign8", 31)
	}
	k.line("step:")
	first, _ := k.strides()
	for at := 0; at < first; at += 64 {
		k.op("PRFM %d(R8), PLDL1KEEP", 3072+at)
	}
	for v := range 4 {
		switch {
		case !k.matrix():
			k.multiply(v)
		case v%2 == 0:
			k.multiplyPair(v)
		}
	}
	k.op("ADD $%d, R5", 16*k.rows)
	k.advance()
	k.op("SUBS $1, R4")
	k.op("BNE step")
	k.finish()
}

// multiply multiplies vector v of a step. Four numbers of each row meet it; a register
// holds those of four rows, or of several vectors if there are fewer rows.
func (k integer) multiply(v int) {
	index := 0
	switch k.rows {
	case 1:
		index = v
	case 2:
		index = v % 2 * 2
	}
	if index == 0 {
		k.load(20, 4*k.rows*v, "R5")
	}
	for h := range 4 {
		k.vector(v, h, 16+h, 21)
		if k.signed() {
			k.op("VEOR V31.B16, V%d.B16, V%d.B16", 16+h, 16+h)
		}
	}
	for r := range k.rows {
		if k.set == setNEON {
			k.op("VDUP V20.S[%d], V22.S4", index+r)
		}
		for h := range 4 {
			k.dot(4*r+h, 16+h, index+r)
		}
		if k.signed() {
			k.dot(24+r, 30, index+r)
		}
	}
}

// multiplyPair multiplies vectors v and v+1 of a step: eight numbers of two rows meet eight
// codes of two outputs. Sums 2i and 2i+1 are outputs 2i and 2i+1 with rows 0, 1 and 2, 3.
func (k integer) multiplyPair(v int) {
	k.load2(20, 16*v, "R5")
	k.three(0x4e803800, "zip1.4s", 22, 20, 21)
	k.three(0x4e807800, "zip2.4s", 23, 20, 21)
	code, name := 0x4e80a400, "smmla.4s"
	if k.bits == 8 {
		code, name = 0x4e80ac00, "usmmla.4s"
	}
	for h := range 4 {
		k.vector(v, h, 16, 18)
		k.vector(v+1, h, 17, 18)
		k.three(0x4e803800, "zip1.4s", 18, 16, 17)
		k.three(0x4e807800, "zip2.4s", 19, 16, 17)
		for i := range 2 {
			k.three(code, name, 4*h+2*i, 18+i, 22)
			k.three(code, name, 4*h+2*i+1, 18+i, 23)
		}
	}
}

// sums returns the register with the sums of row r and quarter h of the tile.
func (k integer) sums(r, h int) int {
	if !k.matrix() {
		return 4*r + h
	}
	a := 4*h + r/2
	if r%2 == 0 {
		k.three(0x4e801800, "uzp1.4s", 30, a, a+2)
	} else {
		k.three(0x4e805800, "uzp2.4s", 30, a, a+2)
	}
	return 30
}

// dot adds the products of codes n and element i of V20, four by four, to d.
func (k integer) dot(d, n, i int) {
	switch k.set {
	case setDot:
		k.element(0x4f80e000, "sdot.4s", d, n, 20, i)
	case setI8MM:
		k.element(0x4f80f000, "usdot.4s", d, n, 20, i)
	default: // V22 has the element; sums of two products fit 16 bits
		k.three(0x0e20c000, "smull.8h", 21, n, 22)
		k.three(0x4e20c000, "smull2.8h", 23, n, 22)
		k.three(0x4e60bc00, "addp.8h", 21, 21, 23)
		k.two(0x4e606800, "sadalp.4s", d, 21)
	}
}

// finish adds a group to the output.
func (k integer) finish() {
	if k.signed() {
		for r := range k.rows {
			k.op("VSHL $7, V%d.S4, V21.S4", 24+r)
			for h := range 4 {
				k.op("VADD V21.S4, V%d.S4, V%d.S4", 4*r+h, 4*r+h)
			}
		}
	}
	biases := 20
	if k.fp4 {
		biases = -1
	}
	k.op("ADD R10, R1, R15")
	k.scales("R11", 16, biases, "")
	for r := range k.rows {
		k.op("FMOVS %d(R5), F24", 4*r)
		k.op("FMOVS %d(R5), F25", 4*(k.rows+r))
		k.load2(26, 64*r, "R6")
		k.load2(28, 64*r+32, "R6")
		for h := range 4 {
			acc := k.sums(r, h)
			k.scvtf(acc, acc)
			k.fmulAt(acc, acc, 24, 0)
			k.fmla(26+h, acc, 16+h)
			if !k.fp4 {
				k.fmlaAt(26+h, 20+h, 25, 0)
			}
			k.store(26+h, 64*r+16*h, "R6")
		}
	}
	k.op("ADD $%d, R5", 12*k.rows)
}

func magnitudeKernel(s *source) {
	s.line(`// func magnitudeNEON(x *float32, n int) (top uint32)
//
// The twin is the first loop of quantizeGroup; n is a multiple of 16.
//
//	R0 numbers    R1 numbers left    V0-V3 highest    V4-V7 numbers
TEXT ·magnitudeNEON(SB), NOSPLIT, $0-20`)
	s.op("MOVD x+0(FP), R0")
	s.op("MOVD n+8(FP), R1")
	for i := range 4 {
		s.zero(i)
	}
	s.line("loop:")
	s.load2(4, 0, "R0")
	s.load2(6, 32, "R0")
	for i := range 4 {
		s.fabs(4+i, 4+i)
		s.three(0x6ea06400, "umax.4s", i, i, 4+i)
	}
	s.op("ADD $64, R0")
	s.op("SUBS $16, R1")
	s.op("BNE loop")
	for i := 1; i < 4; i++ {
		s.three(0x6ea06400, "umax.4s", 0, 0, i)
	}
	s.two(0x6eb0a800, "umaxv.4s", 0, 0)
	s.op("FMOVS F0, top+16(FP)")
	s.op("RET\n")
}

func roundKernel(s *source) {
	s.line(`// func roundNEON(dst *byte, x *float32, n, vector int, inverse float32) (total int32)
//
// The twin is the last loop of quantizeGroup; n is a multiple of 16. Codes go four by four,
// vector bytes apart.
//
//	R0 output    R1 numbers    R2 numbers left    R3 vector    V0-V3 numbers    V16 total
//	V24 inverse    V25 the number that rounds    V26 the same as an integer
//	V27, V28 highest and lowest code
TEXT ·roundNEON(SB), NOSPLIT, $0-44`)
	for i, n := range []string{"dst", "x", "n", "vector"} {
		s.op("MOVD %s+%d(FP), R%d", n, 8*i, i)
	}
	s.op("FMOVS inverse+32(FP), F24")
	for _, c := range []struct{ reg, bits int }{{25, 0x4b400000}, {26, 3 << 22}, {27, 127}, {28, -127}} {
		s.op("MOVW $%d, R4", c.bits)
		s.op("VDUP R4, V%d.S4", c.reg)
	}
	s.zero(16)
	s.line("loop:")
	s.load2(0, 0, "R1")
	s.load2(2, 32, "R1")
	for i := range 4 {
		s.fmulAt(i, i, 24, 0)
		s.fadd(i, i, 25)
		s.two(0x4ea1b800, "fcvtzs.4s", i, i)
		s.op("VSUB V26.S4, V%d.S4, V%d.S4", i, i)
		s.three(0x4ea06c00, "smin.4s", i, i, 27)
		s.three(0x4ea06400, "smax.4s", i, i, 28)
		s.op("VADD V%d.S4, V16.S4, V16.S4", i)
	}
	s.two(0x0e612800, "xtn.4h", 4, 0)
	s.two(0x4e612800, "xtn2.8h", 4, 1)
	s.two(0x0e612800, "xtn.4h", 5, 2)
	s.two(0x4e612800, "xtn2.8h", 5, 3)
	s.two(0x0e212800, "xtn.8b", 6, 4)
	s.two(0x4e212800, "xtn2.16b", 6, 5)
	for i := range 4 {
		s.op("VST1 V6.S[%d], (R0)", i)
		s.op("ADD R3, R0")
	}
	s.op("ADD $64, R1")
	s.op("SUBS $16, R2")
	s.op("BNE loop")
	s.two(0x4eb1b800, "addv.4s", 16, 16)
	s.op("FMOVS F16, total+40(FP)")
	s.op("RET\n")
}
