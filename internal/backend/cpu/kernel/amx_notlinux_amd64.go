//go:build !noasm && !linux

package kernel

// allowAMX says that only Linux is known to save tiles.
func allowAMX() string { return "AMX is used on Linux only" }
