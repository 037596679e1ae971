//go:build noasm || !(amd64 || arm64)

package cpu

// isas lists portable Go only.
func isas() []isa { return []isa{generic} }
