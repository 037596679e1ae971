package drafter

import (
	"fmt"
	"log/slog"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/spec"
)

// family is what other packages ask drafters for by their files. Its drafters are opened by this package alone.
var family = model.Family{
	Package: "drafter", Drafts: Promises, GGUF: []string{ggufBlockKinds, ggufEagle, ggufAssistant}, Assemble: assemble,
	Survey: func(c *checkpoint.Checkpoint) (*weights.Survey, error) { return survey(c, model.Target{}) },
	Fit:    survey, Inventory: inventory,
}

func init() { model.Register(&family) }

// configOf is the config of a checkpoint, for a target.
func configOf(c *checkpoint.Checkpoint, t model.Target) (*config, error) {
	tensors := names{}
	for _, n := range c.Tensors() {
		tensors[short(n)] = true
	}
	return readConfig(c.Config(), tensors, t)
}

// files looks through the names of a checkpoint.
func (c *config) files(from *checkpoint.Checkpoint, log *slog.Logger) (*weights.Files, error) {
	return weights.Open(from, weights.Reading{ModelType: c.kind.String(), Canonical: canonical}, log)
}

// survey looks at a checkpoint by its headers.
func survey(c *checkpoint.Checkpoint, t model.Target) (*weights.Survey, error) {
	cfg, err := configOf(c, t)
	if err != nil {
		return nil, err
	}
	s := &weights.Survey{
		Family: cfg.kind.String() + " drafter", ModelType: cfg.kind.String(), Hidden: cfg.width, AttentionLayers: len(cfg.layers),
		Stop: []int32{}, Missing: []string{}, Unknown: []string{}, Warnings: []string{},
		Head:    weights.HeadSurvey{Missing: []string{}, Files: []string{}, Ignored: []string{}, Norms: []weights.Norm{}},
		Drafter: cfg.describe(),
	}
	d := newDrafter(cfg, &weights.Loader{}, model.Options{MaxDrafts: spec.MaxDepth})
	if d.assistant != nil && !t.Layout.Empty() {
		if err := d.assistant.find(t.Layout); err != nil {
			return nil, err
		}
	}
	s.Layout = d.layout()
	s.Vocab = s.Drafter.Vocab
	f, err := cfg.files(c, slog.New(slog.DiscardHandler))
	if err != nil {
		s.Fail(err)
		return s, nil
	}
	_, table := d.network()
	f.Survey(s, weights.Tables{Model: table})
	return s, nil
}

// describe is what a config says of a drafter.
func (c *config) describe() *weights.DrafterSurvey {
	d := &weights.DrafterSurvey{
		Kind: c.kind.String(), Made: c.made, TargetHidden: c.target.Width, Taps: c.taps, Window: c.window(),
		OwnEmbedding: c.ownEmbed, OwnOutput: c.ownOutput,
	}
	if c.target.Vocab != anyVocab {
		d.Vocab, d.DraftVocab = c.target.Vocab, c.draftVocab
	}
	if c.target.Layers != anyLayers {
		d.TargetLayers = c.target.Layers
	} else if c.spread {
		d.Taps = nil // which depend on them
	}
	if c.kind != EAGLE3 && c.kind != GemmaAssistant {
		d.Block, d.Mask = c.block, &c.mask
	}
	return d
}

// window is the longest window of a layer, 0 if a layer sees all of the context.
func (c *config) window() int {
	longest := 0
	for _, y := range c.layers {
		if y.window == 0 {
			return 0
		}
		longest = max(longest, y.window)
	}
	return longest
}

// inventory lists the weights of a checkpoint.
func inventory(c *checkpoint.Checkpoint, part weights.Portion, log *slog.Logger) (*weights.Inventory, error) {
	cfg, err := configOf(c, model.Target{})
	if err != nil {
		return nil, err
	}
	f, err := cfg.files(c, log)
	if err != nil {
		return nil, err
	}
	_, table := newDrafter(cfg, &weights.Loader{}, model.Options{}).network()
	return f.Inventory(part, weights.Tables{Model: table}, converted(c.Config()))
}

// converted is how drafters are converted: under the names of the releases, without what other exporters put before them. It has
// config.json of the source.
type converted []byte

// Name implements weights.Converted.
func (converted) Name(canonical string) string { return canonical[len(weights.DrafterPrefix):] }

// Config implements weights.Converted.
func (v converted) Config(_, _ bool) (map[string]any, error) {
	top, err := checkpoint.DecodeObject(v)
	if err != nil {
		return nil, fmt.Errorf("drafter: config.json: %w", err)
	}
	for _, key := range []string{"quantization", "quantization_config", "auto_map"} {
		delete(top, key)
	}
	return top, nil
}

// HeadConfig implements weights.Converted.
func (converted) HeadConfig() (map[string]any, error) { return nil, weights.ErrNoHead }

// PromiseHead implements weights.Converted.
func (converted) PromiseHead(map[string]any) bool { return false }
