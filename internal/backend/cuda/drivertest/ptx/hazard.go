package ptx

import (
	"bytes"
	"math/bits"
)

// cell is the history of a piece of shared memory: its last writer, its readers since, and
// its atomic operations since. write is a tick of a warp's clock and the thread,
// with a flag while a copy is pending. read and atom are lanes of a warp at a tick, or for several
// unordered warps, the number of a set, with setFlag. 0 is no warp: ticks begin at 1.
type cell struct{ write, read, atom uint64 }

const (
	cellTick   = 16
	cellThread = 4
	cellAsync  = 1
	setFlag    = 1 << 63
	setTick    = 37
	setWarp    = 32
)

// reader is a warp in a set: the lanes that read a cell, and the last tick at which one did. A set
// has one for each warp of the block.
type reader struct{ tick, lanes uint32 }

func (b *block) set(s uint64) []reader {
	return b.sets[s&^setFlag:][:len(b.warps)]
}

// newSet returns a set with the lanes of one warp.
func (b *block) newSet(old uint64) uint64 {
	var s uint64
	if n := len(b.free); n > 0 {
		s, b.free = b.free[n-1], b.free[:n-1]
		clear(b.set(s))
	} else {
		s = setFlag | uint64(len(b.sets))
		for range b.warps {
			b.sets = append(b.sets, reader{})
		}
	}
	b.set(s)[old>>setWarp&31] = reader{uint32(old >> setTick), uint32(old)}
	return s
}

// forget frees the set that s is, if it is one.
func (b *block) forget(s uint64) {
	if s&setFlag != 0 {
		b.free = append(b.free, s)
	}
}

func (w *warp) stamp(lane int) uint64 {
	return uint64(w.tick)<<cellTick | uint64(w.id*lanes+lane)<<cellThread
}

// key identifies the lanes of w as readers at the current tick.
func (w *warp) key() uint64 { return uint64(w.tick)<<setTick | uint64(w.id)<<setWarp }

// after reports whether the write of stamp s happened before the lane's current access: the lane wrote
// it itself, or barriers and warp synchronization order it.
func (w *warp) after(s uint64, lane int) bool {
	tick, thread := uint32(s>>cellTick), int(s>>cellThread&1023)
	if tick-1 < w.known[thread/lanes] { // so never for 0
		return true
	}
	other := thread % lanes
	return s != 0 && thread/lanes == w.id && (other == lane || w.seen != nil && tick <= w.seen[lane][other])
}

// afterLanes is after for lanes of a warp.
func (w *warp) afterLanes(warp int, tick, mask uint32, lane int) bool {
	if mask == 0 || tick-1 < w.known[warp] {
		return true
	}
	if warp != w.id {
		return false
	}
	for m := mask &^ (1 << lane); m != 0; m &= m - 1 {
		if w.seen == nil || tick > w.seen[lane][first(m)] {
			return false
		}
	}
	return true
}

// afterAll is after for all readers or writers of a cell.
func (w *warp) afterAll(s uint64, lane int) bool {
	if s&setFlag == 0 {
		return w.afterLanes(int(s>>setWarp&31), uint32(s>>setTick), uint32(s), lane)
	}
	for v, r := range w.b.set(s) {
		if !w.afterLanes(v, r.tick, r.lanes, lane) {
			return false
		}
	}
	return true
}

// race is the fault of an access that is not ordered after another one.
func (w *warp) race(lane int, address uint64, do, did string) *Fault {
	return w.fault(lane, "race on shared memory at %d: this would %s what another thread %s, and no barrier is between them", address, do, did)
}

// readShared marks n bytes as read by the lane.
func (w *warp) readShared(address uint64, n, lane int) ([]byte, *Fault) {
	b := w.b
	if f := w.bounds(spaceShared, address, n, len(b.shared), lane); f != nil {
		return nil, f
	}
	for i := int(address) >> b.k.granule; i <= (int(address)+n-1)>>b.k.granule; i++ {
		c := &b.cells[i]
		if f := w.readable(c, address, lane); f != nil {
			return nil, f
		}
		w.note(&c.read, 1<<lane)
	}
	return b.shared[address:][:n], nil
}

// readable is the fault of reading a cell, if it is one.
func (w *warp) readable(c *cell, address uint64, lane int) *Fault {
	switch s := c.write; {
	case s == 0:
		return w.fault(lane, "shared memory at %d is read and was never written", address)
	case s&cellAsync != 0:
		return w.fault(lane, "shared memory at %d is read while a copy to it is on its way: cp.async.wait_group is missing", address)
	case !w.after(s, lane):
		return w.race(lane, address, "read", "wrote")
	case c.atom != 0 && !w.afterAll(c.atom, lane):
		return w.race(lane, address, "read", "changed")
	}
	return nil
}

// note adds lanes to the readers or writers of a cell. They replace those that happened before the first of them.
func (w *warp) note(of *uint64, some uint32) {
	b, key := w.b, w.key()
	old := *of
	switch {
	case old>>setWarp == key>>setWarp:
		*of |= uint64(some)
		return
	case old == 0 || old&setFlag == 0 && w.afterAll(old, first(some)):
		*of = key | uint64(some)
		return
	case old&setFlag == 0:
		*of = b.newSet(old)
	}
	r := &b.set(*of)[w.id]
	if r.tick <= w.known[w.id] {
		r.lanes = 0
	}
	r.tick, r.lanes = w.tick, r.lanes|some
}

func (w *warp) writeShared(address uint64, data []byte, lane int) *Fault {
	b := w.b
	if f := w.bounds(spaceShared, address, len(data), len(b.shared), lane); f != nil {
		return f
	}
	to := b.shared[address:][:len(data)]
	if f := w.claim(address, len(data), lane, 0, func() bool { return bytes.Equal(to, data) }); f != nil {
		return f
	}
	copy(to, data)
	return nil
}

// claim marks n bytes as written by the lane, with a flag, if all that was done with them happened
// before. A value that is there already may be written again at any time.
func (w *warp) claim(address uint64, n, lane int, flag uint64, same func() bool) *Fault {
	b := w.b
	me := w.stamp(lane) | flag
	for i := int(address) >> b.k.granule; i <= (int(address)+n-1)>>b.k.granule; i++ {
		c := &b.cells[i]
		switch {
		case c.write&cellAsync != 0:
			return w.fault(lane, "shared memory at %d is written while a copy to it is on its way", address)
		case c.write != 0 && !w.after(c.write, lane) && (same == nil || !same()):
			return w.race(lane, address, "write", "wrote")
		case c.read != 0 && !w.afterAll(c.read, lane):
			return w.race(lane, address, "write", "read")
		case c.atom != 0 && !w.afterAll(c.atom, lane):
			return w.race(lane, address, "write", "changed")
		}
		b.forget(c.read)
		b.forget(c.atom)
		*c = cell{write: me}
	}
	return nil
}

// atomicShared marks n bytes as changed by an atomic operation, which needs no order with atomic operations
// of other threads.
func (w *warp) atomicShared(address uint64, n, lane int) ([]byte, *Fault) {
	b := w.b
	if f := w.bounds(spaceShared, address, n, len(b.shared), lane); f != nil {
		return nil, f
	}
	for i := int(address) >> b.k.granule; i <= (int(address)+n-1)>>b.k.granule; i++ {
		c := &b.cells[i]
		switch s := c.write; {
		case s == 0 || s&cellAsync != 0 || !w.after(s, lane):
			return nil, w.readable(&cell{write: s}, address, lane)
		case c.read != 0 && !w.afterAll(c.read, lane):
			return nil, w.race(lane, address, "change", "read")
		}
		w.note(&c.atom, 1<<lane)
	}
	return b.shared[address:][:n], nil
}

// syncWarp orders the past accesses of the lanes of mask before their next ones.
func (w *warp) syncWarp(mask uint32) {
	if mask&w.live == w.live {
		w.known[w.id] = w.tick
		w.tick++
		return
	}
	if w.seen == nil {
		w.seen = new([lanes][lanes]uint32)
	}
	var all [lanes]uint32
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		for j, t := range w.seen[i] {
			all[j] = max(all[j], t)
		}
		all[i] = w.tick
	}
	for m := mask; m != 0; m &= m - 1 {
		w.seen[bits.TrailingZeros32(m)] = all
	}
	w.tick++
}
