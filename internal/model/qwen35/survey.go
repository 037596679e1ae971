package qwen35

import (
	"log/slog"
	"slices"

	"github.com/foretoken/foretoken/internal/model/weights"
)

// Describe implements network.Config.
func (c *config) Describe(s *weights.Survey, _ *weights.Files) {
	if s.Tower.Promised = c.vision != nil || c.visionErr != nil; s.Tower.Layers > 0 {
		s.Tower.Heads = c.vision.Heads
	}
	slices.SortFunc(s.Head.Norms, func(a, b weights.Norm) int {
		return slices.Index(headNorms, a.Tensor) - slices.Index(headNorms, b.Tensor)
	})
}

// Check implements network.Config: it warns if the effective gains of the model's layer norms look shifted twice
// or not at all. It cannot be sure, so it does not refuse.
func (*config) Check(f *weights.Files, _ bool, log *slog.Logger) {
	means := f.Gains()
	if len(means) == 0 {
		return
	}
	total := 0.0
	for _, m := range means {
		total += m
	}
	switch m := total / float64(len(means)); {
	case m > 1.75 && m < 2.25:
		log.Warn("the mean gain of the layer norms is near 2: the checkpoint's norms were probably shifted by one twice", "mean", m)
	case m > -0.1 && m < 0.1:
		log.Warn("the mean gain of the layer norms is near 0: the checkpoint's norms probably miss a shift by one", "mean", m)
	}
}
