package cpu

import (
	"runtime"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// liveHeap is the bytes of live objects of the garbage collector.
func liveHeap() int64 {
	var x runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&x)
	return int64(x.HeapAlloc)
}

// TestMemoryIsNotOnTheHeap checks that large tensors of every type do not count for the
// garbage collector, which would let garbage grow in proportion to them.
func TestMemoryIsNotOnTheHeap(t *testing.T) {
	b := openTest(t, Options{Threads: 1})
	before := liveHeap()
	var list []backend.Tensor
	for range 64 {
		for _, kind := range []dtype.Type{dtype.F32, dtype.F16, dtype.I8} {
			x, err := b.Alloc(kind, 512, 512)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, x)
		}
	}
	if grown := liveHeap() - before; grown > 1<<20 {
		t.Errorf("112 MB of tensors made the heap grow by %d bytes", grown)
	}
	runtime.KeepAlive(list)
}

// TestFreedMemoryIsNotTouched checks that a tensor whose memory was freed, or that outlives its
// backend, is a panic in Go and not a read of memory that is not there.
func TestFreedMemoryIsNotTouched(t *testing.T) {
	for _, cols := range []int{8, 1 << 16} { // on the heap, and outside of it
		for name, end := range map[string]func(b *Backend, x backend.Tensor){
			"freed":       func(b *Backend, x backend.Tensor) { b.Free(x) },
			"freed twice": func(b *Backend, x backend.Tensor) { b.Free(x); b.Free(x) },
			"closed":      func(b *Backend, _ backend.Tensor) { _ = b.Close() },
		} {
			b := openTest(t, Options{Threads: 1})
			x, err := b.Alloc(dtype.F32, 2, cols)
			if err != nil {
				t.Fatal(err)
			}
			b.Fill(x, 1)
			view := x.RowRange(1, 2)
			end(b, x)
			func() {
				defer func() {
					if err, ok := recover().(runtime.Error); !ok || !strings.Contains(err.Error(), "out of range") {
						t.Errorf("%s, %d columns: %v, want a panic about the range", name, cols, err)
					}
				}()
				b.Fill(view, 2)
			}()
		}
	}
	b := openTest(t, Options{Threads: 1})
	b.Free(backend.Tensor{}) // none
}
