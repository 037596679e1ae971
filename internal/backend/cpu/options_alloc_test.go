package cpu

import (
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// TestOptionsAllocateNothing runs attention and experts with every option, once warm.
func TestOptionsAllocateNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("portable kernels take their time, and what allocates is the same code around each kernel")
	}
	b := openTest(t, Options{Threads: 2})
	check := func(name string, run func()) {
		t.Helper()
		run()
		if n := testing.AllocsPerRun(10, run); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
	for _, c := range attendVariants() {
		a, x := c.open(t, b, dtype.F16)
		q, k, v, dst, seq := x.rows(0, optionRows, 0)
		batch := []backend.Seq{seq}
		check(c.name, func() { b.Attend(dst, a, optionPlace(dtype.F16), q, k, v, batch) })
	}
	stacks := expertStacks(t)
	for _, c := range expertsVariants() {
		e := c.open(t, b, stacks)
		x, dst := expertInput(t, b)
		check(c.name, func() { b.Experts(dst, x, e) })
	}
}
