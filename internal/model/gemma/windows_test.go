package gemma

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/remote"
	"github.com/foretoken/foretoken/internal/backend/split"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/modeltest"
	"github.com/foretoken/foretoken/internal/state"
)

// keeping is a device whose sequences keep all pages, in the layout without windows.
type keeping struct {
	backend.Backend
	places map[backend.Place]backend.Place
}

func (k *keeping) Attend(dst backend.Tensor, a *backend.Attention, at backend.Place, q, key, v backend.Tensor, batch []backend.Seq) {
	k.Backend.Attend(dst, a, k.places[at], q, key, v, batch)
}

// withoutWindows is a layout that keeps all pages.
func withoutWindows(l state.Layout) state.Layout {
	l.Layers = slices.Clone(l.Layers)
	for i, x := range l.Layers {
		if kv, ok := x.(state.KV); ok {
			kv.Window = 0
			l.Layers[i] = kv
		}
	}
	return l
}

// lived is a text fed in pieces with rejected drafts, its logits, and its state in the end, loaded once from a snapshot.
func lived(t *testing.T, r *rig, s *state.State, tokens []int32) (rows [][]float32, saved []byte) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	for s.Len() < len(tokens) {
		at := s.Len()
		n := min(1+rng.IntN(3), len(tokens)-at)
		if rng.IntN(4) == 0 || at == 0 {
			n = min(90, len(tokens)-at)
		}
		right := rng.IntN(min(n, 4))
		feed := append(slices.Clone(tokens[at:at+n]), 5, 6)
		out, _ := r.Feed(t, model.Span{State: s, Tokens: feed, Want: len(feed), Drafts: right + 2})
		rows = append(rows, out[:n]...)
		s.Commit(right)
		if s.Len() != at+n {
			t.Fatalf("%d tokens, want %d", s.Len(), at+n)
		}
	}
	return rows, modeltest.Saved(t, s)
}

// TestReleasedPagesChangeNothing feeds texts that are longer than windows by some pages, on all kinds of devices. Logits are those of
// sequences that keep all pages, and the saved states are equal.
func TestReleasedPagesChangeNothing(t *testing.T) {
	for _, name := range []string{"gemma4_dense", "gemma4_ple"} {
		o := model.Options{Quantize: 8, MaxDrafts: 8}
		cpu := backendtest.Open(t, backend.Options{Threads: 1})
		keeps := &keeping{cpu, map[backend.Place]backend.Place{}}
		r := openOn(t, keeps, golden.Dir(t, name), o)
		whole := withoutWindows(r.Layout())
		for i, at := range r.Layout().Places() {
			if r.Layout().Layers[i] != nil {
				keeps.places[at] = whole.Places()[i]
			}
		}
		rng := rand.New(rand.NewPCG(3, 4))
		tokens := make([]int32, 230)
		for i := range tokens {
			tokens[i] = rng.Int32N(int32(r.Info().Vocab))
		}
		s, err := r.Pool.Open(whole)
		if err != nil {
			t.Fatal(err)
		}
		want, kept := lived(t, r, s, tokens)
		var saved []byte
		far := backendtest.Remote(t, backend.Options{Threads: 1}, remote.Options{})
		parts, err := split.New(func(p backend.Part) int { return p.Layer % 2 }, backendtest.NewOpaque(cpu), far)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range []backend.Backend{cpu, far, parts} {
			r := openOn(t, b, golden.Dir(t, name), o)
			rows, own := lived(t, r, r.Sequence(t), tokens)
			same(t, name+" on "+b.Name(), rows, want)
			if saved = append(saved, own...); !bytes.Equal(own, saved[:len(own)]) || len(own) >= len(kept) {
				t.Errorf("%s on %s: the saved state has other bytes, %d of %d", name, b.Name(), len(own), len(kept))
			}
		}
	}
}

// TestMemoryOfReleasedSizes computes the memory of a sequence with 16 bits, in MB: if all pages are kept; at its most, while a prompt
// is fed in rounds; and in a snapshot.
func TestMemoryOfReleasedSizes(t *testing.T) {
	const short, long = 32 << 10, 128 << 10
	for _, c := range []struct {
		name          string
		tokens        int
		all, most, in int64
	}{
		{"gemma-4-e2b", short, 603, 215, 208},
		{"gemma-4-e2b", long, 2415, 819, 812},
		{"gemma-4-e4b", short, 1879, 584, 560},
		{"gemma-4-e4b", long, 7516, 2194, 2171},
		{"gemma-4-12b", short, 11274, 1082, 893},
		{"gemma-4-12b", long, 45097, 2692, 2503},
		{"gemma-4-26b-a4b", short, 7381, 1011, 893},
		{"gemma-4-26b-a4b", long, 29527, 3025, 2907},
		{"gemma-4-31b", short, 29527, 4047, 3575},
		{"gemma-4-31b", long, 118111, 12100, 11628},
	} {
		l := ofShape(t, c.name).resolved().Layout(model.Options{}, false)
		saved := int64(c.tokens/backend.PageTokens)*l.PageBytes() + l.WindowBytes()
		got := []int64{withoutWindows(l).Bytes(c.tokens) / 1e6, l.Bytes(c.tokens) / 1e6, saved / 1e6}
		if want := []int64{c.all, c.most, c.in}; !slices.Equal(got, want) {
			t.Errorf("%s with %d tokens: %d MB, want %d", c.name, c.tokens, got, want)
		}
		sum := int64(0)
		for _, n := range l.LayerBytes(c.tokens) {
			sum += n
		}
		if sum != l.Bytes(c.tokens) {
			t.Errorf("%s: the layers take %d bytes together, want %d", c.name, sum, l.Bytes(c.tokens))
		}
	}
}
