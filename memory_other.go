//go:build !linux

package foretoken

// freeMemory is a guess where the system is not asked: little enough for a small machine.
func freeMemory() int64 { return 4 << 30 }
