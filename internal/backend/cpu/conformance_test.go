package cpu_test

import (
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
)

// TestInstructionSetsPass holds every instruction set of this machine, the portable code
// included, to what is demanded of a device.
func TestInstructionSetsPass(t *testing.T) {
	suite := backendtest.New(t)
	for _, d := range backend.List() {
		if d.Name != "cpu" {
			continue
		}
		for _, isa := range d.Runnable() {
			t.Run("isa="+isa, func(t *testing.T) {
				suite.Run(t, backendtest.Open(t, backend.Options{Threads: 1, ISA: isa}))
			})
		}
	}
}

// TestThreadsPass is the same for the best instruction set on several threads.
func TestThreadsPass(t *testing.T) {
	suite := backendtest.New(t)
	for name, threads := range map[string]int{"threads=2": 2, "threads=5": 5} {
		t.Run(name, func(t *testing.T) {
			suite.Run(t, backendtest.Open(t, backend.Options{Threads: threads}))
		})
	}
}
