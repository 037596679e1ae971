//go:build !linux

package foretoken

// freeMemory is an assumption where the system is not asked: little enough for a small machine.
func freeMemory() int64 { return 4 << 30 }
