//go:build !noasm

#include "textflag.h"

// func Pause()
// Hints to the processor that a loop is waiting.
TEXT ·Pause(SB), NOSPLIT, $0-0
	YIELD
	YIELD
	YIELD
	YIELD
	YIELD
	YIELD
	YIELD
	YIELD
	RET
