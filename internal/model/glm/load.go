package glm

import (
	"fmt"
	"strings"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model"
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

// load loads a model, with its head if it has one that o does not leave out. After an error the caller
// frees what was loaded.
func load(l *weights.Loader, cfg *config, has bool, o model.Options) (*Model, error) {
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
		m.head = newHead(m)
		m.head.Backend, m.head.layout = l.Backend, cfg.headLayout(o)
		m.head.block.at = m.head.layout.Places()[0]
		if err := l.Load(m.head.weights()); err != nil {
			return nil, err
		}
	}
	if err := l.Err(); err != nil {
		return nil, err
	}
	l.Done()
	m.layout = cfg.layout(o, len(m.layers))
	for i, at := range m.layout.Places() {
		m.layers[i].at = at
	}
	m.info = model.Info{
		Family: cfg.modelType, Vocab: cfg.vocab, Width: cfg.hidden, Layers: len(m.layers),
		Context: cfg.context, Stop: cfg.stop, Parameters: parameters, Bytes: l.Bytes(), PassBytes: m.passBytes(),
		Compute: o.Compute, Head: has,
	}
	return m, nil
}

// bits is what a module is quantized to on load where the others get the given bits. The router
// stays as it is. The head decides between draft tokens and keeps 8 bits. At 4 bits the matrices
// that others build on get one more, and embedding and output two.
func bits(module string, bits int) int {
	last := module[strings.LastIndexByte(module, '.')+1:]
	switch {
	case last == "gate":
		return 0
	case weights.IsHead(module):
		return 8
	case bits != 4:
		return bits
	}
	switch last {
	case "embed_tokens", "lm_head":
		return 6
	case "v_proj", "o_proj", "down_proj", "kv_a_proj_with_mqa", "kv_b_proj", "embed_q", "unembed_out":
		return 5
	}
	return bits
}

// passBytes is the weights that a pass over one row reads: all of the model but the embedding, of
// which it reads one row unless it is the output matrix too, and of the experts only those that
// are chosen.
func (m *Model) passBytes() int64 {
	total := int64(0)
	for w := range m.weights() {
		if !w.IsMatrix() || w.Name == "embed_tokens.weight" && !m.cfg.tied {
			continue
		}
		n := w.LoadedBytes()
		if strings.Contains(w.Name, ".switch_mlp.") {
			n = n * int64(m.cfg.topK) / int64(w.Experts)
		}
		total += n
	}
	return total
}

// warnings are mistakes of converters that a model can be used with, by the headers.
func warnings(f *weights.Files, cfg *config, head bool) (list []string) {
	look := func(layer string) {
		p, ok := f.Place(layer + "mlp." + biasName)
		if !ok || len(list) > 0 {
			return
		}
		if t, ok := p.From.Look(p.Name); ok && t.Type != dtype.F32 {
			list = append(list, fmt.Sprintf("%s is stored as %v, which is too coarse: the model may choose other experts than in training; convert again from a checkpoint with this tensor as F32", p.Name, t.Type))
		}
	}
	for i := range cfg.dense {
		look(fmt.Sprintf("layers.%d.", i))
	}
	if head {
		look("mtp.layers.0.")
	}
	return list
}
