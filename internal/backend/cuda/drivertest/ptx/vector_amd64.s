//go:build !noasm

#include "textflag.h"

// Instructions for the 32 lanes of a warp, with AVX2 and FMA: DI, SI, BX and CX are d, a, b and c.

#define ARGS MOVQ d+0(FP), DI; MOVQ a+8(FP), SI; MOVQ b+16(FP), BX; MOVQ c+24(FP), CX
#define LOAD(P, A, B, C, D) VMOVDQU (P), A; VMOVDQU 32(P), B; VMOVDQU 64(P), C; VMOVDQU 96(P), D
#define STORE VMOVDQU Y0, (DI); VMOVDQU Y1, 32(DI); VMOVDQU Y2, 64(DI); VMOVDQU Y3, 96(DI)
#define EACH(OP, P) OP (P), Y0, Y0; OP 32(P), Y1, Y1; OP 64(P), Y2, Y2; OP 96(P), Y3, Y3
#define END VZEROUPPER; RET

#define WORDS(NAME, OP) TEXT NAME(SB), NOSPLIT, $0-32; ARGS; LOAD(SI, Y0, Y1, Y2, Y3); EACH(OP, BX); STORE; END

WORDS(·addWords, VPADDD)
WORDS(·subWords, VPSUBD)
WORDS(·mulWords, VPMULLD)
WORDS(·andWords, VPAND)
WORDS(·orWords, VPOR)
WORDS(·xorWords, VPXOR)
WORDS(·shlWords, VPSLLVD)
WORDS(·shrWords, VPSRLVD)
WORDS(·sarWords, VPSRAVD)
WORDS(·minSigned, VPMINSD)
WORDS(·maxSigned, VPMAXSD)

TEXT ·madWords(SB), NOSPLIT, $0-32
	ARGS
	LOAD(SI, Y0, Y1, Y2, Y3)
	EACH(VPMULLD, BX)
	EACH(VPADDD, CX)
	STORE
	END

#define LONGS(NAME, OP) TEXT NAME(SB), NOSPLIT, $0-32; ARGS; \
	LOAD(SI, Y0, Y1, Y2, Y3); EACH(OP, BX); \
	ADDQ $128, SI; ADDQ $128, BX; LOAD(SI, Y4, Y5, Y6, Y7); STORE; ADDQ $128, DI; \
	VMOVDQA Y4, Y0; VMOVDQA Y5, Y1; VMOVDQA Y6, Y2; VMOVDQA Y7, Y3; EACH(OP, BX); STORE; END

LONGS(·addLongs, VPADDQ)
LONGS(·shlLongs, VPSLLVQ)

// Results that are NaN are 0x7fffffff.
#define NUMBER(Y) VCMPPS $3, Y, Y, Y8; VBLENDVPS Y8, Y9, Y, Y
#define NUMBERS VPCMPEQD Y9, Y9, Y9; VPSRLD $1, Y9, Y9; NUMBER(Y0); NUMBER(Y1); NUMBER(Y2); NUMBER(Y3)
#define FLOATS(NAME, OP) TEXT NAME(SB), NOSPLIT, $0-32; ARGS; LOAD(SI, Y0, Y1, Y2, Y3); EACH(OP, BX); NUMBERS; STORE; END

FLOATS(·addFloats, VADDPS)
FLOATS(·subFloats, VSUBPS)
FLOATS(·mulFloats, VMULPS)

TEXT ·fmaFloats(SB), NOSPLIT, $0-32
	ARGS
	LOAD(SI, Y0, Y1, Y2, Y3)
	LOAD(BX, Y4, Y5, Y6, Y7)
	VFMADD213PS (CX), Y4, Y0
	VFMADD213PS 32(CX), Y5, Y1
	VFMADD213PS 64(CX), Y6, Y2
	VFMADD213PS 96(CX), Y7, Y3
	NUMBERS
	STORE
	END

// Words to numbers of 64 bits, and their products.
#define WIDE(TO) TO (SI), Y0; TO 16(SI), Y1; TO 32(SI), Y2; TO 48(SI), Y3
#define EXTEND(NAME, TO) TEXT NAME(SB), NOSPLIT, $0-32; ARGS; \
	WIDE(TO); ADDQ $64, SI; STORE; ADDQ $128, DI; WIDE(TO); STORE; END

EXTEND(·extendUnsigned, VPMOVZXDQ)
EXTEND(·extendSigned, VPMOVSXDQ)

#define TIMES(TO, MUL) WIDE(TO); TO (BX), Y4; TO 16(BX), Y5; TO 32(BX), Y6; TO 48(BX), Y7; \
	MUL Y4, Y0, Y0; MUL Y5, Y1, Y1; MUL Y6, Y2, Y2; MUL Y7, Y3, Y3; STORE
#define PRODUCT(NAME, TO, MUL) TEXT NAME(SB), NOSPLIT, $0-32; ARGS; \
	TIMES(TO, MUL); ADDQ $64, SI; ADDQ $64, BX; ADDQ $128, DI; TIMES(TO, MUL); END

PRODUCT(·productUnsigned, VPMOVZXDQ, VPMULUDQ)
PRODUCT(·productSigned, VPMOVSXDQ, VPMULDQ)

// A bit for each lane.
#define ANSWER VMOVMSKPS Y0, AX; VMOVMSKPS Y1, CX; VMOVMSKPS Y2, DX; VMOVMSKPS Y3, BX; \
	SHLL $8, CX; SHLL $16, DX; SHLL $24, BX; ORL CX, AX; ORL DX, AX; ORL BX, AX; MOVL AX, ret+16(FP); END
#define PAIR MOVQ a+0(FP), SI; MOVQ b+8(FP), BX; LOAD(SI, Y0, Y1, Y2, Y3)

// func equalWords(a, b *v32) uint32
TEXT ·equalWords(SB), NOSPLIT, $0-20
	PAIR
	EACH(VPCMPEQD, BX)
	ANSWER

// func leastSigned(a, b *v32) uint32: lanes whose a is at least b.
#define LEAST(NAME, MAX) TEXT NAME(SB), NOSPLIT, $0-20; PAIR; EACH(MAX, BX); EACH(VPCMPEQD, SI); ANSWER

LEAST(·leastSigned, VPMAXSD)
LEAST(·leastUnsigned, VPMAXUD)

DATA bits<>+0(SB)/8, $0x0000000200000001
DATA bits<>+8(SB)/8, $0x0000000800000004
DATA bits<>+16(SB)/8, $0x0000002000000010
DATA bits<>+24(SB)/8, $0x0000008000000040
GLOBL bits<>(SB), RODATA|NOPTR, $32

// func chooseWords(d, a, b *v32, p uint32)
#define CHOOSE(AT) VPAND Y4, Y5, Y6; VPCMPEQD Y4, Y6, Y6; VMOVDQU AT(BX), Y0; VPBLENDVB Y6, AT(SI), Y0, Y0; \
	VMOVDQU Y0, AT(DI); VPSRLD $8, Y5, Y5
TEXT ·chooseWords(SB), NOSPLIT, $0-28
	MOVQ d+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), BX
	MOVL p+24(FP), AX
	VMOVD AX, X5
	VPBROADCASTD X5, Y5
	VMOVDQU bits<>(SB), Y4
	CHOOSE(0)
	CHOOSE(32)
	CHOOSE(64)
	CHOOSE(96)
	END

// SPREAD turns words into their even and their odd bytes, 16 bits each.
#define SPREAD(WORD, EVEN, ODD) VPAND Y15, WORD, EVEN; VPSUBW Y14, EVEN, EVEN; VPSRLW $8, WORD, ODD; VPSUBW Y14, ODD, ODD
#define FLIP(P) VPBROADCASTD P, Y13; VPAND Y15, Y13, Y14
#define TERM(AT, EVEN, ODD, SUM) VPMADDWD AT(DX), EVEN, Y12; VPADDD Y12, SUM, SUM; VPMADDWD 32+AT(DX), ODD, Y12; VPADDD Y12, SUM, SUM
#define STEP(K) VPSHUFD $(85*K), Y4, Y8; VPSHUFD $(85*K), Y5, Y9; VPSHUFD $(85*K), Y6, Y10; VPSHUFD $(85*K), Y7, Y11; \
	TERM(128*K, Y8, Y9, Y0); TERM(128*K, Y10, Y11, Y2); TERM(128*K+64, Y8, Y9, Y1); TERM(128*K+64, Y10, Y11, Y3)

// func dotBytes(sums, a *[4]v32, b *[16][4]uint32, deep int, flipA, flipB uint32)
// A register of a has four columns of A in each lane, the four lanes of a row after each other. Words of b are four rows of B, of
// the columns of a lane's two results. The frame has them as numbers of 16 bits, twice.
TEXT ·dotBytes(SB), 0, $1024-40
	MOVQ sums+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), BX
	MOVQ deep+24(FP), R8
	VPCMPEQW Y15, Y15, Y15
	VPSRLW $8, Y15, Y15
	FLIP(flipB+36(FP))
	MOVQ SP, DX
	MOVQ R8, CX
	SHLQ $3, CX
spread:
	VBROADCASTI128 (BX), Y0
	VPXOR Y13, Y0, Y0
	SPREAD(Y0, Y1, Y2)
	VMOVDQU Y1, (DX)
	VMOVDQU Y2, 32(DX)
	ADDQ $16, BX
	ADDQ $64, DX
	DECQ CX
	JNZ spread
	FLIP(flipA+32(FP))
	MOVQ $4, R9
lanes:
	VMOVDQU (DI), Y0
	VMOVDQU 128(DI), Y1
	VMOVDQU 256(DI), Y2
	VMOVDQU 384(DI), Y3
	MOVQ SP, DX
	MOVQ SI, BX
	MOVQ R8, CX
depth:
	VPXOR (BX), Y13, Y8
	VPXOR 128(BX), Y13, Y9
	SPREAD(Y8, Y4, Y5)
	SPREAD(Y9, Y6, Y7)
	STEP(0)
	STEP(1)
	STEP(2)
	STEP(3)
	ADDQ $256, BX
	ADDQ $512, DX
	DECQ CX
	JNZ depth
	VMOVDQU Y0, (DI)
	VMOVDQU Y1, 128(DI)
	VMOVDQU Y2, 256(DI)
	VMOVDQU Y3, 384(DI)
	ADDQ $32, DI
	ADDQ $32, SI
	DECQ R9
	JNZ lanes
	END
