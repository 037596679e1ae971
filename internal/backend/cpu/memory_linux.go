package cpu

import "golang.org/x/sys/unix"

// adviseHuge requests huge pages, which take fewer translations of addresses. It is only advice.
func adviseHuge(b []byte) {
	const huge = 2 << 20
	if len(b) >= huge {
		_ = unix.Madvise(b, unix.MADV_HUGEPAGE)
	}
}
