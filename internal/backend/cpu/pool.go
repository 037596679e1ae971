package cpu

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
)

// task is an operation cut into n independent parts. part computes parts [from, to) on
// thread worker; no part may depend on how the range was cut.
type task interface {
	part(worker, from, to int)
}

// pool runs tasks on a fixed set of threads, for all backends of the process. The caller of
// run is the first of them. A task is cut into a few chunks per thread, and a free thread
// takes the next: a thread that the system has preempted delays at most its chunk, and
// if no other thread runs the caller does everything. Every other thread takes chunks from the
// end, so that of two threads each meets the same half of the weights again and finds them in
// its own cache. Threads spin for a moment after a task, since the next one usually follows
// at once, and then sleep: an idle pool uses no processor time.
type pool struct {
	// claim is the current task's number and the range of its chunks that are left. Taking a
	// chunk is one compare-and-swap of both, so a late thread cannot take a chunk of a task
	// that has ended, and reads the fields below only while it holds one.
	claim atomic.Uint64
	_     [56]byte     // keeps the hot counters apart
	done  atomic.Int32 // chunks of all tasks so far; it may overflow
	_     [60]byte

	// mu is held while a task runs; tasks of several models run one after another. A
	// mutex lets one caller go on for a millisecond at most while another waits.
	mu  sync.Mutex
	due int32    // done at the end of the task
	_   [52]byte // helpers read what follows

	task    task
	parts   int
	chunks  int
	tapered bool
	active  atomic.Int32 // threads of the task, the caller included; set before claim
	helpers []*helper
	polls   atomic.Int32          // spins, or none if there are fewer processors than threads: what is waited for needs the processor
	fault   atomic.Pointer[error] // first panic of a part, raised again by run
	stopped atomic.Bool
	ended   sync.WaitGroup
}

// helper is one thread beside the caller.
type helper struct {
	asleep atomic.Bool
	wake   chan struct{}
	_      [64]byte
}

const (
	// spins is the number of polls of a thread before it sleeps. With the pauses between
	// them it is a few milliseconds: longer than the pauses between the tasks of a round and
	// between two rounds, short enough for an idle process to be idle.
	spins = 20_000
	// chunksPerThread makes up for threads that are late.
	chunksPerThread = 4

	chunkBits = 16
	chunkMask = 1<<chunkBits - 1
)

// poolUser is the use of a pool by one backend: its first threads threads.
type poolUser struct {
	*pool
	threads int
	alone   bool // the caller computes everything, as thread self: tests meet every thread's memory so
	self    int
}

func (u *poolUser) size() int { return u.threads }

// process is the pool that all backends of the process share: models that compute at the
// same time take turns instead of having more threads than there are processors.
var process struct {
	mu    sync.Mutex // protects what follows
	pool  *pool      // nil while no backend is open
	users int        // poolUsers of it
}

// usePool returns threads threads of the process's pool, which starts more if it has fewer. The
// caller releases them.
func usePool(threads int) *poolUser {
	process.mu.Lock()
	defer process.mu.Unlock()
	if process.pool == nil {
		process.pool = &pool{}
	}
	process.users++
	process.pool.grow(threads)
	return &poolUser{pool: process.pool, threads: threads}
}

// release ends the use of the pool. run must not be called after it. The last user ends the
// threads.
func (u *poolUser) release() {
	process.mu.Lock()
	defer process.mu.Unlock()
	if u.pool == nil {
		return
	}
	u.pool = nil
	if process.users--; process.users == 0 {
		process.pool.stop()
		process.pool = nil
	}
}

// grow makes sure of threads threads, the caller of run included.
func (p *pool) grow(threads int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.helpers) + 1; i < threads; i++ {
		h := &helper{wake: make(chan struct{}, 1)}
		p.helpers = append(p.helpers, h)
		p.ended.Add(1)
		go p.work(h, i)
	}
	if p.polls.Store(spins); runtime.GOMAXPROCS(0) <= len(p.helpers) {
		p.polls.Store(0)
	}
}

// stop ends the threads. run must not be called after it.
func (p *pool) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped.Store(true)
	p.active.Store(int32(len(p.helpers) + 1))
	p.start(0, len(p.helpers)+1)
	p.ended.Wait()
	p.helpers = nil
}

// run computes parts [0, n) of t, at least grain of them at a time, and returns when all
// are done. A panic of any part is raised here.
func (u *poolUser) run(t task, n, grain int) {
	u.cut(t, n, min(n/grain, chunksPerThread*u.threads, chunkMask), false)
}

// runTapered is run for a task of many parts: the last chunks are small, so that no thread waits long for another.
func (u *poolUser) runTapered(t task, n int) {
	u.cut(t, n, min(n, 2*chunksPerThread*u.threads, chunkMask), true)
}

func (u *poolUser) cut(t task, n, chunks int, tapered bool) {
	if u.threads == 1 || chunks < 2 || u.alone {
		if n > 0 {
			t.part(u.self, 0, n)
		}
		return
	}
	if err := u.share(t, n, chunks, u.threads, tapered); err != nil {
		panic(err)
	}
}

// rest lets the helpers sleep at once: other goroutines need the processors before the next task.
func (u *poolUser) rest() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.active.Store(1)
}

// spreadOp is work that is not an operation of the device.
type spreadOp struct{ f func(i int) }

func (op *spreadOp) part(_, from, to int) {
	for i := from; i < to; i++ {
		op.f(i)
	}
}

// Spread implements backend.Spreader.
func (b *Backend) Spread(n int, f func(i int)) {
	b.spread.f = f
	b.pool.run(&b.spread, n, 1)
	b.spread.f = nil
}

// share computes a task on threads threads, after the tasks of others. The error is a part's
// panic.
func (p *pool) share(t task, n, chunks, threads int, tapered bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.task, p.parts, p.chunks, p.tapered = t, n, chunks, tapered
	if p.active.Load() != int32(threads) { // helpers read it: it seldom changes
		p.active.Store(int32(threads))
	}
	claim := p.start(chunks, threads)
	for p.take(0, claim>>(2*chunkBits)) {
	}
	p.due += int32(chunks)
	for i := 0; p.done.Load() != p.due; i++ {
		if i < int(p.polls.Load()) {
			kernel.Pause()
		} else {
			runtime.Gosched()
		}
	}
	if f := p.fault.Swap(nil); f != nil {
		return *f
	}
	return nil
}

// start publishes a task of chunks chunks and wakes its helpers. It returns the new claim.
func (p *pool) start(chunks, threads int) uint64 {
	number := p.claim.Load()>>(2*chunkBits) + 1
	claim := number<<(2*chunkBits) | uint64(chunks)<<chunkBits
	p.claim.Store(claim)
	for _, h := range p.helpers[:threads-1] {
		if h.asleep.CompareAndSwap(true, false) {
			h.wake <- struct{}{}
		}
	}
	return claim
}

// take computes the next chunk of the task of that number. It reports false if there is
// none left.
func (p *pool) take(worker int, number uint64) bool {
	for {
		c := p.claim.Load()
		first, end := int(c&chunkMask), int(c>>chunkBits&chunkMask)
		if c>>(2*chunkBits) != number || first >= end {
			return false
		}
		i, left := first, c+1
		if worker%2 == 1 {
			i, left = end-1, c-1<<chunkBits
		}
		if p.claim.CompareAndSwap(c, left) {
			p.chunk(worker, i)
			p.done.Add(1)
			return true
		}
	}
}

// bound is the first part of chunk i. Chunks are equal, or tapered toward the middle, which threads reach last.
func (p *pool) bound(i int) int {
	switch n, c := p.parts, p.chunks; {
	case !p.tapered:
		return i * n / c
	case 2*i > c:
		return n - p.bound(c-i)
	default:
		return 2 * n * i * (c - i) / (c * c)
	}
}

// chunk computes chunk i of the current task.
func (p *pool) chunk(worker, i int) {
	defer func() {
		if f := recover(); f != nil {
			err := fmt.Errorf("cpu: %v\n%s", f, stack())
			p.fault.CompareAndSwap(nil, &err)
		}
	}()
	if from, to := p.bound(i), p.bound(i+1); from < to {
		p.task.part(worker, from, to)
	}
}

// work is the loop of a helper: it takes chunks of each task it sees.
func (p *pool) work(h *helper, worker int) {
	runtime.LockOSThread() // a spinning goroutine that moves between threads is late
	defer p.ended.Done()
	for seen := p.await(h, worker, 0); !p.stopped.Load(); seen = p.await(h, worker, seen) {
		for p.take(worker, seen) {
		}
	}
}

// await returns the number of the current task once it is not seen and is for this worker.
// If the current task is for fewer threads, the worker sleeps at once.
func (p *pool) await(h *helper, worker int, seen uint64) uint64 {
	for range p.polls.Load() {
		if n, ok := p.news(worker, seen); ok {
			return n
		}
		if worker >= int(p.active.Load()) {
			break
		}
		kernel.Pause()
	}
	for {
		h.asleep.Store(true)
		if n, ok := p.news(worker, seen); ok && h.asleep.CompareAndSwap(true, false) {
			return n
		}
		<-h.wake
		if n, ok := p.news(worker, seen); ok {
			return n
		}
	}
}

// news is the number of the current task, and whether it is one that the worker has not seen
// and belongs to. The threads may already be those of the next task: then the task with this
// number has no chunk left.
func (p *pool) news(worker int, seen uint64) (uint64, bool) {
	n := p.claim.Load() >> (2 * chunkBits)
	return n, n != seen && worker < int(p.active.Load())
}

func stack() []byte {
	b := make([]byte, 8<<10)
	return b[:runtime.Stack(b, false)]
}
