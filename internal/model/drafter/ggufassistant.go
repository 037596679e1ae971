package drafter

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/foretoken/foretoken/internal/checkpoint/gguf"
)

// ggufAssistant is the architecture of assistants in GGUF files.
const ggufAssistant = "gemma4-assistant"

// Names of tensors of assistants that differ from those of other drafters.
var (
	ggufAssistantTop = map[string]string{
		"nextn.pre_projection.weight":  "pre_projection.weight",
		"nextn.post_projection.weight": "post_projection.weight",
		"masked_embd_centroids.weight": "masked_embedding.centroids.weight",
		"masked_embd_ordering":         "masked_embedding.token_ordering",
	}
	ggufAssistantLayer = map[string]string{
		"post_attention_norm.weight": "post_attention_layernorm.weight",
		"ffn_norm.weight":            "pre_feedforward_layernorm.weight",
		"post_ffw_norm.weight":       "post_feedforward_layernorm.weight",
		"layer_output_scale.weight":  "layer_scalar",
	}
)

// ggufAssistantConfig is the text of config.json.
func ggufAssistantConfig(f *gguf.File) ([]byte, error) {
	embed := f.Tensor("token_embd.weight")
	if embed == nil || len(embed.Shape) != 2 {
		return nil, errors.New("tensor token_embd.weight is missing, or no matrix")
	}
	r := &gguf.Settings{File: f, Prefix: ggufAssistant + ".", To: map[string]any{
		"architectures": []string{"Gemma4AssistantForCausalLM"}, "model_type": "gemma4_assistant",
	}}
	r.Whole("embedding_length_out", "backbone_hidden_size")
	t := r.Part(map[string]any{"vocab_size": embed.Shape[0]})
	layers := t.Whole("block_count", "num_hidden_layers")
	t.Whole("embedding_length", "hidden_size")
	t.Whole("feed_forward_length", "intermediate_size")
	t.Whole("attention.head_count", "num_attention_heads")
	fullDim := t.Whole("attention.key_length", "global_head_dim")
	t.Whole("attention.key_length_swa", "head_dim")
	t.Whole("attention.sliding_window", "sliding_window")
	t.Number("attention.layer_norm_rms_epsilon", "rms_norm_eps")
	if f.Has(t.Prefix + "final_logit_softcapping") {
		t.Number("final_logit_softcapping", "final_logit_softcapping")
	}
	slides := t.Each("attention.sliding_window_pattern", layers)
	heads := t.Each("attention.head_count_kv", layers)
	types, each := make([]string, len(slides)), map[string]any{}
	for i, windowed := range slides {
		types[i] = [2]string{fullLayer, slidingLayer}[min(max(windowed, 0), 1)]
		each[fmt.Sprint(i)] = map[string]any{"num_key_value_heads": heads[i]}
		t.To["num_key_value_heads"] = heads[i] // of a layer that has no entry: there is none
	}
	t.To["layer_types"], t.To["per_layer_config"] = types, each
	s, full := t.Part(map[string]any{}), t.Part(map[string]any{"rope_type": "proportional", "partial_rotary_factor": 0.25})
	s.Number("rope.freq_base_swa", "rope_theta")
	full.Number("rope.freq_base", "rope_theta")
	full.Turned(fullDim / 2)
	t.To["rope_parameters"] = map[string]any{slidingLayer: s.To, fullLayer: full.To}
	r.To["text_config"] = t.To
	for _, part := range []*gguf.Settings{t, s, full} {
		r.Keep(part.Err)
	}
	if r.Err != nil {
		return nil, r.Err
	}
	return json.Marshal(r.To)
}
