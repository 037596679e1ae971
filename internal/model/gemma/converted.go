package gemma

import (
	"fmt"
	"maps"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// converted is how converted checkpoints of a config are written: as mlx-vlm names and nests them.
type converted struct {
	cfg    *config
	source []byte // config.json
}

// Converted implements network.Config.
func (c *config) Converted(source []byte) weights.Converted { return &converted{c, source} }

// Name implements weights.Converted.
func (v *converted) Name(canonical string) string { return stored(canonical) }

// Config implements weights.Converted. The config is nested whatever the source was. What the source says is kept, but for
// quantization and towers, which are not written.
func (v *converted) Config(_, _ bool) (map[string]any, error) {
	top, err := checkpoint.DecodeObject(v.source)
	if err != nil {
		return nil, fmt.Errorf("gemma: config.json: %w", err)
	}
	part, nested := top["text_config"].(map[string]any)
	if !nested {
		part, top = maps.Clone(top), map[string]any{"eos_token_id": top["eos_token_id"], "dtype": top["dtype"]}
		maps.DeleteFunc(top, func(_ string, v any) bool { return v == nil })
	}
	for _, m := range []map[string]any{top, part} {
		for _, key := range []string{"quantization", "quantization_config", "vision_config", "audio_config", "architectures", "_name_or_path"} {
			delete(m, key)
		}
	}
	top["model_type"], part["model_type"] = v.cfg.ModelType, v.cfg.ModelType+text
	top["architectures"] = []any{architectures[v.cfg.ModelType][0]}
	top["tie_word_embeddings"], part["tie_word_embeddings"] = v.cfg.Tied, v.cfg.Tied
	part["hidden_size_per_layer_input"] = v.cfg.inputs // by default there would be some
	top["text_config"] = part
	return top, nil
}

// HeadConfig implements weights.Converted: there are no heads.
func (*converted) HeadConfig() (map[string]any, error) { return nil, weights.ErrNoHead }

// PromiseHead implements weights.Converted.
func (*converted) PromiseHead(map[string]any) (changed bool) { return false }
