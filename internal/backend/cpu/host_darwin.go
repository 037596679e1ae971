package cpu

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// systemMemory is the bytes of memory of the machine, and those that this process may still allocate: free pages, pages of files,
// and pages that their owners have given up. The monitor of the system calls the rest used memory.
func systemMemory() (total, free int64) {
	total = int64(kernelNumber("hw.memsize"))
	pages := kernelNumber("vm.page_free_count")
	if total == 0 || pages == 0 {
		return 0, 0
	}
	pages += kernelNumber("vm.page_pageable_external_count") + kernelNumber("vm.page_purgeable_count")
	return total, min(total, int64(pages*kernelNumber("vm.pagesize"))) // hw.pagesize is the program's, not the kernel's
}

// processorName is the maker's name of the processor; "" if the system does not tell.
func processorName() string {
	name, _ := unix.Sysctl("machdep.cpu.brand_string")
	return name
}

// kernelNumber is a number of the kernel, of any size; 0 if there is none of that name.
func kernelNumber(name string) uint64 {
	b, err := unix.SysctlRaw(name)
	switch {
	case err != nil:
		return 0
	case len(b) == 4:
		return uint64(binary.LittleEndian.Uint32(b))
	case len(b) == 8:
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}
