//go:build !noasm

package kernel

import "golang.org/x/sys/cpu"

// Read only reads b in order, in whole pieces of 512 bytes: the reference for
// products. The result is to keep the reads.
func Read(b []byte) uint64 {
	if cpu.X86.HasAVX2 && len(b) > 0 {
		return streamReadAVX2(&b[0], len(b)/512)
	}
	return streamReadGeneric(b)
}

// streamReadAVX2 is Read for pieces pieces.
//
//go:noescape
func streamReadAVX2(p *byte, pieces int) (sum uint64)
