//go:build unix

package server

import (
	"syscall"
	"testing"
)

// maxOpenFiles is how many files this process may have open: Go's runtime has raised the limit
// to what is allowed.
func maxOpenFiles(t *testing.T) uint64 {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	return limit.Cur
}
