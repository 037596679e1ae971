package ptx

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

// A Launch is a grid of blocks of a kernel.
type Launch struct {
	Kernel *Kernel
	Grid   [3]int
	Block  [3]int
	Shared int    // bytes of dynamic shared memory
	Params []byte // laid out as Kernel.Params says

	// Dependent lets the kernel begin before earlier ones have ended: it may not touch what they write
	// before griddepcontrol.wait. If all threads of the previous one waited before they did
	// griddepcontrol.launch_dependents, only that one may still run.
	Dependent bool
}

func (l *Launch) threads() int { return l.Block[0] * l.Block[1] * l.Block[2] }
func (l *Launch) blocks() int  { return l.Grid[0] * l.Grid[1] * l.Grid[2] }

// Check returns why no driver would launch it.
func (l *Launch) Check() error {
	k := l.Kernel
	for i := range 3 {
		if l.Grid[i] < 1 || l.Block[i] < 1 || l.Grid[i] > 1<<31-1 || l.Block[i] > 1024 || i > 0 && l.Grid[i] > 65535 {
			return fmt.Errorf("ptx: launch of %s: a grid of %v blocks of %v threads", k.Name, l.Grid, l.Block)
		}
	}
	if int64(l.Grid[0])*int64(l.Grid[1])*int64(l.Grid[2]) > 1<<31 {
		return fmt.Errorf("ptx: launch of %s: a grid of %v blocks", k.Name, l.Grid)
	}
	if n := l.threads(); n > k.MaxThreads {
		return fmt.Errorf("ptx: launch of %s: %d threads in a block, the kernel allows %d", k.Name, n, k.MaxThreads)
	}
	if n := (k.SharedBytes+15)&^15 + l.Shared; l.Shared < 0 || n > maxShared {
		return fmt.Errorf("ptx: launch of %s: %d bytes of shared memory, there are %d", k.Name, n, maxShared)
	}
	if len(l.Params) != k.ParamBytes {
		return fmt.Errorf("ptx: launch of %s: %d bytes of parameters, the kernel has %d", k.Name, len(l.Params), k.ParamBytes)
	}
	return nil
}

// Launch executes a grid and returns when all of it has ended, or with the first fault.
func (m *Machine) Launch(l Launch) error {
	if err := l.Check(); err != nil {
		return err
	}
	m.launch++
	switch {
	case !l.Dependent:
		m.floor = m.launch
	case !m.early.Load(): // launches before the last had ended before it let this one begin
		m.floor = m.launch - 1
	}
	m.waits.Store(false)
	m.early.Store(false)
	total := l.blocks()
	order := rand.New(rand.NewPCG(m.options.Seed, m.launch)).Perm(min(total, 1<<16))
	var (
		next   atomic.Int64
		failed atomic.Bool
		mu     sync.Mutex
		fault  *Fault
		wait   sync.WaitGroup
	)
	for range min(m.options.Threads, total) {
		wait.Go(func() {
			b := m.newBlock(&l)
			defer m.done(b)
			for !failed.Load() {
				i := int(next.Add(1)) - 1
				if i >= total {
					break
				}
				at := i // shuffled in pieces; the rest of the last one is not
				if piece := i - i%len(order); piece+len(order) <= total {
					at = piece + order[i-piece]
				}
				if err := b.run(at); err != nil {
					err.order = i
					failed.Store(true)
					mu.Lock()
					if fault == nil || err.order < fault.order {
						fault = err
					}
					mu.Unlock()
				}
			}
		})
	}
	wait.Wait()
	if fault != nil {
		return fault
	}
	if l.Dependent && !m.waits.Load() {
		return &Fault{Kernel: l.Kernel.Name, What: "no thread does griddepcontrol.wait: who waits for this kernel would not wait for those before it"}
	}
	return nil
}
