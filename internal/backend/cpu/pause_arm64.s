//go:build !noasm

#include "textflag.h"

// func pause()
// Hints to the processor that a loop is waiting.
TEXT ·pause(SB), NOSPLIT, $0-0
	YIELD
	YIELD
	YIELD
	YIELD
	YIELD
	YIELD
	YIELD
	YIELD
	RET
