package cpu

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

// task is an operation cut into n independent parts. part computes parts [from, to) on
// thread worker; no part may depend on how the range was cut.
type task interface {
	part(worker, from, to int)
}

// pool runs tasks on a fixed set of threads. The caller of run is the first of them. The
// others spin for a moment after a task, since the next one usually follows at once, and
// then sleep: an idle pool uses no processor time.
type pool struct {
	epoch   atomic.Uint64 // counts tasks; a worker runs one task per step
	pending atomic.Int32  // workers still busy with the current task
	_       [48]byte      // keeps the hot counters away from the rest

	task  task
	parts int
	helps []*helper
	fault atomic.Pointer[any] // first panic of a worker, raised again by run
	done  sync.WaitGroup
}

// helper is one thread beside the caller.
type helper struct {
	asleep atomic.Bool
	wake   chan struct{}
	_      [64]byte
}

// spins is how often a worker looks for work before it sleeps: a fraction of a millisecond.
const spins = 20_000

func newPool(threads int) *pool {
	p := &pool{}
	for i := 1; i < threads; i++ {
		h := &helper{wake: make(chan struct{}, 1)}
		p.helps = append(p.helps, h)
		p.done.Add(1)
		go p.work(h, i)
	}
	return p
}

func (p *pool) size() int { return len(p.helps) + 1 }

// stop ends the threads. run must not be called after it.
func (p *pool) stop() {
	p.task = nil
	p.start()
	p.done.Wait()
	p.helps = nil
}

// run computes parts [0, n) of t, at least grain of them per thread, and returns when all
// are done. A panic of any part is raised here.
func (p *pool) run(t task, n, grain int) {
	if len(p.helps) == 0 || n < 2*grain {
		if n > 0 {
			t.part(0, 0, n)
		}
		return
	}
	p.task, p.parts = t, n
	p.pending.Store(int32(len(p.helps)))
	p.start()
	p.share(0)
	for i := 0; p.pending.Load() > 0; i++ {
		if i > spins {
			runtime.Gosched()
		}
	}
	if f := p.fault.Swap(nil); f != nil {
		panic(*f)
	}
}

// start lets every helper take one step.
func (p *pool) start() {
	p.epoch.Add(1)
	for _, h := range p.helps {
		if h.asleep.CompareAndSwap(true, false) {
			h.wake <- struct{}{}
		}
	}
}

// share computes worker's share of the current task. Shares are equal ranges.
func (p *pool) share(worker int) {
	defer func() {
		if f := recover(); f != nil {
			var err any = fmt.Errorf("cpu: %v\n%s", f, stack())
			p.fault.CompareAndSwap(nil, &err)
		}
	}()
	n, threads := p.parts, p.size()
	if from, to := worker*n/threads, (worker+1)*n/threads; from < to {
		p.task.part(worker, from, to)
	}
}

func (p *pool) work(h *helper, worker int) {
	defer p.done.Done()
	for seen := uint64(0); ; seen++ {
		p.await(h, seen)
		if p.task == nil {
			return
		}
		p.share(worker)
		p.pending.Add(-1)
	}
}

// await returns when the epoch has passed seen.
func (p *pool) await(h *helper, seen uint64) {
	for range spins {
		if p.epoch.Load() != seen {
			return
		}
	}
	for p.epoch.Load() == seen {
		h.asleep.Store(true)
		if p.epoch.Load() != seen && h.asleep.CompareAndSwap(true, false) {
			return
		}
		<-h.wake
	}
}

func stack() []byte {
	b := make([]byte, 8<<10)
	return b[:runtime.Stack(b, false)]
}
