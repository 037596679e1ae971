package batch

import (
	"errors"
	"os"
	"syscall"
)

const (
	errSharing  syscall.Errno = 32  // ERROR_SHARING_VIOLATION
	errDiskFull syscall.Errno = 112 // ERROR_DISK_FULL
)

// lockFile opens a file and locks it, unless another process has. The lock ends with the process.
func lockFile(path string) (*os.File, error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	h, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, nil, syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	switch {
	case errors.Is(err, errSharing):
		return nil, ErrLocked
	case err != nil:
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	return os.NewFile(uintptr(h), path), nil
}

// syncFolder has nothing to do: the system keeps names itself.
func syncFolder(string) error { return nil }

// isFull reports whether a disk is full.
func isFull(err error) bool { return errors.Is(err, errDiskFull) }
