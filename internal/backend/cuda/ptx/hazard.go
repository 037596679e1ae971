package ptx

import (
	"bytes"
	"math/bits"
)

// cell is what is known of a piece of shared memory: who wrote it last, who has read it since, and
// who has changed it by atomic operations since. A stamp is the tick of a warp's clock and the
// thread; 0 is nobody. If several have done it who are not in order, it is the number of a set, with
// setFlag.
type cell struct{ write, read, atom uint64 }

const (
	cellTick   = 16
	cellThread = 4
	cellAsync  = 1 // a copy is on its way
	setFlag    = 1 << 63
)

// readers are those of one cell, by warp: the lanes that read it at the warp's last such tick.
type readers [32]struct{ tick, lanes uint32 }

func (w *warp) stamp(lane int) uint64 {
	return uint64(w.tick)<<cellTick | uint64(w.id*lanes+lane)<<cellThread
}

// after reports whether what stamp s stands for happened before what the lane does now: the lane
// did it itself, or barriers and warp synchronization order it.
func (w *warp) after(s uint64, lane int) bool {
	tick, thread := uint32(s>>cellTick), int(s>>cellThread&1023)
	if v := thread / lanes; v != w.id {
		return tick < w.known[v]
	}
	return thread%lanes == lane || tick < w.base || w.seen != nil && tick < w.seen[lane][thread%lanes]
}

// afterSet is after for all of a set.
func (w *warp) afterSet(set *readers, lane int) bool {
	for v := range w.known {
		r := set[v]
		switch {
		case r.lanes == 0:
		case v != w.id:
			if r.tick >= w.known[v] {
				return false
			}
		case r.tick >= w.base:
			for m := r.lanes &^ (1 << lane); m != 0; m &= m - 1 {
				if w.seen == nil || r.tick >= w.seen[lane][first(m)] {
					return false
				}
			}
		}
	}
	return true
}

// afterAll is after for a stamp or a set.
func (w *warp) afterAll(s uint64, lane int) bool {
	if s&setFlag == 0 {
		return w.after(s, lane)
	}
	return w.afterSet(&w.b.sets[s&^setFlag], lane)
}

func (w *warp) race(lane int, address uint64, do, did string, s uint64) *Fault {
	b := w.b
	t, l := int(s>>cellThread&1023), b.l.Block
	if s&setFlag != 0 {
		return w.fault(lane, "race on shared memory at %d: this would %s what other threads %s, and no barrier is between them", address, do, did)
	}
	return w.fault(lane, "race on shared memory at %d: this would %s what thread %v %s, and no barrier is between them", address, do, [3]int{t % l[0], t / l[0] % l[1], t / l[0] / l[1]}, did)
}

func (w *warp) readShared(address uint64, n, lane int) ([]byte, *Fault) {
	b := w.b
	if f := w.bounds(spaceShared, address, n, len(b.shared), lane); f != nil {
		return nil, f
	}
	me := w.stamp(lane)
	for i := int(address) >> b.k.granule; i <= (int(address)+n-1)>>b.k.granule; i++ {
		c := &b.cells[i]
		if s := c.write; !w.after(s, lane) || s&cellAsync != 0 || s == 0 {
			return nil, w.unreadable(address, lane, s)
		}
		if c.atom != 0 && !w.afterAll(c.atom, lane) {
			return nil, w.race(lane, address, "read", "changed", c.atom)
		}
		if c.read != me {
			w.note(&c.read, lane, me)
		}
	}
	return b.shared[address:][:n], nil
}

func (w *warp) unreadable(address uint64, lane int, s uint64) *Fault {
	switch {
	case s == 0:
		return w.fault(lane, "shared memory at %d is read and was never written", address)
	case s&cellAsync != 0:
		return w.fault(lane, "shared memory at %d is read while a copy to it is on its way: cp.async.wait_group is missing", address)
	}
	return w.race(lane, address, "read", "wrote", s)
}

// note adds a thread to those of a cell. One that all earlier ones happened before stands for them.
func (w *warp) note(of *uint64, lane int, me uint64) {
	b := w.b
	if *of&setFlag == 0 {
		if *of == 0 || w.after(*of, lane) {
			*of = me
			return
		}
		var set readers
		t := *of >> cellThread & 1023
		set[t/lanes].tick, set[t/lanes].lanes = uint32(*of>>cellTick), 1<<(t%lanes)
		*of = setFlag | uint64(len(b.sets))
		b.sets = append(b.sets, set)
	}
	r := &b.sets[*of&^setFlag][w.id]
	if r.tick != w.tick {
		r.tick, r.lanes = w.tick, 0
	}
	r.lanes |= 1 << lane
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
			return w.race(lane, address, "write", "wrote", c.write)
		case c.read != 0 && !w.afterAll(c.read, lane):
			return w.race(lane, address, "write", "read", c.read)
		case c.atom != 0 && !w.afterAll(c.atom, lane):
			return w.race(lane, address, "write", "changed", c.atom)
		}
		*c = cell{write: me}
	}
	return nil
}

// atomicShared marks n bytes as changed by an atomic operation: those of other threads may come
// before or after it.
func (w *warp) atomicShared(address uint64, n, lane int) ([]byte, *Fault) {
	b := w.b
	if f := w.bounds(spaceShared, address, n, len(b.shared), lane); f != nil {
		return nil, f
	}
	me := w.stamp(lane)
	for i := int(address) >> b.k.granule; i <= (int(address)+n-1)>>b.k.granule; i++ {
		c := &b.cells[i]
		if s := c.write; !w.after(s, lane) || s&cellAsync != 0 || s == 0 {
			return nil, w.unreadable(address, lane, s)
		}
		if c.read != 0 && !w.afterAll(c.read, lane) {
			return nil, w.race(lane, address, "change", "read", c.read)
		}
		w.note(&c.atom, lane, me)
	}
	return b.shared[address:][:n], nil
}

// syncWarp orders what the lanes of mask did before what they do next.
func (w *warp) syncWarp(mask uint32) {
	if mask&w.live == w.live {
		w.tick++
		w.base = w.tick
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
		all[i] = w.tick + 1
	}
	for m := mask; m != 0; m &= m - 1 {
		w.seen[bits.TrailingZeros32(m)] = all
	}
	w.tick++
}
