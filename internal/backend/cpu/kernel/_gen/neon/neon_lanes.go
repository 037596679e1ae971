package main

import "strings"

// sumLanes adds the lanes of V0 to V3 into F0.
func (s *source) sumLanes() {
	s.fadd(0, 0, 2)
	s.fadd(1, 1, 3)
	s.fadd(0, 0, 1)
	s.fold(0)
}

// fold adds the four lanes of d: halves onto halves. V31 is overwritten.
func (s *source) fold(d int) {
	s.op("VDUP V%d.D[1], V31.D2", d)
	s.fadd(d, d, 31)
	s.two(0x7e30d800, "faddp.2s", d, d)
}

func dotKernel(s *source) {
	s.line(`// func dotNEON(x, y []float32) (sum float32)
//
// The twin is exactmath.Dot32. What is left of the last 16 numbers goes to its lanes in memory.
//
//	R0, R1 inputs    R2 numbers left    R3 lane    V0-V3 lanes    V4-V11 numbers
TEXT ·dotNEON(SB), NOSPLIT, $64-52`)
	s.ops("MOVD x_base+0(FP), R0", "MOVD x_len+8(FP), R2", "MOVD y_base+24(FP), R1")
	for i := range 4 {
		s.zero(i)
	}
	s.ops("SUBS $16, R2", "BLT rest")
	s.line("loop:")
	s.load2(4, 0, "R0")
	s.load2(6, 32, "R0")
	s.load2(8, 0, "R1")
	s.load2(10, 32, "R1")
	for i := range 4 {
		s.fmla(i, 4+i, 8+i)
	}
	s.ops("ADD $64, R0", "ADD $64, R1", "SUBS $16, R2", "BGE loop")
	s.line("rest:")
	s.ops("ADDS $16, R2", "BEQ sum", "MOVD $lanes-64(SP), R3")
	s.lanesOut("R3")
	s.line("single:")
	s.ops("FMOVS.P 4(R0), F4", "FMOVS.P 4(R1), F8", "FMOVS (R3), F12", "FMADDS F8, F12, F4, F12", "FMOVS.P F12, 4(R3)")
	s.ops("SUBS $1, R2", "BNE single")
	s.lanesIn()
	s.line("sum:")
	s.sumLanes()
	s.op("FMOVS F0, sum+48(FP)")
	s.op("RET\n")
}

func squaresKernel(s *source) {
	wideKernel(s, "sumSquares", func(acc, x int) { s.fmla(acc, x, x) }, "FMADDS F16, F17, F16, F17")
}

// wideKernel sums numbers in wide lanes: add adds a register to another, single F16 to F17. Its
// twin has its name in package exactmath.
func wideKernel(s *source, name string, add func(acc, x int), single string) {
	s.line(`// func %sNEON(x []float32) (sum float32)
//
// The twin is exactmath.%s32. What is left of the last 64 numbers goes to its lanes in
// memory.
//
//	R0 input    R2 numbers left    R3 lane    V0-V15 lanes    V16-V19 numbers
TEXT ·%sNEON(SB), NOSPLIT, $256-28`, name, strings.ToUpper(name[:1])+name[1:], name)
	s.ops("MOVD x_base+0(FP), R0", "MOVD x_len+8(FP), R2")
	for i := range 16 {
		s.zero(i)
	}
	s.ops("SUBS $64, R2", "BLT rest")
	s.line("loop:")
	for i := 0; i < 16; i += 4 {
		s.load2(16, 16*i, "R0")
		s.load2(18, 16*i+32, "R0")
		for j := range 4 {
			add(i+j, 16+j)
		}
	}
	s.ops("ADD $256, R0", "SUBS $64, R2", "BGE loop")
	s.line("rest:")
	s.ops("ADDS $64, R2", "BEQ sum", "MOVD $wide-256(SP), R3")
	for i := range 16 {
		s.store(i, 16*i, "R3")
	}
	s.line("single:")
	s.ops("FMOVS.P 4(R0), F16", "FMOVS (R3), F17")
	s.op("%s", single)
	s.ops("FMOVS.P F17, 4(R3)", "SUBS $1, R2", "BNE single", "MOVD $wide-256(SP), R3")
	for i := range 16 {
		s.load(i, 16*i, "R3")
	}
	s.line("sum:")
	for w := 8; w >= 4; w /= 2 {
		for i := range w {
			s.fadd(i, i, i+w)
		}
	}
	s.sumLanes()
	s.op("FMOVS F0, sum+24(FP)")
	s.op("RET\n")
}

// lanesOut stores V0 to V3, lanesIn loads them from the frame.
func (s *source) lanesOut(r string) {
	for i := range 4 {
		s.store(i, 16*i, r)
	}
}

func (s *source) lanesIn() {
	s.op("MOVD $lanes-64(SP), R3")
	for i := range 4 {
		s.load(i, 16*i, "R3")
	}
}

func topKernel(s *source) {
	s.line(`// func topNEON(x []float32) (top float32)
//
// The twin is the first loop of softmax: the highest number, -infinity if there is none.
//
//	R0 input    R1 numbers left    V0 highest
TEXT ·topNEON(SB), NOSPLIT, $0-28`)
	s.ops("MOVD x_base+0(FP), R0", "MOVD x_len+8(FP), R1", "MOVD $table<>(SB), R14")
	s.from("-inf", 0)
	s.move(3, 0)
	s.ops("SUBS $4, R1", "BLT rest")
	s.line("loop:")
	s.op("FMOVQ.P 16(R0), F1")
	s.fcmgt(2, 1, 0)
	s.bit(0, 1, 2)
	s.ops("SUBS $4, R1", "BGE loop")
	s.line("rest:")
	s.ops("ADDS $4, R1", "BEQ fold")
	s.line("single:")
	s.ops("FMOVS.P 4(R0), F1", "VDUP V1.S[0], V1.S4")
	s.fcmgt(2, 1, 0)
	s.bit(0, 1, 2)
	s.ops("SUBS $1, R1", "BNE single")
	s.line("fold:")
	s.two(0x6e30f800, "fmaxv.4s", 0, 0)
	s.op("FMOVS F0, top+24(FP)")
	s.op("RET\n")
}

func expSumKernel(s *source) {
	s.line(`// func expSumNEON(x []float32, top float32) (sum float32)
//
// The twin is the second loop of softmax and its sum. What is left of the last 16 numbers
// goes to its lanes in memory.
//
//	R0 numbers    R1 numbers left    R3 lane    V0-V3 lanes    V24 top    V4 numbers
TEXT ·expSumNEON(SB), NOSPLIT, $64-36`)
	s.ops("MOVD x_base+0(FP), R0", "MOVD x_len+8(FP), R1", "FMOVS top+24(FP), F24", "VDUP V24.S[0], V24.S4")
	s.op("MOVD $table<>(SB), R14")
	for i := range 4 {
		s.zero(i)
	}
	s.ops("SUBS $16, R1", "BLT rest")
	s.line("loop:")
	for i := range 4 {
		s.op("FMOVQ (R0), F4")
		s.fsub(4, 4, 24)
		s.exp(4, 4)
		s.fadd(i, i, 4)
		s.op("FMOVQ.P F4, 16(R0)")
	}
	s.ops("SUBS $16, R1", "BGE loop")
	s.line("rest:")
	s.ops("ADDS $16, R1", "BEQ sum", "MOVD $lanes-64(SP), R3")
	s.lanesOut("R3")
	s.line("single:")
	s.op("FMOVS (R0), F4")
	s.fsub(4, 4, 24)
	s.exp(4, 4)
	s.ops("FMOVS (R3), F5", "FADDS F4, F5, F5", "FMOVS.P F5, 4(R3)", "FMOVS.P F4, 4(R0)", "SUBS $1, R1", "BNE single")
	s.lanesIn()
	s.line("sum:")
	s.sumLanes()
	s.op("FMOVS F0, sum+32(FP)")
	s.op("RET\n")
}

func rotateKernel(s *source) {
	s.line(`// func rotateNEON(x, cos, sin []float32)
//
// The twin is rotate. Nothing need be aligned.
//
//	R0, R1 halves of x    R2 cosines    R3 sines    R4 pairs left
TEXT ·rotateNEON(SB), NOSPLIT, $0-72`)
	s.ops("MOVD x_base+0(FP), R0", "MOVD cos_base+24(FP), R2", "MOVD cos_len+32(FP), R4", "MOVD sin_base+48(FP), R3")
	s.op("ADD R4<<2, R0, R1")
	step := func(move string, size int) {
		s.op("%s (R0), F0", move)
		s.op("%s (R1), F1", move)
		s.op("%s.P %d(R2), F2", move, size)
		s.op("%s.P %d(R3), F3", move, size)
		s.fmul(4, 1, 3)
		s.fneg(4, 4)
		s.fmul(5, 0, 3)
		s.fmla(4, 0, 2)
		s.fmla(5, 1, 2)
		s.op("%s.P F4, %d(R0)", move, size)
		s.op("%s.P F5, %d(R1)", move, size)
	}
	s.ops("SUBS $4, R4", "BLT rest")
	s.line("loop:")
	step("FMOVQ", 16)
	s.ops("SUBS $4, R4", "BGE loop")
	s.line("rest:")
	s.ops("ADDS $4, R4", "BEQ end")
	s.line("single:")
	step("FMOVS", 4)
	s.ops("SUBS $1, R4", "BNE single")
	s.line("end:")
	s.op("RET\n")
}

func narrowKernel(s *source) {
	s.line(`// func narrowNEON(dst []uint16, x []float32)
//
// The twin is narrow, for multiples of 16 numbers. Nothing need be aligned.
//
//	R0 output    R1 input    R2 numbers left
TEXT ·narrowNEON(SB), NOSPLIT, $0-48`)
	s.ops("MOVD dst_base+0(FP), R0", "MOVD dst_len+8(FP), R2", "MOVD x_base+24(FP), R1", "CBZ R2, end")
	s.line("loop:")
	s.load2(0, 0, "R1")
	s.load2(2, 32, "R1")
	for i := 0; i < 4; i += 2 {
		s.two(0x0e216800, "fcvtn.4h", 4+i, i)
		s.two(0x4e216800, "fcvtn2.8h", 4+i, i+1)
		s.store(4+i, 8*i, "R0")
	}
	s.ops("ADD $32, R0", "ADD $64, R1", "SUBS $16, R2", "BNE loop")
	s.line("end:")
	s.op("RET\n")
}
