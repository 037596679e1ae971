package backendtest

import (
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/conformance"
)

// Suite is the checks of package conformance as tests.
type Suite struct{ *conformance.Suite }

// New returns the checks for the devices of a test; fewer of them in short mode.
func New(tb testing.TB) Suite {
	tb.Helper()
	return Suite{conformance.New(CPU(tb, backend.Options{Threads: 1, ISA: "generic"}), testing.Short())}
}

// Brief has fewer cases, and the CPU's best instruction set as its oracle: it is for devices that
// compute with another, which gives the bits of the portable code if New's checks hold.
func Brief(tb testing.TB) Suite {
	tb.Helper()
	return Suite{conformance.New(CPU(tb, backend.Options{Threads: 1}), true)}
}

// Only leaves the checks of these names, as subtests have them.
func (s Suite) Only(names ...string) Suite { return Suite{s.Suite.Only(names...)} }

// Run is Check as a test, a subtest for each operation, and closes the device twice.
func (s Suite) Run(t *testing.T, b backend.Backend) {
	t.Helper()
	s.Each(b, func(name string, check func() []conformance.Finding) {
		t.Run(name, func(t *testing.T) {
			for _, f := range check() {
				t.Error(f)
			}
		})
	})
	for range 2 {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
}
