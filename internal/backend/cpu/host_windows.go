package cpu

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

var (
	kernel32             = windows.NewLazySystemDLL("kernel32.dll")
	globalMemoryStatusEx = kernel32.NewProc("GlobalMemoryStatusEx")
)

// memoryStatus is the system's MEMORYSTATUSEX.
type memoryStatus struct {
	length, load                                        uint32
	total, free, commit, freeCommit, address, freeSpace uint64
	extended                                            uint64
}

// systemMemory is the bytes of memory of the machine, and those that this process may still
// allocate: what is free, as far as the system promises pages.
func systemMemory() (total, free int64) {
	s := memoryStatus{length: uint32(unsafe.Sizeof(memoryStatus{}))}
	if ok, _, _ := globalMemoryStatusEx.Call(uintptr(unsafe.Pointer(&s))); ok == 0 {
		return 0, 0
	}
	return int64(s.total), int64(min(s.free, s.freeCommit))
}
