package cuda

import (
	"log/slog"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/state"
)

// Rounds of a model allocate nothing once everything has grown to its size: passes that are replayed, the highest
// logits, and drafts that the device draws one after another. A GPU's driver allocates nothing either.
func TestRoundsAllocateNothing(t *testing.T) {
	b, _ := openIdle(t)
	roundsAllocateNothing(t, b, unpacked{b})
	if onGPU {
		b := open(t, Options{})
		roundsAllocateNothing(t, b, b)
	}
}

func roundsAllocateNothing(t *testing.T, b *Backend, loader backend.Backend) {
	t.Helper()
	files := golden.Open(t, golden.Dir(t, "dense"))
	m, err := model.Open(files, loader, model.Options{Quantize: 4, MaxDrafts: 3, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close() //nolint:errcheck // an idle device has nothing to free
	pool, head := state.NewPool(b, 1<<40), m.Head().(model.Chainer)
	target, draft := reserved(t, pool, m.Layout()), reserved(t, pool, head.Layout())
	hidden, err := b.Alloc(dtype.F32, 1, m.Info().Width)
	if err != nil {
		t.Fatal(err)
	}
	asks, draws := make([]backend.Ask, 4), [][]backend.Draw{{{Temperature: 1}}, {{}}, {{Noise: 1 << 40, TopK: 9, TopP: 0.5}}}
	for i := range asks {
		asks[i] = backend.Ask{K: 20, Also: []int32{3, 400}, Sum: true, Draw: &draws[0][0]}
	}
	batch := []model.Span{{State: target, Tokens: make([]int32, 4), Drafts: 3, Want: 4}}
	pairs := []model.Span{{State: draft, Tokens: []int32{1}, Want: 1, Hidden: hidden}}
	for _, c := range []struct {
		name string
		run  func() error
	}{
		{"pass", func() error { _, err := m.Forward(batch); target.Commit(1); return err }},
		{"highest logits", func() error {
			out, err := m.Forward(batch)
			target.Commit(0)
			if err == nil {
				_, err = b.Top(out.Logits, asks)
			}
			return err
		}},
		{"draft token", func() error { _, err := head.Forward(pairs, nil); draft.Truncate(0); return err }},
		{"draft", func() error { _, _, err := head.Chain(pairs, nil, draws); draft.Truncate(0); return err }},
	} {
		run := func() {
			if err := c.run(); err != nil {
				t.Fatal(err)
			}
		}
		for range 20 {
			run()
		}
		if n := testing.AllocsPerRun(50, run); n != 0 {
			t.Errorf("%s: %v allocations", c.name, n)
		}
	}
}

// reserved is a state with space for all that is fed.
func reserved(t *testing.T, pool *state.Pool, l state.Layout) *state.State {
	t.Helper()
	s, err := pool.Open(l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if err := s.Reserve(1000); err != nil {
		t.Fatal(err)
	}
	return s
}
