package qwen35

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// config is the text of config.json, from the metadata and from what tensors there are.
func (g *ggufFile) config() ([]byte, error) {
	embed := g.Tensor("token_embd.weight")
	if embed == nil {
		return nil, fmt.Errorf("there is no tensor token_embd.weight")
	}
	kind := ggufTypes[g.arch]
	r := &ggufReader{g: g, text: map[string]any{
		"model_type":             kind + "_text",
		"vocab_size":             embed.Shape[0],
		"num_hidden_layers":      g.layers,
		"mtp_num_hidden_layers":  g.nextn,
		"linear_num_key_heads":   g.keyHeads,
		"linear_num_value_heads": g.valueHeads,
		"linear_key_head_dim":    g.keyDim,
		"linear_value_head_dim":  g.valueDim,
	}}
	r.whole("context_length", "max_position_embeddings")
	r.whole("embedding_length", "hidden_size")
	r.whole("ssm.conv_kernel", "linear_conv_kernel_dim")
	r.whole("attention.head_count", "num_attention_heads")
	r.whole("attention.head_count_kv", "num_key_value_heads")
	dim := r.whole("attention.key_length", "head_dim")
	r.number("attention.layer_norm_rms_epsilon", "rms_norm_eps")
	if g.Has(g.arch + ".expert_count") {
		r.whole("expert_count", "num_experts")
		r.whole("expert_used_count", "num_experts_per_tok")
		r.whole("expert_feed_forward_length", "moe_intermediate_size")
		r.whole("expert_shared_feed_forward_length", "shared_expert_intermediate_size")
	} else {
		r.whole("feed_forward_length", "intermediate_size")
	}
	for _, key := range []string{"expert_weights_norm", "norm_top_k_prob"} {
		if n := r.optional(key); n >= 0 {
			r.text["norm_topk_prob"] = n != 0
		}
	}
	r.text["rope_parameters"] = r.rope(dim)
	kinds := make([]string, g.layers)
	for i := range kinds {
		kinds[i] = "linear_attention"
		if g.Tensor(fmt.Sprintf("blk.%d.attn_q.weight", i)) != nil {
			kinds[i] = "full_attention"
		}
	}
	r.text["layer_types"] = kinds
	if r.err != nil {
		return nil, r.err
	}
	top := map[string]any{
		"model_type":          kind,
		"tie_word_embeddings": g.Tensor("output.weight") == nil,
		"text_config":         r.text,
	}
	return json.MarshalIndent(top, "", "  ")
}

// ggufReader writes a config from metadata and keeps the first error.
type ggufReader struct {
	g    *ggufFile
	text map[string]any
	err  error
}

// keep keeps the first error.
func (r *ggufReader) keep(err error) {
	if r.err == nil {
		r.err = err
	}
}

// whole is a number that must be there. Of a list, a number for each layer, it is the
// largest: layers without attention have no heads.
func (r *ggufReader) whole(key, name string) int {
	list, err := r.g.Wholes(r.g.arch + "." + key)
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("%s.%s is an empty list", r.g.arch, key)
	}
	if err != nil {
		r.keep(err)
		return 0
	}
	n := slices.Max(list)
	r.text[name] = n
	return n
}

// optional is a number, -1 if it is absent.
func (r *ggufReader) optional(key string) int {
	if !r.g.Has(r.g.arch + "." + key) {
		return -1
	}
	n, err := r.g.Whole(r.g.arch + "." + key)
	r.keep(err)
	return n
}

// number is a number that must be there, as precise as the file has it.
func (r *ggufReader) number(key, name string) {
	x, err := r.g.Number(r.g.arch + "." + key)
	if err == nil && (math.IsNaN(x) || math.IsInf(x, 0)) {
		err = fmt.Errorf("%s.%s is %g", r.g.arch, key, x)
	}
	r.keep(err)
	r.text[name] = float32(x)
}

// rope is the rotation of heads of dim dimensions.
func (r *ggufReader) rope(dim int) map[string]any {
	g, kind := r.g, "default"
	if key := g.arch + ".rope.scaling.type"; g.Has(key) {
		text, err := g.Text(key)
		r.keep(err)
		if text != "none" {
			kind = text // which the config's reader refuses by name
		}
	}
	p := &ggufReader{g: g, text: map[string]any{"rope_type": kind}, err: r.err}
	p.number("rope.freq_base", "rope_theta")
	if n := p.optional("rope.dimension_count"); n >= 0 && dim > 0 {
		part := float64(n) / float64(dim)
		if int(part*float64(dim)) < n {
			part = math.Nextafter(part, 2)
		}
		p.text["partial_rotary_factor"] = part
	}
	if key := g.arch + ".rope.dimension_sections"; g.Has(key) {
		sections, err := g.Wholes(key)
		p.keep(err)
		if len(sections) > 2 { // the fourth is of no model
			p.text["mrope_section"] = sections[:3]
		}
	}
	r.err = p.err
	return p.text
}

// texts are the other files of the folder.
func (g *ggufFile) texts() map[string]func() ([]byte, error) {
	texts := map[string]func() ([]byte, error){
		"generation_config.json": g.generation,
		"tokenizer.json":         g.tokenizer,
		"tokenizer_config.json":  g.tokenizerConfig,
	}
	if key := "tokenizer.chat_template"; g.Has(key) {
		texts["chat_template.jinja"] = func() ([]byte, error) {
			text, err := g.Text(key)
			return []byte(text), err
		}
	}
	return texts
}

// generation is the text of generation_config.json: what ends a text, and how to sample.
func (g *ggufFile) generation() ([]byte, error) {
	var stop []int
	for _, key := range []string{"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"} {
		if !g.Has(key) {
			continue
		}
		id, err := g.Whole(key)
		if err != nil {
			return nil, err
		}
		stop = append(stop, id)
	}
	config := map[string]any{}
	if g.Has(tokensKey) {
		tokens, err := g.Texts(tokensKey)
		if err != nil {
			return nil, err
		}
		for i, t := range tokens { // which end a text or a turn whatever the metadata say
			if t == endOfText || t == endOfTurn {
				stop = append(stop, i)
			}
		}
	}
	if slices.Sort(stop); len(stop) > 0 {
		config["eos_token_id"] = slices.Compact(stop)
	}
	for key, name := range map[string]string{
		"temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p", "penalty_repeat": "repetition_penalty",
	} {
		if key = "general.sampling." + key; !g.Has(key) {
			continue
		}
		x, err := g.Number(key)
		if err != nil {
			return nil, err
		}
		config[name] = float32(x)
	}
	if _, ok := config["temperature"]; ok {
		config["do_sample"] = true
	}
	return json.MarshalIndent(config, "", "  ")
}

const tokensKey = "tokenizer.ggml.tokens"

// ggufPatterns are what text is first cut by, under the names that GGUF files have for it.
var ggufPatterns = map[string]string{
	"qwen35": `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	"qwen2":  `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
}

// Kinds of tokens; the others are the vocabulary's own.
const (
	tokenUnknown = 2
	tokenControl = 3
	tokenUser    = 4
	tokenUnused  = 5 // fills the vocabulary up to the width of the embedding
)

// tokenizer is the text of tokenizer.json.
func (g *ggufFile) tokenizer() ([]byte, error) {
	model, err := g.Text("tokenizer.ggml.model")
	if err != nil {
		return nil, err
	}
	pre, err := g.Text("tokenizer.ggml.pre")
	if err != nil {
		return nil, err
	}
	pattern, ok := ggufPatterns[pre]
	if model != "gpt2" || !ok {
		return nil, fmt.Errorf("tokenizer %q with pre-tokenizer %q is not supported, want gpt2 with qwen35 or qwen2", model, pre)
	}
	tokens, err := g.Texts(tokensKey)
	if err != nil {
		return nil, err
	}
	types, err := g.Wholes("tokenizer.ggml.token_type")
	if err != nil {
		return nil, err
	}
	merges, err := g.Texts("tokenizer.ggml.merges")
	if err != nil {
		return nil, err
	}
	if len(types) != len(tokens) {
		return nil, fmt.Errorf("%d tokens with %d types", len(tokens), len(types))
	}
	type object map[string]any
	vocab, added := []byte("{"), []object{}
	for i, t := range tokens {
		switch kind := types[i]; {
		case !utf8.ValidString(t):
			return nil, fmt.Errorf("token %d is not UTF-8", i)
		case kind == tokenUnused:
		case kind == tokenUnknown || kind == tokenControl || kind == tokenUser:
			added = append(added, object{"id": i, "content": t, "special": kind != tokenUser})
		default:
			if len(vocab) > 1 {
				vocab = append(vocab, ',')
			}
			quoted, _ := json.Marshal(t) // a string
			vocab = append(append(append(vocab, quoted...), ':'), strconv.Itoa(i)...)
		}
	}
	return json.Marshal(object{
		"version": "1.0", "added_tokens": added, "normalizer": object{"type": "NFC"},
		"pre_tokenizer": object{"type": "Sequence", "pretokenizers": []object{
			{"type": "Split", "pattern": object{"Regex": pattern}, "behavior": "Isolated", "invert": false},
			{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
		}},
		"decoder": object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
		"model":   object{"type": "BPE", "vocab": json.RawMessage(append(vocab, '}')), "merges": merges},
	})
}

// tokenizerConfig is the text of tokenizer_config.json.
func (g *ggufFile) tokenizerConfig() ([]byte, error) {
	config := map[string]any{"tokenizer_class": "Qwen2TokenizerFast", "clean_up_tokenization_spaces": false}
	tokens, err := g.Texts(tokensKey)
	if err != nil {
		return nil, err
	}
	for key, name := range map[string]string{"bos_token_id": "bos_token", "eos_token_id": "eos_token", "padding_token_id": "pad_token"} {
		if key = "tokenizer.ggml." + key; !g.Has(key) {
			continue
		}
		id, err := g.Whole(key)
		if err != nil {
			return nil, err
		}
		if id < 0 || id >= len(tokens) {
			return nil, fmt.Errorf("%s is %d, but there are %d tokens", key, id, len(tokens))
		}
		config[name] = tokens[id]
	}
	return json.MarshalIndent(config, "", "  ")
}
