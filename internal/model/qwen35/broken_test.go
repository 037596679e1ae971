package qwen35

import (
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
)

// broken is a checkpoint that must be refused, and words that its error must say.
type broken struct {
	name  string
	moe   bool // only a model with experts can be broken so
	edits []edit
	words []string
}

// TestOpenRefusesMissingTensors drops every tensor in turn. Each must be missed by name.
func TestOpenRefusesMissingTensors(t *testing.T) {
	for _, c := range golden.SpecCases()[:2] {
		for _, x := range c.Config.Tensors() {
			words := []string{strings.TrimPrefix(x.Name, released), "missing"}
			if inHead(x.Name) {
				words = append(words, "head is incomplete")
			}
			err := refusal(t, specFolder(t, c.Config, without(x.Name)))
			checkWords(t, "without "+x.Name, err, words)
			if inModel(x.Name) && strings.Contains(err, "head") && !strings.Contains(x.Name, "head") {
				t.Errorf("without %s the error blames the head: %s", x.Name, err)
			}
		}
	}
}

// TestOpenRefusesBrokenTensors is about the weights.
func TestOpenRefusesBrokenTensors(t *testing.T) {
	refuse(t, []broken{
		{"several missing", false, []edit{without("layers.1.mlp.up_proj.weight", "layers.2.linear_attn.A_log", "mtp.norm.weight")}, []string{"layers.1.mlp.up_proj.weight", "layers.2.linear_attn.A_log", "mtp.norm.weight", "missing"}},
		{"head of norms only", false, []edit{without("mtp.fc.weight", "mtp.layers.0.self_attn.q_proj.weight")}, []string{"mtp.fc.weight", "mtp.layers.0.self_attn.q_proj.weight", "head is incomplete"}},
		{"an expert", true, []edit{separateExperts, without("layers.2.mlp.experts.3.up_proj.weight")}, []string{"layers.2.mlp.experts.3.up_proj.weight", "missing"}},
		{"an expert of the head", true, []edit{in("mtp.", separateExperts), without("mtp.layers.0.mlp.experts.3.down_proj.weight")}, []string{"mtp.layers.0.mlp.experts.3.down_proj.weight", "missing", "head is incomplete"}},
		{"a part of switched experts", true, []edit{switchExperts, without("layers.0.mlp.switch_mlp.up_proj.weight")}, []string{"layers.0.mlp.switch_mlp.up_proj", "missing"}},
		{"one of the fused projections", false, []edit{qwen3Next, without("layers.1.linear_attn.in_proj_ba.weight")}, []string{"layers.1.linear_attn.in_proj_ba.weight", "missing"}},
		{"untied without an output matrix", false, []edit{without("lm_head.weight")}, []string{"lm_head.weight", "tie_word_embeddings"}},
		{"no tensor of the model", false, []edit{rename("", "audio.")}, []string{"embed_tokens.weight", "missing", "more"}},
		{"an unknown tensor", false, []edit{with(some("model.language_model.layers.0.mlp.bonus.weight"))}, []string{"1 tensor", "layers.0.mlp.bonus.weight"}},
		{"many unknown tensors", false, []edit{manyUnknown(12)}, []string{"12 tensors", "layers.0.bonus.00", "and 4 more"}},
		{"an unknown tensor of the head", false, []edit{with(some("mtp.embed_tokens.weight"))}, []string{"mtp.embed_tokens.weight"}},
		{"an unknown tensor beside", false, []edit{with(some("mtp.extra")), sidecar("mtp.safetensors")}, []string{"mtp.extra"}},
		{"a layer too many", false, []edit{with(some("model.language_model.layers.4.input_layernorm.weight"))}, []string{"layers.4.input_layernorm.weight"}},
		{"a bias", false, []edit{with(some("model.language_model.layers.3.self_attn.q_proj.bias"))}, []string{"self_attn.q_proj.bias"}},
		{"a head of two layers", false, []edit{with(some("mtp.layers.1.input_layernorm.weight"))}, []string{"head", "2 layers", "1"}},
		{"two names for one", false, []edit{with(some("model.norm.weight"))}, []string{`"model.norm.weight"`, `"model.language_model.norm.weight"`, "both"}},
		{"two names for one, beside", false, []edit{with(some("language_model.mtp.fc.weight")), sidecar("mtp.safetensors")}, []string{`"mtp.fc.weight"`, `"language_model.mtp.fc.weight"`, "both"}},
		{"experts in two layouts", true, []edit{with(some("model.language_model.layers.0.mlp.switch_mlp.gate_proj.weight"))}, []string{"layers.0.mlp.switch_mlp.gate_proj.weight"}},
		{"a matrix of another shape", false, []edit{change("layers.1.mlp.down_proj.weight", transposed)}, []string{"layers.1.mlp.down_proj.weight", "[16, 8]", "[8, 16]"}},
		{"a matrix of another shape in the head", false, []edit{change("mtp.fc.weight", transposed)}, []string{"mtp.fc.weight", "[16, 8]", "[8, 16]"}},
		{"a norm of another length", false, []edit{change("model.language_model.norm.weight", halved)}, []string{"model.language_model.norm.weight", "[4]", "8"}},
		{"a convolution of another length", false, []edit{change("layers.0.linear_attn.conv1d.weight", halved)}, []string{"layers.0.linear_attn.conv1d.weight", "64"}},
		{"experts of another number", true, []edit{change("layers.0.mlp.experts.down_proj", halved)}, []string{"layers.0.mlp.experts.down_proj", "[2, 8, 6]", "[4, 8, 6]"}},
		{"a separate expert of another type", true, []edit{separateExperts, change("layers.0.mlp.experts.2.up_proj.weight", half)}, []string{"layers.0.mlp.experts.up_proj", "matrix 2"}},
		{"a packed matrix without scales", false, []edit{change("layers.3.self_attn.k_proj.weight", retype(dtype.U32))}, []string{"layers.3.self_attn.k_proj.weight", "U32", "layers.3.self_attn.k_proj.scales", "missing"}},
		{"a matrix of integers", false, []edit{change("layers.3.self_attn.k_proj.weight", retype(dtype.I32))}, []string{"layers.3.self_attn.k_proj.weight", "I32", "want"}},
		{"a norm of integers", false, []edit{change("layers.3.input_layernorm.weight", retype(dtype.I32))}, []string{"layers.3.input_layernorm.weight", "I32", "want"}},
		{"a voting norm of integers", false, []edit{sidecar("mtp.safetensors"), change("mtp.layers.0.self_attn.q_norm.weight", retype(dtype.U32))}, []string{"mtp.layers.0.self_attn.q_norm.weight", "U32", "want"}},
		{"a missing shard", false, []edit{sharded(3, ""), func(_ *testing.T, f *folder) { delete(f.files, "model-00002-of-00003.safetensors") }}, []string{"model-00002-of-00003.safetensors", "missing"}},
		{"a shard without its tensor", false, []edit{sharded(3, ""), without("layers.0.mlp.up_proj.weight")}, []string{"layers.0.mlp.up_proj.weight", "missing"}},
	})
}

// TestOpenRefusesBrokenConfig is about config.json, with weights that are in order.
func TestOpenRefusesBrokenConfig(t *testing.T) {
	const linear, full = "linear_attention", "full_attention"
	refuse(t, []broken{
		{"dense layers", true, []edit{setting("mlp_only_layers", []int{0})}, []string{"mlp_only_layers", "[0]"}},
		{"sparse step", true, []edit{setting("decoder_sparse_step", 2)}, []string{"decoder_sparse_step", "2"}},
		{"no output gate", false, []edit{setting("attn_output_gate", false)}, []string{"attn_output_gate"}},
		{"attention bias", false, []edit{setting("attention_bias", true)}, []string{"attention_bias"}},
		{"another gate", false, []edit{setting("output_gate_type", "tanh")}, []string{"output_gate_type", "tanh", "sigmoid"}},
		{"another activation", false, []edit{setting("hidden_act", "gelu")}, []string{"hidden_act", "gelu", "silu"}},
		{"yarn", false, []edit{setting("rope_parameters", map[string]any{"rope_type": "yarn", "factor": 4})}, []string{"rope_type", "yarn"}},
		{"yarn in the old place", false, []edit{setting("rope_parameters", nil), setting("rope_scaling", map[string]any{"type": "yarn"})}, []string{"rope_type", "yarn"}},
		{"an own embedding of the head", false, []edit{setting("mtp_use_dedicated_embeddings", true)}, []string{"mtp_use_dedicated_embeddings"}},
		{"another hidden state", false, []edit{setting("mtp_hidden_state_mode", "raw")}, []string{"mtp_hidden_state_mode", "raw", "post_norm"}},
		{"an absurd width", false, []edit{setting("hidden_size", 1e12)}, []string{"hidden_size", "1000000000000"}},
		{"a width that is not the weights'", false, []edit{setting("hidden_size", 16)}, []string{"embed_tokens.weight", "[16, 8]", "[16, 16]"}},
		{"the largest width there may be", false, []edit{setting("hidden_size", 1<<20), setting("vocab_size", 1<<24)}, []string{"embed_tokens.weight", "[16, 8]", "[16777216, 1048576]"}},
		{"the largest linear layers there may be", false, []edit{qwen3Next, configure(func(text, _ map[string]any) {
			for _, name := range []string{"linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim"} {
				text[name] = 1 << 12
			}
		})}, []string{"linear_attn.", "want"}},
		{"the most experts there may be", true, []edit{largestMixture}, []string{"mlp.gate.weight", "[4, 8]", "[16384, 8]"}},
		{"the most experts there may be, and none of them there", true, []edit{largestMixture, rename("", "audio.")}, []string{"embed_tokens.weight", "missing", "more"}},
		{"a fraction", false, []edit{setting("hidden_size", 8.5)}, []string{"8.5", "whole number"}},
		{"a number in words", false, []edit{setting("hidden_size", "eight")}, []string{"config.json", "number"}},
		{"negative layers", false, []edit{setting("num_hidden_layers", -1)}, []string{"num_hidden_layers", "-1"}},
		{"no layers", false, []edit{setting("num_hidden_layers", 0)}, []string{"num_hidden_layers", "0"}},
		{"no width", false, []edit{setting("hidden_size", nil)}, []string{"embed_tokens.weight", "[16, 8]", "[16, 4096]"}},
		{"fewer experts than the usual choice", true, []edit{setting("num_experts_per_tok", nil)}, []string{"num_experts_per_tok", "missing", "8", "4"}},
		{"a negative number of experts", true, []edit{setting("num_experts", -1)}, []string{"num_experts", "-1"}},
		{"a negative epsilon", false, []edit{setting("rms_norm_eps", -1)}, []string{"rms_norm_eps", "-1"}},
		{"an epsilon in words", false, []edit{setting("rms_norm_eps", "NaN")}, []string{"rms_norm_eps", "string", "number"}},
		{"an epsilon that is not a number", false, []edit{configText(`"rms_norm_eps":1e-6`, `"rms_norm_eps":NaN`)}, []string{"config.json", "NaN"}},
		{"an epsilon beyond numbers", false, []edit{configText(`"rms_norm_eps":1e-6`, `"rms_norm_eps":1e999`)}, []string{"rms_norm_eps", "1e999"}},
		{"no rotation", false, []edit{setting("rope_parameters", map[string]any{"partial_rotary_factor": 0})}, []string{"partial_rotary_factor", "0"}},
		{"an odd rotation", false, []edit{setting("rope_parameters", map[string]any{"partial_rotary_factor": 0.4})}, []string{"partial_rotary_factor", "0.4", "even"}},
		{"a rotation without base", false, []edit{setting("rope_parameters", map[string]any{"rope_theta": 0})}, []string{"rope_theta", "0"}},
		{"heads that do not divide", false, []edit{setting("num_attention_heads", 3), setting("num_key_value_heads", 2)}, []string{"num_attention_heads", "num_key_value_heads"}},
		{"linear heads that do not divide", false, []edit{setting("linear_num_key_heads", 2), setting("linear_num_value_heads", 3)}, []string{"linear_num_value_heads", "linear_num_key_heads"}},
		{"more experts per token than experts", true, []edit{setting("num_experts_per_tok", 5)}, []string{"num_experts_per_tok", "5", "4"}},
		{"too few layer types", false, []edit{setting("layer_types", []string{linear, full})}, []string{"layer_types", "2", "4"}},
		{"no layer types", false, []edit{setting("layer_types", []string{})}, []string{"layer_types", "0", "4"}},
		{"an unknown layer type", false, []edit{setting("layer_types", []string{linear, linear, linear, "sliding_attention"})}, []string{"layer_types[3]", "sliding_attention"}},
		{"other layer types than the weights'", false, []edit{setting("layer_types", []string{full, linear, linear, full})}, []string{"layers.0.self_attn.", "missing"}},
		{"not an object", false, []edit{func(_ *testing.T, f *folder) { f.texts["config.json"] = "[]" }}, []string{"config.json", "object"}},
		{"generation config of another shape", false, []edit{func(_ *testing.T, f *folder) { f.texts["generation_config.json"] = `{"eos_token_id": "end"}` }}, []string{"generation_config.json", "end"}},
	})
}

// refuse writes every broken checkpoint and checks its error.
func refuse(t *testing.T, list []broken) {
	t.Helper()
	cases := golden.SpecCases()
	for _, b := range list {
		c := cases[0].Config
		if b.moe {
			c = cases[1].Config
		}
		t.Run("broken="+b.name, func(t *testing.T) {
			checkWords(t, b.name, refusal(t, specFolder(t, c, b.edits...)), b.words)
		})
	}
}

// refusal is the error of opening a folder, which must not take much memory to find.
func refusal(t *testing.T, f *folder) string {
	t.Helper()
	dir := f.write(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := tryOpen(t, dir, model.Options{Compute: backend.Float32})
	runtime.ReadMemStats(&after)
	const enough = 80 << 20 // with the kernels of a device that is opened for it
	if n := after.TotalAlloc - before.TotalAlloc; n > enough {
		t.Errorf("opening allocated %d bytes, more than %d", n, enough)
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

func checkWords(t *testing.T, what, err string, words []string) {
	t.Helper()
	if err == "" {
		t.Errorf("%s: no error, want one that says %q", what, words)
		return
	}
	for _, w := range words {
		if !strings.Contains(err, w) {
			t.Errorf("%s: error %q does not say %q", what, err, w)
		}
	}
}

// TestOpenWithoutPromisedHead loads a model whose head a converter has dropped.
func TestOpenWithoutPromisedHead(t *testing.T) {
	for _, c := range golden.SpecCases() {
		f := specFolder(t, c.Config)
		f.main().take(inHead)
		var log strings.Builder
		o := model.Options{Compute: backend.Float32, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))}
		r := open(t, f.write(t), 1, o)
		if r.Info().Head || r.Head() != nil {
			t.Errorf("%s: a head without weights", c.Config.Name)
		}
		if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "multi-token-prediction head") {
			t.Errorf("%s: %d warnings, want one about the head: %s", c.Config.Name, n, log.String())
		}
		logits, _ := r.Feed(t, model.Span{State: r.Sequence(t), Tokens: golden.SpecPrompt, Want: 1})
		var worst golden.Worst
		worst.Add("logits", logits[0], c.Want.Logits)
		worst.Check(t, c.Config.Name, golden.Tol.Spec)
	}
}

// some is a small tensor that belongs nowhere.
func some(name string) tensor { return numbers(name, dtype.F32, []int{2}, []float32{1, 2}) }

func manyUnknown(n int) edit {
	return func(_ *testing.T, f *folder) {
		for i := range n {
			f.main().add(some(fmt.Sprintf("model.language_model.layers.0.bonus.%02d", i)))
		}
	}
}

// setting sets a field of the model's config; nil removes it.
func setting(name string, value any) edit {
	return configure(func(text, _ map[string]any) {
		if value == nil {
			delete(text, name)
			return
		}
		text[name] = value
	})
}

// configText replaces text in config.json, to write what no encoder would.
func configText(old, text string) edit {
	return func(t *testing.T, f *folder) {
		t.Helper()
		b := filetest.Encode(t, f.config)
		s := strings.Replace(string(b), "0.000001", "1e-6", 1)
		if !strings.Contains(s, old) {
			t.Fatalf("config has no %s: %s", old, s)
		}
		f.texts["config.json"] = strings.Replace(s, old, text, 1)
	}
}

// largestMixture promises as many layers and experts as a config may.
func largestMixture(t *testing.T, f *folder) {
	f.edit(t, setting("num_hidden_layers", 1<<12), setting("num_experts", 1<<14), separateExperts)
}

func transposed(x *tensor) { x.shape = []int{x.shape[1], x.shape[0]} }

// halved leaves the first half of a tensor.
func halved(x *tensor) { *x = x.rows(x.shape[0] / 2)[0] }

func half(x *tensor) { *x = numbers(x.name, dtype.F16, x.shape, x.values()) }

// retype says that a tensor's bytes are of another type of the same size.
func retype(typ dtype.Type) func(x *tensor) { return func(x *tensor) { x.typ = typ } }
