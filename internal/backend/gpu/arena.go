package gpu

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
)

// Source is where an Arena takes its memory from. P is an address on the device; 0 is null.
type Source[P ~uint64] interface {
	// Alloc returns memory with any content, aligned to Alignment.
	Alloc(bytes int64) (P, error)
	Free(at P) error
	// Full reports whether an error of Alloc says that there is not enough memory.
	Full(err error) bool
	// Explain adds to such an error how much memory was needed, and how much this process has.
	Explain(err error, needed, taken int64) error
}

// Shortage is the cause of an error of Alloc: how much memory was needed, how much of the GPU's is free, and how much this process has.
func Shortage(needed, free, total, taken int64) error {
	const mb = 1e6
	return fmt.Errorf("%.1f MB are needed, %.1f of the GPU's %.1f MB are free and this process has %.1f MB",
		float64(needed)/mb, float64(free)/mb, float64(total)/mb, float64(taken)/mb)
}

// Arena is a device's memory: slabs that are cut into pieces, and single large
// allocations. Freed memory can be used again at once, so the device must run its work in order.
type Arena[P ~uint64] struct {
	source Source[P]
	slab   int64
	slabs  []*slab[P]
	sizes  map[P]int64  // of the pieces that are used
	taken  atomic.Int64 // bytes of the source, those of slabs included
}

// Init sets the source and the bytes of a slab. It is called once, before all other methods.
func (a *Arena[P]) Init(source Source[P], slab int64) {
	a.source, a.slab, a.sizes = source, slab, map[P]int64{}
}

// Taken is how many bytes of the source the arena has. Any goroutine may call it.
func (a *Arena[P]) Taken() int64 { return a.taken.Load() }

// take allocates memory of the source, if necessary after freeing unused slabs. If
// there is not enough, the error says how much is free.
func (a *Arena[P]) take(bytes int64) (P, error) {
	at, err := a.source.Alloc(bytes)
	if err != nil && a.source.Full(err) && slices.ContainsFunc(a.slabs, (*slab[P]).empty) {
		if err := a.trim(); err != nil {
			return 0, err
		}
		at, err = a.source.Alloc(bytes)
	}
	if err == nil {
		a.taken.Add(bytes)
		return at, nil
	}
	if a.source.Full(err) {
		err = a.source.Explain(err, bytes, a.Taken())
	}
	return 0, err
}

// trim frees slabs without pieces.
func (a *Arena[P]) trim() (err error) {
	a.slabs = slices.DeleteFunc(a.slabs, func(s *slab[P]) bool {
		if !s.empty() {
			return false
		}
		err = errors.Join(err, a.give(s.at, s.bytes))
		return true
	})
	return err
}

// give returns memory to the source.
func (a *Arena[P]) give(at P, bytes int64) error {
	a.taken.Add(-bytes)
	return a.source.Free(at)
}

// slab is memory of the source, and its unused ranges by address.
type slab[P ~uint64] struct {
	at    P
	bytes int64
	free  []span[P]
}

type span[P ~uint64] struct {
	at    P
	bytes int64
}

// Alignment is that of every piece.
const Alignment = 256

// Alloc returns memory with any content.
func (a *Arena[P]) Alloc(bytes int64) (P, error) {
	size := max(bytes, 1)
	if size*4 > a.slab {
		return a.alone(size)
	}
	size = (size + Alignment - 1) &^ (Alignment - 1)
	for _, s := range a.slabs {
		if at := s.take(size); at != 0 {
			a.sizes[at] = size
			return at, nil
		}
	}
	at, err := a.take(a.slab)
	if err != nil && a.source.Full(err) {
		return a.alone(size) // the last of the memory is less than a slab
	}
	if err != nil {
		return 0, err
	}
	s := &slab[P]{at: at, bytes: a.slab, free: []span[P]{{at, a.slab}}}
	a.slabs = append(a.slabs, s)
	s.take(size)
	a.sizes[at] = size
	return at, nil
}

// alone is a piece outside of slabs.
func (a *Arena[P]) alone(size int64) (P, error) {
	at, err := a.take(size)
	if err == nil {
		a.sizes[at] = size
	}
	return at, err
}

// take cuts a piece from the first range that has it, or returns 0.
func (s *slab[P]) take(size int64) P {
	for i := range s.free {
		f := &s.free[i]
		if f.bytes < size {
			continue
		}
		at := f.at
		f.at, f.bytes = f.at+P(size), f.bytes-size
		if f.bytes == 0 {
			s.free = slices.Delete(s.free, i, i+1)
		}
		return at
	}
	return 0
}

// give returns a piece, joined with its neighbors.
func (s *slab[P]) give(at P, size int64) {
	i, _ := slices.BinarySearchFunc(s.free, at, func(f span[P], at P) int {
		if f.at < at {
			return -1
		}
		return 1
	})
	s.free = slices.Insert(s.free, i, span[P]{at, size})
	if i+1 < len(s.free) && s.free[i].at+P(s.free[i].bytes) == s.free[i+1].at {
		s.free[i].bytes += s.free[i+1].bytes
		s.free = slices.Delete(s.free, i+1, i+2)
	}
	if i > 0 && s.free[i-1].at+P(s.free[i-1].bytes) == s.free[i].at {
		s.free[i-1].bytes += s.free[i].bytes
		s.free = slices.Delete(s.free, i, i+1)
	}
}

// unused is how many bytes of the slab are in no piece.
func (s *slab[P]) unused() (n int64) {
	for _, f := range s.free {
		n += f.bytes
	}
	return n
}

func (s *slab[P]) empty() bool { return len(s.free) == 1 && s.free[0].bytes == s.bytes }

// Free frees a piece. One slab without pieces is kept for the next allocation.
func (a *Arena[P]) Free(at P) error {
	size, ok := a.sizes[at]
	if !ok {
		return nil
	}
	delete(a.sizes, at)
	empty := 0
	for i, s := range a.slabs {
		if s.empty() {
			empty++
		}
		if at < s.at || at >= s.at+P(s.bytes) {
			continue
		}
		s.give(at, size)
		if s.empty() && (empty > 0 || slices.ContainsFunc(a.slabs[i+1:], (*slab[P]).empty)) {
			a.slabs = slices.Delete(a.slabs, i, i+1)
			return a.give(s.at, s.bytes)
		}
		return nil
	}
	return a.give(at, size)
}

// Unused is how many bytes of slabs are in no piece.
func (a *Arena[P]) Unused() (n int64) {
	for _, s := range a.slabs {
		n += s.unused()
	}
	return n
}

// Close frees everything.
func (a *Arena[P]) Close() error {
	var err error
	for at, size := range a.sizes {
		if !slices.ContainsFunc(a.slabs, func(s *slab[P]) bool { return at >= s.at && at < s.at+P(s.bytes) }) {
			err = errors.Join(err, a.give(at, size))
		}
	}
	for _, s := range a.slabs {
		err = errors.Join(err, a.give(s.at, s.bytes))
	}
	a.slabs = nil
	clear(a.sizes)
	return err
}
