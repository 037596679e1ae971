package backend_test

import (
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
)

// lender is a device that lends a thread.
type lender struct {
	backend.Backend
	calls int
}

func (l *lender) Spread(n int, f func(i int)) {
	l.calls++
	for i := range n {
		f(i)
	}
}

// TestSpreadCallsEachOnce uses a device that lends its threads, and one that has none. Package cpu tests its own.
func TestSpreadCallsEachOnce(t *testing.T) {
	lends := &lender{}
	for _, device := range []backend.Backend{lends, struct{ backend.Backend }{lends}} {
		for n := range 40 {
			calls := make([]int, n)
			backend.Spread(device, n, func(i int) { calls[i]++ })
			if !slices.Equal(calls, slices.Repeat([]int{1}, n)) {
				t.Fatalf("%T: calls of %d: %v", device, n, calls)
			}
		}
	}
	if lends.calls != 40 {
		t.Errorf("the device was asked %d times", lends.calls)
	}
}
