//go:build !noasm

#include "textflag.h"

// func streamReadAVX2(p *byte, pieces int) (sum uint64)
//
// Reads pieces of 512 bytes in order. The twin is streamReadGeneric.
//
// SI: place, CX: pieces left, Y0 to Y3: sums.
TEXT ·streamReadAVX2(SB), NOSPLIT, $0-24
	MOVQ p+0(FP), SI
	MOVQ pieces+8(FP), CX
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1
	VPXOR Y2, Y2, Y2
	VPXOR Y3, Y3, Y3
	TESTQ CX, CX
	JZ end
next:
	VPXOR (SI), Y0, Y0
	VPXOR 32(SI), Y1, Y1
	VPXOR 64(SI), Y2, Y2
	VPXOR 96(SI), Y3, Y3
	VPXOR 128(SI), Y0, Y0
	VPXOR 160(SI), Y1, Y1
	VPXOR 192(SI), Y2, Y2
	VPXOR 224(SI), Y3, Y3
	VPXOR 256(SI), Y0, Y0
	VPXOR 288(SI), Y1, Y1
	VPXOR 320(SI), Y2, Y2
	VPXOR 352(SI), Y3, Y3
	VPXOR 384(SI), Y0, Y0
	VPXOR 416(SI), Y1, Y1
	VPXOR 448(SI), Y2, Y2
	VPXOR 480(SI), Y3, Y3
	ADDQ $512, SI
	DECQ CX
	JNZ next
end:
	VPXOR Y1, Y0, Y0
	VPXOR Y3, Y2, Y2
	VPXOR Y2, Y0, Y0
	VMOVQ X0, AX
	MOVQ AX, sum+16(FP)
	VZEROUPPER
	RET
