// Package backendtest is for tests only: the checks that every device must pass, and a device
// whose memory only the device can read.
package backendtest

import (
	"cmp"
	"os"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	_ "github.com/foretoken/foretoken/internal/backend/cpu" // what tests compute on
	"github.com/foretoken/foretoken/internal/backend/remote"
)

// Open opens the device that tests compute on, which the test closes at its end: the processor, or
// what the environment names in FORETOKEN_TEST_DEVICE, as make test-cuda does; "remote" is a processor behind a connection
// of this machine, which delays what is sent by FORETOKEN_TEST_DELAY. Options with an instruction set are for the processor.
// FORETOKEN_TEST_ISA names that of processors without one in their options.
func Open(tb testing.TB, o backend.Options) backend.Backend {
	tb.Helper()
	if o.ISA != "" {
		return CPU(tb, o)
	}
	device := cmp.Or(os.Getenv("FORETOKEN_TEST_DEVICE"), "cpu")
	if device == "remote" {
		return Remote(tb, o, remote.Options{})
	}
	return open(tb, device, o)
}

// CPU opens the processor for a test, which closes it at its end.
func CPU(tb testing.TB, o backend.Options) backend.Backend {
	tb.Helper()
	return open(tb, "cpu", o)
}

func open(tb testing.TB, device string, o backend.Options) backend.Backend {
	tb.Helper()
	if device == "cpu" {
		o.ISA = cmp.Or(o.ISA, os.Getenv("FORETOKEN_TEST_ISA"))
	}
	b, err := backend.Open(device, o)
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

// Drawing is a device that draws tokens: b, or one that computes on it.
func Drawing(b backend.Backend) backend.Backend {
	if _, ok := b.(backend.Drawer); ok {
		return b
	}
	return NewOpaque(b)
}
