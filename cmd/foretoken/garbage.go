package main

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// Weights and KV caches are not on the Go heap, so that little of it is in use.
// At Go's usual pace, a collection whenever the heap has doubled, a server would spend a tenth
// of its time on small ones; at a slower pace alone, a burst of large requests would leave more
// behind than a server promises to have beside its budget. So the pace is slower up to a limit.
const (
	slowPace   = 200      // garbage in percent of live memory
	smallLimit = 80 << 20 // bytes of the runtime, if at most half of them is live
)

// memoryLimit is the runtime's for a number of bytes in use: twice as much at least, so that
// the collector never works in vain.
func memoryLimit(live uint64) int64 { return int64(max(smallLimit, 2*live)) }

// boundGarbage sets pace and limit, as far as the environment does not, and adapts the limit
// after each collection.
func boundGarbage() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(slowPace)
	}
	if debug.SetMemoryLimit(-1) == math.MaxInt64 {
		limitAfter(new(collected))
	}
}

// collected is an unreferenced object: each collection finalizes it, which signals the collection.
// It has a pointer, because the runtime allocates small objects without pointers together, and
// finalizes none of them as long as one is in use.
type collected struct {
	limit int64
	_     *collected
}

func limitAfter(c *collected) {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	// To change it stops the program for a moment, so that small differences do not count.
	if l := memoryLimit(live[0].Value.Uint64()); l < c.limit*9/10 || l > c.limit*11/10 {
		debug.SetMemoryLimit(l)
		c.limit = l
	}
	runtime.SetFinalizer(c, limitAfter)
}
