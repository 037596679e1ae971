package ptx

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// block is a block of threads while it runs. It is used for one after another.
type block struct {
	m      *Machine
	l      *Launch
	k      *Kernel
	number int
	index  [3]int
	warps  []*warp
	shared []byte
	cells  []cell
	sets   []reader // of cells with several readers, one after another
	free   []uint64 // unused sets
	bars   [16]bar
	rng    rand.PCG
	steps  int64
	ready  []*warp
	fenced bool // has executed an operation that may order it after other blocks
	alone  bool // no other block runs at the same time
}

// shape identifies blocks that can be reused for one another.
type shape struct {
	k               *Kernel
	threads, shared int
}

// maxIdle is how many blocks a machine keeps for later launches.
const maxIdle = 256

// newBlock returns a block for a launch, one that was used before if there is one.
func (m *Machine) newBlock(l *Launch) *block {
	key := shape{l.Kernel, l.threads(), l.Shared}
	m.mu.Lock()
	defer m.mu.Unlock()
	var b *block
	if n := len(m.idle[key]); n > 0 {
		b, m.idle[key] = m.idle[key][n-1], m.idle[key][:n-1]
		m.kept--
	} else {
		b = makeBlock(m, l)
	}
	b.l, b.alone = l, min(m.options.Threads, l.blocks()) == 1
	return b
}

// done keeps a block.
func (m *Machine) done(b *block) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.kept++; m.kept > maxIdle {
		m.idle, m.kept = nil, 1
	}
	if m.idle == nil {
		m.idle = map[shape][]*block{}
	}
	key := shape{b.k, b.l.threads(), b.l.Shared}
	m.idle[key] = append(m.idle[key], b)
}

func makeBlock(m *Machine, l *Launch) *block {
	b := &block{m: m, l: l, k: l.Kernel}
	size := (l.Kernel.SharedBytes+15)&^15 + l.Shared
	b.shared = make([]byte, size)
	b.cells = make([]cell, size>>b.k.granule)
	for i := range (l.threads() + lanes - 1) / lanes {
		b.warps = append(b.warps, newWarp(b, i))
	}
	return b
}

// run executes block at of the grid.
func (b *block) run(at int) *Fault {
	g := b.l.Grid
	b.number, b.index = at, [3]int{at % g[0], at / g[0] % g[1], at / g[0] / g[1]}
	b.rng.Seed(b.m.options.Seed, b.m.launch<<32|uint64(at))
	clear(b.cells)
	b.sets, b.free = b.sets[:0], b.free[:0]
	b.steps, b.fenced = 0, false
	b.bars = [16]bar{}
	for _, w := range b.warps {
		w.begin()
	}
	for {
		ready, left := b.ready[:0], 0
		for _, w := range b.warps {
			if w.state != stateDone {
				left++
			}
			if w.state == stateReady {
				ready = append(ready, w)
			}
		}
		b.ready = ready
		if left == 0 {
			return b.leftover()
		}
		if len(ready) == 0 {
			return b.deadlock()
		}
		w := ready[b.rng.Uint64()%uint64(len(ready))]
		if err := w.run(); err != nil {
			return err
		}
	}
}

// fault is one of a lane, at the instruction that its warp is at.
func (w *warp) fault(lane int, format string, args ...any) *Fault {
	b := w.b
	t := w.id*lanes + lane
	s := b.l.Block
	return &Fault{
		Kernel: b.k.Name, Block: b.index, Thread: [3]int{t % s[0], t / s[0] % s[1], t / s[0] / s[1]},
		Line: int(b.k.code[w.pc].line), What: fmt.Sprintf(format, args...),
	}
}

// deadlock lists the waiting warps and their lines.
func (b *block) deadlock() *Fault {
	var waits []string
	var first *warp
	for _, w := range b.warps {
		if w.state == stateBarrier {
			if first == nil {
				first = w
			}
			waits = append(waits, fmt.Sprintf("warp %d at barrier %d, line %d", w.id, w.barrier, b.k.code[w.pc].line))
		}
	}
	for i := range b.bars {
		if bar := &b.bars[i]; bar.arrived > 0 {
			waits = append(waits, fmt.Sprintf("barrier %d has %d of %d threads", i, bar.arrived, bar.expected))
		}
	}
	return first.fault(0, "deadlock: %s", strings.Join(waits, "; "))
}

// leftover finds barriers at which warps arrived and none waits.
func (b *block) leftover() *Fault {
	for i := range b.bars {
		if bar := &b.bars[i]; bar.arrived > 0 {
			w := b.warps[0]
			return w.fault(0, "the block ended while barrier %d had %d of %d threads", i, bar.arrived, bar.expected)
		}
	}
	return nil
}
