//go:build !noasm

#include "textflag.h"
#include "go_asm.h"

// 1.5*2^23: a small number that is added to it leaves the nearest integer in its last bits.
#define ROUND 0x4b400000
#define INFINITY 0x7f800000
#define NAN 0x7fc00000

// MAGNITUDE finds the largest magnitude of the group at AX, X20, its inverse, X21, and its scale, X22.
#define MAGNITUDE(loop) \
	VPXORD Z20, Z20, Z20; \
	XORL CX, CX; \
loop: \
	VPANDD (AX)(CX*1), Z31, Z1; \
	VPMAXUD Z1, Z20, Z20; \
	ADDQ $64, CX; \
	CMPQ CX, R9; \
	JLT loop; \
	VEXTRACTI64X4 $1, Z20, Y1; \
	VPMAXUD Y1, Y20, Y20; \
	VEXTRACTI32X4 $1, Y20, X1; \
	VPMAXUD X1, X20, X20; \
	VPSHUFD $0x4e, X20, X1; \
	VPMAXUD X1, X20, X20; \
	VPSHUFD $0xb1, X20, X1; \
	VPMAXUD X1, X20, X20; \
	VDIVSS X20, X27, X21; \
	VDIVSS X27, X20, X22

// CODES16 rounds 16 numbers.
#define CODES16(offset, x) \
	VMULPS offset(SI)(CX*1), Z2, Z3; \
	VADDPS Z30, Z3, Z3; \
	VPSUBD Z30, Z3, Z3; \
	VPMINSD Z29, Z3, Z3; \
	VPMAXSD Z28, Z3, Z3; \
	VPMOVDB Z3, x

// FOURS16 stores 16 codes by fours.
#define FOURS16(x) \
	VMOVD x, (DX); \
	VPEXTRD $1, x, (DX)(R10*1); \
	VPEXTRD $2, x, (DX)(R10*2); \
	VPEXTRD $3, x, (DX)(R11*1); \
	LEAQ (DX)(R10*4), DX

// func quantizeAVX512(dst *byte, x *float32, groups, group int, p *place)
//
// The twin is quantizeRow. group is a multiple of 16, and of 64 if p.part, 16 or 32, says that it is a
// superblock. Nothing need be aligned.
//
//	SI  input          DI  first code of the group    R8  groups left    R9   bytes of a group
//	DX  code           BX  scale                      R10 p.vector       R11  3*p.vector
//	R12 p.across       R13 p.tail                     CX  place in group AX   scratch
//	R14 p.next         R15 p.raise
//
// The magnitude of the next group is found before the codes of the current one, which hide its
// latency: divisions and folds.
//
// X0: largest magnitude, X5: scale, Z2: its inverse, Z4: sum of codes, Z27 to Z31: constants. In
// superblocks Y6, Y7: 64 codes. If p.vector is 4 a row's codes lie side by side.
TEXT ·quantizeAVX512(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ groups+16(FP), R8
	MOVQ group+24(FP), R9
	SHLQ $2, R9
	MOVQ p+32(FP), AX
	ADDQ place_first(AX), DI
	MOVQ place_vector(AX), R10
	LEAQ (R10)(R10*2), R11
	MOVQ place_across(AX), R12
	MOVQ place_tail(AX), R13
	MOVQ place_next(AX), R14
	MOVQ place_raise(AX), R15
	MOVL $0x7fffffff, AX
	VPBROADCASTD AX, Z31
	MOVL $ROUND, AX
	VPBROADCASTD AX, Z30
	MOVL $127, AX
	VPBROADCASTD AX, Z29
	MOVL $-127, AX
	VPBROADCASTD AX, Z28
	VCVTDQ2PS X29, X27
	MOVL $0x01010101, AX
	VPBROADCASTD AX, Y26

	MOVQ SI, AX
	MAGNITUDE(first)
group:
	LEAQ (DI)(R13*1), BX
	VMOVAPS X20, X0
	VMOVAPS X21, X2
	VMOVAPS X22, X5
	LEAQ (SI)(R9*1), AX
	CMPQ R8, $1
	CMOVQEQ SI, AX // there is no next one
	MAGNITUDE(magnitude)
	VMOVD X0, AX
	CMPL AX, $INFINITY
	JCC infinite
	VMOVD X2, AX
	CMPL AX, $INFINITY
	JEQ none // zero, or so small that its inverse is infinite
	VBROADCASTSS X2, Z2
	MOVQ DI, DX
	XORL CX, CX
	MOVQ p+32(FP), AX
	CMPQ place_part(AX), $0
	JNE super

	VPXORD Z4, Z4, Z4
	CMPQ R10, $4
	JEQ byRow
codes:
	CODES16(0, X1)
	VPADDD Z3, Z4, Z4
	FOURS16(X1)
	ADDQ $64, CX
	CMPQ CX, R9
	JLT codes
	JMP coded
byRow:
	CODES16(0, X1)
	VPADDD Z3, Z4, Z4
	VMOVDQU X1, (DX)
	ADDQ $16, DX
	ADDQ $64, CX
	CMPQ CX, R9
	JLT byRow
coded:
	VEXTRACTI64X4 $1, Z4, Y1
	VPADDD Y1, Y4, Y4
	VEXTRACTI128 $1, Y4, X1
	VPADDD X1, X4, X4
	VPSHUFD $0x4e, X4, X1
	VPADDD X1, X4, X4
	VPSHUFD $0xb1, X4, X1
	VPADDD X1, X4, X4
	VCVTDQ2PS X4, X1
	VMULSS X5, X1, X1
	VMOVSS X5, (BX)
	VMOVSS X1, (BX)(R12*1)
	VMOVD X4, AX
	NEGL AX
	IMULL R15, AX
	MOVL AX, (BX)(R12*2)
next:
	ADDQ R9, SI
	ADDQ R14, DI
	DECQ R8
	JNZ group
	VZEROUPPER
	RET

infinite:
	MOVL $NAN, DX
	JMP same
none:
	XORL DX, DX
same:
	MOVL DX, (BX)
	XORL CX, CX
	MOVQ p+32(FP), AX
	MOVQ place_part(AX), AX
	SHLQ $3, AX // of two parts
	JNZ sums
	MOVL DX, (BX)(R12*1)
	MOVL AX, (BX)(R12*2)
zeros:
	MOVQ p+32(FP), AX
	MOVQ place_skip(AX), R14
	XORL AX, AX
	XORL CX, CX
	MOVQ DI, DX
clear:
	MOVL AX, (DX)
	ADDQ R10, DX
	ADDQ $16, CX
	TESTB CX, CX // 64 codes
	JNZ beside
	ADDQ R14, DX
beside:
	CMPQ CX, R9
	JLT clear
	MOVQ p+32(FP), AX
	MOVQ place_next(AX), R14
	JMP next

sums:
	ADDQ R12, BX
	MOVL $0, (BX)
	ADDQ AX, CX
	CMPQ CX, R9
	JLT sums
	JMP zeros

super:
	VMOVSS X5, (BX)
	ADDQ R12, BX
	VPXOR X4, X4, X4
columns: // 64 of them
	CODES16(0, X6)
	CODES16(64, X8)
	CODES16(128, X7)
	CODES16(192, X9)
	CMPQ R10, $4
	JEQ line
	FOURS16(X6)
	FOURS16(X8)
	FOURS16(X7)
	FOURS16(X9)
	JMP stored
line:
	VMOVDQU X6, (DX)
	VMOVDQU X8, 16(DX)
	VMOVDQU X7, 32(DX)
	VMOVDQU X9, 48(DX)
	ADDQ $64, DX
stored:
	VINSERTI128 $1, X8, Y6, Y6
	VINSERTI128 $1, X9, Y7, Y7
	VMOVDQA Y4, Y8
	VMOVDQA Y4, Y9
	VPDPBUSD Y6, Y26, Y8
	VPDPBUSD Y7, Y26, Y9
	VPHADDD Y9, Y8, Y8
	VPHADDD Y8, Y8, Y8 // sums of 16: the first and the third, in the upper half the second and the fourth
	VEXTRACTI128 $1, Y8, X9
	CMPQ place_part(AX), $16
	JEQ pairs
	VPADDD X9, X8, X8
	VPACKSSDW X8, X8, X8
	VMOVD X8, (BX)
	ADDQ R12, BX
	JMP summed
pairs:
	VPSLLD $16, X9, X9
	VPBLENDW $0xaa, X9, X8, X8
	VMOVD X8, (BX)
	VPEXTRD $1, X8, (BX)(R12*1)
	LEAQ (BX)(R12*2), BX
summed:
	ADDQ place_skip(AX), DX
	ADDQ $256, CX
	CMPQ CX, R9
	JLT columns
	JMP next

// CODES8 rounds and stores 8 numbers, and adds them up in Y4.
#define CODES8 \
	VMULPS (SI)(CX*1), Y2, Y3; \
	VADDPS Y13, Y3, Y3; \
	VPSUBD Y13, Y3, Y3; \
	VPMINSD Y12, Y3, Y3; \
	VPMAXSD Y11, Y3, Y3; \
	VPADDD Y3, Y4, Y4; \
	VEXTRACTI128 $1, Y3, X1; \
	VPACKSSDW X1, X3, X3; \
	VPACKSSWB X3, X3, X3; \
	VMOVD X3, (DX); \
	VPEXTRD $1, X3, (DX)(R10*1); \
	LEAQ (DX)(R10*2), DX; \
	ADDQ $32, CX

// func quantizeAVX2(dst *byte, x *float32, groups, group int, p *place)
//
// The twin is quantizeRow. group is a multiple of 16. Registers as in quantizeAVX512, in
// vectors of half the size; Y10 to Y14: constants. In superblocks R11 is the end of a part, and R15
// what follows its sum: alternately 2 and what is left of p.across.
TEXT ·quantizeAVX2(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ groups+16(FP), R8
	MOVQ group+24(FP), R9
	SHLQ $2, R9
	MOVQ p+32(FP), AX
	ADDQ place_first(AX), DI
	MOVQ place_vector(AX), R10
	MOVQ place_across(AX), R12
	MOVQ place_tail(AX), R13
	MOVQ place_next(AX), R14
	MOVQ place_raise(AX), R15
	MOVL $0x7fffffff, AX
	VMOVD AX, X14
	VPBROADCASTD X14, Y14
	MOVL $ROUND, AX
	VMOVD AX, X13
	VPBROADCASTD X13, Y13
	MOVL $127, AX
	VMOVD AX, X12
	VPBROADCASTD X12, Y12
	MOVL $-127, AX
	VMOVD AX, X11
	VPBROADCASTD X11, Y11
	VCVTDQ2PS X12, X10

group:
	LEAQ (DI)(R13*1), BX
	VPXOR Y0, Y0, Y0
	XORL CX, CX
magnitude:
	VPAND (SI)(CX*1), Y14, Y1
	VPMAXUD Y1, Y0, Y0
	ADDQ $32, CX
	CMPQ CX, R9
	JLT magnitude
	VEXTRACTI128 $1, Y0, X1
	VPMAXUD X1, X0, X0
	VPSHUFD $0x4e, X0, X1
	VPMAXUD X1, X0, X0
	VPSHUFD $0xb1, X0, X1
	VPMAXUD X1, X0, X0
	VMOVD X0, AX
	CMPL AX, $INFINITY
	JCC infinite
	VDIVSS X0, X10, X2
	VDIVSS X10, X0, X5
	VMOVD X2, AX
	CMPL AX, $INFINITY
	JEQ none // zero, or so small that its inverse is infinite
	VBROADCASTSS X2, Y2
	MOVQ DI, DX
	XORL CX, CX
	MOVQ p+32(FP), AX
	CMPQ place_part(AX), $0
	JNE super

	VPXOR Y4, Y4, Y4
codes:
	CODES8
	CMPQ CX, R9
	JLT codes
	VEXTRACTI128 $1, Y4, X1
	VPADDD X1, X4, X4
	VPSHUFD $0x4e, X4, X1
	VPADDD X1, X4, X4
	VPSHUFD $0xb1, X4, X1
	VPADDD X1, X4, X4
	VCVTDQ2PS X4, X1
	VMULSS X5, X1, X1
	VMOVSS X5, (BX)
	VMOVSS X1, (BX)(R12*1)
	VMOVD X4, AX
	NEGL AX
	IMULL R15, AX
	MOVL AX, (BX)(R12*2)
next:
	ADDQ R9, SI
	ADDQ R14, DI
	DECQ R8
	JNZ group
	VZEROUPPER
	RET

infinite:
	MOVL $NAN, DX
	JMP same
none:
	XORL DX, DX
same:
	MOVL DX, (BX)
	XORL CX, CX
	MOVQ p+32(FP), AX
	MOVQ place_part(AX), AX
	SHLQ $3, AX // of two parts
	JNZ sums
	MOVL DX, (BX)(R12*1)
	MOVL AX, (BX)(R12*2)
zeros:
	MOVQ p+32(FP), AX
	MOVQ place_skip(AX), R14
	XORL AX, AX
	XORL CX, CX
	MOVQ DI, DX
clear:
	MOVL AX, (DX)
	ADDQ R10, DX
	ADDQ $16, CX
	TESTB CX, CX // 64 codes
	JNZ beside
	ADDQ R14, DX
beside:
	CMPQ CX, R9
	JLT clear
	MOVQ p+32(FP), AX
	MOVQ place_next(AX), R14
	JMP next

sums:
	ADDQ R12, BX
	MOVL $0, (BX)
	ADDQ AX, CX
	CMPQ CX, R9
	JLT sums
	JMP zeros

super:
	VMOVSS X5, (BX)
	ADDQ R12, BX
	MOVL $2, R15
part:
	MOVQ place_part(AX), R11
	LEAQ (CX)(R11*4), R11
	VPXOR Y4, Y4, Y4
columns:
	CODES8
	CMPQ CX, R11
	JLT columns
	VEXTRACTI128 $1, Y4, X1
	VPADDD X1, X4, X4
	VPSHUFD $0x4e, X4, X1
	VPADDD X1, X4, X4
	VPSHUFD $0xb1, X4, X1
	VPADDD X1, X4, X4
	VPEXTRW $0, X4, (BX)
	ADDQ R15, BX
	NEGQ R15
	ADDQ R12, R15
	TESTB CX, CX // 64 codes
	JNZ beneath
	ADDQ place_skip(AX), DX
beneath:
	CMPQ CX, R9
	JLT part
	JMP next
