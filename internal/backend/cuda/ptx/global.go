package ptx

import (
	"bytes"
	"sync/atomic"
)

// Global memory between blocks: a word of four bytes has a stamp of who wrote it last and one of
// who read it: launch, block, whether by an atomic operation, and which of its bytes. Blocks run at
// the same time, so stamps are changed atomically; whichever of two accesses that race comes
// second finds the other.
const (
	stampLaunch = 40
	stampBlock  = 8
	stampAtomic = 1 << 4
	stampBytes  = 15
	stampMany   = 1<<(stampLaunch-stampBlock) - 1 // several blocks
)

func stampsBlock(s uint64) uint64 { return s >> stampBlock & stampMany }

// reach finds n bytes of global memory.
func (w *warp) reach(address uint64, n, lane int) (*allocation, int, *Fault) {
	m := w.b.m
	i, place := address>>placeBits-1, int64(address&(1<<placeBits-1))
	if i >= uint64(len(m.allocations)) {
		return nil, 0, w.fault(lane, "%d bytes of global memory at %#x: no allocation has this address", n, address)
	}
	a := m.allocations[i]
	if a == nil {
		return nil, 0, w.fault(lane, "%d bytes of global memory at %#x: the allocation was freed", n, address)
	}
	if place&int64(n-1) != 0 {
		return nil, 0, w.fault(lane, "%d bytes of global memory at %#x: misaligned", n, address)
	}
	if place+int64(n) > int64(len(a.data)) {
		return nil, 0, w.fault(lane, "%d bytes of global memory at %#x: byte %d of an allocation of %d", n, address, place, len(a.data))
	}
	return a, int(place), nil
}

// touched are the bytes of word i among n at place.
func touched(i, place, n int) uint64 {
	if n >= 4 {
		return stampBytes
	}
	return (1<<n - 1) << (place & 3)
}

func (w *warp) readGlobal(address uint64, n, lane int) ([]byte, *Fault) {
	a, place, err := w.reach(address, n, lane)
	if err != nil {
		return nil, err
	}
	b := w.b
	for i := place >> 2; i <= (place+n-1)>>2; i++ {
		mine := b.m.launch<<stampLaunch | uint64(b.number)<<stampBlock | touched(i, place, n)
		if s := atomic.LoadUint64(&a.writer[i]); s>>stampLaunch >= b.m.floor {
			if err := w.foreign(s, mine, lane, address, "read", "wrote"); err != nil {
				return nil, err
			}
		}
		r := atomic.LoadUint64(&a.reader[i])
		for r|stampBytes != mine|stampBytes || r&mine&stampBytes != mine&stampBytes {
			next := mine
			if r>>stampLaunch == b.m.launch {
				if stampsBlock(r) == stampMany && r&stampBytes == stampBytes {
					break
				}
				next |= r & stampBytes
				if stampsBlock(r) != uint64(b.number) {
					next |= stampMany<<stampBlock | stampBytes
				}
			}
			if next == r || atomic.CompareAndSwapUint64(&a.reader[i], r, next) {
				break
			}
			r = atomic.LoadUint64(&a.reader[i])
		}
	}
	return a.data[place : place+n], nil
}

// foreign is the fault of an access, mine, to what another block of the launch did with stamp s, or
// what a launch did that may not have ended yet.
func (w *warp) foreign(s, mine uint64, lane int, address uint64, do, did string) *Fault {
	b := w.b
	switch {
	case s>>stampLaunch == b.m.launch:
		if stampsBlock(s) != uint64(b.number) && s&mine&stampBytes != 0 && !b.fenced && s&mine&stampAtomic == 0 {
			return w.fault(lane, "race on global memory at %#x: this block would %s what another block %s", address, do, did)
		}
	case w.waited>>lane&1 == 0:
		return w.fault(lane, "global memory at %#x: this would %s before griddepcontrol.wait what an earlier kernel %s", address, do, did)
	}
	return nil
}

func (w *warp) writeGlobal(address uint64, data []byte, lane int) *Fault {
	a, place, err := w.reach(address, len(data), lane)
	if err != nil {
		return err
	}
	same := bytes.Equal(a.data[place:place+len(data)], data)
	if err := w.stampWrite(a, address, place, len(data), lane, same, 0); err != nil {
		return err
	}
	copy(a.data[place:], data)
	return nil
}

// stampWrite marks a write, or an atomic operation by its flag. Another block may have written the
// same value.
func (w *warp) stampWrite(a *allocation, address uint64, place, n, lane int, same bool, flag uint64) *Fault {
	b := w.b
	for i := place >> 2; i <= (place+n-1)>>2; i++ {
		mine := b.m.launch<<stampLaunch | uint64(b.number)<<stampBlock | touched(i, place, n) | flag
		old := atomic.SwapUint64(&a.writer[i], mine)
		if old>>stampLaunch >= b.m.floor && !same {
			if err := w.foreign(old, mine, lane, address, "write", "wrote"); err != nil {
				return err
			}
		}
		if r := atomic.LoadUint64(&a.reader[i]); r>>stampLaunch >= b.m.floor && flag == 0 {
			if err := w.foreign(r, mine, lane, address, "write", "read"); err != nil {
				return err
			}
		}
	}
	return nil
}
