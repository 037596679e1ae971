//go:build (amd64 || arm64) && !noasm

package kernel

// Fetch prefetches numbers at addresses that the processor does not predict, such as a few
// columns of many rows. Its twin is in fetch_noasm.go.
//
//go:noescape
func Fetch(x []float32)
