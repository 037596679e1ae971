// Package qwen35 is the Qwen3.5 family: dense and mixture-of-experts backbones of Gated
// DeltaNet and gated attention layers, and their multi-token-prediction head. It knows
// every layout such checkpoints come in; the arithmetic is the backend's.
package qwen35

import (
	"fmt"
	"strings"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/state"
)

func init() {
	for _, t := range []string{"qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_next"} {
		model.Register(t, func(c *checkpoint.Checkpoint, b backend.Backend, o model.Options) (model.Model, error) {
			return Open(c, b, o)
		})
	}
}

// Model is a backbone with its weights on a backend.
type Model struct {
	network
	info   model.Info
	layout state.Layout
	layers []layer
	head   *Head
	loaded *loader // what to free

	// trace, if set by a test, sees the residual stream that enters each layer.
	trace func(layer int, x backend.Tensor)
}

var _ model.Model = (*Model)(nil)

// Open loads a checkpoint. It refuses one with tensors missing or left over, naming them.
// The checkpoint may be closed afterwards.
func Open(c *checkpoint.Checkpoint, b backend.Backend, o model.Options) (*Model, error) {
	cfg, err := readConfig(c)
	if err != nil {
		return nil, err
	}
	l := &loader{c: c, b: b, o: o, cfg: cfg, total: c.Bytes()}
	if l.names, err = findNames(c, cfg, o.Log); err != nil {
		return nil, err
	}
	if l.norms, err = findNormRule(c, l.names, cfg, o.Log); err != nil {
		return nil, fmt.Errorf("qwen35: %w", err)
	}
	m, err := l.model()
	if err != nil {
		l.free()
		return nil, err
	}
	checkGains(l.gains, o.Log)
	return m, nil
}

// model loads all parts and checks that nothing is left.
func (l *loader) model() (*Model, error) {
	cfg := l.cfg
	m := &Model{network: network{b: l.b, cfg: cfg}, loaded: l}
	// The largest matrices come first: while one is copied, its pages of the file are
	// there too, and at the end that would be the peak.
	m.embed = l.matrix("embed_tokens", cfg.vocab, cfg.hidden)
	m.unembed = m.embed
	if !cfg.tied {
		m.unembed = l.matrix("lm_head", cfg.vocab, cfg.hidden)
	}
	for i, attention := range cfg.layers {
		m.layers = append(m.layers, l.layer(fmt.Sprintf("layers.%d.", i), attention))
	}
	m.norm = l.norm("norm", cfg.hidden)
	parameters := l.parameters
	if l.made != nil || l.names.hasHead() {
		m.head = l.head(m)
	} else if cfg.mtpLayers > 0 {
		l.o.Log.Warn("config.json promises a multi-token-prediction head, but the weights have none: a converter has probably dropped its mtp tensors; decoding works without it")
	}
	if err := l.verdict(); err != nil {
		return nil, err
	}
	if left := l.unused(); len(left) > 0 {
		return nil, fmt.Errorf("qwen35: %d tensors are not part of a %s model: %s", len(left), cfg.modelType, list(left))
	}
	m.layout = cfg.layout(l.o, cfg.count(true), cfg.count(false))
	m.info = model.Info{
		Family: cfg.modelType, Vocab: cfg.vocab, Width: cfg.hidden, Layers: len(cfg.layers),
		Context: cfg.context, Stop: cfg.stop, Parameters: parameters, Bytes: l.bytes(),
		Compute: l.o.Compute, Head: m.head != nil,
	}
	return m, nil
}

// layout is the memory of a network with so many layers of each kind.
func (c *config) layout(o model.Options, attention, delta int) state.Layout {
	return state.Layout{
		KVLayers: attention, KVHeads: c.kvHeads, HeadDim: c.headDim, KVType: o.KVType(),
		DeltaLayers: delta, KeyHeads: c.keyHeads, ValueHeads: c.valueHeads,
		KeyDim: c.keyDim, ValueDim: c.valueDim, Kernel: c.kernel,
		MaxDrafts: o.MaxDrafts,
	}
}

// list names a few of many.
func list(names []string) string {
	const few = 8
	if len(names) > few {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
	}
	return strings.Join(names, ", ")
}

// Info describes the model.
func (m *Model) Info() model.Info { return m.info }

// Layout is the memory of a sequence.
func (m *Model) Layout() state.Layout { return m.layout }

// Head is the multi-token-prediction head, nil if the checkpoint has none.
func (m *Model) Head() *Head { return m.head }

// Close frees the weights of the backbone and its head.
func (m *Model) Close() error {
	m.loaded.free()
	m.room.free(m.b)
	if m.head != nil {
		m.head.room.free(m.b)
		m.b.Free(m.head.pair)
	}
	return nil
}

// Forward feeds the spans to their sequences.
func (m *Model) Forward(batch []model.Span) (model.Output, error) {
	c, err := m.begin(batch)
	if err != nil {
		return model.Output{}, err
	}
	m.b.Embed(c.x, m.embed, c.ids)
	attention, delta := 0, 0
	for i := range m.layers {
		if m.trace != nil {
			m.trace(i, c.x)
		}
		if l := &m.layers[i]; l.attn != nil {
			m.layer(c, l, attention)
			attention++
		} else {
			m.layer(c, l, delta)
			delta++
		}
	}
	return m.finish(c, batch, nil)
}
