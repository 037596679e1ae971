//go:build unix

package main

import (
	"syscall"
	"testing"
	"time"
)

// stop stops a process for a time.
func (p *program) stop(t *testing.T, d time.Duration) {
	t.Helper()
	for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		if err := p.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		if s == syscall.SIGSTOP {
			time.Sleep(d)
		}
	}
}
