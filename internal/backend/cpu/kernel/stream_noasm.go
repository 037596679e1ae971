//go:build noasm || !amd64

package kernel

// Read only reads b in order, in whole pieces of 512 bytes: the reference for
// products. The result is to keep the reads.
func Read(b []byte) uint64 { return streamReadGeneric(b) }
