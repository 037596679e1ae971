package engine

import (
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
)

// windowed is a device whose attention has a window. Models on it release pages behind it, or none at first.
type windowed struct {
	backend.Backend
	window   int
	releases bool
}

func (b *windowed) Attend(dst backend.Tensor, a *backend.Attention, at backend.Place, q, k, v backend.Tensor, batch []backend.Seq) {
	own := *a
	own.Window = b.window
	if len(batch[0].Windows) > 0 {
		at.Window = 1
	}
	b.Backend.Attend(dst, &own, at, q, k, v, batch)
}

// layout is that of a model on the device.
func (b *windowed) layout(l state.Layout) state.Layout {
	if !b.releases {
		return l
	}
	l.Layers = slices.Clone(l.Layers)
	for i, x := range l.Layers {
		if kv, ok := x.(state.KV); ok {
			kv.Window = b.window
			l.Layers[i] = kv
		}
	}
	return l
}

// windowedModel and windowedHead have the layouts of their device.
type windowedModel struct {
	model.Model
	on *windowed
}

func (m *windowedModel) Layout() state.Layout { return m.on.layout(m.Model.Layout()) }
func (m *windowedModel) Head() model.Head     { return &windowedHead{m.Model.Head(), m.on} }
func (m *windowedModel) Group(i int)          { m.Model.(model.Grouped).Group(i) }

type windowedHead struct {
	model.Head
	on *windowed
}

func (h *windowedHead) Layout() state.Layout { return h.on.layout(h.Head.Layout()) }

// TestReleasedPagesChangeNothing is TestWorkloadsChangeNothing for a model and a head with a window, which release the pages behind it
// and have less memory for that. The expected answers are of the model that keeps all pages.
func TestReleasedPagesChangeNothing(t *testing.T) {
	on := &windowed{Backend: backendtest.Open(t, backend.Options{}), window: 30}
	m, b := embeddingOn(t, "dense", on)
	m.Model = &windowedModel{m.Model, on}
	bytes := func() int64 {
		probe := &Engine{model: m, o: Options{Drafter: m.Drafter(), RoundTokens: 40}}
		return probe.bytes(200 + 40 + 24 + spec.MaxDepth)
	}
	whole := bytes()
	workloadsChangeNothing(t, m, b, 8, func(_ int, w *workload) {
		on.releases = true
		w.options.RoundTokens = min(w.options.RoundTokens, 40)
		w.options.Cache = true
		w.budget = w.budget * bytes() / whole
	})
	if bytes() >= whole {
		t.Errorf("a sequence takes %d bytes with its pages released and %d without", bytes(), whole)
	}
}
