package state

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// mixture is a model of operations of package backend: independent layers of every kind. The input of a layer is a function
// of the token. The outputs of the layers depend on all tokens before, and are the output of the model.
type mixture struct {
	t       *testing.T
	b       backend.Backend
	layout  Layout
	places  []backend.Place
	attends []backend.Attention // of layers in pages
	deltas  []backend.DeltaNet  // of the others
	tables  [][]backend.Tensor  // of each layer: inputs by token
}

const mixtureVocab = 10

func newMixture(t *testing.T, p *Pool, rng *rand.Rand) *mixture {
	t.Helper()
	m := &mixture{t: t, b: p.b, layout: Layout{MaxDrafts: 3}}
	types := []dtype.Type{dtype.F32, dtype.F16, dtype.I8, dtype.I4}
	for range 1 + rng.IntN(4) {
		var a backend.Attention
		var d backend.DeltaNet
		var widths []int
		kind, window := types[rng.IntN(len(types))], rng.IntN(2)*(1+rng.IntN(60))
		switch rng.IntN(3) {
		case 0:
			a = backend.Attention{Heads: 4, KVHeads: 2, HeadDim: 8, ValueDim: 5, Gate: rng.IntN(2) > 0, Window: window, Freqs: []float32{1, 0.1}, Sections: []uint8{1, 2}}
			widths = []int{a.Queries(), 16, 10}
			m.layout.Layers = append(m.layout.Layers, KV{Type: kind, Heads: 2, Key: 8, Value: 5, Window: window})
		case 1:
			a = backend.Attention{Heads: 3, KVHeads: 1, HeadDim: 20, Latent: 16, Window: window, Freqs: []float32{1, 0.1}, Sections: []uint8{1, 2}}
			widths = []int{a.Queries(), 20}
			m.layout.Layers = append(m.layout.Layers, Latent{Type: kind, Width: 16, Rotary: 4, Window: window})
		default:
			d = backend.DeltaNet{KeyHeads: 1, ValueHeads: 2, KeyDim: 4, ValueDim: 3, Kernel: 1 + rng.IntN(4), Eps: 1e-6}
			d.Conv, d.Norm = m.random(rng, d.Kernel, d.Channels()), m.random(rng, 1, 3)
			d.DecayRate, d.DecayBias = m.random(rng, 1, 2), m.random(rng, 1, 2)
			widths = []int{d.Channels(), 6, 2, 2}
			m.layout.Layers = append(m.layout.Layers, Delta{KeyHeads: 1, ValueHeads: 2, KeyDim: 4, ValueDim: 3, Kernel: d.Kernel})
		}
		var tables []backend.Tensor
		for _, w := range widths {
			tables = append(tables, m.random(rng, mixtureVocab, w))
		}
		m.attends, m.deltas, m.tables = append(m.attends, a), append(m.deltas, d), append(m.tables, tables)
	}
	m.places = m.layout.Places()
	return m
}

// random is a tensor of numbers between -1 and 0, as decay rates must be.
func (m *mixture) random(rng *rand.Rand, rows, cols int) backend.Tensor {
	m.t.Helper()
	x := make([]float32, rows*cols)
	for i := range x {
		x[i] = -rng.Float32()
	}
	y := m.alloc(rows, cols)
	if err := m.b.Write(y, x); err != nil {
		m.t.Fatal(err)
	}
	return y
}

func (m *mixture) alloc(rows, cols int) backend.Tensor {
	m.t.Helper()
	y, err := m.b.Alloc(dtype.F32, rows, cols)
	if err != nil {
		m.t.Fatal(err)
	}
	return y
}

// forward feeds tokens at positions to a state and returns the outputs of all layers for each of them. It reports false if
// there is no memory.
func (m *mixture) forward(s *State, tokens []int32, drafts int, positions [][3]int32) (out [][]float32, ok bool) {
	m.t.Helper()
	if err := s.Reserve(len(tokens)); errors.Is(err, ErrFull) {
		return nil, false
	} else if err != nil {
		m.t.Fatal(err)
	}
	n := len(tokens)
	batch := []backend.Seq{s.Seq(0, n, drafts, positions)}
	out = make([][]float32, n)
	for i, tables := range m.tables {
		in := make([]backend.Tensor, 4)
		for j, table := range tables {
			in[j] = m.alloc(n, table.Cols)
			m.b.Gather(in[j], table, tokens)
		}
		var dst backend.Tensor
		if a := &m.attends[i]; a.Heads > 0 {
			dst = m.alloc(n, a.Heads*a.Values())
			m.b.Attend(dst, a, m.places[i], in[0], in[1], in[2], batch)
		} else {
			dst = m.alloc(n, 6)
			m.b.DeltaNet(dst, &m.deltas[i], m.places[i], backend.DeltaInput{QKV: in[0], Z: in[1], B: in[2], A: in[3]}, batch)
		}
		all, err := m.b.Host(dst)
		if err != nil {
			m.t.Fatal(err)
		}
		for r := range n {
			out[r] = append(out[r], all[r*dst.Cols:][:dst.Cols]...)
		}
		for _, x := range append(in, dst) {
			m.b.Free(x)
		}
	}
	s.Fed(n, drafts)
	return out, true
}

// whole are the layers without windows in the layout: their pages stay.
func (m *mixture) whole() *mixture {
	x := *m
	x.layout.Layers = slices.Clone(m.layout.Layers)
	for i, y := range x.layout.Layers {
		switch y := y.(type) {
		case KV:
			y.Window = 0
			x.layout.Layers[i] = y
		case Latent:
			y.Window = 0
			x.layout.Layers[i] = y
		}
	}
	x.places = x.layout.Places()
	return &x
}

// TestMixturesComputeTheSame feeds one text many times to models with layers of all kinds: in pieces of any length, with
// accepted and rejected drafts, from snapshots and their bytes, with and without their first pages, and after states were
// closed. Every token must have the outputs that it has when the text is fed token by token and no page is released. Half of the
// texts have images, whose positions must be given; for text they may be.
func TestMixturesComputeTheSame(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 8))
			p := openPool(t, 1<<22)
			m := newMixture(t, p, rng)
			text := make([]int32, 190)
			for i := range text {
				text[i] = int32(rng.IntN(mixtureVocab))
			}
			positions, picture := withImages(rng, len(text), seed%2 > 0)
			whole := m.whole()
			s := mustOpen(t, p, whole.layout)
			var want [][]float32
			for i := range text {
				out, _ := whole.forward(s, text[i:i+1], 0, positions[i:i+1])
				want = append(want, out...)
			}
			s.Close()
			s = mustOpen(t, p, m.layout)
			r := &random{t: t, rng: rng, layout: m.layout, pool: p}
			for range 60 {
				switch op := rng.IntN(12); {
				case op == 0 && s.Len() > 0:
					r.save(&shadow{s: s, tokens: text[:s.Len()]})
				case op == 1 && len(r.snaps) > 0:
					r.load(&shadow{s: s})
				case op == 2:
					s.Close()
					s = mustOpen(t, p, m.layout)
				case op == 3 || op == 4:
					if n := rng.IntN(s.Len() + 1); s.CanTruncate(n) && op == 3 {
						s.Truncate(n)
					} else if s.CanTruncate(n) {
						cutAndLoad(t, s, n)
					}
				default:
					at := s.Len()
					n := min(1+rng.IntN(40), len(text)-at)
					if n == 0 {
						continue
					}
					drafts, right := rng.IntN(min(n, m.layout.MaxDrafts)+1), 0
					tokens := slices.Clone(text[at : at+n])
					for right < drafts && rng.IntN(3) > 0 {
						right++
					}
					for i := n - drafts + right; i < n; i++ {
						tokens[i] = (tokens[i] + 1) % mixtureVocab
					}
					given := positions[at : at+n]
					if !slices.Contains(picture[at:at+n], true) && rng.IntN(2) > 0 {
						given = nil
					}
					out, ok := m.forward(s, tokens, drafts, given)
					if !ok {
						t.Fatal("no memory")
					}
					s.Commit(right)
					for i := range n - drafts + right {
						if !slices.Equal(out[i], want[at+i]) {
							t.Fatalf("%+v: token %d of a call for %d from %d on, %d of them drafts: %v, want %v", m.layout, i, n, at, drafts, out[i], want[at+i])
						}
					}
				}
				if n := s.Len(); n > 0 && s.Next() != After(positions[n-1]) {
					t.Fatalf("%d tokens go on at %d, the last was at %d", n, s.Next(), positions[n-1])
				}
			}
			s.Close()
			for len(r.snaps) > 0 {
				r.close(0)
			}
			if x := p.Stats(); x.Used != 0 || x.Pages != 0 || x.States != 0 {
				t.Errorf("after everything was closed: %+v", x)
			}
		})
	}
}
