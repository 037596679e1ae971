//go:build !(amd64 || arm64) || noasm

package kernel

// Fetch may ask memory for numbers that will be read soon. Here it does nothing.
func Fetch([]float32) {}
