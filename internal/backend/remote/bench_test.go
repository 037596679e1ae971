package remote_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/remote"
	"github.com/foretoken/foretoken/internal/dtype"
)

// round is rows that are written, added to others in a pass, and read.
type round struct {
	b       backend.Backend
	x, y, z backend.Tensor
	page    backend.Tensor
	rows    []float32
	queue   func()
}

func newRound(tb testing.TB, b backend.Backend, rows, width int) *round {
	tb.Helper()
	r := &round{b: b, rows: make([]float32, rows*width)}
	for _, t := range []*backend.Tensor{&r.x, &r.y, &r.z} {
		var err error
		if *t, err = b.Alloc(dtype.F32, rows, width); err != nil {
			tb.Fatal(err)
		}
	}
	var err error
	if r.page, err = b.Alloc(dtype.I8, 1, 1<<10); err != nil {
		tb.Fatal(err)
	}
	r.queue = func() { b.GLU(r.z, r.x, r.y, backend.SiLU) }
	return r
}

// run is a round with a sequence that has the page.
func (r *round) run(tb testing.TB, batch []backend.Seq) {
	err := r.b.Write(r.x, r.rows)
	r.b.Pass(backend.Pass{Of: r, Batch: batch}, r.queue)
	if err == nil {
		_, err = r.b.Host(r.z)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

func BenchmarkRound(b *testing.B) {
	for _, delay := range []time.Duration{0, 100 * time.Microsecond, 800 * time.Microsecond} {
		for _, rows := range []int{1, 4, 16} {
			b.Run(fmt.Sprintf("delay=%v/rows=%d", delay, rows), func(b *testing.B) {
				n := backendtest.StartNode(b, backend.Options{Threads: 1})
				d := backendtest.Remote(b, backend.Options{}, remote.Options{Dial: n.Dial(delay)})
				r := newRound(b, d, rows, 5120)
				batch := []backend.Seq{{N: rows, Pages: []backend.Tensor{r.page}}}
				r.run(b, batch)
				b.ReportAllocs()
				for b.Loop() {
					batch[0].Pos++
					r.run(b, batch)
				}
			})
		}
	}
}

// A round allocates nothing on either end: both are in this process.
func TestRoundsDoNotAllocate(t *testing.T) {
	n := backendtest.StartNode(t, backend.Options{Threads: 1})
	r := newRound(t, open(t, n, remote.Options{}), 4, 64)
	batch := []backend.Seq{{N: 4, Pages: []backend.Tensor{r.page}}}
	if got := testing.AllocsPerRun(200, func() { r.run(t, batch) }); got > 1 {
		t.Errorf("%v allocations", got)
	}
}
