package drafter

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/checkpoint/gguf"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Architectures of GGUF files.
const (
	ggufBlockKinds = "dflash" // all kinds that draft blocks
	ggufEagle      = "eagle3"
)

// Names of tensors in GGUF files.
var (
	ggufTop = map[string]string{
		"fc.weight":                   "fc.weight",
		"output_norm.weight":          "norm.weight",
		"token_embd.weight":           "embed_tokens.weight",
		"output.weight":               "lm_head.weight",
		"d2t":                         "d2t",
		"d2t.weight":                  "d2t",
		"markov_w1.weight":            "markov_head.markov_w1.weight",
		"markov_w2.weight":            "markov_head.markov_w2.weight",
		"conf_proj.weight":            "confidence_head.proj.weight",
		"conf_proj.bias":              "confidence_head.proj.bias",
		"selector_predecessor.weight": "candidate_selector.predecessor_codebook.weight",
		"selector_successor.weight":   "candidate_selector.successor_codebook.weight",
		"selector_hidden.weight":      "candidate_selector.hidden_projection.weight",
	}
	ggufLayer = map[string]string{
		"attn_norm.weight":      "input_layernorm.weight",
		"attn_norm_2.weight":    "hidden_norm.weight",
		"attn_q.weight":         "self_attn.q_proj.weight",
		"attn_k.weight":         "self_attn.k_proj.weight",
		"attn_v.weight":         "self_attn.v_proj.weight",
		"attn_output.weight":    "self_attn.o_proj.weight",
		"attn_q_norm.weight":    "self_attn.q_norm.weight",
		"attn_k_norm.weight":    "self_attn.k_norm.weight",
		"ffn_norm.weight":       "post_attention_layernorm.weight",
		"ffn_gate.weight":       "mlp.gate_proj.weight",
		"ffn_up.weight":         "mlp.up_proj.weight",
		"ffn_down.weight":       "mlp.down_proj.weight",
		"attn_conv_base":        "attention_conv.base_kernel",
		"attn_conv_proj.weight": "attention_conv.kernel_projection.weight",
		"ffn_conv_base":         "mlp_conv.base_kernel",
		"ffn_conv_proj.weight":  "mlp_conv.kernel_projection.weight",
	}
)

// assemble is the folder of a file.
func assemble(f *gguf.File) (a checkpoint.Assembly, err error) {
	arch, err := f.Text("general.architecture")
	if err != nil {
		return a, err
	}
	if a.Config, err = ggufConfig(f, arch); err != nil {
		return a, err
	}
	a.Files = f.Parts
	for _, t := range f.Tensors {
		if arch == ggufAssistant && t.Name == gguf.Divisors {
			continue // the config has it
		}
		s, err := ggufSource(t, arch)
		if err != nil {
			return a, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		a.Tensors = append(a.Tensors, s)
	}
	return a, nil
}

// ggufName is the name of a tensor in a folder.
func ggufName(name, arch string) (string, error) {
	if name == "enc.output_norm.weight" {
		if arch == ggufEagle {
			return "input_norm.weight", nil
		}
		return "hidden_norm.weight", nil
	}
	layer := ggufLayer
	if arch == ggufAssistant {
		if other, ok := ggufAssistantTop[name]; ok {
			return other, nil
		}
		layer = maps.Clone(ggufLayer)
		maps.Copy(layer, ggufAssistantLayer)
	}
	if other, ok := ggufTop[name]; ok {
		return other, nil
	}
	if strings.HasPrefix(name, "rope_freqs") {
		return "", errors.New("scaled rotations are not supported")
	}
	number, last, _ := strings.Cut(strings.TrimPrefix(name, "blk."), ".")
	if i, err := strconv.Atoi(number); err == nil && i >= 0 && strings.HasPrefix(name, "blk.") && layer[last] != "" {
		return fmt.Sprintf("layers.%d.%s", i, layer[last]), nil
	}
	return "", fmt.Errorf("it is not part of a drafter of the architecture %s", arch)
}

// ggufSource is a tensor as a folder has it.
func ggufSource(t *gguf.Tensor, arch string) (s checkpoint.Source, err error) {
	name, err := ggufName(t.Name, arch)
	if err != nil {
		return s, err
	}
	m, err := t.Encoding()
	if err != nil {
		return s, err
	}
	s = checkpoint.Source{
		Decl: checkpoint.Decl{Name: name, Type: m.Type, Shape: slices.Clone(t.Shape)},
		File: t.File,
		Read: func() ([]byte, error) {
			m, err := t.Matrix()
			return m.Data, err
		},
	}
	if name == "confidence_head.proj.weight" {
		s.Shape = []int{1, m.Cols}
	}
	if m.Format.Blocks() {
		s.Type, s.Blocks, s.Factors = dtype.U8, &m, t.Factors
		s.Shape[len(s.Shape)-1] = m.RowBytes()
	}
	return s, nil
}

// ggufConfig is the text of config.json, from the metadata and the shapes of tensors.
func ggufConfig(f *gguf.File, arch string) ([]byte, error) {
	if arch == ggufAssistant {
		return ggufAssistantConfig(f)
	}
	r := &gguf.Settings{File: f, Prefix: arch + ".", To: map[string]any{"d2t_absolute": true}}
	r.Whole("embedding_length", "hidden_size")
	r.Whole("feed_forward_length", "intermediate_size")
	layers := r.Whole("block_count", "num_hidden_layers")
	r.Whole("attention.head_count", "num_attention_heads")
	r.Number("attention.layer_norm_rms_epsilon", "rms_norm_eps")
	optional(r, "attention.head_count_kv", "num_key_value_heads")
	optional(r, "attention.key_length", "head_dim")
	if f.Has(r.Prefix + "rope.freq_base") {
		r.Number("rope.freq_base", "rope_theta")
	}
	taps, err := f.Wholes(r.Prefix + "target_layers")
	r.Keep(err)
	if t := f.Tensor("output.weight"); t != nil && (f.Tensor("d2t") != nil || f.Tensor("d2t.weight") != nil) {
		r.To["draft_vocab_size"] = t.Shape[0]
	}
	ggufNames(r, arch)
	if arch == ggufEagle {
		// Its converter permutes the rows of queries and keys for pairs of neighbors.
		r.To["eagle_aux_hidden_state_layer_ids"], r.To["rope_interleaved"] = taps, true
		optional(r, "target_hidden_size", "target_hidden_size")
		truth(r, "norm_before_residual", "norm_before_residual")
		truth(r, "norm_before_fc", "norm_before_fc")
	} else {
		r.To["aux_hidden_state_layer_ids"] = taps
		ggufBlockConfig(r, layers)
	}
	if r.Err != nil {
		return nil, r.Err
	}
	return json.Marshal(r.To)
}

// ggufNames adds what config.json of a folder would say: the kind, and the vocabulary by the shapes of tensors.
func ggufNames(r *gguf.Settings, arch string) {
	kind := "DFlashDraftModel"
	switch {
	case arch == ggufEagle:
		kind = "LlamaForCausalLMEagle3"
	case r.File.Tensor("selector_predecessor.weight") != nil:
		kind = "DFlash2DraftModel"
	case r.File.Tensor("markov_w1.weight") != nil:
		kind = "DSparkDraftModel"
	}
	r.To["architectures"] = []string{kind}
	for _, name := range []string{"token_embd.weight", "markov_w1.weight", "selector_predecessor.weight"} {
		if t := r.File.Tensor(name); t != nil {
			r.To["vocab_size"] = t.Shape[0]
		}
	}
}

// ggufBlockConfig adds what block drafters have of their own.
func ggufBlockConfig(r *gguf.Settings, layers int) {
	f := r.File
	r.Whole("block_size", "block_size")
	mask, err := f.Whole("tokenizer.ggml.mask_token_id")
	r.Keep(err)
	r.To["mask_token_id"] = mask
	for _, key := range []string{"conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k"} {
		optional(r, key, key)
	}
	optional(r, "attention.sliding_window", "sliding_window")
	truth(r, "attention.causal", "is_causal")
	truth(r, "sample_from_anchor", "sample_from_anchor")
	if f.Has(r.Prefix + "logit_scale") {
		r.Number("logit_scale", "output_multiplier")
	}
	if f.Has(r.Prefix + "final_logit_softcapping") {
		r.Number("final_logit_softcapping", "final_logit_softcapping")
	}
	if t := f.Tensor("markov_w1.weight"); t != nil {
		r.To["markov_rank"] = t.Shape[len(t.Shape)-1]
	}
	key := r.Prefix + "attention.sliding_window_pattern"
	if !f.Has(key) {
		return
	}
	pattern, err := f.Wholes(key)
	if err == nil && len(pattern) != layers {
		err = fmt.Errorf("%s has %d entries for %d blocks", key, len(pattern), layers)
	}
	r.Keep(err)
	types := make([]string, len(pattern))
	for i, windowed := range pattern {
		types[i] = [2]string{"full_attention", "sliding_attention"}[min(max(windowed, 0), 1)]
	}
	r.To["layer_types"] = types
}

// optional sets a member to a number if the file has it.
func optional(r *gguf.Settings, key, name string) {
	if r.File.Has(r.Prefix + key) {
		r.Whole(key, name)
	}
}

// truth sets a member to a truth value if the file has it.
func truth(r *gguf.Settings, key, name string) {
	if n := r.Optional(key); n >= 0 {
		r.To[name] = n != 0
	}
}
