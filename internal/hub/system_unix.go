//go:build linux || darwin

package hub

import (
	"errors"
	"math"
	"os"
	"syscall"
)

// tryLock locks the file unless another process has it. File systems without locks lock nothing: two
// programs may then fetch the same blob, and both get it right.
func tryLock(file *os.File) (bool, error) {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	switch {
	case err == nil, errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.ENOTSUP), errors.Is(err, syscall.ENOLCK):
		return true, nil
	case errors.Is(err, syscall.EWOULDBLOCK), errors.Is(err, syscall.EINTR):
		return false, nil
	}
	return false, &os.PathError{Op: "lock", Path: file.Name(), Err: err}
}

// freeBytes is the free space on the disk of a folder for this user.
func freeBytes(folder string) (int64, bool) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(folder, &s); err != nil {
		return 0, false
	}
	size := uint64(max(s.Bsize, 1))
	return int64(min(s.Bavail, math.MaxInt64/size) * size), true
}
