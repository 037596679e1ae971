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
	o := model.Options{MaxDrafts: spec.MaxDepth, Log: slog.New(slog.DiscardHandler)}
	s := &weights.Survey{
		Family: cfg.family(), ModelType: cfg.modelType, Hidden: cfg.hidden, Vocab: cfg.vocab, Context: cfg.context,
		AttentionLayers: cfg.count(true), DeltaLayers: cfg.count(false),
		Experts: cfg.experts, ActiveExperts: cfg.topK, Tied: cfg.tied, Stop: append([]int32{}, cfg.stop...),
		Layout: cfg.layout(o, cfg.layers...), HeadLayout: cfg.headLayout(o),
		Missing: []string{}, Unknown: []string{},
		Head: weights.HeadSurvey{
			Promised: cfg.mtpLayers, PreNorm: cfg.preNorm, Missing: []string{}, Files: []string{}, Ignored: []string{}, Norms: []weights.Norm{},
		},
	}
	f, err := openFiles(c, cfg, o.Log)
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
		tables.Tower = tower.weights()
		i := tower.info
		s.Tower.Layers, s.Tower.Width, s.Tower.Heads = i.Layers, i.Width, cfg.vision.heads
		s.Tower.Patch, s.Tower.Temporal, s.Tower.Merge = i.Patch, i.Temporal, i.Merge
	}
	f.Survey(s, tables)
	slices.SortFunc(s.Head.Norms, func(a, b weights.Norm) int {
		return slices.Index(headNorms, a.Tensor) - slices.Index(headNorms, b.Tensor)
	})
	return s, nil
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
