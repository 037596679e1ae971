package cpu

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/windows"
)

// mapMemory returns n zeroed bytes outside of the garbage collector's heap, so that
// gigabytes of weights, keys and values do not let it keep as much garbage again. The system has pages for all of them
// from now on, or refuses: its limit is memory and page file.
func mapMemory(n int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	at, err := windows.VirtualAlloc(0, uintptr(n), windows.MEM_RESERVE|windows.MEM_COMMIT, windows.PAGE_READWRITE)
	if err != nil {
		return nil, fmt.Errorf("cpu: %d bytes of memory: %w", n, err)
	}
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), n), nil // not of the heap: no rule about addresses applies
}

func unmapMemory(b []byte) {
	if len(b) > 0 {
		// It can fail only for an address that mapMemory has not returned.
		_ = windows.VirtualFree(uintptr(unsafe.Pointer(unsafe.SliceData(b))), 0, windows.MEM_RELEASE)
	}
}
