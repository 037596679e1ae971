//go:build unix

package batches

import (
	"io/fs"
	"os"
	"syscall"
)

// oursAlone reports whether a file is this user's and no other user can read or change it.
func oursAlone(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Getuid() && info.Mode().Perm()&0o077 == 0
}
