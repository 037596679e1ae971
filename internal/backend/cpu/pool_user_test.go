package cpu

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// helperThreads counts the goroutines that are threads of a pool.
func helperThreads() int {
	stacks := make([]byte, 4<<20)
	return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte("internal/backend/cpu.(*pool).grow in goroutine")) // who started them
}

// TestBackendsShareThreads checks that a process has as many compute threads as its largest
// backend wants, however many are open, and none when all are closed.
func TestBackendsShareThreads(t *testing.T) {
	if n := helperThreads(); n != 0 {
		t.Fatalf("%d threads before any backend is open", n)
	}
	var open []*Backend
	for i, c := range []struct{ threads, want int }{{3, 2}, {3, 2}, {2, 2}, {5, 4}, {1, 4}} {
		b, err := Open(Options{Threads: c.threads})
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, b)
		if n := helperThreads(); n != c.want {
			t.Errorf("after %d backends, the last with %d threads: %d helpers, want %d", i+1, c.threads, n, c.want)
		}
		if want := fmt.Sprintf("%d threads", c.threads); !bytes.HasSuffix([]byte(b.Name()), []byte(want)) {
			t.Errorf("%s, want %s", b.Name(), want)
		}
	}
	for i, b := range open {
		if i == len(open)-1 {
			if n := helperThreads(); n != 4 {
				t.Errorf("%d helpers while one backend is open, want 4", n)
			}
		}
		for range 2 { // closing twice does not end the threads of others
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := helperThreads(); n != 0 {
		t.Errorf("%d helpers after all backends are closed", n)
	}
}

// highest marks the highest thread that computed a part.
type highest struct{ worker atomic.Int32 }

func (m *highest) part(worker, _, _ int) {
	for {
		old := m.worker.Load()
		if int(old) >= worker || m.worker.CompareAndSwap(old, int32(worker)) {
			return
		}
	}
}

// TestPoolUserKeepsToItsThreads checks that tasks for few threads are not computed by others of the
// pool, in whatever order tasks of two sizes come: a thread computes in memory of its own, and
// a backend has only as much of that as it has threads.
func TestPoolUserKeepsToItsThreads(t *testing.T) {
	large, small := usePool(6), usePool(2)
	defer large.release()
	defer small.release()
	for i := range 3000 {
		c, limit := large, 6
		if i%3 > 0 {
			c, limit = small, 2
		}
		var m highest
		c.run(&m, 64, 1)
		if got := int(m.worker.Load()); got >= limit {
			t.Fatalf("task %d ran on thread %d of %d", i, got, limit)
		}
	}
}

// TestPoolUserWakesItsThreads checks that threads which slept through tasks for fewer of them come
// when they are wanted: both parts of the task wait for each other.
func TestPoolUserWakesItsThreads(t *testing.T) {
	large, small := usePool(2), usePool(1)
	defer large.release()
	defer small.release()
	for range 5 {
		for !large.helpers[0].asleep.Load() {
			small.run(panics{-1}, 2, 1)
			runtime.Gosched()
		}
		var both sync.WaitGroup
		both.Add(2)
		large.run(meeting{&both}, 2, 1)
	}
}

// meeting is a task whose parts wait for each other.
type meeting struct{ all *sync.WaitGroup }

func (m meeting) part(_, from, to int) {
	for range to - from {
		m.all.Done()
	}
	m.all.Wait()
}

// TestBackendsComputeAtOnce has several backends of different sizes compute at the same time,
// and checks that each gets the bits that it gets alone.
func TestBackendsComputeAtOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(77, 7))
	m, err := dtype.Quantize(ptr(randomMatrix(rng, 512, 256)), 8, 64, dtype.F32)
	if err != nil {
		t.Fatal(err)
	}
	inputs := make([]float32, 3*256)
	for i := range inputs {
		inputs[i] = float32(rng.NormFloat64())
	}
	compute := func(threads, times int) []float32 {
		b, err := Open(Options{Threads: threads})
		if err != nil {
			t.Error(err)
			return nil
		}
		defer func() { _ = b.Close() }()
		w, err := b.Load(backend.Int8, m)
		if err != nil {
			t.Error(err)
			return nil
		}
		x, _ := b.Alloc(dtype.F32, 3, 256)
		y, _ := b.Alloc(dtype.F32, 3, 512)
		_ = b.Write(x, inputs)
		for range times {
			b.MatMul(x, backend.Product{Dst: y, W: w, Add: true})
			b.RMSNorm(y, y, y.RowRange(0, 1), 1e-6)
		}
		out, _ := b.Host(y)
		return slices.Clone(out)
	}
	want := compute(1, 200)
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			if got := compute(1+i%4, 200); !slices.Equal(got, want) {
				t.Errorf("%d threads beside others: other numbers than alone", 1+i%4)
			}
		})
	}
	all.Wait()
}

func ptr[T any](x T) *T { return &x }

// TestPoolFaultFreesThePool checks that a panic of one backend's operation does not keep the
// others from computing.
func TestPoolFaultFreesThePool(t *testing.T) {
	a, b := usePool(3), usePool(3)
	defer a.release()
	defer b.release()
	for at := range 12 {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("part %d failed without notice", at)
				}
			}()
			a.run(panics{at}, 12, 1)
		}()
		b.run(panics{-1}, 12, 1)
	}
}

// TestSpreadCallsEachOnce has a backend do work that is not an operation.
func TestSpreadCallsEachOnce(t *testing.T) {
	b, err := Open(backend.Options{Threads: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close() //nolint:errcheck // a device without memory
	for n := range 40 {
		calls := make([]int, n)
		backend.Spread(b, n, func(i int) { calls[i]++ })
		if !slices.Equal(calls, slices.Repeat([]int{1}, n)) {
			t.Fatalf("calls of %d: %v", n, calls)
		}
	}
}
