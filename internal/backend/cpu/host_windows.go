package cpu

import (
	"strings"
	"unsafe"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"
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

// processorName is the maker's name of the processor; "" if the system does not tell.
func processorName() string {
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, `HARDWARE\DESCRIPTION\System\CentralProcessor\0`, registry.QUERY_VALUE)
	if err != nil {
		return ""
	}
	defer key.Close() //nolint:errcheck // read only
	name, _, _ := key.GetStringValue("ProcessorNameString")
	return strings.TrimSpace(name)
}
