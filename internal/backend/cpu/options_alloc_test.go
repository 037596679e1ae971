package cpu

import (
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// allocations is how often run allocates, once warm, on average of runs runs. Every thread keeps
// memory that it computes in, and which thread meets which part of an operation is luck: so first
// each of them computes all of it. The mean is rounded down: what the runtime needs now and then to
// wake a thread does not count.
func allocations(b *Backend, runs int, run func()) float64 {
	b.pool.alone = true
	for b.pool.self = range b.pool.threads {
		run()
	}
	b.pool.alone, b.pool.self = false, 0
	return testing.AllocsPerRun(runs, run)
}

// TestThreadsKeepTheirOwnMemory is what allocations relies on: a thread that has computed nothing
// yet allocates, however warm the others are.
func TestThreadsKeepTheirOwnMemory(t *testing.T) {
	b := openTest(t, Options{Threads: 2})
	x, y := randomTensor(t, b, rand.New(rand.NewPCG(9, 10)), 4, 128), randomTensor(t, b, rand.New(rand.NewPCG(9, 11)), 4, 70)
	w, err := b.Load(backend.Int8, integerMatrix(t, 70, 128, 4))
	if err != nil {
		t.Fatal(err)
	}
	products := []backend.Product{{Dst: y, W: w}}
	b.pool.alone = true
	for b.pool.self = range b.pool.threads {
		if len(b.workers[b.pool.self].out) > 0 {
			t.Errorf("thread %d has memory before its first product", b.pool.self)
		}
		b.MatMul(x, products...)
		if len(b.workers[b.pool.self].out) == 0 {
			t.Errorf("thread %d computed nothing", b.pool.self)
		}
	}
}

// TestOptionsAllocateNothing runs attention and experts with every option, once warm.
func TestOptionsAllocateNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("portable kernels take their time, and what allocates is the same code around each kernel")
	}
	b := openTest(t, Options{Threads: 2})
	check := func(name string, run func()) {
		t.Helper()
		if n := allocations(b, 10, run); n != 0 {
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
		check(c.name, func() { b.Experts(dst, x, backend.Tensor{}, e) })
	}
}
