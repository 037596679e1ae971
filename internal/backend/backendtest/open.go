// Package backendtest is for tests only: the checks that every device must pass, and a device
// that lets nobody look into its memory.
package backendtest

import (
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	_ "github.com/foretoken/foretoken/internal/backend/cpu" // what tests compute on
)

// Open opens the processor for a test, which closes it at its end.
func Open(tb testing.TB, o backend.Options) backend.Backend {
	tb.Helper()
	b, err := backend.Open("cpu", o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := b.Close(); err != nil {
			tb.Error(err)
		}
	})
	return b
}
