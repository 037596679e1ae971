//go:build !noasm

#include "textflag.h"
#include "go_asm.h"
#include "encodings_amd64.h"

// func dotCode() *[192]byte returns DPBUSD and DPWSSD with every register in every place: a test compares their bytes.
TEXT ·dotCode(SB), NOSPLIT, $0-8
	LEAQ dotCode<>(SB), AX
	MOVQ AX, ret+0(FP)
	RET

TEXT dotCode<>(SB), NOSPLIT, $0-0
	DPBUSD(0, 15, 3)
	DPBUSD(1, 14, 8)
	DPBUSD(2, 13, 13)
	DPBUSD(3, 12, 2)
	DPBUSD(4, 11, 7)
	DPBUSD(5, 10, 12)
	DPBUSD(6, 9, 1)
	DPBUSD(7, 8, 6)
	DPBUSD(8, 7, 11)
	DPBUSD(9, 6, 0)
	DPBUSD(10, 5, 5)
	DPBUSD(11, 4, 10)
	DPBUSD(12, 3, 15)
	DPBUSD(13, 2, 4)
	DPBUSD(14, 1, 9)
	DPBUSD(15, 0, 14)
	DPWSSD(0, 15, 3)
	DPWSSD(1, 14, 8)
	DPWSSD(2, 13, 13)
	DPWSSD(3, 12, 2)
	DPWSSD(4, 11, 7)
	DPWSSD(5, 10, 12)
	DPWSSD(6, 9, 1)
	DPWSSD(7, 8, 6)
	DPWSSD(8, 7, 11)
	DPWSSD(9, 6, 0)
	DPWSSD(10, 5, 5)
	DPWSSD(11, 4, 10)
	DPWSSD(12, 3, 15)
	DPWSSD(13, 2, 4)
	DPWSSD(14, 1, 9)
	DPWSSD(15, 0, 14)
	RET
