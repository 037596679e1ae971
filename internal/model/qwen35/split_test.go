package qwen35

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/split"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/state"
)

// openSplit loads a checkpoint onto a device, with memory for sequences.
func openSplit(t *testing.T, dir string, b backend.Backend, o model.Options) *rig {
	t.Helper()
	r := openOn(t, b, dir, o)
	r.Pool = state.NewPool(b, 1<<30)
	return r
}

// divided is a device of four opaque devices.
func divided(t *testing.T, place func(backend.Part) int) backend.Backend {
	t.Helper()
	b := backendtest.Open(t, backend.Options{Threads: 1})
	o := backendtest.NewOpaque
	d, err := split.New(place, o(b), o(b), o(b), o(b))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// second places on the second device what f reports, and all else on the first.
func second(f func(backend.Part) bool) func(backend.Part) int {
	return func(p backend.Part) int {
		if f(p) {
			return 1
		}
		return 0
	}
}

// life is a sequence in a model and its head: a prompt in pieces, drafts of which some are
// accepted, and what is saved of it in the end.
type life struct {
	rows  [][]float32
	saved []byte
}

func live(t *testing.T, r *rig, tokens []int32) *life {
	t.Helper()
	l := &life{}
	s := r.Sequence(t)
	cut := len(tokens) - 12
	l.rows = decode(t, r, s, tokens[:cut], 3, 58, 1, 1)
	for i, accepted := range []int{0, 2, 1} {
		at := s.Len()
		drafts := append(slices.Clone(tokens[at:at+1+accepted]), int32(7+i), 9)
		rows, _ := r.Feed(t, model.Span{State: s, Tokens: drafts, Drafts: len(drafts) - 1, Want: 1 + accepted})
		s.Commit(accepted)
		l.rows = append(l.rows, rows...)
	}
	x, err := s.Save()
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if l.saved, err = x.AppendTo(nil); err != nil {
		t.Fatal(err)
	}
	l.rows = append(l.rows, decode(t, r, s, tokens[s.Len():], 2, 1)...)
	l.draft(t, r, tokens)
	return l
}

// draft has the head read a text, draft from a part of the vocabulary, and draft in a chain.
func (l *life) draft(t *testing.T, r *rig, tokens []int32) {
	t.Helper()
	const n = 9
	target, own := r.Sequence(t), r.Sequence(t)
	own.Close()
	own, err := r.Pool.Open(r.Head().Layout())
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	out, err := r.Forward([]model.Span{{State: target, Tokens: tokens[:n], Want: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Head().Forward([]model.Span{{State: own, Tokens: tokens[1 : n-1], Hidden: out.Hidden.RowRange(0, n-2)}}, nil); err != nil {
		t.Fatal(err)
	}
	only := []int32{0, 2, 3}
	for _, blocks := range [][]int32{only, nil, only} {
		before := own.Len()
		span := model.Span{State: own, Tokens: tokens[n-1 : n], Want: 1, Hidden: out.Hidden.RowRange(n-2, n-1)}
		drafted, err := r.Head().Forward([]model.Span{span}, blocks)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := drafted.Rows()
		if err != nil {
			t.Fatal(err)
		}
		l.rows = append(l.rows, slices.Clone(rows[0]))
		own.Truncate(before)
	}
}

// resume goes on with what another device has saved.
func resume(t *testing.T, r *rig, saved []byte, tokens []int32) [][]float32 {
	t.Helper()
	x, err := r.Pool.ReadSnapshot(r.Layout(), saved, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	s := r.Sequence(t)
	if err := s.Load(x); err != nil {
		t.Fatal(err)
	}
	return decode(t, r, s, tokens[s.Len():], 2, 1)
}

// TestBordersChangeNothing puts a model on two to four devices, with a border before each of its layers, and
// with its experts apart: logits, drafts and saved states have the bits of one device, and each
// goes on with what the other has saved.
func TestBordersChangeNothing(t *testing.T) {
	for _, c := range []struct {
		name string
		o    model.Options
	}{
		{"dense", model.Options{Compute: backend.Float32, MaxDrafts: 4}},
		{"moe", model.Options{Quantize: 8, MaxDrafts: 4, KVBits: 4}},
	} {
		f := golden.Load(t, c.name)
		tokens := f.Cases[len(f.Cases)-1].Tokens[:74]
		one := openSplit(t, golden.Dir(t, c.name), backendtest.Open(t, backend.Options{Threads: 1}), c.o)
		want := live(t, one, tokens)
		layers := one.Info().Layers
		places := map[string]func(p backend.Part) int{
			"experts apart":          second(func(p backend.Part) bool { return p.Kind == backend.ExpertsPart }),
			"head apart":             second(func(p backend.Part) bool { return p.Kind == backend.HeadPart }),
			"embedding apart":        second(func(p backend.Part) bool { return p.Kind == backend.EmbeddingPart }),
			"output apart":           second(func(p backend.Part) bool { return p.Kind == backend.OutputPart }),
			"three in turns":         func(p backend.Part) int { return (p.Layer + int(p.Kind)) % 3 },
			"four in turns":          func(p backend.Part) int { return (p.Layer + int(p.Kind)) % 4 },
			"every part, four":       func(p backend.Part) int { return (7*p.Layer + 3*int(p.Kind)) % 4 },
			"layers on the last two": func(p backend.Part) int { return min(int(p.Kind), 1) + (p.Layer%2+2)*(1-min(int(p.Kind), 1)) },
		}
		for border := range layers + 1 {
			places[fmt.Sprintf("border at %d", border)] = func(p backend.Part) int {
				layer := p.Kind == backend.LayerPart || p.Kind == backend.ExpertsPart
				switch {
				case border == layers/2 && (!layer || p.Layer >= border): // the first on a device, and everything else with the last
					return 1
				case border == layers/2 || !layer || p.Layer >= border:
					return 0
				}
				return max(1, 3-p.Layer) // the first layers on several, the last of which has the first
			}
		}
		for name, place := range places {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				r := openSplit(t, golden.Dir(t, c.name), divided(t, place), c.o)
				got := live(t, r, tokens)
				same(t, "logits", got.rows, want.rows)
				if !bytes.Equal(got.saved, want.saved) {
					t.Error("the saved state has other bytes")
				}
				after := want.rows[len(want.rows)-3-len(tokens[len(tokens)-12+6:]) : len(want.rows)-3]
				same(t, "from there to here", resume(t, r, want.saved, tokens), after)
				same(t, "from here to there", resume(t, one, got.saved, tokens), after)
				if r.Info().Bytes != one.Info().Bytes {
					t.Errorf("%d bytes of weights, want %d", r.Info().Bytes, one.Info().Bytes)
				}
			})
		}
	}
}

// asked counts the calls that wait for a device.
type asked struct {
	backend.Backend
	n int
}

func (a *asked) Host(t backend.Tensor) ([]float32, error) { a.n++; return a.Backend.Host(t) }

func (a *asked) ReadBytes(dst []byte, t backend.Tensor) error {
	a.n++
	return a.Backend.ReadBytes(dst, t)
}

func (a *asked) Top(t backend.Tensor, asks []backend.Ask) ([]backend.Best, error) {
	a.n++
	return a.Backend.Top(t, asks)
}

// TestRoundWaitsForADeviceOnce counts how often a round with drafts, their rollback and a call of the head wait for each of
// three devices with a layer, while the rest of the model is on the first: once for its rows, since over a network each
// time costs a round trip.
func TestRoundWaitsForADeviceOnce(t *testing.T) {
	cpu := backendtest.Open(t, backend.Options{Threads: 1})
	devices := []backend.Backend{backendtest.NewOpaque(cpu)}
	var nodes []*asked
	for range 3 {
		a := &asked{Backend: backendtest.NewOpaque(cpu)}
		nodes, devices = append(nodes, a), append(devices, a)
	}
	d, err := split.New(func(p backend.Part) int {
		if p.Kind == backend.LayerPart && p.Layer < 3 {
			return 3 - p.Layer
		}
		return 0
	}, devices...)
	if err != nil {
		t.Fatal(err)
	}
	r := openSplit(t, golden.Dir(t, "dense"), d, model.Options{Quantize: 8, MaxDrafts: 4})
	s, h := r.Sequence(t), r.Pairs(t)
	for round, accepted := range []int{0, 2, 0, 1, 1} {
		tokens := []int32{int32(round), 4, 5}
		for _, a := range nodes {
			a.n = 0
		}
		out, err := r.Forward([]model.Span{{State: s, Tokens: tokens, Drafts: 2, Want: 3}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := out.Rows(); err != nil {
			t.Fatal(err)
		}
		s.Commit(accepted)
		drafted, err := r.Head().Forward([]model.Span{{State: h, Tokens: tokens[1:2], Want: 1, Hidden: out.Hidden.RowRange(0, 1)}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := drafted.Rows(); err != nil {
			t.Fatal(err)
		}
		for i, a := range nodes {
			if a.n != 1 {
				t.Errorf("round %d waits %d times for device %d", round, a.n, i+1)
			}
		}
	}
}
