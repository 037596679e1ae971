//go:build (amd64 || arm64) && !noasm

package kernel

// Fetch asks memory for numbers that will be read soon and lie where the processor does not
// expect it, such as a few columns of many rows. Its twin is in fetch_noasm.go.
//
//go:noescape
func Fetch(x []float32)
