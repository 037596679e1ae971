//go:build !(amd64 || arm64) || noasm

package cpu

// pause waits for a moment in a loop that looks for work.
func pause() {
	for range 100 {
		// An empty loop: the compiler keeps it.
	}
}
