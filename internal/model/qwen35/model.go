// Package qwen35 is the Qwen3.5 family: dense and mixture-of-experts models of Gated
// DeltaNet and gated attention layers, and their multi-token-prediction head. It knows
// every layout such checkpoints come in; the arithmetic is the backend's.
package qwen35

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/network"
	"github.com/foretoken/foretoken/internal/model/qwen35/vision"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/state"
)

// Model is a model with its weights on a backend.
type Model struct {
	transformer
	info   model.Info
	layout state.Layout
	layers []layer
	head   *Head
	loaded *weights.Loader // what to free
	taps   network.Taps

	tower    *vision.Tower
	towerErr error // why there is none, where the checkpoint has something of one
}

var (
	_ model.Examinable = (*Model)(nil)
	_ model.Lender     = (*Model)(nil)
	_ model.Sighted    = (*Model)(nil)
)

// Open loads a checkpoint. It refuses one with tensors missing or left over, naming them.
// The checkpoint may be closed afterwards.
func Open(c *checkpoint.Checkpoint, b backend.Backend, o model.Options) (*Model, error) {
	cfg, err := readConfig(c)
	if err != nil {
		return nil, err
	}
	f, err := openFiles(c, cfg, o.Log)
	if err != nil {
		return nil, err
	}
	has, err := f.HasHead()
	if o.NoHead {
		f.SkipHead()
	} else if err != nil {
		return nil, err
	}
	if !has && cfg.mtpLayers > 0 {
		o.Log.Warn("config.json declares a multi-token-prediction head, but the weights have none: a converter has probably dropped the mtp tensors; decoding works without it")
	}
	tower, towerErr := cfg.towerOf(f, o)
	l := newLoader(b, o)
	l.From(f)
	m, err := load(l, cfg, has, tower, o)
	if err == nil {
		err = f.Leftover()
	}
	if err != nil {
		l.Free()
		return nil, err
	}
	m.towerErr = towerErr
	checkGains(f.Gains(), o.Log)
	return m, nil
}

// newModel is a model without weights.
func newModel(c *config) *Model {
	m := &Model{layers: make([]layer, len(c.layers))}
	m.begin(c, m.operations)
	for i, attention := range c.layers {
		m.layers[i] = newLayer(c, attention)
	}
	return m
}

// layout is the state of a sequence with layers that are attention or, where that is false,
// Gated DeltaNet.
func (c *config) layout(o model.Options, attention ...bool) state.Layout {
	l := state.Layout{MaxDrafts: o.MaxDrafts}
	for _, is := range attention {
		if is {
			l.Layers = append(l.Layers, state.KV{Type: o.KVType(), Heads: c.kvHeads, Key: c.headDim, Value: c.headDim})
		} else {
			l.Layers = append(l.Layers, state.Delta{
				KeyHeads: c.keyHeads, ValueHeads: c.valueHeads, KeyDim: c.keyDim, ValueDim: c.valueDim, Kernel: c.kernel,
			})
		}
	}
	return l
}

// headLayout is the state of a sequence in the head.
func (c *config) headLayout(o model.Options) state.Layout {
	l := c.layout(o, true)
	l.Head = true
	return l
}

// Info describes the model.
func (m *Model) Info() model.Info { return m.info }

// Layout is the state of a sequence.
func (m *Model) Layout() state.Layout { return m.layout }

// Head implements model.Model.
func (m *Model) Head() model.Head {
	if m.head == nil {
		return nil
	}
	return m.head
}

// Tower is the vision tower, see model.Sighted.
func (m *Model) Tower() (model.Tower, error) {
	if m.tower == nil {
		return nil, m.towerErr
	}
	return m.tower, nil
}

// Close frees the weights of the model and its head.
func (m *Model) Close() error {
	m.loaded.Free()
	m.Release()
	return nil
}

// Release implements model.Model.
func (m *Model) Release() {
	m.Free()
	m.taps.Free(m.Backend)
	if m.head != nil {
		m.head.pairs.Free(&m.head.Network)
	}
}

// Forward feeds the spans to their sequences.
func (m *Model) Forward(batch []model.Span) (model.Output, error) {
	if err := m.Begin(batch, nil); err != nil {
		return model.Output{}, err
	}
	if err := m.taps.Grow(&m.Network); err != nil {
		return model.Output{}, err
	}
	m.Pass(batch)
	out := m.Finish(batch)
	out.Hidden = m.headRows()
	out.Taps = m.taps.View(len(m.IDs))
	return out, nil
}

// headRows are the rows of the running call that the head is fed.
func (m *Model) headRows() backend.Tensor {
	if m.cfg.preNorm {
		return m.X
	}
	return m.Hidden
}

// Tap implements model.Tappable.
func (m *Model) Tap(layers ...int) error { return m.taps.Set(&m.Network, len(m.layers), layers...) }

// operations are those of a call.
func (m *Model) operations() {
	m.Embedding()
	for i := range m.layers {
		m.taps.Copy(&m.Network, i, m.X)
		m.layer(&m.layers[i])
	}
	m.taps.Copy(&m.Network, len(m.layers), m.X)
	m.Project()
	m.taps.Copy(&m.Network, len(m.layers)+1, m.headRows())
}
