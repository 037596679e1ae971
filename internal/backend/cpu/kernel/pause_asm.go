//go:build (amd64 || arm64) && !noasm

package kernel

// Pause waits for a moment in a polling loop. Its twin is in pause_noasm.go.
//
//go:noescape
func Pause()
