package glm

import (
	"fmt"
	"log/slog"

	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// Describe implements network.Config.
func (c *config) Describe(s *weights.Survey, f *weights.Files) {
	s.Warnings = append(s.Warnings, c.warnings(f, s.Head.Present)...)
}

// Check implements network.Config.
func (c *config) Check(f *weights.Files, head bool, log *slog.Logger) {
	if head && c.MTPLayers == 0 {
		log.Warn("the weights have a multi-token-prediction head, although config.json declares none: it is used")
	}
	for _, w := range c.warnings(f, head) {
		log.Warn(w)
	}
}

// warnings are mistakes of converters that a model can be used with, by the headers.
func (c *config) warnings(f *weights.Files, head bool) (list []string) {
	look := func(layer string) {
		p, ok := f.Place(layer + "mlp." + biasName)
		if !ok || len(list) > 0 {
			return
		}
		if t, ok := p.From.Look(p.Name); ok && t.Type != dtype.F32 {
			list = append(list, fmt.Sprintf("%s is stored as %v, which is too coarse: the model may choose other experts than in training; convert again from a checkpoint with this tensor as F32", p.Name, t.Type))
		}
	}
	for i := range c.dense {
		look(fmt.Sprintf("layers.%d.", i))
	}
	if head {
		look("mtp.layers.0.")
	}
	return list
}
