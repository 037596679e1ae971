package state

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/dtype"
)

// randomLayout is a random mixture of all kinds; it may be empty.
func randomLayout(rng *rand.Rand) Layout {
	l := Layout{MaxDrafts: rng.IntN(4)}
	types := []dtype.Type{dtype.F32, dtype.F16, dtype.I8, dtype.I4}
	for range rng.IntN(5) {
		t := types[rng.IntN(len(types))]
		switch rng.IntN(7) {
		case 0:
			l.Layers = append(l.Layers, nil)
		case 1, 2:
			l.Layers = append(l.Layers, KV{Type: t, Heads: 1 + rng.IntN(2), Key: 1 + rng.IntN(9), Value: 1 + rng.IntN(9), Window: rng.IntN(2) * 10})
		case 3, 4:
			l.Layers = append(l.Layers, Latent{Type: t, Width: 1 + rng.IntN(9), Rotary: 2 * rng.IntN(3), Window: rng.IntN(3) / 2 * 70})
		default:
			heads := 1 + rng.IntN(2)
			l.Layers = append(l.Layers, Delta{KeyHeads: heads, ValueHeads: heads * (1 + rng.IntN(2)), KeyDim: 1 + rng.IntN(3), ValueDim: 1 + rng.IntN(5), Kernel: 1 + rng.IntN(4)})
		}
	}
	return l
}

// TestPlacesFillThePage checks that the parts of layers fill a page in order, that numbers are aligned, and that recurrent
// layers are counted separately.
func TestPlacesFillThePage(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		l := randomLayout(rng)
		windows := append([]int{0}, l.Windows()...)
		pages, delta := make([]int, len(windows)), 0
		for i, p := range l.Places() {
			if l.Layers[i] == nil {
				continue
			}
			kind, bytes := l.Layers[i].Paged()
			if w := p.Window; bytes > 0 && (windows[w] != l.Layers[i].Sees() || p.Page != pages[w] || p.Type != kind || p.Page%backend.PageTokens != 0) {
				t.Fatalf("%+v: layer %d is at %+v, want byte %d", l, i, p, pages[w])
			}
			pages[p.Window] += bytes
			if recurs(l.Layers[i]) {
				if p.Delta != delta {
					t.Fatalf("%+v: layer %d is at %+v, want number %d", l, i, p, delta)
				}
				delta++
			}
		}
		if int64(pages[0]) != l.PageBytes() || l.Paged() != (pages[0] > 0) || l.Empty() != (pages[0] == 0 && delta == 0 && len(windows) == 1) {
			t.Fatalf("%+v: %d bytes of %d, paged %t, empty %t", l, pages[0], l.PageBytes(), l.Paged(), l.Empty())
		}
		for i, shape := range l.pages() {
			if shape.cols != pages[i] {
				t.Fatalf("%+v: pages of window %d have %d bytes, want %d", l, windows[i], shape.cols, pages[i])
			}
		}
	}
}

// TestBytesOfKinds checks the sizes of published models.
func TestBytesOfKinds(t *testing.T) {
	qwen := Layout{MaxDrafts: 8}
	for i := range 24 { // the 2B shape
		if i%4 == 3 {
			qwen.Layers = append(qwen.Layers, KV{Type: dtype.F16, Heads: 2, Key: 256, Value: 256})
		} else {
			qwen.Layers = append(qwen.Layers, Delta{KeyHeads: 16, ValueHeads: 16, KeyDim: 128, ValueDim: 128, Kernel: 4})
		}
	}
	flash := Layout{Layers: slices.Repeat([]Layer{Latent{Type: dtype.F16, Width: 512, Rotary: 64}}, 47)}
	coded := Layout{Layers: slices.Repeat([]Layer{Latent{Type: dtype.I8, Width: 512, Rotary: 64}}, 47)}
	wide := Layout{Layers: []Layer{KV{Type: dtype.F32, Heads: 3, Key: 192, Value: 128}}}
	const state, channels, drafts = 16 * 128 * 128, 3 * 2048, 8
	for _, c := range []struct {
		name            string
		got             Layout
		page, recurrent int64
	}{
		{"qwen", qwen, 6 * 2 * 2 * 256 * 2 * 64, 18 * 4 * (state + (3+drafts)*channels + drafts*(2048+2048+16))},
		{"a latent row", flash, 54144 * 64, 0},
		{"a latent row of 8 bits", coded, 47 * (512 + 4 + 64 + 4) * 64, 0},
		{"two widths", wide, 3 * (192 + 128) * 4 * 64, 0},
		{"nothing", Layout{MaxDrafts: 3}, 0, 0},
	} {
		if c.got.PageBytes() != c.page || c.got.RecurrentBytes() != c.recurrent {
			t.Errorf("%s: pages of %d bytes and %d bytes, want %d and %d", c.name, c.got.PageBytes(), c.got.RecurrentBytes(), c.page, c.recurrent)
		}
	}
}

func TestLayoutsAreEqualByKinds(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for range 100 {
		l := randomLayout(rng)
		same := Layout{Layers: slices.Clone(l.Layers), MaxDrafts: l.MaxDrafts}
		if !l.Equal(same) {
			t.Fatalf("%+v differs from its copy", l)
		}
		same.MaxDrafts++
		if l.Equal(same) {
			t.Fatalf("%+v equals %+v", l, same)
		}
		same.MaxDrafts--
		same.Layers = append(same.Layers, nil)
		if l.Equal(same) {
			t.Fatalf("%+v equals %+v", l, same)
		}
	}
	a := Layout{Layers: []Layer{KV{Type: dtype.F16, Heads: 1, Key: 8, Value: 4}}}
	b := Layout{Layers: []Layer{Latent{Type: dtype.F16, Width: 8, Rotary: 4}}}
	if a.Equal(b) || a.PageBytes() != b.PageBytes() {
		t.Errorf("%+v and %+v are of one size and not the same", a, b)
	}
}

// FuzzReadSnapshot reads bytes as a snapshot of a random layout.
func FuzzReadSnapshot(f *testing.F) {
	p := NewPool(backendtest.Open(f, backend.Options{Threads: 1}), 1<<22)
	for seed := range uint64(8) {
		l := randomLayout(rand.New(rand.NewPCG(seed, 0)))
		s, err := p.Open(l)
		if err != nil {
			f.Fatal(err)
		}
		if err := s.Reserve(70); err != nil {
			f.Fatal(err)
		}
		drafts := l.MaxDrafts
		positions, _ := withImages(rand.New(rand.NewPCG(seed, 1)), 70, seed%2 > 0)
		s.Seq(0, 70, drafts, positions)
		s.Fed(70, drafts)
		s.Commit(drafts)
		snap, err := s.Save()
		if err != nil {
			f.Fatal(err)
		}
		data, err := snap.AppendTo(nil)
		if err != nil {
			f.Fatal(err)
		}
		snap.Close()
		s.Close()
		f.Add(seed, data)
		f.Add(seed, data[:len(data)/2])
	}
	f.Add(uint64(0), []byte{3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, seed uint64, data []byte) {
		x, err := p.ReadSnapshot(randomLayout(rand.New(rand.NewPCG(seed, 0))), data, func(int, int) (*Block, error) { return nil, ErrFull })
		if err == nil {
			again, err := x.AppendTo(nil)
			if err != nil || !slices.Equal(again, data) {
				t.Errorf("%d bytes are read as %d; error %v", len(data), len(again), err)
			}
			x.Close()
		}
		if n := p.Used(); n != 0 {
			t.Errorf("%d bytes in use", n)
		}
	})
}
