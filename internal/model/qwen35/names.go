package qwen35

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// Files implements network.Config: it also decides the convention of the norms.
func (c *config) Files(from *checkpoint.Checkpoint, log *slog.Logger) (*weights.Files, error) {
	f, err := weights.Open(from, weights.Reading{ModelType: c.ModelType, Tied: c.Tied, Canonical: canonical}, log)
	if err != nil {
		return nil, err
	}
	rule, err := findNormRule(from, f, c, log)
	f.Norms = weights.Norms{Model: rule.model, Head: rule.of, ByNumbers: rule.votes}
	if err != nil {
		return f, fmt.Errorf("qwen35: %w", err)
	}
	return f, nil
}

// canonical is the canonical form of a tensor's name, and whether it is needed: for text, or, of the
// vision tower, for images.
func canonical(name string) (string, bool) {
	for {
		short := strings.TrimPrefix(strings.TrimPrefix(name, "model."), "language_model.")
		if short == name {
			break
		}
		name = short
	}
	for _, other := range []string{"vision_model.", "multi_modal_projector."} { // of no tower of the family
		if strings.HasPrefix(name, other) {
			return name, false
		}
	}
	if rest, ok := strings.CutPrefix(name, "vision_tower."); ok {
		name = "visual." + rest
	}
	// Old exports carry the rotation's frequencies, which follow from the config.
	return name, !strings.HasSuffix(name, "emb.inv_freq")
}
