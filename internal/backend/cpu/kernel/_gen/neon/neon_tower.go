package main

import (
	"fmt"
	"math"
)

// towerFile has the kernels that only vision towers have.
func towerFile(s *source) {
	s.table(append(table, towerTable...))
	for _, k := range []rowKernel{
		{"centerRow", "the second step of layerNorm", 2, false, []string{"mean"}, false, func(s *source) { s.fsub(0, 0, 24) }},
		{"scaleGainBias", "the last step of layerNorm", 3, true, []string{"scale"}, false, func(s *source) {
			s.fmul(0, 0, 24)
			s.fmla(2, 0, 1)
			s.move(0, 2)
		}},
		{"gelu", "gelu", 2, false, nil, true, (*source).gelu},
		{"geluTanh", "geluTanh", 2, false, nil, true, (*source).geluTanh},
	} {
		k.write(s)
	}
	wideKernel(s, "sum", func(acc, x int) { s.fadd(acc, acc, x) }, "FADDS F16, F17, F17")
	mixProductKernel(s)
	mixWeightsKernel(s)
	mixDivideKernel(s)
}

// towerTable has the constants that table lacks: behind them, where both are.
var towerTable = []number{
	{"14", math.Float32bits(14)},
	{"16", math.Float32bits(16)},
	{"-1/2", math.Float32bits(-0.5)},
	{"1/4", math.Float32bits(0.25)},
	{"gelu9", math.Float32bits(0.0153836033)},
	{"gelu8", math.Float32bits(-0.0563454643)},
	{"gelu7", math.Float32bits(0.0366152550)},
	{"gelu6", math.Float32bits(0.0483180834)},
	{"gelu5", math.Float32bits(-0.00367795936)},
	{"gelu4", math.Float32bits(0.0953755683)},
	{"gelu3", math.Float32bits(0.0690116361)},
	{"gelu2", math.Float32bits(0.0961508647)},
	{"gelu1", math.Float32bits(0.0994166231)},
	{"gelu0", math.Float32bits(0.0997517922)},
	{"tanh0", math.Float32bits(1.59576917)},
	{"tanh0Lo", math.Float32bits(-4.53406804e-8)},
	{"tanh1", math.Float32bits(0.0713548139)},
	{"tanh1Lo", math.Float32bits(2.39883240e-9)},
}

// magnitude sets V1 to |V0|, or to the constant limit if that is less.
func (s *source) magnitude(limit string) {
	s.fabs(1, 0)
	s.from(limit, 2)
	s.three(0x4ea0f400, "fmin.4s", 1, 1, 2)
}

// square sets V2 to the square of V1, and V3 to what it lost.
func (s *source) square() {
	s.fmul(2, 1, 1)
	s.fneg(3, 2)
	s.fmla(3, 1, 1)
}

// above sets V0 to max(V0, 0) - y. V7 is overwritten.
func (s *source) above(y int) {
	s.zero(7)
	s.fmax(0, 0, 7)
	s.fsub(0, 0, y)
}

// gelu sets V0 to its gelu. V1 to V10 and V16 to V21 are overwritten.
func (s *source) gelu() {
	s.magnitude("14")
	s.square()
	s.from("-1/2", 10)
	s.fmul(2, 2, 10)
	s.exp(4, 2)
	s.fmul(3, 3, 10)
	s.move(5, 4)
	s.fmla(5, 4, 3)
	s.from("1", 6)
	s.from("1/4", 7)
	s.move(8, 6)
	s.fmla(8, 1, 7)
	s.fdiv(6, 6, 8)
	p := s.horner(7, 8, 6, "gelu9", "gelu8", "gelu7", "gelu6", "gelu5", "gelu4", "gelu3", "gelu2", "gelu1", "gelu0")
	s.fmul(1, 1, 6)
	s.fmul(1, 1, p)
	s.fmul(1, 1, 5)
	s.above(1)
}

// geluTanh sets V0 to its gelu by tanh. V1 to V11 and V16 to V21 are overwritten.
func (s *source) geluTanh() {
	s.magnitude("16")
	s.square()
	s.from("tanh1", 10)
	s.fmul(4, 10, 2)
	s.fneg(5, 4)
	s.fmla(5, 10, 2)
	s.fmla(5, 10, 3)
	s.from("tanh1Lo", 11)
	s.fmla(5, 11, 2)
	s.from("tanh0", 2)
	s.fadd(6, 2, 4)
	s.fsub(7, 6, 2)
	s.fsub(8, 6, 7)
	s.fsub(8, 2, 8)
	s.fsub(7, 4, 7)
	s.fadd(8, 8, 7)
	s.from("tanh0Lo", 9)
	s.fadd(8, 8, 9)
	s.fadd(5, 5, 8)
	s.fmul(2, 1, 6)
	s.fneg(2, 2)
	s.move(3, 2)
	s.fmla(3, 1, 6)
	s.fmla(3, 1, 5)
	s.exp(4, 2)
	s.fneg(3, 3)
	s.move(5, 4)
	s.fmla(5, 4, 3)
	s.fmul(6, 1, 5)
	s.fneg(7, 6)
	s.move(8, 7)
	s.fmla(8, 1, 5)
	s.from("1", 10)
	s.fadd(9, 10, 5)
	s.fdiv(9, 5, 9)
	s.fmla(8, 7, 9)
	s.fadd(6, 6, 8)
	s.above(6)
}

// mixQueries is the size of package kernel.
const mixQueries = 32

func mixProductKernel(s *source) {
	s.line(`// func mixProductNEON(dst, a, b, next []float32, n, down, across int, scale *[MixQueries]float32)
//
// The twin is mixProduct. Four rows of a tile and half of the queries go together.
//
//	R0 dst    R1 a    R2 b of four rows    R3 numbers of dst left    R4 n    R5, R19 bytes down and across
//	R6 scale    R7 row of a    R8-R11 four numbers of b    R12 rows left
//	V0-V15 sums    V16-V19 a    V20 b
TEXT ·mixProductNEON(SB), NOSPLIT, $0-128`)
	s.ops("MOVD dst_base+0(FP), R0", "MOVD dst_len+8(FP), R3", "MOVD a_base+24(FP), R1", "MOVD b_base+48(FP), R2")
	s.ops("MOVD n+96(FP), R4", "MOVD down+104(FP), R5", "MOVD across+112(FP), R19", "MOVD scale+120(FP), R6", "LSL $2, R5")
	s.op("LSL $2, R19")
	s.line("rows:")
	for q := 0; q < mixQueries; q += 16 {
		mixBlock(s, q)
	}
	s.op("ADD R19<<2, R2")
	s.op("ADD $%d, R0", 4*4*mixQueries)
	s.op("SUBS $%d, R3", 4*mixQueries)
	s.op("BNE rows")
	s.op("RET\n")
}

// mixBlock computes four rows for 16 queries from query q on. Numbers of b that lie beside each
// other, those of values, are loaded at once.
func mixBlock(s *source, q int) {
	at := func(i, v int) int { return 4*(i*mixQueries+q) + 16*v }
	s.op("ADD $%d, R1, R7", 4*q)
	s.op("MOVD R2, R8")
	for i := range 3 {
		s.op("ADD R19, R%d, R%d", 8+i, 9+i)
	}
	s.op("MOVD R4, R12")
	s.op("CBNZ R6, scale%d", q)
	for i := range 16 {
		s.zero(i)
	}
	s.op("JMP begin%d", q)
	s.line("scale%d:", q)
	for v := range 4 {
		s.load(16+v, 4*q+16*v, "R6")
	}
	for i := range 16 {
		s.load(i, at(i/4, i%4), "R0")
		s.fmul(i, i, 16+i%4)
	}
	s.line("begin%d:", q)
	s.op("CMP $4, R19")
	s.op("BEQ beside%d", q)
	for _, beside := range []bool{false, true} {
		label := fmt.Sprintf("apart%d", q)
		if beside {
			label = fmt.Sprintf("beside%d", q)
		}
		s.line("%s:", label)
		s.load2(16, 0, "R7")
		s.load2(18, 32, "R7")
		if beside {
			s.load(20, 0, "R8")
			s.op("ADD R5, R8")
		}
		for i := 0; i < 4 && !beside; i++ {
			s.op("VLD1 (R%d), V20.S[%d]", 8+i, i)
			s.op("ADD R5, R%d", 8+i)
		}
		for i := range 16 {
			s.fmlaAt(i, 16+i%4, 20, i/4)
		}
		s.op("ADD $%d, R7", 4*mixQueries)
		s.op("SUBS $1, R12")
		s.op("BNE %s", label)
		if !beside {
			s.op("JMP store%d", q)
		}
	}
	s.line("store%d:", q)
	for i := range 16 {
		s.store(i, at(i/4, i%4), "R0")
	}
}

func mixWeightsKernel(s *source) {
	s.line(`// func mixWeightsNEON(scores []float32, s *MixSums)
//
// The twin is mixWeights. Half of the queries go together.
//
//	R0 scores    R1 sums    R2 keys    R3 place in the scores    R4 keys left
//	V0-V3 highest    V8-V11 sums
TEXT ·mixWeightsNEON(SB), NOSPLIT, $0-32`)
	s.ops("MOVD scores_base+0(FP), R0", "MOVD scores_len+8(FP), R2", "MOVD s+24(FP), R1", "MOVD $table<>(SB), R14")
	s.op("LSR $5, R2")
	for q := 0; q < mixQueries; q += 16 {
		at := func(v int) int { return 4*q + 16*v }
		for v := range 4 {
			s.op("FMOVQ MixSums_Top+%d(R1), F%d", at(v), v)
		}
		loop := func(name string, body func(v int)) {
			s.op("ADD $%d, R0, R3", 4*q)
			s.op("MOVD R2, R4")
			s.line("%s%d:", name, q)
			for v := range 4 {
				s.load(4, 16*v, "R3")
				body(v)
			}
			s.op("ADD $%d, R3", 4*mixQueries)
			s.op("SUBS $1, R4")
			s.op("BNE %s%d", name, q)
		}
		loop("tops", func(v int) {
			s.fcmgt(5, 4, v)
			s.bit(v, 4, 5)
		})
		for v := range 4 { // the factor of what was summed
			s.op("FMOVQ MixSums_Top+%d(R1), F4", at(v))
			s.op("FMOVQ F%d, MixSums_Top+%d(R1)", v, at(v))
			s.fsub(4, 4, v)
			s.exp(5, 4)
			s.op("FMOVQ F5, MixSums_Scale+%d(R1)", at(v))
			s.op("FMOVQ MixSums_Weight+%d(R1), F6", at(v))
			s.fmul(8+v, 6, 5)
		}
		loop("exps", func(v int) {
			s.fsub(4, 4, v)
			s.exp(5, 4)
			s.store(5, 16*v, "R3")
			s.fadd(8+v, 8+v, 5)
		})
		for v := range 4 {
			s.op("FMOVQ F%d, MixSums_Weight+%d(R1)", 8+v, at(v))
		}
	}
	s.op("RET\n")
}

func mixDivideKernel(s *source) {
	s.line(`// func mixDivideNEON(x []float32, y *[MixQueries]float32)
//
// The twin is mixDivide.
//
//	R0 x    R1 y    R2 numbers left    V0-V7 x    V8-V15 y
TEXT ·mixDivideNEON(SB), NOSPLIT, $0-32`)
	s.ops("MOVD x_base+0(FP), R0", "MOVD x_len+8(FP), R2", "MOVD y+24(FP), R1")
	const n = mixQueries / 4
	for v := range n {
		s.load(8+v, 16*v, "R1")
	}
	s.line("loop:")
	for v := range n {
		s.load(v, 16*v, "R0")
		s.fdiv(v, v, 8+v)
		s.store(v, 16*v, "R0")
	}
	s.op("ADD $%d, R0", 4*mixQueries)
	s.op("SUBS $%d, R2", mixQueries)
	s.op("BNE loop")
	s.op("RET\n")
}
