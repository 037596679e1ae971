//go:build unix

package server

import (
	"syscall"
	"testing"
)

// maxOpenFiles is the maximum number of open files of this process: Go's runtime has raised the
// limit to the hard limit.
func maxOpenFiles(t *testing.T) uint64 {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	return limit.Cur
}
