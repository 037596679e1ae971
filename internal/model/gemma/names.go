package gemma

import (
	"log/slog"
	"strconv"
	"strings"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// Files implements network.Config.
func (c *config) Files(from *checkpoint.Checkpoint, log *slog.Logger) (*weights.Files, error) {
	return weights.Open(from, weights.Reading{ModelType: c.ModelType, Tied: c.Tied, Canonical: c.canonical}, log)
}

// towers are the prefixes of tensors for images and sound.
var towers = []string{"vision_tower.", "embed_vision.", "vision_embedder.", "audio_tower.", "embed_audio."}

// firstLayer is the canonical prefix of the tensors of outside, which layer 0 computes with.
const firstLayer = "layers.0."

// outside are the prefixes of tensors for the inputs of all layers. Checkpoints store them outside of the layers.
var outside = []string{tableName + ".", "per_layer_model_projection.", "per_layer_projection_norm."}

// renamed are prefixes of names in a layer, as releases and conversions have them, and canonical ones. The gain of the router
// (router.scale) keeps its name: it is used with the residual stream, not with the experts.
var renamed = []struct{ stored, canonical string }{
	{"experts.switch_glu.", "mlp.switch_mlp."},
	{"experts.", "mlp.experts."},
	{"router.proj.", "mlp.gate."},
	{"router.per_expert_scale", "mlp.per_expert_scale"},
}

// canonical is the canonical form of a tensor's name, and whether the tensor is loaded or, if it belongs to a tower, reported.
func (c *config) canonical(name string) (string, bool) {
	for {
		short := strings.TrimPrefix(strings.TrimPrefix(name, "model."), "language_model.")
		if short == name {
			break
		}
		name = short
	}
	for _, t := range towers {
		if strings.HasPrefix(name, t) {
			return "visual." + name, true
		}
	}
	for _, p := range outside {
		if strings.HasPrefix(name, p) {
			return firstLayer + name, true
		}
	}
	layer, rest, ok := strings.Cut(strings.TrimPrefix(name, "layers."), ".")
	n, err := strconv.Atoi(layer)
	if !ok || err != nil || !strings.HasPrefix(name, "layers.") {
		return name, !strings.Contains(name, "rotary_emb.")
	}
	for _, r := range renamed {
		if last, ok := strings.CutPrefix(rest, r.stored); ok {
			return "layers." + layer + "." + r.canonical + last, true
		}
	}
	return name, !strings.Contains(rest, "rotary_emb.") && !c.surplus(n, rest)
}

// surplus reports whether a tensor is for keys or values of a layer that reads the KV cache of another. Some files store such tensors.
func (c *config) surplus(layer int, rest string) bool {
	if layer < len(c.kinds)-c.shared || layer >= len(c.kinds) {
		return false
	}
	for _, p := range []string{"self_attn.k_proj.", "self_attn.v_proj.", "self_attn.k_norm."} {
		if strings.HasPrefix(rest, p) {
			return true
		}
	}
	return false
}

// stored is the reverse of canonical: the name in converted checkpoints.
func stored(name string) string {
	if strings.HasPrefix(name, weights.OutputMatrix+".") {
		return "language_model." + name
	}
	if rest, ok := strings.CutPrefix(name, firstLayer); ok {
		for _, p := range outside {
			if strings.HasPrefix(rest, p) {
				return "language_model.model." + rest
			}
		}
	}
	if layer, rest, ok := strings.Cut(strings.TrimPrefix(name, "layers."), "."); ok && strings.HasPrefix(name, "layers.") {
		for _, r := range renamed {
			if last, ok := strings.CutPrefix(rest, r.canonical); ok {
				return "language_model.model.layers." + layer + "." + r.stored + last
			}
		}
	}
	return "language_model.model." + name
}
