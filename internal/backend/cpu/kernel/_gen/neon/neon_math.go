package main

import "math"

// number is a constant of a table.
type number struct {
	name string
	bits uint32
}

// table has the constants of the elementary functions, four times each, in one piece of
// memory that R14 points to.
var table = []number{
	{"log2e", math.Float32bits(1.44269504)},
	{"round", math.Float32bits(3 << 22)},
	{"ln2Hi", math.Float32bits(-0.693145751953125)},
	{"ln2Lo", math.Float32bits(-1.42860682030941723212e-6)},
	{"q5", math.Float32bits(0.000198909882)},
	{"q4", math.Float32bits(0.00139336474)},
	{"q3", math.Float32bits(0.00833331048)},
	{"q2", math.Float32bits(0.0416664667)},
	{"q1", math.Float32bits(0.166666672)},
	{"1/2", math.Float32bits(0.5)},
	{"1", math.Float32bits(1)},
	{"2", math.Float32bits(2)},
	{"bias", 127},
	{"expMin", math.Float32bits(-87.33654)},
	{"expMax", math.Float32bits(88.72283)},
	{"inf", 0x7f800000},
	{"-inf", 0xff800000},
	{"2/17", math.Float32bits(2.0 / 17)},
	{"2/15", math.Float32bits(2.0 / 15)},
	{"2/13", math.Float32bits(2.0 / 13)},
	{"2/11", math.Float32bits(2.0 / 11)},
	{"2/9", math.Float32bits(2.0 / 9)},
	{"2/7", math.Float32bits(2.0 / 7)},
	{"2/5", math.Float32bits(2.0 / 5)},
	{"2/3", math.Float32bits(2.0 / 3)},
	{"65535", math.Float32bits(65535)},
	{"2^-100", math.Float32bits(0x1p-100)},
}

// from loads a constant of the table.
func (s *source) from(name string, d int) {
	for i, c := range append(table, towerTable...) {
		if c.name == name {
			s.op("FMOVQ %d(R14), F%d // %s", 16*i, d, name)
			return
		}
	}
	panic(name)
}

func (s *source) fsub(d, n, m int)  { s.three(0x4ea0d400, "fsub.4s", d, n, m) }
func (s *source) fdiv(d, n, m int)  { s.three(0x6e20fc00, "fdiv.4s", d, n, m) }
func (s *source) fmax(d, n, m int)  { s.three(0x4e20f400, "fmax.4s", d, n, m) }
func (s *source) fcmgt(d, n, m int) { s.three(0x6ea0e400, "fcmgt.4s", d, n, m) }
func (s *source) bic(d, n, m int)   { s.three(0x4e601c00, "bic.16b", d, n, m) }
func (s *source) bit(d, n, m int)   { s.three(0x6ea01c00, "bit.16b", d, n, m) }
func (s *source) fneg(d, n int)     { s.two(0x6ea0f800, "fneg.4s", d, n) }
func (s *source) fabs(d, n int)     { s.two(0x4ea0f800, "fabs.4s", d, n) }
func (s *source) move(d, n int)     { s.op("VMOV V%d.B16, V%d.B16", n, d) }

// exp sets d to e^x. V16 to V21 are overwritten; x may not be one of them.
func (s *source) exp(d, x int) {
	const n, hi, lo, r, p, c = 16, 17, 18, 19, 20, 21
	s.from("log2e", c)
	s.from("round", n)
	s.fmla(n, x, c)
	s.from("round", c)
	s.fsub(n, n, c)
	s.move(hi, x)
	s.from("ln2Hi", c)
	s.fmla(hi, n, c)
	s.from("ln2Lo", c)
	s.fmul(lo, n, c)
	s.fadd(r, hi, lo)
	q := s.horner(p, c, r, "q5", "q4", "q3", "q2", "q1", "1/2")
	s.fmul(r, r, r)
	s.fmla(lo, r, q)
	// lo is the bracket but for what 1+hi loses, which r becomes.
	s.from("1", c)
	s.fadd(p, c, hi)
	s.fsub(r, p, c)
	s.fsub(r, hi, r)
	s.fadd(r, r, lo)
	s.fadd(p, p, r)
	// Scaling in two steps, for 2^128 overflows by itself. n becomes an integer.
	s.two(0x4ea1b800, "fcvtzs.4s", n, n)
	s.two(0x4f3f0400, "sshr.4s #1", r, n)
	s.op("VSUB V%d.S4, V%d.S4, V%d.S4", r, n, n)
	s.from("bias", c)
	for _, k := range []int{r, n} {
		s.op("VADD V%d.S4, V%d.S4, V%d.S4", c, k, k)
		s.op("VSHL $23, V%d.S4, V%d.S4", k, k)
		s.fmul(p, p, k)
	}
	s.from("expMin", c)
	s.fcmgt(c, c, x)
	s.bic(p, p, c)
	s.from("expMax", c)
	s.fcmgt(c, x, c)
	s.from("inf", r)
	s.bit(p, r, c)
	s.move(d, p)
}

// horner computes a polynomial of x, the highest coefficient first, in registers a and b,
// and returns the one that has the result.
func (s *source) horner(a, b, x int, coefficients ...string) int {
	s.from(coefficients[0], a)
	for _, name := range coefficients[1:] {
		s.from(name, b)
		s.fmla(b, a, x)
		a, b = b, a
	}
	return a
}

// decayOf sets V23 to e^-|x| and V17 to V23/(V23+add). V16 to V22 are overwritten.
func (s *source) decayOf(x int, add string) {
	s.fabs(22, x)
	s.fneg(22, 22)
	s.exp(23, 22)
	s.from(add, 16)
	s.fadd(17, 16, 23)
	s.fdiv(17, 23, 17)
}

// choose sets d to V19 where x is negative and to V20 elsewhere. V21 is overwritten.
func (s *source) choose(d, x int) {
	s.zero(21)
	s.fcmgt(21, 21, x)
	s.bit(20, 19, 21)
	s.move(d, 20)
}

// sigmoid sets d to 1/(1+e^-x). V16 to V23 are overwritten.
func (s *source) sigmoid(d, x int) {
	s.decayOf(x, "1")
	s.fneg(18, 23)
	s.move(19, 23)
	s.fmla(19, 18, 17)
	s.fsub(20, 16, 19)
	s.choose(d, x)
}

// silu sets d to x*sigmoid(x). V16 to V23 are overwritten.
func (s *source) silu(d, x int) {
	s.decayOf(x, "1")
	s.fmul(18, x, 23)
	s.fneg(20, 18)
	s.move(19, 20)
	s.fmla(19, x, 23)
	s.fmla(19, 20, 17)
	s.fadd(19, 18, 19)
	s.fsub(20, x, 19)
	s.choose(d, x)
}

// softplus sets d to log(1+e^x). V16 to V23 are overwritten.
func (s *source) softplus(d, x int) {
	s.decayOf(x, "2")
	s.fmul(18, 17, 17)
	h := s.horner(19, 20, 18, "2/17", "2/15", "2/13", "2/11", "2/9", "2/7", "2/5", "2/3")
	s.fneg(16, 18)
	s.move(21, 23)
	s.fmla(21, 16, h)
	s.fneg(16, 17)
	s.fmla(23, 16, 21)
	s.zero(21)
	s.fmax(21, x, 21)
	s.fadd(d, 21, 23)
}
