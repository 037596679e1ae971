//go:build unix

package bench

import (
	"runtime"
	"syscall"
)

// residentMemory is the most that an ended process had resident, in bytes.
func residentMemory(usage any) int64 {
	u, ok := usage.(*syscall.Rusage)
	if !ok {
		return 0
	}
	if runtime.GOOS == "darwin" {
		return int64(u.Maxrss)
	}
	return int64(u.Maxrss) << 10
}

// ownMemory is the most that this process has had resident so far, in bytes.
func ownMemory() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return residentMemory(&u)
}
