package gemma

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/checkpoint/gguf"
)

// ggufName is the architecture of GGUF files of all sizes.
const ggufName = "gemma4"

// ggufFile is a GGUF file of the family. Its converter changed little more than names.
type ggufFile struct {
	*gguf.File
	layers int
}

// ggufWords has the facts about the family's tokens that files leave out.
var ggufWords = gguf.Words{Ends: ends, Class: "GemmaTokenizer"}

// assembleGGUF presents a GGUF file as a checkpoint folder in the layout of converted checkpoints.
func assembleGGUF(f *gguf.File) (a checkpoint.Assembly, err error) {
	g := &ggufFile{File: f}
	if g.layers, err = g.Whole(ggufName + ".block_count"); err != nil {
		return a, err
	}
	if g.layers < 1 || g.layers > 1<<12 {
		return a, fmt.Errorf("the model has %d blocks", g.layers)
	}
	config, err := g.config()
	if err != nil {
		return a, err
	}
	return f.Assembly(config, ggufWords, g.pieces)
}

// Names of tensors in GGUF files, and in the layout of converted checkpoints.
var (
	ggufTop = map[string]string{
		"token_embd.weight":           "embed_tokens.weight",
		"output_norm.weight":          "norm.weight",
		"output.weight":               "lm_head.weight",
		"per_layer_token_embd.weight": tableName + ".weight",
		"per_layer_model_proj.weight": "per_layer_model_projection.weight",
		"per_layer_proj_norm.weight":  "per_layer_projection_norm.weight",
	}
	ggufBlock = map[string]string{
		"attn_norm.weight":           "input_layernorm.weight",
		"attn_q.weight":              "self_attn.q_proj.weight",
		"attn_k.weight":              "self_attn.k_proj.weight",
		"attn_v.weight":              "self_attn.v_proj.weight",
		"attn_output.weight":         "self_attn.o_proj.weight",
		"attn_q_norm.weight":         "self_attn.q_norm.weight",
		"attn_k_norm.weight":         "self_attn.k_norm.weight",
		"post_attention_norm.weight": "post_attention_layernorm.weight",
		"ffn_norm.weight":            "pre_feedforward_layernorm.weight",
		"ffn_gate.weight":            "mlp.gate_proj.weight",
		"ffn_up.weight":              "mlp.up_proj.weight",
		"ffn_down.weight":            "mlp.down_proj.weight",
		"post_ffw_norm.weight":       "post_feedforward_layernorm.weight",
		"layer_output_scale.weight":  "layer_scalar",

		"ffn_gate_inp.weight":     "router.proj.weight",
		"ffn_gate_inp.scale":      "router.scale",
		"ffn_down_exps.scale":     "router.per_expert_scale",
		"pre_ffw_norm_2.weight":   "pre_feedforward_layernorm_2.weight",
		"post_ffw_norm_1.weight":  "post_feedforward_layernorm_1.weight",
		"post_ffw_norm_2.weight":  "post_feedforward_layernorm_2.weight",
		"ffn_gate_up_exps.weight": "experts.switch_glu.", // cut in two
		"ffn_gate_exps.weight":    "experts.switch_glu.gate_proj.weight",
		"ffn_up_exps.weight":      "experts.switch_glu.up_proj.weight",
		"ffn_down_exps.weight":    "experts.switch_glu.down_proj.weight",

		"inp_gate.weight":  "per_layer_input_gate.weight",
		"proj.weight":      "per_layer_projection.weight",
		"post_norm.weight": "post_per_layer_input_norm.weight",
	}
)

// name returns the name of a tensor in converted checkpoints.
func (g *ggufFile) name(name string) (string, error) {
	if converted, ok := ggufTop[name]; ok {
		return "model." + converted, nil
	}
	block, last, _ := strings.Cut(strings.TrimPrefix(name, "blk."), ".")
	i, err := strconv.Atoi(block)
	if err == nil && i >= 0 && i < g.layers && strings.HasPrefix(name, "blk.") && ggufBlock[last] != "" {
		return fmt.Sprintf("model.layers.%d.%s", i, ggufBlock[last]), nil
	}
	return "", fmt.Errorf("it is not part of a %s model of %d blocks", ggufName, g.layers)
}

// pieces are the weights in a tensor: one, or two if it has gates and ups of experts.
func (g *ggufFile) pieces(t *gguf.Tensor) ([]gguf.Piece, error) {
	if t.Name == gguf.Divisors {
		return nil, nil // the config has them
	}
	name, err := g.name(t.Name)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(t.Name, "ffn_down_exps.weight") && t.Factors != nil {
		return nil, fmt.Errorf("its factors may be those of the experts, which NVFP4 files do not tell apart: this is not supported")
	}
	return t.Pieces(name)
}

// config is the text of config.json, from the metadata and from what tensors there are.
func (g *ggufFile) config() ([]byte, error) {
	embed := g.Tensor("token_embd.weight")
	if embed == nil {
		return nil, fmt.Errorf("tensor token_embd.weight is missing")
	}
	r := &gguf.Settings{File: g.File, Prefix: ggufName + ".", To: map[string]any{
		"model_type":                  gemma4 + text,
		"vocab_size":                  embed.Shape[0],
		"vocab_size_per_layer_input":  embed.Shape[0],
		"num_hidden_layers":           g.layers,
		"tie_word_embeddings":         g.Tensor("output.weight") == nil,
		"hidden_size_per_layer_input": max(0, (&gguf.Settings{File: g.File, Prefix: ggufName + "."}).Optional("embedding_length_per_layer_input")),
	}}
	r.Whole("context_length", "max_position_embeddings")
	r.Whole("embedding_length", "hidden_size")
	r.Whole("attention.head_count", "num_attention_heads")
	fullDim := r.Whole("attention.key_length", "global_head_dim")
	r.Whole("attention.key_length_swa", "head_dim")
	r.Whole("attention.sliding_window", "sliding_window")
	r.Number("attention.layer_norm_rms_epsilon", "rms_norm_eps")
	if g.Has(ggufName + ".final_logit_softcapping") {
		r.Number("final_logit_softcapping", "final_logit_softcapping")
	}
	shared := max(0, r.Optional("attention.shared_kv_layers"))
	r.To["num_kv_shared_layers"] = shared
	g.sameWidths(r)
	kinds := g.kinds(r)
	g.keyHeads(r, kinds, shared)
	g.feedForward(r, shared)
	g.rotation(r, fullDim)
	if r.Optional("expert_count") > 0 {
		r.To["enable_moe_block"] = true
		r.Whole("expert_count", "num_experts")
		r.Whole("expert_used_count", "top_k_experts")
		r.Whole("expert_feed_forward_length", "moe_intermediate_size")
	}
	if r.Err != nil {
		return nil, r.Err
	}
	return json.MarshalIndent(r.To, "", "  ")
}

// sameWidths refuses values that are not as wide as keys.
func (g *ggufFile) sameWidths(r *gguf.Settings) {
	for _, key := range []string{"key_length", "key_length_swa"} {
		values := "attention." + strings.Replace(key, "key", "value", 1)
		if n := r.Optional(values); n >= 0 && n != r.Optional("attention."+key) {
			r.Keep(fmt.Errorf("%s is %d, want that of keys, %d", values, n, r.Optional("attention."+key)))
		}
	}
}

// kinds reads the kinds of layers.
func (g *ggufFile) kinds(r *gguf.Settings) []kind {
	list, names := make([]kind, g.layers), make([]string, g.layers)
	for i, slides := range r.Each("attention.sliding_window_pattern", g.layers) {
		if slides == 0 {
			list[i] = full
		}
		names[i] = kindNames[list[i]]
	}
	r.To["layer_types"] = names
	return list
}

// keyHeads reads the numbers of key heads of both kinds of layers, and finds whether keys are values: then full layers with
// a KV cache have no value matrix.
func (g *ggufFile) keyHeads(r *gguf.Settings, list []kind, shared int) {
	heads := [kinds]int{}
	for i, n := range r.Each("attention.head_count_kv", g.layers) {
		k := list[i]
		if heads[k] == 0 {
			heads[k] = n
		}
		if heads[k] != n {
			r.Keep(fmt.Errorf("block %d has %d key heads, an earlier one of its kind %d: this is not supported", i, n, heads[k]))
		}
		if k == full && i < g.layers-shared && g.Tensor(fmt.Sprintf("blk.%d.attn_v.weight", i)) == nil {
			r.To["attention_k_eq_v"] = true
		}
	}
	if heads[sliding] == 0 {
		heads[sliding] = heads[full]
	}
	r.To["num_key_value_heads"] = heads[sliding]
	if heads[full] == heads[sliding] {
		return
	}
	per := map[string]any{kindNames[full]: map[string]any{"num_key_value_heads": heads[full]}}
	r.To["per_layer_config"] = per
}

// feedForward reads the widths of the feed-forwards. Layers without a KV cache may have twice the width of the others.
func (g *ggufFile) feedForward(r *gguf.Settings, shared int) {
	list := r.Each("feed_forward_length", g.layers)
	own := g.layers - shared
	if own < 1 { // which the config's reader refuses
		own = g.layers
	}
	r.To["intermediate_size"] = list[0]
	double := own < g.layers && list[own] == 2*list[0] && list[0] > 0
	r.To["use_double_wide_mlp"] = double
	for i, n := range list {
		want := list[0]
		if double && i >= own {
			want *= 2
		}
		if n != want {
			r.Keep(fmt.Errorf("block %d has a feed-forward of %d, want %d", i, n, want))
		}
	}
}

// rotation reads the rotations of both kinds of layers.
func (g *ggufFile) rotation(r *gguf.Settings, fullDim int) {
	s, f := r.Part(map[string]any{"rope_type": "default"}), r.Part(map[string]any{"rope_type": "proportional", "partial_rotary_factor": 0.25})
	s.Number("rope.freq_base_swa", "rope_theta")
	f.Number("rope.freq_base", "rope_theta")
	f.Turned(fullDim / 2)
	r.Keep(s.Err)
	r.Keep(f.Err)
	r.To["rope_parameters"] = map[string]any{kindNames[sliding]: s.To, kindNames[full]: f.To}
}
