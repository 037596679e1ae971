//go:build !(amd64 || arm64) || noasm

package kernel

// Pause waits for a moment in a polling loop.
func Pause() {
	for range 100 {
		// An empty loop: the compiler keeps it.
	}
}
