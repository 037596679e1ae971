package main

import "fmt"

// load16 loads 16 numbers of that many bytes at r to four registers.
func (s *source) load16(d int, r string, bytes int) {
	switch bytes {
	case 4:
		s.load2(d, 0, r)
		s.load2(d+2, 32, r)
	case 2:
		for i := 0; i < 4; i += 2 {
			s.load(d+i, 8*i, r)
			s.fcvtl2(d+i+1, d+i)
			s.fcvtl(d+i, d+i)
		}
	}
}

// pageKind is the Go type of a pointer to a page's numbers, and the bits of a shift that
// multiplies with their bytes.
func pageKind(bytes int) (kind string, shift int) {
	kind = map[int]string{4: "*float32", 2: "*uint16"}[bytes]
	return kind, bytes / 2
}

func scoresKernel(s *source, bytes int) {
	kind, shift := pageKind(bytes)
	bits := 8 * bytes
	s.line(`// func scoreRow%dNEON(dst, q *float32, keys %s, d, count int, scale float32)
//
// The twin is scores%d, for one query; d is a multiple of 16 and count at least one. Four
// keys go together.
//
//	R0 output    R1 query    R2 keys    R3 d    R4 keys left    R5 bytes of a key
//	R6 place in the query    R7 numbers left    R8-R11 places in the keys
//	V0-V15 lanes    V16-V19 query    V20-V23 key    V24 scale
TEXT ·scoreRow%dNEON(SB), NOSPLIT, $0-44`, bits, kind, bits, bits)
	for i, n := range []string{"dst", "q", "keys", "d", "count"} {
		s.op("MOVD %s+%d(FP), R%d", n, 8*i, i)
	}
	s.op("FMOVS scale+40(FP), F24")
	s.op("LSL $%d, R3, R5", shift)
	for _, keys := range []int{4, 1} {
		s.op("SUBS $%d, R4", keys)
		s.op("BLT done%d", keys)
		s.line("keys%d:", keys)
		s.ops("MOVD R1, R6", "MOVD R3, R7", "MOVD R2, R8")
		for i := 1; i < keys; i++ {
			s.op("ADD R5, R%d, R%d", 7+i, 8+i)
		}
		for i := range 4 * keys {
			s.zero(i)
		}
		s.line("columns%d:", keys)
		s.load16(16, "R6", 4)
		s.op("ADD $64, R6")
		for i := range keys {
			s.load16(20, fmt.Sprintf("R%d", 8+i), bytes)
			s.op("ADD $%d, R%d", 16*bytes, 8+i)
			for j := range 4 {
				s.fmla(4*i+j, 16+j, 20+j)
			}
		}
		s.op("SUBS $16, R7")
		s.op("BNE columns%d", keys)
		for i := range keys {
			s.fadd(4*i, 4*i, 4*i+2)
			s.fadd(4*i+1, 4*i+1, 4*i+3)
			s.fadd(4*i, 4*i, 4*i+1)
			s.fold(4 * i)
			s.op("FMULS F24, F%d, F%d", 4*i, 4*i)
			s.op("FMOVS.P F%d, 4(R0)", 4*i)
		}
		s.op("MOVD R%d, R2", 7+keys)
		s.op("SUBS $%d, R4", keys)
		s.op("BGE keys%d", keys)
		s.line("done%d:", keys)
		s.op("ADD $%d, R4", keys)
	}
	s.op("RET\n")
}

func weighKernel(s *source, bytes int) {
	kind, shift := pageKind(bytes)
	bits := 8 * bytes
	s.line(`// func weighRow%dNEON(dst, p *float32, values %s, d, count int)
//
// The twin is weigh%d, for one query; d is a multiple of 16 and count at least one. Up to
// 64 columns go together.
//
//	R0 output    R1 weights    R2 values of the first column    R3 columns left
//	R4 count    R5 bytes of a row    R6 place in the weights    R7 rows left
//	R8, R9 places in the values    V0-V15 sums    V20-V23 values    V24 weight
TEXT ·weighRow%dNEON(SB), NOSPLIT, $0-40`, bits, kind, bits, bits)
	for i, n := range []string{"dst", "p", "values", "d", "count"} {
		s.op("MOVD %s+%d(FP), R%d", n, 8*i, i)
	}
	s.op("LSL $%d, R3, R5", shift)
	for _, blocks := range []int{4, 1} {
		s.op("SUBS $%d, R3", 16*blocks)
		s.op("BLT done%d", blocks)
		s.line("columns%d:", blocks)
		s.ops("MOVD R1, R6", "MOVD R4, R7", "MOVD R2, R8")
		for i := range 4 * blocks {
			s.zero(i)
		}
		s.line("rows%d:", blocks)
		s.ops("FMOVS.P 4(R6), F24", "MOVD R8, R9")
		for i := range blocks {
			s.load16(20, "R9", bytes)
			s.op("ADD $%d, R9", 16*bytes)
			for j := range 4 {
				s.fmlaAt(4*i+j, 20+j, 24, 0)
			}
		}
		s.ops("ADD R5, R8", "SUBS $1, R7")
		s.op("BNE rows%d", blocks)
		for i := range 4 * blocks {
			s.store(i, 16*i, "R0")
		}
		s.op("ADD $%d, R0", 64*blocks)
		s.op("ADD $%d, R2", 16*blocks*bytes)
		s.op("SUBS $%d, R3", 16*blocks)
		s.op("BGE columns%d", blocks)
		s.line("done%d:", blocks)
		s.op("ADD $%d, R3", 16*blocks)
	}
	s.op("RET\n")
}
