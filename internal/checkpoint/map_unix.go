//go:build linux || darwin

package checkpoint

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapFile maps the first size bytes of f for reading. A file that shrinks while it
// is mapped ends the process when the lost part is read; no check here can prevent that.
func mapFile(f *os.File, size int) ([]byte, error) {
	b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	return b, nil
}

func unmapFile(b []byte) error { return os.NewSyscallError("munmap", unix.Munmap(b)) }

// adviseNeed has no advice: Linux reads ahead as fast by itself (docs/experiments.md). Nothing was measured on macOS.
func adviseNeed([]byte) {}

// adviseDrop lets the kernel take the whole pages inside b out of our memory. They
// come back from the page cache or the disk when they are read again. Linux takes them at once; macOS may keep them until memory is short.
func adviseDrop(b []byte) {
	page := uintptr(os.Getpagesize())
	start := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	skip := -start & (page - 1)
	if n := uintptr(len(b)); n > skip {
		if whole := (n - skip) &^ (page - 1); whole > 0 {
			// Advice: the kernel may refuse it, and nothing depends on the answer.
			_ = unix.Madvise(b[skip:skip+whole], unix.MADV_DONTNEED)
		}
	}
}

// inProgram reports whether b is part of a privately mapped, read-only file, as the program's own
// constants are. Such memory is read again from the file after it was dropped, unlike
// that of Go's heap. It is false if the system does not tell.
func inProgram(b []byte) bool {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil || len(b) == 0 {
		return false
	}
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	for lines := bufio.NewScanner(bytes.NewReader(maps)); lines.Scan(); {
		var from, to uintptr
		var may, offset, device string
		var inode uint64
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x %s %s %s %d", &from, &to, &may, &offset, &device, &inode); n == 6 && at >= from && at < to {
			return inode != 0 && may[0] == 'r' && may[1] == '-' && may[3] == 'p' && uintptr(len(b)) <= to-at
		}
	}
	return false
}
