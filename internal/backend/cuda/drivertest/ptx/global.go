package ptx

import (
	"bytes"
	"sync/atomic"
)

// Global memory between blocks: a word of four bytes has a stamp of its last writer and one of
// its last reader: launch, block, whether by an atomic operation, and which of its bytes. Blocks run at
// the same time, so stamps are changed atomically; the second of two racing
// accesses finds the first.
const (
	stampLaunch = 40
	stampBlock  = 8
	stampAtomic = 1 << 4
	stampBytes  = 15
	stampMany   = 1<<(stampLaunch-stampBlock) - 1 // several blocks
)

// usage is the stamps of a word.
type usage struct{ writer, reader uint64 }

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

// touched are the bytes of a word among n at place.
func touched(place, n int) uint64 {
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
	mine := b.m.launch<<stampLaunch | uint64(b.number)<<stampBlock | touched(place, n)
	if f := w.stampRead(a.used[place>>2:(place+n-1)>>2+1], mine, address, lane); f != nil {
		return nil, f
	}
	return a.data[place : place+n], nil
}

// stampRead marks words as read, with a stamp of this block.
func (w *warp) stampRead(words []usage, mine, address uint64, lane int) *Fault {
	floor := w.b.m.floor
	for i := range words {
		u := &words[i]
		if s := atomic.LoadUint64(&u.writer); s>>stampLaunch >= floor {
			if f := w.foreign(s, mine, lane, address, "read", "wrote"); f != nil {
				return f
			}
		}
		if r := atomic.LoadUint64(&u.reader); r != mine {
			w.b.noteReader(&u.reader, r, mine)
		}
	}
	return nil
}

// noteReader adds the reader mine to the stamp r of a word.
func (b *block) noteReader(at *uint64, r, mine uint64) {
	for {
		next := mine
		if r>>stampLaunch == mine>>stampLaunch {
			next |= r & stampBytes
			if stampsBlock(r) != stampsBlock(mine) {
				next |= stampMany<<stampBlock | stampBytes
			}
		}
		switch {
		case next == r:
			return
		case b.alone:
			*at = next
			return
		case atomic.CompareAndSwapUint64(at, r, next):
			return
		}
		r = atomic.LoadUint64(at)
	}
}

// foreign is the fault of an access, mine, to a word that another block of the launch accessed with stamp s, or
// a launch that may not have ended yet.
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
	mine := b.m.launch<<stampLaunch | uint64(b.number)<<stampBlock | touched(place, n) | flag
	used := a.used[place>>2 : (place+n-1)>>2+1]
	for i := range used {
		u := &used[i]
		var old uint64
		if b.alone {
			old, u.writer = u.writer, mine
		} else {
			old = atomic.SwapUint64(&u.writer, mine)
		}
		if old>>stampLaunch >= b.m.floor && !same {
			if err := w.foreign(old, mine, lane, address, "write", "wrote"); err != nil {
				return err
			}
		}
		if r := atomic.LoadUint64(&u.reader); r>>stampLaunch >= b.m.floor && flag == 0 {
			if err := w.foreign(r, mine, lane, address, "write", "read"); err != nil {
				return err
			}
		}
	}
	return nil
}
