//go:build noasm || !amd64

package kernel

// Read reads b in order, in whole pieces of 512 bytes, and does nothing else: what
// products are measured against. The result is to keep the reads.
func Read(b []byte) uint64 { return streamReadGeneric(b) }
