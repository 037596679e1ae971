package gpu

import (
	"errors"
	"math/rand/v2"
	"testing"
)

// source is memory without a device.
type source struct {
	held  map[uint64]int64
	last  uint64
	limit int64 // of all that is held; 0: none
}

var errFull = errors.New("full")

func (s *source) Alloc(bytes int64) (uint64, error) {
	sum := bytes
	for _, n := range s.held {
		sum += n
	}
	if s.limit > 0 && sum > s.limit {
		return 0, errFull
	}
	s.last += 1 << 20
	s.held[s.last] = bytes
	return s.last, nil
}

func (s *source) Free(at uint64) error {
	if _, ok := s.held[at]; !ok {
		return errors.New("freed twice")
	}
	delete(s.held, at)
	return nil
}

func (s *source) Full(err error) bool                          { return errors.Is(err, errFull) }
func (s *source) Explain(err error, needed, taken int64) error { return err }

// Pieces of slabs never overlap, whatever is taken and given back, and what was given back can be
// taken again as a whole.
func TestArenaKeepsPiecesApart(t *testing.T) {
	dev := &source{held: map[uint64]int64{}}
	var a Arena[uint64]
	a.Init(dev, 64<<10)
	rng := rand.New(rand.NewPCG(5, 6))
	used := map[uint64]int64{}
	for range 3000 {
		if len(used) > 0 && rng.IntN(5) < 2 {
			for at := range used {
				if err := a.Free(at); err != nil {
					t.Fatal(err)
				}
				delete(used, at)
				break
			}
			continue
		}
		if len(used) > 60 {
			continue
		}
		size := int64(rng.IntN(6000))
		if rng.IntN(20) == 0 {
			size = 20 << 10 // alone
		}
		at, err := a.Alloc(size)
		if err != nil || at%Alignment != 0 {
			t.Fatalf("%#x: %v", at, err)
		}
		for other, n := range used {
			if at < other+uint64(n) && other < at+uint64(max(size, 1)) {
				t.Fatalf("%d bytes at %#x, where %d bytes at %#x are", size, at, n, other)
			}
		}
		used[at] = max(size, 1)
	}
	for at := range used {
		if err := a.Free(at); err != nil {
			t.Fatal(err)
		}
	}
	if len(a.slabs) != 1 || !a.slabs[0].empty() || a.Unused() != a.slab {
		t.Errorf("%d slabs with %d bytes are left", len(a.slabs), a.Unused())
	}
	if err := a.Close(); err != nil || len(dev.held) > 0 || a.Taken() != 0 {
		t.Errorf("%d pieces of the source are left, %d bytes: %v", len(dev.held), a.Taken(), err)
	}
}

// TestArenaUsesTheLastOfTheMemory checks that a piece is allocated alone if there is no memory for a slab, and that empty
// slabs are freed for a large piece.
func TestArenaUsesTheLastOfTheMemory(t *testing.T) {
	dev := &source{held: map[uint64]int64{}, limit: 8 << 10}
	var a Arena[uint64]
	a.Init(dev, 4<<10)
	var list []uint64
	for range 40 {
		at, err := a.Alloc(256)
		if err != nil {
			break
		}
		list = append(list, at)
	}
	if len(list) != 32 || len(a.slabs) != 2 {
		t.Fatalf("%d pieces in %d slabs", len(list), len(a.slabs))
	}
	for _, at := range list {
		if err := a.Free(at); err != nil {
			t.Fatal(err)
		}
	}
	if len(a.slabs) != 1 {
		t.Errorf("%d slabs are kept", len(a.slabs))
	}
	large, err := a.Alloc(6 << 10) // takes the place of the slab
	if err != nil || len(a.slabs) != 0 {
		t.Fatalf("%d slabs: %v", len(a.slabs), err)
	}
	if _, err = a.Alloc(256); err != nil { // alone
		t.Error(err)
	}
	if _, err = a.Alloc(4 << 10); !errors.Is(err, errFull) {
		t.Errorf("error %v", err)
	}
	if err := a.Free(large); err != nil || a.Taken() != 256 {
		t.Errorf("%d bytes are taken: %v", a.Taken(), err)
	}
}
