package gemma

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/checkpoint/gguf"
	"github.com/foretoken/foretoken/internal/checkpoint/gguf/gguftest"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/modeltest"
)

// llama makes a GGUF file of a folder, as llama.cpp's converter does.
type llama struct {
	out gguftest.File
	f   *folder

	// What converters may do otherwise.
	replace map[string]any // keys have other values, or with nil are left out
	apart   bool           // gates of experts are not with their ups
	typ     string         // of matrices whose rows fit; "": F32
	freqs   []float32      // the divisors of frequencies; nil: those of the config
}

// llamaNames are the converter's names of the parts of a block.
var llamaNames = strings.NewReplacer(
	"input_layernorm.", "attn_norm.", "self_attn.q_proj.", "attn_q.", "self_attn.k_proj.", "attn_k.", "self_attn.v_proj.", "attn_v.",
	"self_attn.o_proj.", "attn_output.", "self_attn.q_norm.", "attn_q_norm.", "self_attn.k_norm.", "attn_k_norm.",
	"post_attention_layernorm.", "post_attention_norm.", "pre_feedforward_layernorm.", "ffn_norm.", "post_feedforward_layernorm.", "post_ffw_norm.",
	"mlp.gate_proj.", "ffn_gate.", "mlp.up_proj.", "ffn_up.", "mlp.down_proj.", "ffn_down.", "layer_scalar", "layer_output_scale.weight",
	"router.proj.", "ffn_gate_inp.", "router.scale", "ffn_gate_inp.scale", "router.per_expert_scale", "ffn_down_exps.scale",
	"pre_feedforward_layernorm_2.", "pre_ffw_norm_2.", "post_feedforward_layernorm_1.", "post_ffw_norm_1.", "post_feedforward_layernorm_2.", "post_ffw_norm_2.",
	"experts.gate_up_proj", "ffn_gate_up_exps.weight", "experts.down_proj", "ffn_down_exps.weight",
	"experts.switch_glu.gate_proj.", "ffn_gate_exps.", "experts.switch_glu.up_proj.", "ffn_up_exps.", "experts.switch_glu.down_proj.", "ffn_down_exps.",
	"per_layer_input_gate.", "inp_gate.", "per_layer_projection.", "proj.", "post_per_layer_input_norm.", "post_norm.",
)

// rename is the converter's name of a tensor.
func (l *llama) rename(name string) string {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "model."), "language_model.")
	name = strings.TrimPrefix(name, "model.")
	for from, to := range map[string]string{
		"embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight", "lm_head.weight": "output.weight",
		"embed_tokens_per_layer.weight": "per_layer_token_embd.weight", "per_layer_model_projection.weight": "per_layer_model_proj.weight",
		"per_layer_projection_norm.weight": "per_layer_proj_norm.weight",
	} {
		if name == from {
			return to
		}
	}
	return llamaNames.Replace(strings.Replace(name, "layers.", "blk.", 1))
}

// set writes a key of the architecture, unless it is to be another.
func (l *llama) set(key string, v any) {
	if other, ok := l.replace[key]; ok {
		v = other
	}
	if v != nil {
		l.out.Set(ggufName+"."+key, v)
	}
}

// metadata writes what the converter takes from config.json.
func (l *llama) metadata() {
	f := l.f
	l.out.Set("general.architecture", ggufName)
	n := func(key string) uint32 { return uint32(f.n(key)) }
	for key, name := range map[string]string{
		"block_count": "num_hidden_layers", "context_length": "max_position_embeddings", "embedding_length": "hidden_size", "attention.head_count": "num_attention_heads",
		"attention.key_length": "global_head_dim", "attention.value_length": "global_head_dim", "attention.key_length_swa": "head_dim", "attention.value_length_swa": "head_dim",
		"attention.sliding_window": "sliding_window", "attention.shared_kv_layers": "num_kv_shared_layers", "embedding_length_per_layer_input": "hidden_size_per_layer_input",
		"rope.dimension_count": "global_head_dim", "rope.dimension_count_swa": "head_dim",
	} {
		l.set(key, n(name))
	}
	if n("num_experts") > 0 {
		l.set("expert_count", n("num_experts"))
		l.set("expert_used_count", n("top_k_experts"))
		l.set("expert_feed_forward_length", n("moe_intermediate_size"))
	}
	l.set("attention.layer_norm_rms_epsilon", float32(1e-6))
	l.set("rope.freq_base", float32(1e6))
	l.set("rope.freq_base_swa", float32(1e4))
	l.set("final_logit_softcapping", float32(30))
	var slides []bool
	var heads, inner []int32
	for i, kind := range f.text()["layer_types"].([]any) {
		slides, heads, inner = append(slides, kind == "sliding_attention"), append(heads, int32(n("num_key_value_heads"))), append(inner, int32(n("intermediate_size")))
		if kind != "sliding_attention" && n("num_global_key_value_heads") > 0 {
			heads[i] = int32(n("num_global_key_value_heads"))
		}
		if f.text()["use_double_wide_mlp"] == true && i >= f.n("num_hidden_layers")-f.n("num_kv_shared_layers") {
			inner[i] *= 2
		}
	}
	l.set("attention.sliding_window_pattern", slides)
	one := func(list []int32) any {
		if slices.Max(list) == slices.Min(list) {
			return uint32(list[0])
		}
		return list
	}
	l.set("attention.head_count_kv", one(heads))
	l.set("feed_forward_length", one(inner))
	if l.freqs == nil {
		for i := range f.n("global_head_dim") / 2 {
			l.freqs = append(l.freqs, 1)
			if i >= f.n("global_head_dim")/8 {
				l.freqs[i] = 1e30
			}
		}
	}
	l.out.Add("rope_freqs.weight", "F32", []int{len(l.freqs)}, l.freqs)
}

// convert writes a folder as a GGUF file and returns its path. The folder then has the numbers
// that the file stands for.
func (l *llama) convert(t *testing.T, f *folder) string {
	t.Helper()
	l.f = f
	l.metadata()
	if l.apart {
		mlx(t, f)
	}
	for _, name := range slices.Sorted(maps.Keys(f.tensors)) {
		x := f.tensors[name]
		typ := "F32"
		if n := len(x.shape); n > 1 && l.typ != "" && x.shape[n-1]%gguftest.Columns(l.typ) == 0 && !strings.HasSuffix(name, "router.proj.weight") {
			typ = l.typ
		}
		x.values = l.out.Add(l.rename(name), typ, x.shape, x.values)
		x.typ = dtype.F32
		f.tensors[name] = x
	}
	return filetest.Write(t, filepath.Join(t.TempDir(), "m.gguf"), l.out.Bytes())
}

// TestGGUFIsTheSameModel compares files with the folders that they were made of. Q4_0 is the format of the QAT files of Google.
func TestGGUFIsTheSameModel(t *testing.T) {
	half := make([]float32, 64)
	for i := range half {
		half[i] = 1e30
	}
	for i := range 8 {
		half[i] = 1
	}
	rope := map[string]any{"full_attention": map[string]any{"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 1e6}}
	for _, c := range []struct {
		name, fixture string
		edits         []edit
		l             llama
	}{
		{"plain", "gemma4_dense", nil, llama{}},
		{"Q4_0", "gemma4_dense", nil, llama{typ: "Q4_0"}},
		{"half of the pairs turn", "gemma4_dense", []edit{setting("rope_parameters", rope)}, llama{freqs: half[:16]}},
		{"experts", "gemma4_moe", nil, llama{}},
		{"experts apart", "gemma4_moe", nil, llama{apart: true}},
		{"experts, Q8_0", "gemma4_moe", nil, llama{typ: "Q8_0"}},
		{"layer embeddings", "gemma4_ple", []edit{surplus}, llama{}},
		{"layer embeddings, Q4_0", "gemma4_ple", nil, llama{typ: "Q4_0"}},
		{"unified, Q5_1", "gemma4_unified", nil, llama{typ: "Q5_1"}},
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
	for _, name := range golden.Gemma {
		t.Run(name, func(t *testing.T) {
			modeltest.EqualsReference(t, name, (&llama{}).convert(t, fixture(t, name)), remembered(t))
		})
	}
}

// TestGGUFRefuses checks the errors for wrong files.
func TestGGUFRefuses(t *testing.T) {
	for _, c := range []struct {
		name, fixture string
		l             llama
		edit          edit
		words         []string
	}{
		{"old files without scalars", "gemma4_dense", llama{}, func(_ *testing.T, f *folder) { delete(f.tensors, "model.language_model.layers.0.layer_scalar") }, []string{"layers.0.layer_scalar"}},
		{"divisors of another rotation", "gemma4_dense", llama{freqs: slices.Repeat([]float32{1, 8}, 8)}, nil, []string{"rope_freqs.weight", "divisor 8"}},
		{"divisors that are no numbers", "gemma4_dense", llama{freqs: slices.Repeat([]float32{1, float32(math.NaN())}, 8)}, nil, []string{"rope_freqs.weight", "divisor NaN"}},
		{"divisors of other heads", "gemma4_dense", llama{freqs: []float32{1, 1}}, nil, []string{"rope_freqs.weight", "[2]"}},
		{"a list of other length", "gemma4_dense", llama{replace: map[string]any{"attention.sliding_window_pattern": []bool{true, false}}}, nil, []string{"sliding_window_pattern has 2"}},
		{"heads of single layers", "gemma4_dense", llama{replace: map[string]any{"attention.head_count_kv": []int32{2, 2, 1, 1, 2, 1}}}, nil, []string{"block 3 has 1 key heads"}},
		{"feed-forwards of single layers", "gemma4_dense", llama{replace: map[string]any{"feed_forward_length": []int32{96, 96, 48, 96, 96, 96}}}, nil, []string{"block 2", "48"}},
		{"narrow values", "gemma4_dense", llama{replace: map[string]any{"attention.value_length": uint32(16)}}, nil, []string{"value_length is 16"}},
		{"no blocks", "gemma4_dense", llama{replace: map[string]any{"block_count": uint32(0)}}, nil, []string{"0 blocks"}},
		{"fewer blocks", "gemma4_unified", llama{replace: map[string]any{
			"block_count": uint32(2), "attention.sliding_window_pattern": []bool{true, true}, "attention.head_count_kv": uint32(2),
		}}, nil, []string{"not part of a gemma4 model of 2 blocks"}},
		{"no window", "gemma4_dense", llama{replace: map[string]any{"attention.sliding_window": nil}}, nil, []string{"sliding_window"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture(t, c.fixture)
			if c.edit != nil {
				c.edit(t, f)
			}
			x, err := model.OpenGGUF(c.l.convert(t, f), "")
			if err == nil {
				defer x.Close() //nolint:errcheck // read only
				s, wrong := model.Survey(x)
				if err = wrong; err == nil {
					err = fmt.Errorf("%v %v %v", s.Missing, s.Unknown, s.Errors)
				}
			}
			for _, w := range c.words {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v: no %q", err, w)
				}
			}
		})
	}
}

// TestGGUFRefusesFactorsOfExperts checks NVFP4 files, in which the factors of the format have the name of the experts'.
func TestGGUFRefusesFactorsOfExperts(t *testing.T) {
	g := &ggufFile{layers: 1}
	if _, err := g.pieces(&gguf.Tensor{Name: "blk.0.ffn_down_exps.weight", Factors: []float32{1}}); err == nil || !strings.Contains(err.Error(), "NVFP4") {
		t.Errorf("%v", err)
	}
}

// words writes a tokenizer of at least n tokens.
func (l *llama) words(n int) {
	tokens := []string{"<pad>", "<eos>", "<bos>", "<unk>", "a", "b", "ab", "<turn|>", "<|tool_response>"}
	types := []int32{3, 3, 3, 3, 1, 1, 1, 4, 4}
	for i := 0; len(tokens) < n; i++ {
		if tokens, types = append(tokens, fmt.Sprintf("<0x%02X>", i)), append(types, 6); i > 255 {
			tokens[len(tokens)-1], types[len(tokens)-1] = fmt.Sprintf("<unused%d>", i), 5
		}
	}
	l.out.Set("tokenizer.ggml.model", "gemma4")
	l.out.Set("tokenizer.ggml.tokens", tokens)
	l.out.Set("tokenizer.ggml.token_type", types)
	l.out.Set("tokenizer.ggml.merges", []string{"a b"})
	l.out.Set("tokenizer.ggml.bos_token_id", uint32(2))
	l.out.Set("tokenizer.ggml.eos_token_id", uint32(7))
	l.out.Set("tokenizer.ggml.add_bos_token", true)
}

// TestGGUFWords writes the tokenizer and the tokens that end a turn.
func TestGGUFWords(t *testing.T) {
	l := llama{}
	l.words(0)
	c := openFolder(t, l.convert(t, fixture(t, "gemma4_unified")))
	cfg, err := readConfig(c)
	if err != nil || !slices.Equal(cfg.Stop, []int32{1, 7, 8}) {
		t.Errorf("%v, stop %v", err, cfg.Stop)
	}
	text, err := c.ReadFile("tokenizer.json")
	if err != nil || !strings.Contains(string(text), "ByteFallback") {
		t.Errorf("%v: %s", err, text)
	}
}

// FuzzAssembleGGUF feeds metadata that no converter writes: a file has another number for one key.
func FuzzAssembleGGUF(f *testing.F) {
	keys := []string{
		"block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count", "attention.head_count_kv",
		"attention.key_length", "attention.key_length_swa", "attention.sliding_window", "attention.shared_kv_layers", "embedding_length_per_layer_input",
		"expert_count", "expert_used_count", "expert_feed_forward_length", "attention.sliding_window_pattern", "rope.freq_base",
	}
	for i := range keys {
		f.Add(uint8(i), uint32(i%3))
		f.Add(uint8(i), uint32(1<<31))
	}
	var source *folder
	f.Fuzz(func(t *testing.T, key uint8, n uint32) {
		if source == nil {
			source = fixture(t, "gemma4_ple")
		}
		l := llama{replace: map[string]any{keys[int(key)%len(keys)]: n}}
		c, err := model.OpenGGUF(l.convert(t, source.clone()), "")
		if err != nil {
			return
		}
		defer c.Close() //nolint:errcheck // read only
		if _, err := model.Survey(c); err != nil && !strings.Contains(err.Error(), "gemma") {
			t.Error(fmt.Errorf("survey: %w", err))
		}
	})
}
