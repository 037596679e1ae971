package qwen35

import (
	"log/slog"
	"slices"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/spec"
)

// Look surveys a checkpoint by its headers. An error says that the config is not one of the
// family.
func Look(c *checkpoint.Checkpoint) (*weights.Survey, error) {
	cfg, err := readConfig(c)
	if err != nil {
		return nil, err
	}
	s := cfg.survey()
	f, err := openFiles(c, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		s.Fail(err)
	}
	if f == nil {
		return s, nil
	}
	tables := weights.Tables{Model: newModel(cfg).weights(), Head: newHead(cfg).weights()}
	tower, err := cfg.openTower(f)
	s.Tower.Promised, s.Tower.Problem = cfg.vision != nil || cfg.visionErr != nil, err
	if tower != nil {
		tables.Tower = tower.Weights()
		i := tower.Info()
		s.Tower.Layers, s.Tower.Width, s.Tower.Heads = i.Layers, i.Width, cfg.vision.Heads
		s.Tower.Patch, s.Tower.Temporal, s.Tower.Merge = i.Patch, i.Temporal, i.Merge
	}
	f.Survey(s, tables)
	slices.SortFunc(s.Head.Norms, func(a, b weights.Norm) int {
		return slices.Index(headNorms, a.Tensor) - slices.Index(headNorms, b.Tensor)
	})
	return s, nil
}

// survey is what the config says of a model.
func (c *config) survey() *weights.Survey {
	o := model.Options{MaxDrafts: spec.MaxDepth}
	return &weights.Survey{
		Family: c.family(), ModelType: c.modelType, Hidden: c.hidden, Vocab: c.vocab, Context: c.context,
		AttentionLayers: c.count(true), DeltaLayers: c.count(false),
		Experts: c.experts, ActiveExperts: c.topK, Tied: c.tied, Stop: append([]int32{}, c.stop...),
		Layout: c.layout(o, c.layers...), HeadLayout: c.headLayout(o),
		Missing: []string{}, Unknown: []string{},
		Head: weights.HeadSurvey{
			Promised: c.mtpLayers, PreNorm: c.preNorm, Missing: []string{}, Files: []string{}, Ignored: []string{}, Norms: []weights.Norm{},
		},
	}
}

// family is the kind of model, for people.
func (c *config) family() string {
	switch {
	case c.modelType == "qwen3_next":
		return "Qwen3-Next, mixture of experts"
	case c.experts > 0:
		return "Qwen3.5, mixture of experts"
	}
	return "Qwen3.5, dense"
}
