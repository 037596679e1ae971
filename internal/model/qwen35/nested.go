package qwen35

import (
	"fmt"
	"maps"
	"strings"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// converted is how converted checkpoints of a config are written.
type converted struct {
	cfg    *config
	source []byte // config.json
}

// Converted implements network.Config.
func (c *config) Converted(source []byte) weights.Converted { return &converted{c, source} }

// Name implements weights.Converted.
func (v *converted) Name(canonical string) string {
	if weights.IsHead(canonical) || strings.HasPrefix(canonical, weights.OutputMatrix+".") {
		return "language_model." + canonical
	}
	if rest, ok := strings.CutPrefix(canonical, "visual."); ok {
		return "vision_tower." + rest
	}
	return "language_model.model." + canonical
}

// Config implements weights.Converted. The config is nested whatever the source was, of a model
// type of the Qwen3.5 family, with every size written out, the rotation in its newer place, and
// a head promised if and only if there is one. What the source says besides is kept; what it
// says about quantization is not, nor is vision_config unless it is to be kept.
func (v *converted) Config(head, vision bool) (map[string]any, error) {
	top, err := checkpoint.DecodeObject(v.source)
	if err != nil {
		return nil, fmt.Errorf("qwen35: config.json: %w", err)
	}
	text, nested := top["text_config"].(map[string]any)
	if !nested {
		text = maps.Clone(top)
		delete(text, "architectures")
		delete(text, "transformers_version")
		keep := map[string]any{}
		for _, key := range []string{"architectures", "transformers_version", "dtype", "torch_dtype"} {
			if x, ok := top[key]; ok {
				keep[key] = x
			}
		}
		top = keep
	}
	for _, m := range []map[string]any{top, text} {
		for _, key := range []string{"quantization", "quantization_config", "num_nextn_predict_layers", "_name_or_path", "linear_value_heads_tiled"} {
			delete(m, key)
		}
	}
	delete(top, "mtp_num_hidden_layers")
	if !vision {
		delete(top, "vision_config")
	}
	v.name(top, text)
	v.complete(text, head)
	v.rotation(text)
	top["text_config"] = text
	return top, nil
}

// HeadConfig implements weights.Converted: a folder as mlx-vlm loads drafters.
func (v *converted) HeadConfig() (map[string]any, error) {
	whole, err := v.Config(true, false)
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"model_type":          "qwen3_5" + weights.HeadType,
		"text_config":         whole["text_config"],
		"tie_word_embeddings": whole["tie_word_embeddings"],
		"block_size":          3, // tokens of a round: the last known, one per layer of the head, one more
	}, nil
}

// PromiseHead implements weights.Converted.
func (v *converted) PromiseHead(config map[string]any) bool {
	return weights.PromiseHead(config, "mtp_num_hidden_layers")
}

// name sets the type of the model. Qwen3-Next, with its projections taken apart, is one of
// the family.
func (v *converted) name(top, text map[string]any) {
	kind, class := "qwen3_5", "Qwen3_5ForCausalLM"
	if v.cfg.Experts > 0 {
		kind, class = "qwen3_5_moe", "Qwen3_5MoeForCausalLM"
	}
	if v.cfg.ModelType == "qwen3_next" || top["architectures"] == nil {
		top["architectures"] = []any{class}
	}
	top["model_type"], text["model_type"] = kind, kind+"_text"
	top["tie_word_embeddings"], text["tie_word_embeddings"] = v.cfg.Tied, v.cfg.Tied
}

// complete writes out what the source left to defaults, which are not the same everywhere.
func (v *converted) complete(text map[string]any, head bool) {
	c := v.cfg
	sizes := map[string]any{
		"vocab_size": c.Vocab, "hidden_size": c.Width, "num_hidden_layers": len(c.layers),
		"num_attention_heads": c.heads, "num_key_value_heads": c.kvHeads, "head_dim": c.headDim,
		"linear_num_key_heads": c.keyHeads, "linear_num_value_heads": c.valueHeads,
		"linear_key_head_dim": c.keyDim, "linear_value_head_dim": c.valueDim, "linear_conv_kernel_dim": c.kernel,
		"max_position_embeddings": c.Context,
	}
	if c.Experts > 0 {
		sizes["num_experts"], sizes["num_experts_per_tok"] = c.Experts, c.TopK
		sizes["moe_intermediate_size"], sizes["shared_expert_intermediate_size"] = c.expertWidth, c.sharedWidth
	} else {
		sizes["intermediate_size"] = c.intermediate
	}
	for key, n := range sizes {
		if text[key] == nil {
			text[key] = n
		}
	}
	if text["rms_norm_eps"] == nil {
		text["rms_norm_eps"] = 1e-6
	}
	// Some readers know the interval only. Where layers are not at equal distances there
	// is none.
	for n := 1; n <= len(c.layers); n++ {
		if c.layers[n-1] {
			if c.regular(n) {
				text["full_attention_interval"] = n
			}
			break
		}
	}
	text["mtp_num_hidden_layers"] = 0
	if head {
		text["mtp_num_hidden_layers"] = 1
	}
}

// regular reports whether every n-th layer is attention and no other.
func (c *config) regular(n int) bool {
	for i, attention := range c.layers {
		if attention != ((i+1)%n == 0) {
			return false
		}
	}
	return true
}

// rotation puts what was said of it in older places where it is now.
func (v *converted) rotation(text map[string]any) {
	rope, ok := text["rope_parameters"].(map[string]any)
	if !ok {
		rope = map[string]any{}
		if old, ok := text["rope_scaling"].(map[string]any); ok {
			rope = old
		}
		delete(text, "rope_scaling")
	}
	pairs := v.cfg.rotary / 2
	for key, x := range map[string]any{
		"rope_theta":            v.cfg.theta,
		"partial_rotary_factor": float64(v.cfg.rotary) / float64(v.cfg.headDim),
		// Which of the pairs turn by time, height and width: all the same for text.
		"mrope_section": []any{(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3},
	} {
		if rope[key] == nil {
			rope[key] = x
		}
	}
	if rope["rope_type"] == nil && rope["type"] == nil {
		rope["rope_type"] = "default"
	}
	delete(text, "rope_theta")
	delete(text, "partial_rotary_factor")
	text["rope_parameters"] = rope
}
