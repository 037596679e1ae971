package glm

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/modeltest"
	"github.com/foretoken/foretoken/internal/model/network"
)

// parse reads a config.json.
func parse(t *testing.T, text string) (*config, error) {
	t.Helper()
	c, err := checkpoint.Assemble(checkpoint.Assembly{Name: "test", Config: []byte(text)})
	if err != nil {
		return nil, err
	}
	return readConfig(c)
}

// TestConfigDefaults reads configs that have a model type and nothing else.
func TestConfigDefaults(t *testing.T) {
	for kind, want := range map[string]string{
		lite:     "154880 2048 10240 20 768 512 192 64 256 64 4 1536 1536 1 1 1.8 1e-05 202752 1",
		deepseek: "129280 7168 18432 128 1536 512 128 64 128 256 8 2048 2048 8 4 2.5 1e-06 4096 3",
		grouped:  "151552 4096 10944 96 0 0 0 64 0 128 8 1408 1408 1 1 1 1e-05 131072 1",
	} {
		c, err := parse(t, fmt.Sprintf(`{"model_type": %q}`, kind))
		if err != nil {
			t.Error(err)
			continue
		}
		dense := 0
		for _, d := range c.dense {
			if d {
				dense++
			}
		}
		got := fmt.Sprint(c.Vocab, c.Width, c.intermediate, c.heads, c.queryRank, c.rank, c.nope, c.rotary, c.valueDim,
			c.Experts, c.TopK, c.expertWidth, c.sharedWidth, c.groups, c.topGroups, c.expertScale, c.Eps, c.Context, dense)
		if got != want {
			t.Errorf("%s: %s, want %s", kind, got, want)
		}
	}
}

// TestConfigFields reads single fields, newer forms before older ones.
func TestConfigFields(t *testing.T) {
	for _, c := range []struct {
		text string
		get  func(c *config) any
		want any
	}{
		{`"model_type": "glm4_moe_lite", "rope_theta": 1000000`, func(c *config) any { return c.rope.theta }, 1e6},
		{`"model_type": "glm4_moe", "rope_theta": 5, "rope_parameters": {"rope_theta": 7, "partial_rotary_factor": 0.25}`, func(c *config) any { return fmt.Sprint(c.rope.theta, c.rotary) }, "7 32"},
		{`"model_type": "glm4_moe_lite", "q_lora_rank": null`, func(c *config) any { return c.queryRank }, 0},
		{`"model_type": "glm4_moe_lite", "rope_interleave": false`, func(c *config) any { return c.interleaved }, false},
		{`"model_type": "glm4_moe_lite", "n_shared_experts": 2`, func(c *config) any { return c.sharedWidth }, 3072},
		{`"model_type": "glm4_moe_lite", "num_hidden_layers": 3, "first_k_dense_replace": 1, "mlp_layer_types": ["sparse", "dense", "sparse"]`, func(c *config) any { return fmt.Sprint(c.dense) }, "[false true false]"},
		{`"model_type": "glm4_moe", "num_nextn_predict_layers": 0, "num_mtp_layers": 1`, func(c *config) any { return c.MTPLayers }, 1},
		{`"model_type": "glm4_moe", "eos_token_id": [151336, 151329, 999999]`, func(c *config) any { return fmt.Sprint(c.Stop) }, "[151329 151336]"},
		{`"model_type": "glm4_moe_lite_mtp", "text_config": {"hidden_size": 512}`, func(c *config) any { return fmt.Sprint(c.ModelType, " ", c.Width) }, "glm4_moe_lite 512"},
		{`"architectures": ["DeepseekV3ForCausalLM"]`, func(c *config) any { return c.ModelType }, "deepseek_v3"},
	} {
		cfg, err := parse(t, "{"+c.text+"}")
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
		} else if got := c.get(cfg); got != c.want {
			t.Errorf("%s: %v, want %v", c.text, got, c.want)
		}
	}
}

// TestConfigRefuses names the field at fault.
func TestConfigRefuses(t *testing.T) {
	for text, words := range map[string][]string{
		`"attention_bias": true`:                                   {"attention_bias"},
		`"partial_rotary_factor": 0.5`:                             {"partial_rotary_factor 0.5", "qk_rope_head_dim"},
		`"scoring_func": "softmax"`:                                {"scoring_func", "softmax", "sigmoid"},
		`"topk_method": "greedy"`:                                  {"topk_method", "noaux_tc"},
		`"n_group": 3`:                                             {"n_routed_experts 64", "n_group 3"},
		`"n_group": 64, "topk_group": 8`:                           {"n_group 64", "two experts"},
		`"n_group": 2, "topk_group": 3`:                            {"topk_group 3"},
		`"n_group": 16, "topk_group": 1, "num_experts_per_tok": 8`: {"num_experts_per_tok 8", "4 experts"},
		`"moe_layer_freq": 2`:                                      {"moe_layer_freq"},
		`"decoder_sparse_step": 2`:                                 {"decoder_sparse_step"},
		`"rope_scaling": {"type": "linear", "factor": 2}`:          {"rope_type", "linear"},
		`"rope_scaling": {"type": "yarn", "factor": -2}`:           {"factor is -2"},
		`"rope_scaling": {"type": "yarn", "mscale": -1}`:           {"mscale is -1"},
		`"qk_rope_head_dim": 31`:                                   {"qk_rope_head_dim is 31"},
		`"kv_lora_rank": 0`:                                        {"kv_lora_rank is 0"},
		`"rope_theta": 0.5`:                                        {"rope_theta"},
		`"rms_norm_eps": 2`:                                        {"rms_norm_eps"},
		`"hidden_act": "gelu"`:                                     {"hidden_act"},
		`"first_k_dense_replace": 99`:                              {"first_k_dense_replace is 99"},
		`"mlp_layer_types": ["dense"]`:                             {"mlp_layer_types has 1 entries"},
		`"num_experts_per_tok": 65`:                                {"num_experts_per_tok"},
		`"routed_scaling_factor": 0`:                               {"routed_scaling_factor"},
	} {
		_, err := parse(t, `{"model_type": "glm4_moe_lite", `+text+"}")
		if err == nil {
			t.Errorf("%s is accepted", text)
			continue
		}
		for _, w := range append(words, "config.json") {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v: no %q", text, err, w)
			}
		}
	}
	if _, err := parse(t, `{"model_type": "glm4_moe", "num_attention_heads": 5, "num_key_value_heads": 2}`); err == nil || !strings.Contains(err.Error(), "num_key_value_heads 2") {
		t.Errorf("%v", err)
	}
}

// TestConfigRotation computes the closed forms of the rotations as released, and of the fixture.
func TestConfigRotation(t *testing.T) {
	for _, c := range []struct {
		name, text  string
		freqs       map[int]float64
		turn, scale float64
	}{
		{
			"DeepSeek-V3", `{"model_type": "deepseek_v3", "rope_theta": 10000, "max_position_embeddings": 163840, "rope_scaling":
				{"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0}}`,
			map[int]float64{0: 1, 1: 0.749894209, 10: 0.056234133, 11: 0.039006927, 15: 0.008334509, 20: 7.90569415e-4, 23: 3.33380358e-5, 31: 3.33380358e-6},
			1, 0.135233779,
		},
		{
			"the fixture", `{"model_type": "deepseek_v3", "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "rope_theta": 10000, "rope_scaling":
				{"type": "yarn", "factor": 8.0, "original_max_position_embeddings": 256, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 0.8}}`,
			map[int]float64{0: 1, 1: 0.247052942, 2: 0.05625, 3: 0.0108703295, 4: 0.00125, 5: 3.95284708e-4, 6: 1.25e-4, 7: 3.95284708e-5},
			1.035657085, 0.196354624,
		},
		{
			"GLM-4.7-Flash", `{"model_type": "glm4_moe_lite", "rope_theta": 1000000}`,
			map[int]float64{1: 0.649381632, 2: 0.421696503, 15: 0.00153992653, 31: 1.53992653e-6},
			1, 1 / 16.0,
		},
	} {
		cfg, err := parse(t, c.text)
		if err != nil {
			t.Fatal(err)
		}
		near := func(what string, got float32, want float64) {
			if math.Abs(float64(got)-want) > 1e-6*want {
				t.Errorf("%s: %s is %v, want %v", c.name, what, got, want)
			}
		}
		freqs := cfg.freqs()
		for i, want := range c.freqs {
			near(fmt.Sprintf("frequency %d", i), freqs[i], want)
		}
		near("turn", cfg.turn(), c.turn)
		near("scale", cfg.scoreScale(), c.scale)
	}
	for text, want := range map[string]float32{
		`"factor": 8, "attention_factor": 1.5, "mscale": 1, "mscale_all_dim": 0.5`: 1.5,
		`"factor": 0.5`: 1,
	} {
		cfg, err := parse(t, `{"model_type": "deepseek_v3", "rope_scaling": {"type": "yarn", `+text+`}}`)
		if err != nil || cfg.turn() != want {
			t.Errorf("%s: turn %v, %v, want %v", text, cfg.turn(), err, want)
		}
	}
}

// FuzzReadConfig reads arbitrary configs: an error, or a model that can be laid out.
func FuzzReadConfig(f *testing.F) {
	f.Add(`{"model_type": "glm4_moe"}`)
	f.Add(`{"model_type": "deepseek_v3", "rope_scaling": {"type": "yarn", "factor": 1e300, "original_max_position_embeddings": 1e-300}}`)
	f.Add(`{"model_type": "glm4_moe_lite", "n_group": null, "q_lora_rank": null, "mlp_layer_types": []}`)
	f.Add(`{"text_config": {"model_type": "glm4_moe", "head_dim": 2.0, "partial_rotary_factor": 1e-9}}`)
	f.Fuzz(func(t *testing.T, text string) {
		cfg, err := parse(t, text)
		if err != nil {
			return
		}
		if len(cfg.dense) > 4 {
			cfg.dense = cfg.dense[:4]
		}
		for w := range network.Tables(cfg).Model {
			if w.Rows < 1 || w.Cols < 1 {
				t.Fatalf("%s is %d×%d", w.Name, w.Rows, w.Cols)
			}
		}
	})
}

// TestOpenRefuses checks the errors for wrong tensors.
func TestOpenRefuses(t *testing.T) {
	reshape := func(name string, shape ...int) edit {
		return func(_ *testing.T, f *folder) {
			x := f.tensors[name]
			n := 1
			for _, d := range shape {
				n *= d
			}
			x.shape, x.values = shape, make([]float32, n)
			f.tensors[name] = x
		}
	}
	remove := func(names ...string) edit {
		return func(_ *testing.T, f *folder) {
			maps.DeleteFunc(f.tensors, func(name string, _ tensor) bool { return slices.Contains(names, name) })
		}
	}
	add := func(name string) edit {
		return func(_ *testing.T, f *folder) {
			f.tensors[name] = tensor{typ: dtype.F32, shape: []int{2}, values: []float32{1, 2}}
		}
	}
	const attn = "model.layers.1.self_attn."
	for _, c := range []struct {
		name, fixture string
		edit          edit
		words         []string
	}{
		{"kv_b of all keys and no values", "glm4_moe_lite", reshape(attn+"kv_b_proj.weight", 48, 96), []string{attn + "kv_b_proj.weight", "[48, 96], want [144, 96]"}},
		{"kv_a without rotated rows", "glm4_moe_lite", reshape(attn+"kv_a_proj_with_mqa.weight", 96, 64), []string{"kv_a_proj_with_mqa", "want [128, 64]"}},
		{"o_proj of the width", "glm4_moe_lite", reshape(attn+"o_proj.weight", 64, 64), []string{"o_proj", "want [64, 96]"}},
		{"no kv_b", "glm4_moe_lite", remove(attn + "kv_b_proj.weight"), []string{"layers.1.self_attn.embed_q"}},
		{"no norm of heads", "glm4_moe_air", setting("use_qk_norm", true), []string{"layers.0.self_attn.q_norm.weight"}},
		{"no bias of queries", "glm4_moe_air", remove("model.layers.1.self_attn.q_proj.bias"), []string{"layers.1.self_attn.q_proj.bias"}},
		{"undeclared biases", "glm4_moe_air", setting("attention_bias", false), []string{"q_proj.bias", "not part of a glm4_moe model"}},
		{"no correction bias", "deepseek_v3", remove("model.layers.2.mlp." + biasName), []string{"layers.2.mlp." + biasName}},
		{"an expert too few", "deepseek_v3", remove("model.layers.2.mlp.experts.15.up_proj.weight"), []string{"layers.2.mlp.experts.15.up_proj.weight"}},
		{"half a head", "glm4_moe_lite", remove("model.layers.3.shared_head.norm.weight"), []string{"mtp.norm.weight", "head is incomplete"}},
		{"two heads", "glm4_moe_lite", add("model.layers.4.self_attn.o_proj.weight"), []string{"the head has 2 layers"}},
		{"a layer of another number", "glm4_moe_lite", setting("num_hidden_layers", 2), []string{"head"}},
		{"an unknown tensor", "glm4_moe_lite", add("model.layers.1.self_attn.indexer.weight"), []string{"indexer", "not part of"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := backendtest.Open(t, backend.Options{Threads: 1})
			_, err := modeltest.TryOpen(t, b, fixture(t, c.fixture, c.edit).write(t), model.Options{})
			if err == nil {
				t.Fatal("it was opened")
			}
			for _, w := range c.words {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v: no %q", err, w)
				}
			}
		})
	}
}
