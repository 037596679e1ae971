//go:build !unix

package server

import (
	"math"
	"testing"
)

// maxOpenFiles is unlimited where processes have no such limit.
func maxOpenFiles(*testing.T) uint64 { return math.MaxInt32 }
