package network

import (
	"fmt"
	"iter"
	"strings"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/state"
)

// Model is a decoder of any family with its weights on a backend.
type Model struct {
	Network
	Config Config

	info      model.Info
	layout    state.Layout
	layers    []Layer
	head      *Head
	taps      Taps
	shortened shortCall
	groups    []*group // of calls, the first is 0
	group     int      // of the next call
	tower     Tower
	towerErr  error           // why there is no tower, where the checkpoint has tensors of one
	loaded    *weights.Loader // frees the weights
}

var (
	_ model.Examinable = (*Model)(nil)
	_ model.Grouped    = (*Model)(nil)
	_ model.Lender     = (*Model)(nil)
	_ model.Multimodal = (*Model)(nil)
)

// Open loads a checkpoint. It refuses one with tensors missing or left over, naming them.
// The checkpoint may be closed afterwards.
func Open(cfg Config, c *checkpoint.Checkpoint, b backend.Backend, o model.Options) (*Model, error) {
	f, err := cfg.Files(c, o.Log)
	if err != nil {
		return nil, err
	}
	has, err := f.HasHead()
	if o.NoHead {
		f.SkipHead()
	} else if err != nil {
		return nil, err
	}
	if !has && cfg.Common().MTPLayers > 0 {
		o.Log.Warn("config.json declares a multi-token-prediction head, but the weights have none: a converter has probably dropped its tensors; decoding works without it")
	}
	tower, towerErr := openTower(cfg, f, o)
	m := newModel(cfg)
	m.load(b, o).From(f)
	if err = m.fill(has, tower, o); err == nil {
		err = f.Leftover()
	}
	if err != nil {
		m.loaded.Free()
		return nil, err
	}
	m.towerErr = towerErr
	cfg.Check(f, has && !o.NoHead, o.Log)
	return m, nil
}

// openTower returns the vision tower that the options select. If it cannot be used, the log has the reason.
func openTower(cfg Config, f *weights.Files, o model.Options) (Tower, error) {
	v, ok := cfg.(multimodal)
	if !ok {
		return nil, nil
	}
	if o.NoVision {
		f.SkipTower()
		return nil, nil
	}
	t, err := v.OpenTower(f)
	if err != nil {
		o.Log.Warn("the vision tower cannot be used: the model accepts text only", "reason", err)
	}
	return t, err
}

// Generate makes a model with weights that mean nothing: its speed is that of a real one. The matrices
// have the given form. It has a vision tower if the options give that some bits.
func Generate(cfg Config, form weights.Form, b backend.Backend, o model.Options) (*Model, error) {
	m := newModel(cfg)
	m.load(b, o).Generated(form)
	var tower Tower
	if v, ok := cfg.(multimodal); ok && o.TowerBits > 0 {
		tower = v.NewTower()
	}
	if err := m.fill(newHead(m).layer != nil, tower, o); err != nil {
		m.loaded.Free()
		return nil, err
	}
	return m, nil
}

// newModel is a model without weights.
func newModel(cfg Config) *Model {
	m := &Model{Config: cfg}
	m.Settings, m.Queue = *cfg.Common(), m.operations
	m.layers = cfg.Layers(&m.Network, false)
	return m
}

// load sets the loader as the options have it, without a source.
func (m *Model) load(b backend.Backend, o model.Options) *weights.Loader {
	m.Backend = b
	m.loaded = &weights.Loader{Backend: b, Compute: o.Compute, Progress: o.Progress, Context: o.Context}
	if o.Quantize > 0 {
		m.loaded.Bits = func(module string) int { return m.Config.Bits(module, o.Quantize) }
	}
	return m.loaded
}

// fill loads the weights: of the head too if there is one that o does not leave out, and of the vision
// tower if it is not nil. After an error the caller frees the loaded weights.
func (m *Model) fill(has bool, tower Tower, o model.Options) error {
	l := m.loaded
	if err := l.Load(m.Weights()); err != nil {
		return err
	}
	if m.Tied {
		m.Unembed = m.Embed
	}
	parameters := l.Parameters()
	if has && !o.NoHead {
		m.head = newHead(m)
		m.head.Backend, m.head.layout = m.Backend, m.Config.Layout(o, true)
		m.head.layer.Place(m.head.layout.Places()[0])
		if err := l.Load(m.head.Weights()); err != nil {
			return err
		}
	}
	if tower != nil {
		if o.TowerBits > 0 {
			l.Generated(weights.BitsForm(o.TowerBits))
		}
		if err := tower.Load(l); err != nil {
			return err
		}
		m.tower = tower
	}
	if err := l.Err(); err != nil {
		return err
	}
	l.Done()
	m.layout = m.Config.Layout(o, false)
	for i, at := range m.layout.Places() {
		m.layers[i].Place(at)
		if m.layout.Layers[i] != nil {
			m.shortened.first = i + 1
		}
	}
	m.info = model.Info{
		Family: m.ModelType, Vocab: m.Vocab, Width: m.Width, Layers: len(m.layers), Context: m.Context, Stop: m.Stop,
		Parameters: parameters, Bytes: l.Bytes(), PassBytes: m.passBytes(), Compute: o.Compute, Head: has,
	}
	return nil
}

// Weights are those of the model without its head, in the order of loading. The largest come first:
// while a matrix is copied, its pages of the file are in memory too, and at the end that would be the
// peak. A row is valid until the next.
func (m *Model) Weights() iter.Seq[*weights.Weight] {
	return func(yield func(*weights.Weight) bool) {
		list := []weights.Weight{weights.NewMatrix(&m.Embed, "embed_tokens", m.Vocab, m.Width)}
		if !m.Tied {
			list = append(list, weights.NewMatrix(&m.Unembed, weights.OutputMatrix, m.Vocab, m.Width))
		}
		if !weights.Each(list, yield) {
			return
		}
		for i, y := range m.layers {
			list = y.Weights(list[:0], fmt.Sprintf("layers.%d.", i))
			if !weights.Each(list, yield) {
				return
			}
		}
		weights.Each([]weights.Weight{weights.NewGain(&m.Norm, "norm", m.Width)}, yield)
	}
}

// passBytes is the weights that a pass over one row reads: all of the model but the embedding, of
// which it reads one row unless it is the output matrix too, and of the experts only those that
// are chosen.
func (m *Model) passBytes() int64 {
	total := int64(0)
	for w := range m.Weights() {
		if !w.IsMatrix() || w.Name == "embed_tokens.weight" && !m.Tied {
			continue
		}
		n := w.LoadedBytes()
		if strings.Contains(w.Name, ".switch_mlp.") {
			n = n * int64(m.TopK) / int64(w.Experts)
		}
		total += n
	}
	return total
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

// Tower implements model.Multimodal.
func (m *Model) Tower() (model.Tower, error) {
	if m.tower == nil {
		return nil, m.towerErr
	}
	return m.tower, nil
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
	for i := range max(len(m.groups), 1) {
		m.Group(i)
		m.Free()
		m.taps.Free(m.Backend)
	}
	m.Group(0)
	if m.head != nil {
		m.head.Release()
	}
}

// group is the memory of a group of calls while another group is current.
type group struct {
	work workspace
	taps backend.Tensor
}

// Group implements model.Grouped.
func (m *Model) Group(i int) {
	if i == m.group {
		return
	}
	for len(m.groups) <= max(i, m.group) {
		m.groups = append(m.groups, &group{})
	}
	*m.groups[m.group] = group{m.work, m.taps.memory}
	m.group, m.work, m.taps.memory, m.of = i, m.groups[i].work, m.groups[i].taps, nil
	if i > 0 {
		m.of = m.groups[i]
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
	if m.Prepare != nil {
		if err := m.Prepare(); err != nil {
			return model.Output{}, err
		}
	}
	if m.short(batch) {
		m.shortPasses(batch)
	} else {
		m.Pass(batch)
	}
	out := m.Finish(batch)
	out.Hidden = m.headRows()
	out.Taps = m.taps.View(len(m.IDs))
	return out, nil
}

// headRows are the rows of the running call that the head is fed.
func (m *Model) headRows() backend.Tensor {
	if m.PreNorm {
		return m.X
	}
	return m.Hidden
}

// operations queues the operations of a call. The device calls it, see Network.Pass.
func (m *Model) operations() {
	m.Embedding()
	for i, y := range m.layers {
		m.taps.Copy(&m.Network, i, m.X)
		y.Forward()
	}
	m.taps.Copy(&m.Network, len(m.layers), m.X)
	m.Project()
	m.taps.Copy(&m.Network, len(m.layers)+1, m.headRows())
}

// FeedForward appends the weights of a gated feed-forward, whose names begin with prefix, to a list.
func FeedForward(list []weights.Weight, gate, up, down *backend.Weight, inner, width int, prefix string) []weights.Weight {
	return append(list,
		weights.NewMatrix(gate, prefix+"gate_proj", inner, width),
		weights.NewMatrix(up, prefix+"up_proj", inner, width),
		weights.NewMatrix(down, prefix+"down_proj", width, inner))
}
