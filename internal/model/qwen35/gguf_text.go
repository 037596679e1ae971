package qwen35

import (
	"encoding/json"
	"fmt"

	"github.com/foretoken/foretoken/internal/checkpoint/gguf"
)

// config is the text of config.json, from the metadata and from what tensors there are.
func (g *ggufFile) config() ([]byte, error) {
	embed := g.Tensor("token_embd.weight")
	if embed == nil {
		return nil, fmt.Errorf("tensor token_embd.weight is missing")
	}
	kind := ggufTypes[g.arch]
	r := &gguf.Settings{File: g.File, Prefix: g.arch + ".", To: map[string]any{
		"model_type":             kind + "_text",
		"vocab_size":             embed.Shape[0],
		"num_hidden_layers":      g.layers,
		"mtp_num_hidden_layers":  g.nextn,
		"linear_num_key_heads":   g.keyHeads,
		"linear_num_value_heads": g.valueHeads,
		"linear_key_head_dim":    g.keyDim,
		"linear_value_head_dim":  g.valueDim,
	}}
	if g.tiled {
		r.To["linear_value_heads_tiled"] = true
	}
	r.Whole("context_length", "max_position_embeddings")
	r.Whole("embedding_length", "hidden_size")
	r.Whole("ssm.conv_kernel", "linear_conv_kernel_dim")
	r.Whole("attention.head_count", "num_attention_heads")
	r.Whole("attention.head_count_kv", "num_key_value_heads")
	dim := r.Whole("attention.key_length", "head_dim")
	r.Number("attention.layer_norm_rms_epsilon", "rms_norm_eps")
	if g.Has(g.arch + ".expert_count") {
		r.Whole("expert_count", "num_experts")
		r.Whole("expert_used_count", "num_experts_per_tok")
		r.Whole("expert_feed_forward_length", "moe_intermediate_size")
		r.Whole("expert_shared_feed_forward_length", "shared_expert_intermediate_size")
	} else {
		r.Whole("feed_forward_length", "intermediate_size")
	}
	for _, key := range []string{"expert_weights_norm", "norm_top_k_prob"} {
		if n := r.Optional(key); n >= 0 {
			r.To["norm_topk_prob"] = n != 0
		}
	}
	r.To["rope_parameters"] = g.rope(r, dim)
	kinds := make([]string, g.layers)
	for i := range kinds {
		kinds[i] = "linear_attention"
		if g.Tensor(fmt.Sprintf("blk.%d.attn_q.weight", i)) != nil {
			kinds[i] = "full_attention"
		}
	}
	r.To["layer_types"] = kinds
	if r.Err != nil {
		return nil, r.Err
	}
	top := map[string]any{
		"model_type":          kind,
		"tie_word_embeddings": g.Tensor("output.weight") == nil,
		"text_config":         r.To,
	}
	return json.MarshalIndent(top, "", "  ")
}

// rope is the rotation of heads of dim dimensions.
func (g *ggufFile) rope(r *gguf.Settings, dim int) map[string]any {
	kind := "default"
	if key := g.arch + ".rope.scaling.type"; g.Has(key) {
		text, err := g.Text(key)
		r.Keep(err)
		if text != "none" {
			kind = text // which the config's reader refuses by name
		}
	}
	p := r.Part(map[string]any{"rope_type": kind})
	p.Number("rope.freq_base", "rope_theta")
	p.Rotary(dim)
	if key := g.arch + ".rope.dimension_sections"; g.Has(key) {
		sections, err := g.Wholes(key)
		p.Keep(err)
		if len(sections) > 2 { // the fourth is of no model
			p.To["mrope_section"] = sections[:3]
		}
	}
	r.Err = p.Err
	return p.To
}

// ggufWords has the facts about the family's tokens that files leave out.
var ggufWords = gguf.Words{
	Ends: []string{endOfText, endOfTurn}, NFC: true, Class: "Qwen2TokenizerFast",
	Patterns: map[string][]string{
		"qwen35": {`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`},
		"qwen2":  {`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`},
	},
}
