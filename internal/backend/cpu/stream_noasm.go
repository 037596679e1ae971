//go:build noasm || !amd64

package cpu

// streamRead reads b in order, in whole pieces of 512 bytes, and does nothing else: what
// products are measured against. The result is to keep the reads.
func streamRead(b []byte) uint64 { return streamReadGeneric(b) }
