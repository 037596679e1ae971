package checkpoint

import (
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

// mapFile maps the first size bytes of f for reading. The system keeps a mapped file from
// becoming shorter.
func mapFile(f *os.File, size int) ([]byte, error) {
	h, err := windows.CreateFileMapping(windows.Handle(f.Fd()), nil, windows.PAGE_READONLY, uint32(uint64(size)>>32), uint32(size), nil)
	if err != nil {
		return nil, os.NewSyscallError("CreateFileMapping", err)
	}
	at, err := windows.MapViewOfFile(h, windows.FILE_MAP_READ, 0, 0, uintptr(size))
	_ = windows.CloseHandle(h) // the view keeps it
	if err != nil {
		return nil, os.NewSyscallError("MapViewOfFile", err)
	}
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), size), nil // not of the heap: no rule about addresses applies
}

func unmapFile(b []byte) error {
	return os.NewSyscallError("UnmapViewOfFile", windows.UnmapViewOfFile(uintptr(unsafe.Pointer(unsafe.SliceData(b)))))
}

var prefetchVirtualMemory = windows.NewLazySystemDLL("kernel32.dll").NewProc("PrefetchVirtualMemory")

// adviseNeed lets the kernel read b in large pieces: faults read a few pages each. It is only advice.
func adviseNeed(b []byte) {
	if len(b) < 1<<20 || prefetchVirtualMemory.Find() != nil {
		return
	}
	piece := struct {
		at    unsafe.Pointer
		bytes uintptr
	}{unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b))}
	_, _, _ = prefetchVirtualMemory.Call(uintptr(windows.CurrentProcess()), 1, uintptr(unsafe.Pointer(&piece)), 0)
}

// adviseDrop lets the kernel take the pages of b out of our memory: unlocking pages that are not locked does that, and
// returns an error. They come back from the cache of files or the disk when they are read again.
func adviseDrop(b []byte) {
	_ = windows.VirtualUnlock(uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
}

// inProgram reports whether b is part of the read-only data of a program or library. Such memory is read again from the
// file after it was dropped, unlike that of Go's heap.
func inProgram(b []byte) bool {
	const image = 0x1000000 // MEM_IMAGE
	var m windows.MemoryBasicInformation
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	if len(b) == 0 || windows.VirtualQuery(at, &m, unsafe.Sizeof(m)) != nil {
		return false
	}
	return m.Type == image && m.Protect == windows.PAGE_READONLY && uintptr(len(b)) <= m.BaseAddress+m.RegionSize-at
}
