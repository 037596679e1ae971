package backendtest

import (
	"fmt"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
)

// TestInstructionSetsPass holds every instruction set of this machine, the portable code
// included, to what is demanded of a device.
func TestInstructionSetsPass(t *testing.T) {
	suite := New(t)
	for _, d := range backend.List() {
		if d.Name != "cpu" {
			continue
		}
		for _, isa := range d.Runnable() {
			if isa == "generic" && testing.Short() && len(d.Runnable()) > 1 {
				continue // it is what the others are compared with
			}
			t.Run("isa="+isa, func(t *testing.T) {
				suite.Run(t, Open(t, backend.Options{Threads: 1, ISA: isa}))
			})
		}
	}
}

// TestThreadsPass holds several threads to what one computes.
func TestThreadsPass(t *testing.T) {
	suite, several := Brief(t), []int{5, 2}
	if testing.Short() {
		several = []int{3} // the race detector finds what more would do wrong, and they wait for each other
	}
	for _, threads := range several {
		t.Run(fmt.Sprintf("threads=%d", threads), func(t *testing.T) {
			suite.Run(t, Open(t, backend.Options{Threads: threads}))
		})
	}
}
