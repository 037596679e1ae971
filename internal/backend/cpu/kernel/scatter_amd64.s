//go:build !noasm

#include "textflag.h"
#include "go_asm.h"

// func scatterAVX2(a *scatterArgs)
//
// The twin is scatterTile. Nothing need be aligned; a.tiles and a.rows are at least one.
//
//	AX arguments    SI row of the first tile    BX its place in the tile    CX tiles left
//	DX tile to tile DI row of the output        R8 its place                R9 rows left
//	R10 row to row of the output
//
// A row is short and the next one far away, so its lines are asked for while this one is written.
TEXT ·scatterAVX2(SB), NOSPLIT, $0-8
	MOVQ a+0(FP), AX
	MOVQ scatterArgs_src(AX), SI
	MOVQ scatterArgs_dst(AX), DI
	MOVQ scatterArgs_srcTile(AX), DX
	MOVQ scatterArgs_rows(AX), R9
	MOVQ scatterArgs_dstRow(AX), R10
	CMPQ scatterArgs_add(AX), $0
	JNE addRow

row:
	MOVQ SI, BX
	MOVQ DI, R8
	MOVQ scatterArgs_tiles(AX), CX
put:
	PREFETCHT0 (R8)(R10*1)
	VMOVUPS (BX), Y0
	VMOVUPS 32(BX), Y1
	VMOVUPS Y0, (R8)
	VMOVUPS Y1, 32(R8)
	ADDQ DX, BX
	ADDQ $64, R8
	DECQ CX
	JNZ put
	ADDQ $64, SI
	ADDQ R10, DI
	DECQ R9
	JNZ row
	VZEROUPPER
	RET

addRow:
	MOVQ SI, BX
	MOVQ DI, R8
	MOVQ scatterArgs_tiles(AX), CX
sum:
	PREFETCHT0 (R8)(R10*1)
	VMOVUPS (R8), Y0
	VMOVUPS 32(R8), Y1
	VADDPS (BX), Y0, Y0
	VADDPS 32(BX), Y1, Y1
	VMOVUPS Y0, (R8)
	VMOVUPS Y1, 32(R8)
	ADDQ DX, BX
	ADDQ $64, R8
	DECQ CX
	JNZ sum
	ADDQ $64, SI
	ADDQ R10, DI
	DECQ R9
	JNZ addRow
	VZEROUPPER
	RET
