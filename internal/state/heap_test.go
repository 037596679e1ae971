package state

import (
	"errors"
	"runtime"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
)

// TestPoolIsNotOnTheHeap fills a pool with sequences and snapshots of a small model. Its memory is not part of the heap,
// however often it is released and taken again.
func TestPoolIsNotOnTheHeap(t *testing.T) {
	const budget = 192 << 20
	kv, delta := KV{Type: dtype.F16, Heads: 2, Key: 128, Value: 128}, Delta{KeyHeads: 4, ValueHeads: 8, KeyDim: 64, ValueDim: 64, Kernel: 4}
	layout := Layout{Layers: []Layer{delta, delta, kv, delta, delta, kv}, MaxDrafts: 8}
	p := openPool(t, budget)
	live := func() int64 {
		var x runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&x)
		return int64(x.HeapAlloc)
	}
	before := live()
	for range 3 {
		var states []*State
		var copies []*Snapshot
		for {
			s, err := p.Open(layout)
			if err == nil {
				states = append(states, s)
				if err = s.Reserve(1000); err == nil {
					s.Seq(0, 1000, 0, nil)
					s.Fed(1000, 0)
					var x *Snapshot
					if x, err = s.Save(); err == nil {
						copies = append(copies, x)
					}
				}
			}
			if errors.Is(err, ErrFull) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if used := p.Used(); used < budget*9/10 {
			t.Fatalf("%d of %d bytes are in use", used, budget)
		}
		if grown := live() - before; grown > 2<<20 {
			t.Errorf("a pool with %d bytes in use made the heap grow by %d", p.Used(), grown)
		}
		for _, s := range states {
			s.Close()
		}
		for _, x := range copies {
			x.Close()
		}
	}
}
