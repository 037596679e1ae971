package glm

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/checkpoint/gguf"
)

// ggufFile is a GGUF file of the family. Its converter changed little more than names: it stacks
// experts, and stores the two parts of kv_b apart, as converted checkpoints do. Rotated rows are
// where releases have them.
type ggufFile struct {
	*gguf.File
	arch   string
	layers int // of the model
	heads  int // blocks behind them that are the head's
}

// Architectures of GGUF files: latent attention, and grouped-query attention.
const (
	ggufLatent  = "deepseek2"
	ggufGrouped = "glm4moe"
)

// ggufWords has the facts about the family's tokens that files leave out.
var ggufWords = gguf.Words{
	Ends: ends, Class: "PreTrainedTokenizerFast",
	Patterns: map[string][]string{
		"glm4":        {ggufPattern},
		"chatglm-bpe": {ggufPattern},
		"deepseek-v3": {
			`\p{N}{1,3}`,
			`[一-龥぀-ゟ゠-ヿ]+`,
			"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
		},
	},
}

const ggufPattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

// assembleGGUF presents a GGUF file as a checkpoint folder in the layout of converted checkpoints.
func assembleGGUF(f *gguf.File) (a checkpoint.Assembly, err error) {
	g := &ggufFile{File: f}
	if err := g.measure(); err != nil {
		return a, err
	}
	config, err := g.config()
	if err != nil {
		return a, err
	}
	return f.Assembly(config, ggufWords, g.pieces)
}

// measure reads how many blocks are whose.
func (g *ggufFile) measure() (err error) {
	if g.arch, err = g.Text("general.architecture"); err != nil {
		return err
	}
	if g.layers, err = g.Whole(g.arch + ".block_count"); err != nil {
		return err
	}
	if key := g.arch + ".nextn_predict_layers"; g.Has(key) {
		if g.heads, err = g.Whole(key); err != nil {
			return err
		}
	}
	if g.layers -= g.heads; g.layers < 1 || g.layers > 1<<12 || g.heads < 0 {
		return fmt.Errorf("the model has %d blocks, %d of them in the head", g.layers+g.heads, g.heads)
	}
	return nil
}

// Names of tensors in GGUF files, and in the layout of converted checkpoints.
var (
	ggufTop = map[string]string{
		"token_embd.weight":  "model.embed_tokens.weight",
		"output_norm.weight": "model.norm.weight",
		"output.weight":      "lm_head.weight",
	}
	// ggufHead are those of the block that is the head, beside those of any block.
	ggufHead = map[string]string{
		"nextn.eh_proj.weight":          "eh_proj.weight",
		"nextn.enorm.weight":            "enorm.weight",
		"nextn.hnorm.weight":            "hnorm.weight",
		"nextn.shared_head_norm.weight": "shared_head.norm.weight",
		"nextn.embed_tokens.weight":     "embed_tokens.weight",
		"nextn.shared_head_head.weight": "shared_head.head.weight",
	}
	ggufBlock = map[string]string{
		"attn_norm.weight":           "input_layernorm.weight",
		"ffn_norm.weight":            "post_attention_layernorm.weight",
		"post_attention_norm.weight": "post_attention_layernorm.weight",

		"attn_q.weight":         "self_attn.q_proj.weight",
		"attn_q_a.weight":       "self_attn.q_a_proj.weight",
		"attn_q_a_norm.weight":  "self_attn.q_a_layernorm.weight",
		"attn_q_b.weight":       "self_attn.q_b_proj.weight",
		"attn_kv_a_mqa.weight":  "self_attn.kv_a_proj_with_mqa.weight",
		"attn_kv_a_norm.weight": "self_attn.kv_a_layernorm.weight",
		"attn_kv_b.weight":      "self_attn.kv_b_proj.weight",
		"attn_k_b.weight":       "self_attn.embed_q.weight",
		"attn_v_b.weight":       "self_attn.unembed_out.weight",
		"attn_output.weight":    "self_attn.o_proj.weight",

		"attn_k.weight":      "self_attn.k_proj.weight",
		"attn_v.weight":      "self_attn.v_proj.weight",
		"attn_q.bias":        "self_attn.q_proj.bias",
		"attn_k.bias":        "self_attn.k_proj.bias",
		"attn_v.bias":        "self_attn.v_proj.bias",
		"attn_q_norm.weight": "self_attn.q_norm.weight",
		"attn_k_norm.weight": "self_attn.k_norm.weight",

		"ffn_gate.weight": "mlp.gate_proj.weight",
		"ffn_up.weight":   "mlp.up_proj.weight",
		"ffn_down.weight": "mlp.down_proj.weight",

		"ffn_gate_inp.weight":     "mlp.gate.weight",
		"exp_probs_b":             "mlp." + biasName,
		"exp_probs_b.bias":        "mlp." + biasName,
		"ffn_gate_exps.weight":    "mlp.switch_mlp.gate_proj.weight",
		"ffn_up_exps.weight":      "mlp.switch_mlp.up_proj.weight",
		"ffn_gate_up_exps.weight": "mlp.switch_mlp.", // cut in two
		"ffn_down_exps.weight":    "mlp.switch_mlp.down_proj.weight",
		"ffn_gate_shexp.weight":   "mlp.shared_experts.gate_proj.weight",
		"ffn_up_shexp.weight":     "mlp.shared_experts.up_proj.weight",
		"ffn_down_shexp.weight":   "mlp.shared_experts.down_proj.weight",
	}
)

// name returns the name of a tensor in converted checkpoints.
func (g *ggufFile) name(name string) (string, error) {
	if converted, ok := ggufTop[name]; ok {
		return converted, nil
	}
	block, last, _ := strings.Cut(strings.TrimPrefix(name, "blk."), ".")
	i, err := strconv.Atoi(block)
	if err == nil && i >= 0 && i < g.layers+g.heads && strings.HasPrefix(name, "blk.") {
		switch {
		case ggufBlock[last] != "":
			return fmt.Sprintf("model.layers.%d.%s", i, ggufBlock[last]), nil
		case ggufHead[last] != "" && i == g.layers:
			return fmt.Sprintf("model.layers.%d.%s", i, ggufHead[last]), nil
		}
	}
	return "", fmt.Errorf("it is not part of a %s model of %d blocks", g.arch, g.layers+g.heads)
}

// pieces are the weights in a tensor: one, or two if it has gates and ups of experts.
func (g *ggufFile) pieces(t *gguf.Tensor) ([]gguf.Piece, error) {
	name, err := g.name(t.Name)
	if err != nil {
		return nil, err
	}
	return t.Pieces(name)
}

// config is the text of config.json, from the metadata and from what tensors there are.
func (g *ggufFile) config() ([]byte, error) {
	embed := g.Tensor("token_embd.weight")
	if embed == nil {
		return nil, fmt.Errorf("tensor token_embd.weight is missing")
	}
	r := &gguf.Settings{File: g.File, Prefix: g.arch + ".", To: map[string]any{
		"vocab_size":               embed.Shape[0],
		"num_hidden_layers":        g.layers,
		"num_nextn_predict_layers": g.heads,
		"tie_word_embeddings":      g.Tensor("output.weight") == nil,
		"topk_method":              "noaux_tc",
	}}
	r.Whole("context_length", "max_position_embeddings")
	r.Whole("embedding_length", "hidden_size")
	r.Whole("feed_forward_length", "intermediate_size")
	r.Whole("attention.head_count", "num_attention_heads")
	r.Number("attention.layer_norm_rms_epsilon", "rms_norm_eps")
	r.Number("rope.freq_base", "rope_theta")
	g.routing(r)
	if g.arch == ggufGrouped {
		g.groupedHeads(r)
	} else {
		g.latentHeads(r)
	}
	if r.Err != nil {
		return nil, r.Err
	}
	return json.MarshalIndent(r.To, "", "  ")
}

// routing reads how experts are chosen.
func (g *ggufFile) routing(r *gguf.Settings) {
	r.Whole("expert_count", "n_routed_experts")
	r.Whole("expert_used_count", "num_experts_per_tok")
	r.Whole("expert_feed_forward_length", "moe_intermediate_size")
	for key, name := range map[string]string{
		"expert_shared_count": "n_shared_experts", "leading_dense_block_count": "first_k_dense_replace",
		"expert_group_count": "n_group", "expert_group_used_count": "topk_group",
	} {
		if n := r.Optional(key); n >= 0 {
			r.To[name] = n
		}
	}
	if n, _ := r.To["n_group"].(int); n < 1 { // no groups
		r.To["n_group"], r.To["topk_group"] = 1, 1
	}
	r.To["norm_topk_prob"] = r.Optional("expert_weights_norm") > 0
	r.To["routed_scaling_factor"] = 1
	if g.Has(g.arch + ".expert_weights_scale") {
		r.Number("expert_weights_scale", "routed_scaling_factor")
	}
	const softmax, sigmoid = 1, 2
	switch how := r.Optional("expert_gating_func"); {
	case how == sigmoid || how < 0 && g.arch == ggufGrouped:
		r.To["scoring_func"] = "sigmoid"
	case how < 0 && r.To["vocab_size"] == flashVocab && g.layers == flashLayers:
		r.To["scoring_func"] = "sigmoid" // files of GLM-4.7-Flash from before the key
	case how < 0:
		r.Keep(fmt.Errorf("%s.expert_gating_func is missing: it may be softmax as in DeepSeek-V2, which is not supported; convert the model again with a newer converter", g.arch))
	case how == softmax:
		r.To["scoring_func"] = "softmax" // which the config's reader refuses by name
	default:
		r.Keep(fmt.Errorf("%s.expert_gating_func is %d, want %d (sigmoid)", g.arch, how, sigmoid))
	}
}

// Sizes by which files of GLM-4.7-Flash are told.
const flashVocab, flashLayers = 154880, 47

// groupedHeads reads grouped-query attention.
func (g *ggufFile) groupedHeads(r *gguf.Settings) {
	r.To["model_type"] = grouped
	r.Whole("attention.head_count_kv", "num_key_value_heads")
	r.Rotary(r.Whole("attention.key_length", "head_dim"))
	r.To["attention_bias"] = g.Tensor("blk.0.attn_q.bias") != nil
	r.To["use_qk_norm"] = g.Tensor("blk.0.attn_q_norm.weight") != nil
}

// latentHeads reads latent attention. The plain lengths of keys and values are those of latent
// rows, except in old files, which have no others.
func (g *ggufFile) latentHeads(r *gguf.Settings) {
	r.To["model_type"], r.To["attention_bias"] = lite, false
	r.To["q_lora_rank"] = nil
	if n := r.Optional("attention.q_lora_rank"); n > 0 {
		r.To["q_lora_rank"] = n
	}
	r.Whole("attention.kv_lora_rank", "kv_lora_rank")
	suffix := ""
	if g.Has(g.arch + ".attention.key_length_mla") {
		suffix = "_mla"
	}
	key := r.Whole("attention.key_length"+suffix, "qk_nope_head_dim")
	r.Whole("attention.value_length"+suffix, "v_head_dim")
	r.To["qk_nope_head_dim"] = key - r.Whole("rope.dimension_count", "qk_rope_head_dim")
	if n, _ := r.To["n_group"].(int); n > 1 {
		r.To["model_type"] = deepseek
	}
	if !g.Has(g.arch + ".rope.scaling.type") {
		return
	}
	kind, err := g.Text(g.arch + ".rope.scaling.type")
	r.Keep(err)
	if kind == "none" {
		return
	}
	r.To["model_type"] = deepseek
	p := r.Part(map[string]any{"rope_type": kind, "rope_theta": r.To["rope_theta"]})
	p.Number("rope.scaling.factor", "factor")
	p.Whole("rope.scaling.original_context_length", "original_max_position_embeddings")
	for key, name := range map[string]string{"rope.scaling.yarn_beta_fast": "beta_fast", "rope.scaling.yarn_beta_slow": "beta_slow"} {
		if g.Has(g.arch + "." + key) {
			p.Number(key, name)
		}
	}
	p.To["attention_factor"] = 1 // the file has one factor of the two, that of scores
	if g.Has(g.arch + ".rope.scaling.yarn_log_multiplier") {
		p.To["mscale_all_dim"] = float32(p.Number("rope.scaling.yarn_log_multiplier", "mscale_all_dim") / 0.1)
	}
	r.To["rope_parameters"], r.Err = p.To, p.Err
}
