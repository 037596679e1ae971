package drafter

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// published are the widths of feed-forward layers of published drafters, by the width of the model. The drafter of Qwen3.5-9B is taken
// to have those of the model.
var published = map[int]int{2560: 9728, 4096: 12_288, 5120: 17_408}

// Generate is a DFlash drafter for a model, with generated weights and blocks of some rows, for measurements of speed. Everything else is
// as in the drafter of Qwen3.6-27B, without windows.
func Generate(target model.Lender, rows int, form weights.Form, b backend.Backend, o model.Options) (*Drafter, error) {
	const layers = 5
	info := target.Info()
	if rows < 2 || rows > MaxBlock {
		return nil, fmt.Errorf("drafter: blocks of %d rows, want 2 to %d", rows, MaxBlock)
	}
	intermediate := published[info.Width]
	if intermediate == 0 {
		intermediate = 3 * info.Width
	}
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
