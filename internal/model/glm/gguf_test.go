package glm

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/checkpoint/gguf/gguftest"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/modeltest"
)

// llama makes a GGUF file of a folder in the layout of MLX, as llama.cpp's converter does.
type llama struct {
	out  gguftest.File
	f    *folder
	arch string

	// What converters may do otherwise.
	replace map[string]any // keys have other values, or with nil are left out
	whole   bool           // kv_b stays in one, and lengths are those of heads
	fused   bool           // gates of experts stay with their ups
	typ     string         // of matrices whose rows fit; "": F32
}

// llamaNames are the converter's names of the parts of a block.
var llamaNames = strings.NewReplacer(
	"input_layernorm.", "attn_norm.", "self_attn.q_a_proj.", "attn_q_a.", "self_attn.q_a_layernorm.", "attn_q_a_norm.",
	"self_attn.q_b_proj.", "attn_q_b.", "self_attn.kv_a_proj_with_mqa.", "attn_kv_a_mqa.", "self_attn.kv_a_layernorm.", "attn_kv_a_norm.",
	"self_attn.embed_q.", "attn_k_b.", "self_attn.unembed_out.", "attn_v_b.", "self_attn.kv_b_proj.", "attn_kv_b.", "self_attn.o_proj.", "attn_output.",
	"self_attn.q_proj.", "attn_q.", "self_attn.k_proj.", "attn_k.", "self_attn.v_proj.", "attn_v.",
	"self_attn.q_norm.", "attn_q_norm.", "self_attn.k_norm.", "attn_k_norm.",
	"mlp.gate.e_score_correction_bias", "exp_probs_b.bias", "mlp.gate.weight", "ffn_gate_inp.weight",
	"mlp.switch_mlp.gate_proj.", "ffn_gate_exps.", "mlp.switch_mlp.up_proj.", "ffn_up_exps.", "mlp.switch_mlp.down_proj.", "ffn_down_exps.",
	"mlp.shared_experts.gate_proj.", "ffn_gate_shexp.", "mlp.shared_experts.up_proj.", "ffn_up_shexp.", "mlp.shared_experts.down_proj.", "ffn_down_shexp.",
	"mlp.gate_proj.", "ffn_gate.", "mlp.up_proj.", "ffn_up.", "mlp.down_proj.", "ffn_down.",
	"eh_proj.", "nextn.eh_proj.", "enorm.", "nextn.enorm.", "hnorm.", "nextn.hnorm.", "shared_head.norm.", "nextn.shared_head_norm.",
	"shared_head.head.", "nextn.shared_head_head.", "embed_tokens.", "nextn.embed_tokens.",
)

// rename is the converter's name of a tensor.
func (l *llama) rename(name string) string {
	switch name {
	case "model.embed_tokens.weight":
		return "token_embd.weight"
	case "lm_head.weight":
		return "output.weight"
	case "model.norm.weight":
		return "output_norm.weight"
	}
	second := "ffn_norm."
	if l.arch == ggufGrouped {
		second = "post_attention_norm."
	}
	name = strings.Replace(name, "post_attention_layernorm.", second, 1)
	return llamaNames.Replace(strings.Replace(name, "model.layers.", "blk.", 1))
}

// set writes a key of the architecture, unless it is to be another.
func (l *llama) set(key string, v any) {
	if other, ok := l.replace[key]; ok {
		v = other
	}
	if v != nil {
		l.out.Set(l.arch+"."+key, v)
	}
}

// metadata writes what the converter takes from config.json.
func (l *llama) metadata() {
	f := l.f
	l.out.Set("general.architecture", l.arch)
	n := func(key string) uint32 { return uint32(f.n(key)) }
	l.set("block_count", n("num_hidden_layers")+n("num_nextn_predict_layers"))
	l.set("nextn_predict_layers", n("num_nextn_predict_layers"))
	for key, name := range map[string]string{
		"context_length": "max_position_embeddings", "embedding_length": "hidden_size", "attention.head_count": "num_attention_heads",
		"feed_forward_length": "intermediate_size", "expert_count": "n_routed_experts", "expert_used_count": "num_experts_per_tok",
		"expert_feed_forward_length": "moe_intermediate_size", "expert_shared_count": "n_shared_experts",
		"leading_dense_block_count": "first_k_dense_replace", "expert_group_count": "n_group", "expert_group_used_count": "topk_group",
	} {
		l.set(key, n(name))
	}
	l.set("expert_weights_norm", true)
	l.set("expert_gating_func", uint32(2))
	for key, name := range map[string]string{
		"attention.layer_norm_rms_epsilon": "rms_norm_eps", "rope.freq_base": "rope_theta", "expert_weights_scale": "routed_scaling_factor",
	} {
		l.set(key, float32(f.config[name].(float64)))
	}
	if l.arch == ggufGrouped {
		l.set("attention.head_count_kv", n("num_key_value_heads"))
		l.set("attention.key_length", n("head_dim"))
		l.set("attention.value_length", n("head_dim"))
		l.set("rope.dimension_count", n("head_dim")/2)
		return
	}
	rotary := n("qk_rope_head_dim")
	l.set("rope.dimension_count", rotary)
	l.set("attention.q_lora_rank", n("q_lora_rank"))
	l.set("attention.kv_lora_rank", n("kv_lora_rank"))
	if l.whole {
		l.set("attention.key_length", n("qk_nope_head_dim")+rotary)
		l.set("attention.value_length", n("v_head_dim"))
	} else {
		l.set("attention.head_count_kv", uint32(1))
		l.set("attention.key_length", n("kv_lora_rank")+rotary)
		l.set("attention.value_length", n("kv_lora_rank"))
		l.set("attention.key_length_mla", n("qk_nope_head_dim")+rotary)
		l.set("attention.value_length_mla", n("v_head_dim"))
	}
	if rope, ok := f.config["rope_scaling"].(map[string]any); ok {
		l.set("rope.scaling.type", "yarn")
		l.set("rope.scaling.factor", float32(rope["factor"].(float64)))
		l.set("rope.scaling.original_context_length", uint32(rope["original_max_position_embeddings"].(float64)))
		l.set("rope.scaling.yarn_log_multiplier", float32(0.1*rope["mscale_all_dim"].(float64)))
	}
}

// convert writes a folder as a GGUF file and returns its path. The folder then has the numbers
// that the file stands for.
func (l *llama) convert(t *testing.T, f *folder) string {
	t.Helper()
	l.f = f
	l.metadata()
	layout := f.clone()
	if l.whole {
		stackExperts(layout)
	} else {
		mlx(t, layout)
	}
	decoded := map[string][]float32{}
	for _, name := range slices.Sorted(maps.Keys(layout.tensors)) {
		x := layout.tensors[name]
		if p, ok := strings.CutSuffix(name, "gate_proj.weight"); ok && l.fused && strings.Contains(name, "switch_mlp") {
			up, all := layout.tensors[p+"up_proj.weight"], []float32(nil)
			size := len(x.values) / x.shape[0]
			for e := range x.shape[0] {
				all = append(append(all, x.values[e*size:][:size]...), up.values[e*size:][:size]...)
			}
			l.out.Add(strings.Replace(l.rename(name), "gate_exps", "gate_up_exps", 1), "F32", []int{x.shape[0], 2 * x.shape[1], x.shape[2]}, all)
			continue
		}
		if l.fused && strings.Contains(name, "switch_mlp.up_proj") {
			continue
		}
		typ := "F32"
		if n := len(x.shape); n > 1 && l.typ != "" && x.shape[n-1]%gguftest.Columns(l.typ) == 0 && !strings.HasSuffix(name, "mlp.gate.weight") {
			typ = l.typ
		}
		decoded[name] = l.out.Add(l.rename(name), typ, x.shape, x.values)
		if typ == "NVFP4" {
			decoded[name] = l.out.AddFactors(l.rename(name), x.shape, decoded[name])
		}
	}
	path := filetest.Write(t, filepath.Join(t.TempDir(), "m.gguf"), l.out.Bytes())
	if l.typ != "" { // what the file stands for
		for name, v := range decoded {
			x := layout.tensors[name]
			x.typ, x.values = dtype.F32, v
			layout.tensors[name] = x
		}
		*f = *layout
	}
	return path
}

// TestGGUFIsTheSameModel compares files with the folders that they were made of.
func TestGGUFIsTheSameModel(t *testing.T) {
	released := setting("rope_scaling", map[string]any{ // with one factor, which is all that files have
		"type": "yarn", "factor": 8.0, "original_max_position_embeddings": 256.0, "mscale": 0.8, "mscale_all_dim": 0.8,
	})
	for _, c := range []struct {
		name, fixture string
		edits         []edit
		l             llama
	}{
		{"latent", "glm4_moe_lite", nil, llama{arch: ggufLatent}},
		{"latent, older", "glm4_moe_lite", nil, llama{arch: ggufLatent, whole: true}},
		{"latent, no copies", "glm4_moe_lite", []edit{uncopied}, llama{arch: ggufLatent}},
		{"latent, fused experts", "glm4_moe_lite", nil, llama{arch: ggufLatent, fused: true}},
		{"latent, Q8_0", "glm4_moe_lite", nil, llama{arch: ggufLatent, typ: "Q8_0"}},
		{"latent, Q4_0", "glm4_moe_lite", nil, llama{arch: ggufLatent, typ: "Q4_0"}},
		{"latent, NVFP4", "glm4_moe_lite", nil, llama{arch: ggufLatent, typ: "NVFP4"}},
		{"latent, Q2_0", "glm4_moe_lite", nil, llama{arch: ggufLatent, typ: "Q2_0"}},
		{"latent, no head", "glm4_moe_lite", []edit{headless, setting("num_nextn_predict_layers", 0.0)}, llama{arch: ggufLatent}},
		{"YaRN and groups", "deepseek_v3", []edit{released}, llama{arch: ggufLatent}},
		{"grouped", "glm4_moe_air", nil, llama{arch: ggufGrouped}},
		{"grouped, no scores said", "glm4_moe_air", nil, llama{arch: ggufGrouped, replace: map[string]any{"expert_gating_func": nil}}},
		{"grouped, Q5_1", "glm4_moe_air", nil, llama{arch: ggufGrouped, typ: "Q5_1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture(t, c.fixture, c.edits...)
			path := c.l.convert(t, f)
			same(t, "logits", answers(t, path, prompt), answers(t, f.write(t), prompt))
		})
	}
}

// TestGGUFEqualsReference holds files against the reference itself.
func TestGGUFEqualsReference(t *testing.T) {
	for name, arch := range map[string]string{"glm4_moe_lite": ggufLatent, "glm4_moe_air": ggufGrouped} {
		t.Run(name, func(t *testing.T) {
			l := llama{arch: arch}
			modeltest.EqualsReference(t, name, l.convert(t, fixture(t, name)), remembered(t))
		})
	}
}

// TestGGUFRefuses checks the errors for wrong files.
func TestGGUFRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		l     llama
		words []string
	}{
		{"no scores said", llama{replace: map[string]any{"expert_gating_func": nil}}, []string{"expert_gating_func is missing", "DeepSeek-V2"}},
		{"unknown scores", llama{replace: map[string]any{"expert_gating_func": uint32(3)}}, []string{"expert_gating_func is 3"}},
		{"all blocks of the head", llama{replace: map[string]any{"nextn_predict_layers": uint32(4)}}, []string{"4 of them in the head"}},
		{"no rank", llama{replace: map[string]any{"attention.kv_lora_rank": nil}}, []string{"kv_lora_rank"}},
		{"fewer blocks", llama{replace: map[string]any{"block_count": uint32(3)}}, []string{"not part of a deepseek2 model of 3 blocks"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.l.arch = ggufLatent
			path := c.l.convert(t, fixture(t, "glm4_moe_lite"))
			f, err := model.OpenGGUF(path, "")
			if err == nil {
				_ = f.Close()
				t.Fatal("it was opened")
			}
			for _, w := range c.words {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v: no %q", err, w)
				}
			}
		})
	}
	softmax := llama{arch: ggufLatent, replace: map[string]any{"expert_gating_func": uint32(1)}}
	if _, err := model.Survey(openFolder(t, softmax.convert(t, fixture(t, "glm4_moe_lite")))); err == nil || !strings.Contains(err.Error(), "softmax") {
		t.Errorf("%v", err)
	}
}

// words writes a tokenizer.
func (l *llama) words() {
	l.out.Set("tokenizer.ggml.model", "gpt2")
	l.out.Set("tokenizer.ggml.pre", "glm4")
	l.out.Set("tokenizer.ggml.tokens", []string{"a", "b", "ab", "<|endoftext|>", "<|user|>", "<|observation|>"})
	l.out.Set("tokenizer.ggml.token_type", []int32{1, 1, 1, 3, 3, 3})
	l.out.Set("tokenizer.ggml.merges", []string{"a b"})
	l.out.Set("tokenizer.ggml.eos_token_id", uint32(3))
}

// TestGGUFWords writes the tokenizer and the tokens that end a turn.
func TestGGUFWords(t *testing.T) {
	l := llama{arch: ggufGrouped}
	l.words()
	c := openFolder(t, l.convert(t, fixture(t, "glm4_moe_air")))
	cfg, err := readConfig(c)
	if err != nil || !slices.Equal(cfg.Stop, []int32{3, 4, 5}) {
		t.Errorf("%v, stop %v", err, cfg.Stop)
	}
	text, err := c.ReadFile("tokenizer.json")
	if err != nil || !strings.Contains(string(text), `\\p{N}{1,3}`) || !strings.Contains(string(text), `"normalizer":null`) {
		t.Errorf("%v: %s", err, text)
	}
}

// FuzzAssembleGGUF feeds metadata that no converter writes: a file has another number for one key.
func FuzzAssembleGGUF(f *testing.F) {
	keys := []string{
		"block_count", "nextn_predict_layers", "context_length", "embedding_length", "feed_forward_length", "attention.head_count", "attention.head_count_kv",
		"attention.key_length", "attention.value_length", "attention.key_length_mla", "attention.value_length_mla", "attention.q_lora_rank",
		"attention.kv_lora_rank", "rope.dimension_count", "expert_count", "expert_used_count", "expert_feed_forward_length", "expert_shared_count",
		"leading_dense_block_count", "expert_group_count", "expert_group_used_count", "expert_gating_func",
	}
	for i := range keys {
		f.Add(uint8(i), uint32(i%3))
		f.Add(uint8(i), uint32(1<<31))
	}
	var source *folder
	f.Fuzz(func(t *testing.T, key uint8, n uint32) {
		if source == nil {
			source = fixture(t, "glm4_moe_lite")
		}
		l := llama{arch: ggufLatent, replace: map[string]any{keys[int(key)%len(keys)]: n}}
		path := l.convert(t, source)
		c, err := model.OpenGGUF(path, "")
		if err != nil {
			return
		}
		defer c.Close() //nolint:errcheck // read only
		if _, err := model.Survey(c); err != nil && !strings.Contains(err.Error(), "glm") {
			t.Error(fmt.Errorf("survey: %w", err))
		}
	})
}
