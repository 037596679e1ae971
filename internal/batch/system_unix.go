//go:build unix

package batch

import (
	"errors"
	"os"
	"syscall"
)

// lockFile opens a file and locks it, unless another process has. The lock ends with the process.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	switch {
	case err == nil:
		return f, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		err = ErrLocked
	}
	return nil, errors.Join(err, f.Close())
}

// syncFolder has the names in a folder written to the disk.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

const errDiskFull = syscall.ENOSPC

// isFull reports whether a disk, or a user's share of it, is full.
func isFull(err error) bool {
	return errors.Is(err, errDiskFull) || errors.Is(err, syscall.EDQUOT)
}
