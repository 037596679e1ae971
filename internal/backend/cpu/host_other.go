//go:build !linux && !darwin && !windows

package cpu

func systemMemory() (total, free int64) { return 0, 0 }
func processorName() string             { return "" }
