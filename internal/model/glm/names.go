package glm

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// Files implements network.Config.
func (c *config) Files(from *checkpoint.Checkpoint, log *slog.Logger) (*weights.Files, error) {
	return weights.Open(from, weights.Reading{ModelType: c.fileType, Tied: c.Tied, Canonical: naming(len(c.dense)).canonical}, log)
}

// naming knows the names of a model of that many layers, whose head is the layer after the last.
type naming int

// headParts are what the head has beside a layer, under the names of releases and canonical ones.
var headParts = []struct{ released, canonical string }{
	{"enorm.", "pre_fc_norm_embedding."},
	{"hnorm.", "pre_fc_norm_hidden."},
	{"eh_proj.", "fc."},
	{"shared_head.norm.", "norm."},
	{"shared_head.head.", "lm_head."},
	{"embed_tokens.", "embed_tokens."},
}

// canonical is the canonical form of a tensor's name, and whether it is needed.
func (layers naming) canonical(name string) (string, bool) {
	for {
		short := strings.TrimPrefix(strings.TrimPrefix(name, "model."), "language_model.")
		if short == name {
			break
		}
		name = short
	}
	// Old exports carry the rotation's frequencies, which follow from the config.
	if strings.HasSuffix(name, "rotary_emb.inv_freq") {
		return name, false
	}
	layer, rest, ok := strings.Cut(strings.TrimPrefix(name, "layers."), ".")
	n, err := strconv.Atoi(layer)
	if !ok || err != nil || !strings.HasPrefix(name, "layers.") || n < int(layers) {
		return name, true
	}
	if n == int(layers) {
		for _, p := range headParts {
			if last, ok := strings.CutPrefix(rest, p.released); ok {
				return "mtp." + p.canonical + last, true
			}
		}
	}
	return fmt.Sprintf("mtp.layers.%d.%s", n-int(layers), rest), true
}

// released is the reverse of canonical.
func (layers naming) released(name string) string {
	rest, head := strings.CutPrefix(name, "mtp.")
	switch {
	case !head && strings.HasPrefix(name, weights.OutputMatrix+"."):
		return name
	case !head:
		return "model." + name
	}
	at := fmt.Sprintf("model.layers.%d.", int(layers))
	for _, p := range headParts {
		if last, ok := strings.CutPrefix(rest, p.canonical); ok {
			return at + p.released + last
		}
	}
	return at + strings.TrimPrefix(rest, "layers.0.")
}
