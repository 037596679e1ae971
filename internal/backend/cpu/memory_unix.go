//go:build unix

package cpu

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// mapMemory returns n zeroed bytes outside of the garbage collector's heap, so that
// gigabytes of weights, keys and values do not let it keep as much garbage again.
func mapMemory(n int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("cpu: %d bytes of memory: %w", n, err)
	}
	adviseHuge(b)
	return b, nil
}

func unmapMemory(b []byte) {
	if len(b) == 0 {
		return
	}
	// A hole in a mapping makes two of it, and the system may allow no more of them. Then the
	// addresses are lost, but not the memory.
	if unix.Munmap(b) != nil {
		_ = unix.Madvise(b, unix.MADV_DONTNEED)
	}
}
