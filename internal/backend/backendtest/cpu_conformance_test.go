package backendtest

import (
	"fmt"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
)

// variants are instruction sets that differ from another one, which every processor with them has, in products of integers, and most
// in keys of bytes, too: the checks of these. TestVariantsDifferInProducts of package kernel holds them to it.
var variants = func() map[string][]string {
	products := []string{"Load", "MatMul", "Experts", "Experts with options"}
	bytes := append(products, "Attend", "Attend with options", "Attend without keys", "Attend inside blocks")
	return map[string][]string{"i8mm": products, "dotprod": bytes, "avxvnni": bytes, "amx": bytes}
}()

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
				suite := suite
				if checks, ok := variants[isa]; ok {
					suite = suite.Only(checks...)
				}
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
