package backend

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Spreader is a device that computes on the processors of the host and lends its threads: they
// are waiting for the next operation, and goroutines beside them would wait for processors.
type Spreader interface {
	// Spread calls f(0) to f(n-1), several at a time, and returns when all have returned. f
	// calls nothing of the device, and does not panic.
	Spread(n int, f func(i int))
}

// Spread does work of the host between two operations of b: it calls f(0) to f(n-1), several at a
// time, and returns when all have returned. f calls nothing of the device, and does not panic.
func Spread(b Backend, n int, f func(i int)) {
	if s, ok := b.(Spreader); ok {
		s.Spread(n, f)
		return
	}
	var next atomic.Int64
	work := func() {
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			f(i)
		}
	}
	var others sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) - 1 {
		others.Go(work)
	}
	work()
	others.Wait()
}
