package main

func vectorFile(s *source) {
	s.table(table)
	rowKernels(s)
	dotKernel(s)
	squaresKernel(s)
	topKernel(s)
	expSumKernel(s)
	rotateKernel(s)
	narrowKernel(s)
	for _, bytes := range []int{4, 2} {
		scoresKernel(s, bytes)
		weighKernel(s, bytes)
	}
	deltaReadKernel(s)
	deltaUpdateKernel(s)
	deltaStepsKernel(s)
	turnKernel(s)
}

// rowKernel computes numbers one by one: four at once, and the rest singly, in the first
// lane. Input i is in V0, V1, V2; scalar i, broadcast, in V24 and V25; body leaves the
// result in V0.
type rowKernel struct {
	name, twin string
	slices     int  // the first is the output, the others are inputs
	reads      bool // the output is the first input
	scalars    []string
	table      bool
	body       func(s *source)
}

func rowKernels(s *source) {
	for _, k := range []rowKernel{
		{"add", "add", 2, true, nil, false, func(s *source) { s.fadd(0, 0, 1) }},
		{"addScaled", "addScaled", 2, true, []string{"w"}, false, func(s *source) {
			s.fmul(1, 1, 24)
			s.fadd(0, 0, 1)
		}},
		{"scaleRow", "the last step of normalize", 1, true, []string{"scale"}, false, func(s *source) { s.fmul(0, 0, 24) }},
		{"scaleGain", "the last step of rmsNorm and wideNorm", 3, false, []string{"scale"}, false, func(s *source) {
			s.fmul(0, 0, 24)
			s.fmul(0, 0, 1)
		}},
		{"mulRow", "the first tap of convolve", 3, false, nil, false, func(s *source) { s.fmul(0, 0, 1) }},
		{"fmaRow", "a later tap of convolve", 3, true, nil, false, func(s *source) { s.fmla(0, 1, 2) }},
		{"siluRow", "the last step of convolve", 1, true, nil, true, func(s *source) { s.silu(0, 0) }},
		{"swiglu", "swiglu", 3, false, nil, true, func(s *source) {
			s.silu(0, 0)
			s.fmul(0, 0, 1)
		}},
		{"gateSigmoid", "gateSigmoid", 2, true, []string{"divisor"}, true, func(s *source) {
			s.sigmoid(1, 1)
			s.fdiv(0, 0, 24)
			s.fmul(0, 0, 1)
		}},
		{"sigmoids", "sigmoids", 2, false, nil, true, func(s *source) { s.sigmoid(0, 0) }},
		{"decays", "decays", 2, false, []string{"rate", "bias"}, true, func(s *source) {
			s.fadd(0, 0, 25)
			s.softplus(0, 0)
			s.fmul(3, 0, 24)
			s.exp(0, 3)
		}},
		{"mergeRow", "the sums of merge", 2, true, []string{"more", "old"}, false, func(s *source) {
			s.fmul(0, 0, 25)
			s.fmla(0, 1, 24)
		}},
	} {
		k.write(s)
	}
}

var sliceNames = []string{"dst", "x", "y"}

func (k rowKernel) write(s *source) {
	signature := "dst"
	for _, n := range sliceNames[1:k.slices] {
		signature += ", " + n
	}
	signature += " []float32"
	size := 24 * k.slices
	for _, n := range k.scalars {
		signature += ", " + n
	}
	if len(k.scalars) > 0 {
		signature += " float32"
	}
	s.line("// func %sNEON(%s)", k.name, signature)
	s.line("//\n// The twin is %s. Nothing need be aligned.", k.twin)
	s.line("//\n//\tR0 output    R1-R2 inputs    R3 numbers left    R14 constants")
	args := size + 4*len(k.scalars)
	s.line("TEXT ·%sNEON(SB), NOSPLIT, $0-%d", k.name, args)
	for i := range k.slices {
		s.op("MOVD %s_base+%d(FP), R%d", sliceNames[i], 24*i, i)
	}
	s.op("MOVD dst_len+8(FP), R3")
	for i, n := range k.scalars {
		s.op("FMOVS %s+%d(FP), F%d", n, size+4*i, 24+i)
		s.op("VDUP V%d.S[0], V%d.S4", 24+i, 24+i)
	}
	if k.table {
		s.op("MOVD $table<>(SB), R14")
	}
	s.ops("SUBS $4, R3", "BLT rest")
	s.line("loop:")
	k.step(s, "FMOVQ", 16)
	s.ops("SUBS $4, R3", "BGE loop")
	s.line("rest:")
	s.ops("ADDS $4, R3", "BEQ end")
	s.line("single:")
	k.step(s, "FMOVS", 4)
	s.ops("SUBS $1, R3", "BNE single")
	s.line("end:")
	s.op("RET")
	s.line("")
}

func (k rowKernel) step(s *source, move string, size int) {
	if k.reads {
		s.op("%s (R0), F0", move)
	}
	for i := 1; i < k.slices; i++ {
		reg := i
		if !k.reads {
			reg = i - 1
		}
		s.op("%s.P %d(R%d), F%d", move, size, i, reg)
	}
	k.body(s)
	s.op("%s.P F0, %d(R0)", move, size)
}
