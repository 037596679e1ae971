package spec

import (
	"fmt"
	"strconv"
)

const (
	// MaxDepth is the maximum number of tokens that a drafter computes per round.
	MaxDepth = 8
	// MaxCopy is the maximum number of tokens that are copied from the text per round. With the token before them they are
	// 32 rows: attention over more rows of a sequence is another kernel on a GPU.
	MaxCopy = 31
)

// Depth is how many tokens to draft per round: a number from 1 to MaxDepth, or DepthAuto, or
// DepthOff.
type Depth int

const (
	// DepthAuto is the zero value: the depth with the most tokens per second, by the costs of rounds
	// and the acceptance of drafts. It may be none.
	DepthAuto Depth = 0
	// DepthOff drafts nothing: plain decoding, but for forced tokens.
	DepthOff Depth = -1
)

// FixedDepth is the depth of exactly n tokens; 0 is DepthOff.
func FixedDepth(n int) Depth {
	if n > 0 {
		return Depth(n)
	}
	return Depth(n - 1)
}

// Fixed returns the number of tokens of a fixed depth, 0 of DepthOff. ok is false for
// DepthAuto.
func (d Depth) Fixed() (n int, ok bool) {
	if d < 0 {
		return int(d) + 1, true
	}
	return int(d), d != DepthAuto
}

// Valid reports whether d is DepthOff, DepthAuto or a number up to MaxDepth.
func (d Depth) Valid() bool { return DepthOff <= d && d <= MaxDepth }

// ParseDepth reads the output of String, and 0 for DepthOff.
func ParseDepth(text string) (Depth, error) {
	switch text {
	case "auto":
		return DepthAuto, nil
	case "off":
		return DepthOff, nil
	}
	n, err := strconv.Atoi(text)
	if d := FixedDepth(n); err == nil && d.Valid() {
		return d, nil
	}
	return DepthAuto, fmt.Errorf("want a whole number from 0 to %d, or auto", MaxDepth)
}

// String is auto, off, or the number.
func (d Depth) String() string {
	switch d {
	case DepthAuto:
		return "auto"
	case DepthOff:
		return "off"
	default:
		return strconv.Itoa(int(d))
	}
}
