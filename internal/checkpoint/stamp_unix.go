//go:build linux || darwin

package checkpoint

import (
	"os"

	"golang.org/x/sys/unix"
)

// stampOf is the metadata of an open file. ok is false if the system does not provide it.
func stampOf(f *os.File) (s stamp, ok bool) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return s, false
	}
	return stamp{
		Size: st.Size, Modified: st.Mtim.Nano(), Changed: st.Ctim.Nano(),
		Device: uint64(st.Dev), Inode: st.Ino, // of another type on darwin
	}, true
}
