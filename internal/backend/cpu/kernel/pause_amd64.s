//go:build !noasm

#include "textflag.h"

// func Pause()
// Eight hints to the processor that a loop is waiting: about 150 ns in which a sibling
// thread may compute and little power is used.
TEXT ·Pause(SB), NOSPLIT, $0-0
	PAUSE
	PAUSE
	PAUSE
	PAUSE
	PAUSE
	PAUSE
	PAUSE
	PAUSE
	RET
