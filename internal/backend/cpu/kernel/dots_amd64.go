//go:build !noasm

package kernel

// dotCode is machine code that a test compares: see vnni_amd64.s.
//
//go:noescape
func dotCode() *[192]byte
