//go:build !noasm

#include "textflag.h"

// func Fetch(x []float32)
// AX the current cache line, CX the end.
TEXT ·Fetch(SB), NOSPLIT, $0-24
	MOVQ x_base+0(FP), AX
	MOVQ x_len+8(FP), CX
	LEAQ (AX)(CX*4), CX

line:
	PREFETCHT0 (AX)
	ADDQ $64, AX
	CMPQ AX, CX
	JLT  line
	RET
