package qwen35

import (
	"strings"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/qwen35/vision"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// newLoader is a loader as the options have it, without a source.
func newLoader(b backend.Backend, o model.Options) *weights.Loader {
	l := &weights.Loader{Backend: b, Compute: o.Compute, Progress: o.Progress, Context: o.Context}
	if o.Quantize > 0 {
		l.Bits = func(module string) int { return bits(module, o.Quantize) }
	}
	return l
}

// load loads a model, with its head if it has one that o does not leave out, and with its vision tower if that is not nil.
// After an error the caller frees what was loaded.
func load(l *weights.Loader, cfg *config, has bool, tower *vision.Tower, o model.Options) (*Model, error) {
	m := newModel(cfg)
	m.Backend, m.loaded = l.Backend, l
	if err := l.Load(m.weights()); err != nil {
		return nil, err
	}
	if cfg.tied {
		m.Unembed = m.Embed
	}
	parameters := l.Parameters()
	if has && !o.NoHead {
		m.head = newHead(cfg)
		m.head.Backend, m.head.Embed, m.head.Unembed = l.Backend, m.Embed, m.Unembed
		m.head.layout = cfg.headLayout(o)
		m.head.block.at = m.head.layout.Places()[0]
		if err := l.Load(m.head.weights()); err != nil {
			return nil, err
		}
	}
	if tower != nil {
		if o.TowerBits > 0 {
			l.Generated(weights.BitsForm(o.TowerBits))
		}
		if err := tower.Load(l); err != nil {
			return nil, err
		}
		m.tower = tower
	}
	if err := l.Err(); err != nil {
		return nil, err
	}
	l.Done()
	m.layout = cfg.layout(o, cfg.layers...)
	for i, at := range m.layout.Places() {
		m.layers[i].at = at
	}
	m.info = model.Info{
		Family: cfg.modelType, Vocab: cfg.vocab, Width: cfg.hidden, Layers: len(cfg.layers),
		Context: cfg.context, Stop: cfg.stop, Parameters: parameters, Bytes: l.Bytes(), PassBytes: m.passBytes(),
		Compute: o.Compute, Head: has,
	}
	return m, nil
}

// bits is what a module is quantized to on load where the others get the given bits. Small matrices with a
// large say keep 8 bits: the router decides between experts, the head between draft tokens, the
// vision tower what is seen, and the decay is an exponential of its projection. At 4 bits, which small models notice, the
// matrices that others build on get one more, and embedding and output two.
func bits(module string, bits int) int {
	if weights.IsHead(module) || weights.IsTower(module) {
		return 8
	}
	last := module[strings.LastIndexByte(module, '.')+1:]
	switch last {
	case "gate", "shared_expert_gate", "in_proj_a", "in_proj_b", "in_proj_ba":
		return 8
	case "embed_tokens", "lm_head":
		if bits == 4 {
			return 6
		}
	case "in_proj_qkv", "in_proj_qkvz", "out_proj", "v_proj", "o_proj", "down_proj":
		if bits == 4 {
			return 5
		}
	}
	return bits
}
