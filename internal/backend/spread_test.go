package backend_test

import (
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
)

// TestSpreadCallsEachOnce uses a device that lends its threads, and one that has none.
func TestSpreadCallsEachOnce(t *testing.T) {
	b := backendtest.Open(t, backend.Options{Threads: 3})
	for _, device := range []backend.Backend{b, backendtest.NewOpaque(b)} {
		for n := range 40 {
			calls := make([]int, n)
			backend.Spread(device, n, func(i int) { calls[i]++ })
			if !slices.Equal(calls, slices.Repeat([]int{1}, n)) {
				t.Fatalf("%s: calls of %d: %v", device.Name(), n, calls)
			}
		}
	}
}
