//go:build !noasm

#include "textflag.h"

// func Fetch(x []float32)
// R0 the current cache line, R1 the end.
TEXT ·Fetch(SB), NOSPLIT, $0-24
	MOVD x_base+0(FP), R0
	MOVD x_len+8(FP), R1
	ADD  R1<<2, R0, R1

line:
	PRFM (R0), PLDL1KEEP
	ADD  $64, R0
	CMP  R1, R0
	BLT  line
	RET
