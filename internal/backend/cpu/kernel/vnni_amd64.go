//go:build !noasm && !evex

package kernel

import "golang.org/x/sys/cpu"

// hasVNNI reports whether the processor has dot products of bytes in vectors of 32 bytes without AVX-512.
func hasVNNI() bool { return cpu.X86.HasAVXVNNI }

// evexDots reports whether dot products have the encoding of AVX-512.
const evexDots = false
