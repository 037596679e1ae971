package state

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// withImages are positions of n tokens, and which of them are rows of images.
func withImages(rng *rand.Rand, n int, pictures bool) (positions [][3]int32, picture []bool) {
	next := int32(0)
	for len(positions) < n {
		for range 1 + rng.IntN(20) {
			positions, picture = append(positions, [3]int32{next, next, next}), append(picture, false)
			next++
		}
		if !pictures {
			continue
		}
		rows, cols := 1+rng.Int32N(5), 1+rng.Int32N(5)
		for i := range rows * cols {
			positions, picture = append(positions, [3]int32{next, next + i/cols, next + i%cols}), append(picture, true)
		}
		next += max(rows, cols)
	}
	return positions[:n], picture[:n]
}

// cutAndLoad restores the state after n tokens through the bytes of a snapshot.
func cutAndLoad(t *testing.T, s *State, n int) {
	t.Helper()
	x, err := s.SaveFirst(n)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	data, err := x.AppendTo(nil)
	if err != nil {
		t.Fatal(err)
	}
	y, err := s.pool.ReadSnapshot(s.layout, data, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer y.Close()
	if err := s.Load(y); err != nil {
		t.Fatal(err)
	}
}

// TestTextHasNoPositions feeds text with and without positions: none are stored.
func TestTextHasNoPositions(t *testing.T) {
	p := openPool(t, 1<<20)
	s := mustOpen(t, p, Layout{MaxDrafts: 2})
	defer s.Close()
	if seq := s.Seq(0, 5, 0, nil); seq.Positions != nil {
		t.Errorf("text at %d", seq.Positions)
	}
	s.Fed(5, 0)
	s.Seq(0, 2, 0, [][3]int32{{5, 5, 5}, {6, 6, 6}})
	s.Fed(2, 0)
	if seq := s.Seq(0, 1, 0, nil); seq.Positions != nil || s.steps != nil || s.Next() != 7 {
		t.Errorf("text at %d, %d steps, goes on at %d", seq.Positions, len(s.steps), s.Next())
	}
}

// TestPositionsOfRejectedDrafts checks that the positions of rejected drafts are removed.
func TestPositionsOfRejectedDrafts(t *testing.T) {
	p := openPool(t, 1<<20)
	s := mustOpen(t, p, Layout{MaxDrafts: 3})
	defer s.Close()
	given := [][3]int32{{0, 0, 0}, {1, 1, 1}, {1, 1, 2}, {9, 9, 9}}
	for accepted, want := range []int{1, 2, 3, 10} {
		s.Truncate(0)
		s.Seq(0, 4, 3, given)
		s.Fed(4, 3)
		s.Commit(accepted)
		if s.Next() != want {
			t.Errorf("with %d of 3 drafts the text goes on at %d, want %d", accepted, s.Next(), want)
		}
		got := slices.Clone(s.Seq(0, 2, 0, nil).Positions)
		if w := int32(want); want != s.Len() && !slices.Equal(got, [][3]int32{{w, w, w}, {w + 1, w + 1, w + 1}}) {
			t.Errorf("text after %d drafts at %d, want from %d on", accepted, got, want)
		}
		s.Fed(2, 0)
		if s.Next() != want+2 {
			t.Errorf("two tokens later at %d, want %d", s.Next(), want+2)
		}
	}
}

// TestReadSnapshotRefusesMalformedSteps changes one number of a snapshot at a time.
func TestReadSnapshotRefusesMalformedSteps(t *testing.T) {
	p := openPool(t, 1<<20)
	l := Layout{}
	s := mustOpen(t, p, l)
	s.Seq(0, 4, 0, [][3]int32{{0, 0, 0}, {0, 0, 1}, {0, 1, 0}, {0, 1, 1}})
	s.Fed(4, 0)
	x, err := s.Save()
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	good, err := x.AppendTo(nil)
	if err != nil || int64(len(good)) != x.Bytes() || len(x.steps) != 2 {
		t.Fatalf("%d bytes, %d promised, %d steps, %v", len(good), x.Bytes(), len(x.steps), err)
	}
	x.Close()
	change := func(at int, v uint32) []byte {
		b := slices.Clone(good)
		binary.LittleEndian.PutUint32(b[at:], v)
		return b
	}
	minus := func(n int32) uint32 { return uint32(-n) }
	for name, data := range map[string][]byte{
		"fewer tokens":          change(0, 3),
		"more tokens than fit":  change(0, 1<<32-1),
		"a step before tokens":  change(12, 0),
		"a step that is late":   change(12, 5),
		"steps in disorder":     change(20, 3),
		"no step":               change(16, 0),
		"a step twice":          change(24, minus(1)),
		"a step to before zero": change(16, minus(4)),
		"a step to zero":        change(16, minus(3)),
		"a step too far":        change(24, 1<<31-4),
		"cut":                   good[:len(good)-1],
		"a step after the last": append(slices.Clone(good), good[len(good)-stepBytes:]...),
	} {
		if _, err := p.ReadSnapshot(l, data, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for name, data := range map[string][]byte{"nothing changed": good, "a step to the last position": change(24, math.MaxInt32-4)} {
		if y, err := p.ReadSnapshot(l, data, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		} else {
			y.Close()
		}
	}
}
