// Package glm is the family of GLM-4.5 to 4.7, GLM-4.7-Flash and DeepSeek-V3: mixtures of experts
// chosen by sigmoids with a bias, over grouped-query attention or over latent rows, and their
// multi-token-prediction head. It knows every layout such checkpoints come in; the arithmetic is
// the backend's.
package glm

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/network"
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
}

var (
	_ model.Examinable = (*Model)(nil)
	_ model.Lender     = (*Model)(nil)
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
	switch {
	case !has && cfg.mtpLayers > 0:
		o.Log.Warn("config.json declares a multi-token-prediction head, but the weights have none: a converter has probably dropped the layer after the last; decoding works without it")
	case has && cfg.mtpLayers == 0 && !o.NoHead:
		o.Log.Warn("the weights have a multi-token-prediction head, although config.json declares none: it is used")
	}
	for _, w := range warnings(f, cfg, has && !o.NoHead) {
		o.Log.Warn(w)
	}
	l := newLoader(b, o)
	l.From(f)
	m, err := load(l, cfg, has, o)
	if err == nil {
		err = f.Leftover()
	}
	if err != nil {
		l.Free()
		return nil, err
	}
	return m, nil
}

// newModel is a model without weights.
func newModel(c *config) *Model {
	m := &Model{layers: make([]layer, len(c.dense))}
	m.begin(c, m.operations)
	for i, dense := range c.dense {
		m.layers[i] = newLayer(c, dense)
	}
	return m
}

// layout is the state of a sequence with n layers.
func (c *config) layout(o model.Options, n int) state.Layout {
	var kind state.Layer = state.Latent{Type: o.KVType(), Width: c.rank, Rotary: c.rotary}
	if c.rank == 0 {
		kind = state.KV{Type: o.KVType(), Heads: c.kvHeads, Key: c.headDim, Value: c.headDim}
	}
	l := state.Layout{MaxDrafts: o.MaxDrafts}
	for range n {
		l.Layers = append(l.Layers, kind)
	}
	return l
}

// headLayout is the state of a sequence in the head.
func (c *config) headLayout(o model.Options) state.Layout {
	l := c.layout(o, 1)
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

// HiddenRows implements model.Examinable.
func (m *Model) HiddenRows() (before, after backend.Tensor) { return m.X, m.Hidden }

// Tap implements model.Tappable.
func (m *Model) Tap(layers ...int) error { return m.taps.Set(&m.Network, len(m.layers), layers...) }

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
	out.Taps = m.taps.View(len(m.IDs))
	return out, nil
}

// operations are those of a call.
func (m *Model) operations() {
	m.Embedding()
	for i := range m.layers {
		m.taps.Copy(&m.Network, i, m.X)
		m.layer(&m.layers[i])
	}
	m.taps.Copy(&m.Network, len(m.layers), m.X)
	m.Project()
	m.taps.Copy(&m.Network, len(m.layers)+1, m.Hidden)
}
