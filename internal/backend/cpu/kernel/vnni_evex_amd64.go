//go:build !noasm && evex

package kernel

import "golang.org/x/sys/cpu"

// evex chooses the encoding of AVX-512 for the dot products of AVX-VNNI, which are the same otherwise: see
// encodings_amd64.h. It is for tests on processors without AVX-VNNI.
const evex = 1

// hasVNNI reports whether the processor has these.
func hasVNNI() bool { return cpu.X86.HasAVX512VL && cpu.X86.HasAVX512VNNI }

// evexDots reports whether dot products have the encoding of AVX-512.
const evexDots = true
