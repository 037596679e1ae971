package backendtest

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// What a slow connection carries arrives in order, not before its time, and its end after it.
func TestLateConnDelays(t *testing.T) {
	a, b := net.Pipe()
	const delay = 2 * time.Millisecond
	var by atomic.Int64
	by.Store(int64(delay))
	slow := Late(a, &by)
	start := time.Now()
	go func() {
		for _, x := range []string{"one ", "two ", "three"} {
			_, _ = io.WriteString(slow, x)
		}
	}()
	got := make([]byte, len("one two three"))
	if _, err := io.ReadFull(b, got); err != nil || string(got) != "one two three" || time.Since(start) < delay {
		t.Errorf("%q after %v, %v", got, time.Since(start), err)
	}
	start = time.Now()
	go func() {
		_, _ = io.WriteString(b, "back")
		_ = b.Close()
	}()
	if got, err := io.ReadAll(slow); err != nil || string(got) != "back" || time.Since(start) < delay {
		t.Errorf("%q after %v, %v", got, time.Since(start), err)
	}
}
