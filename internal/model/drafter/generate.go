package drafter

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// Generate is a DFlash drafter for a model, with generated weights, blocks of some rows and feed-forward layers of a width: for
// measurements of speed. Everything else is as in the drafter of Qwen3.6-27B, without windows.
func Generate(target model.Lender, rows, intermediate int, form weights.Form, b backend.Backend, o model.Options) (*Drafter, error) {
	const layers = 5
	info := target.Info()
	cfg := &config{
		kind: DFlash, width: info.Width, target: model.Target{Width: info.Width, Vocab: info.Vocab, Layers: info.Layers}, draftVocab: info.Vocab,
		intermediate: intermediate, heads: 32, kvHeads: 8, headDim: 128, eps: 1e-6, theta: 1e7, block: rows, headNorms: true,
		layers: make([]layerKind, layers),
	}
	for i := range layers {
		cfg.taps = append(cfg.taps, 2+i*(info.Layers-4)/(layers-1))
	}
	l := &weights.Loader{Backend: b, Compute: o.Compute, Progress: o.Progress, Context: o.Context}
	l.Generated(form)
	d := newDrafter(cfg, l, o)
	if err := d.load(target); err != nil {
		l.Free()
		return nil, err
	}
	l.Done()
	return d, nil
}
