package glm

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// converted is how converted checkpoints of a config are written: as mlx-lm names them, and the
// head, which that drops, as the layer that releases have it in.
type converted struct {
	cfg    *config
	source []byte // config.json
}

// Converted implements network.Config.
func (c *config) Converted(source []byte) weights.Converted { return &converted{c, source} }

// Name implements weights.Converted.
func (v *converted) Name(canonical string) string {
	return naming(len(v.cfg.dense)).released(canonical)
}

// Config implements weights.Converted. What the source says is kept, but for its quantization and
// the head; it is flat whatever it was.
func (v *converted) Config(head, _ bool) (map[string]any, error) {
	top, err := checkpoint.DecodeObject(v.source)
	if err != nil {
		return nil, fmt.Errorf("glm: config.json: %w", err)
	}
	if text, nested := top["text_config"].(map[string]any); nested {
		if text["architectures"] == nil && top["architectures"] != nil {
			text["architectures"] = top["architectures"]
		}
		top = text
	}
	for _, key := range []string{"quantization", "quantization_config", "num_mtp_layers", "_name_or_path"} {
		delete(top, key)
	}
	top["model_type"], top["tie_word_embeddings"] = v.cfg.ModelType, v.cfg.Tied
	if top["architectures"] == nil {
		top["architectures"] = []any{architectures[v.cfg.ModelType]}
	}
	top["num_nextn_predict_layers"] = 0
	if head {
		top["num_nextn_predict_layers"] = 1
	}
	return top, nil
}

// HeadConfig implements weights.Converted: a folder as mlx-vlm loads drafters.
func (v *converted) HeadConfig() (map[string]any, error) {
	text, err := v.Config(true, false)
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"model_type":          v.cfg.ModelType + weights.HeadType,
		"text_config":         text,
		"tie_word_embeddings": v.cfg.Tied,
		"block_size":          3, // tokens of a round: the last known, one per layer of the head, one more
	}, nil
}

// PromiseHead implements weights.Converted.
func (v *converted) PromiseHead(config map[string]any) bool {
	return weights.PromiseHead(config, "num_nextn_predict_layers")
}
