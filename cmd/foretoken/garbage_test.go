package main

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
)

func TestMemoryLimit(t *testing.T) {
	for live, want := range map[uint64]int64{0: smallLimit, 1 << 20: smallLimit, smallLimit / 2: smallLimit, smallLimit: 2 * smallLimit} {
		if got := memoryLimit(live); got != want {
			t.Errorf("%d bytes in use: %d, want %d", live, got, want)
		}
	}
}

// TestMemoryLimitFollows has a collection find more in use than the one before.
func TestMemoryLimitFollows(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	c := new(collected)
	t.Cleanup(func() {
		runtime.SetFinalizer(c, nil)
		debug.SetMemoryLimit(before)
	})
	limitAfter(c)
	used := make([]byte, 4*smallLimit)
	runtime.GC()
	runtime.SetFinalizer(c, nil)
	limitAfter(c)
	if got := debug.SetMemoryLimit(-1); got < 8*smallLimit || got != c.limit {
		t.Errorf("a limit of %d with %d bytes in use", got, len(used))
	}
	runtime.KeepAlive(used)
}

// TestCollectionsAreNoticed keeps small objects in use that were allocated right after the
// unreferenced ones.
func TestCollectionsAreNoticed(t *testing.T) {
	const n = 100
	var found atomic.Int32
	var used []*int64
	for range n {
		runtime.SetFinalizer(new(collected), func(*collected) { found.Add(1) })
		used = append(used, new(int64))
	}
	runtime.GC()
	// Objects of a later collection are finalized after all of those.
	last := make(chan bool)
	runtime.SetFinalizer(&[]*int64{nil}, func(*[]*int64) { close(last) })
	runtime.GC()
	<-last
	if got := found.Load(); got != n {
		t.Errorf("%d of %d were found", got, n)
	}
	runtime.KeepAlive(used)
}
