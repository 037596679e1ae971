package remote_test

import (
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/remote"
	"github.com/foretoken/foretoken/internal/dtype"
)

// A round, which writes rows, computes a pass and reads rows, allocates nothing on either end: both are in this process.
func TestRoundsDoNotAllocate(t *testing.T) {
	b := open(t, backendtest.StartNode(t, backend.Options{Threads: 1}), remote.Options{})
	rows := make([]float32, 4*64)
	page, err := b.Alloc(dtype.I8, 1, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	x, y := vector(t, b, rows...), vector(t, b, rows...)
	queue := func() { b.GLU(y, x, x, backend.SiLU) }
	batch := []backend.Seq{{N: 4, Pages: []backend.Tensor{page}}}
	got := testing.AllocsPerRun(200, func() {
		err := b.Write(x, rows)
		b.Pass(backend.Pass{Of: t, Batch: batch}, queue)
		if _, e := b.Host(y); err != nil || e != nil {
			t.Fatal(err, e)
		}
	})
	if got > 0 {
		t.Errorf("%v allocations", got)
	}
}
