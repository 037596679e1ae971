//go:build unix

package remote_test

import (
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/remote"
)

// A node that is stopped for less than the limit of silence loses nothing. One that is stopped for longer is gone, and back
// once it goes on.
func TestStoppedNode(t *testing.T) {
	node, addr := start(t, asNode, "127.0.0.1:0")
	signal := func(s syscall.Signal) {
		t.Helper()
		if err := node.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	o := remote.Options{Name: "desk", Dial: dialer(addr), Wait: patience, OpenWait: patience, Log: slog.New(slog.DiscardHandler)}
	o.SetSilence(time.Minute)
	patient, err := remote.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	x := vector(t, patient, 1)
	patient.Fill(x, 2)
	signal(syscall.SIGSTOP)
	continued := make(chan struct{})
	time.AfterFunc(20*time.Millisecond, func() {
		_ = node.Signal(syscall.SIGCONT)
		close(continued)
	})
	if got := read(t, patient, x); got[0] != 2 {
		t.Errorf("memory is %v", got)
	}
	<-continued
	if err := patient.Close(); err != nil {
		t.Fatal(err)
	}
	o.SetSilence(100 * time.Millisecond)
	hasty, err := remote.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hasty.Close() })
	x = vector(t, hasty, 1)
	signal(syscall.SIGSTOP)
	for err = nil; err == nil; { // it may answer once more
		_, err = hasty.Host(x)
	}
	if !strings.Contains(err.Error(), "node desk is gone: no sign of life for 100ms") {
		t.Errorf("a stopped node: %v", err)
	}
	time.AfterFunc(20*time.Millisecond, func() { _ = node.Signal(syscall.SIGCONT) })
	for again := error(nil); ; { // on a busy machine it may seem to be gone once more
		if lost, err := backend.Restore(hasty); !lost || err != nil {
			t.Fatalf("Restore: %v, %v", lost, err)
		}
		var got []float32
		if got, again = hasty.Host(x); again == nil {
			if got[0] != 1 {
				t.Errorf("memory is %v", got)
			}
			break
		}
	}
}

// A leader that is stopped is gone for its node after the limit of silence, and another can have it.
func TestStoppedLeaderLeavesNothing(t *testing.T) {
	n := backendtest.StartNode(t, backend.Options{Threads: 1})
	n.SetSilence(100 * time.Millisecond)
	leader, _ := start(t, asLeader, n.Addr)
	if err := leader.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	o := remote.Options{Wait: patience, OpenWait: patience}
	o.SetSilence(100 * time.Millisecond) // and its pings come often enough
	open(t, n, o)
	if s := n.Status(); s.Used != 0 {
		t.Errorf("status %+v", s)
	}
}
