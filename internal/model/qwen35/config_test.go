package qwen35

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model/network"
)

// parseConfig reads a config as Open does. more is generation_config.json, if not empty.
func parseConfig(t *testing.T, text, more string) (*config, error) {
	t.Helper()
	files := map[string]string{"config.json": text, mainFile: smallFile(t)}
	if more != "" {
		files["generation_config.json"] = more
	}
	c, err := checkpoint.OpenFiles("test", files)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	return readConfig(c)
}

// smallFile is a file of weights with one tensor, for checkpoints of which only the config
// matters.
func smallFile(t *testing.T) string {
	t.Helper()
	x := some("x")
	return golden.Tensors(t, []checkpoint.Decl{{Name: x.name, Type: x.typ, Shape: x.shape}}, [][]byte{x.data}, nil)
}

// least begins an object with a few sizes of its own.
const least = `"hidden_size": 4096, "num_hidden_layers": 8, "intermediate_size": 128`

// TestConfigDefaults resolves configs that say nothing but what they are. Tools that leave
// out what equals the reference's defaults come close to that.
func TestConfigDefaults(t *testing.T) {
	dense := config{
		Settings: network.Settings{Package: "qwen35", Vocab: 248320, Width: 4096, Eps: 1e-6, Context: 32768},
		layers:   slices.Repeat([]bool{false, false, false, true}, 8), intermediate: 12288, heads: 16, kvHeads: 4, headDim: 256,
		keyHeads: 16, valueHeads: 32, keyDim: 128, valueDim: 128, kernel: 4,
		theta: 1e7, rotary: 64, sections: [3]int{11, 11, 10}, normTopK: true,
	}
	moe := dense
	moe.layers = slices.Repeat([]bool{false, false, false, true}, 10)
	moe.Width, moe.intermediate, moe.kvHeads = 2048, 0, 2
	moe.Experts, moe.TopK, moe.expertWidth, moe.sharedWidth = 256, 8, 512, 512
	for _, c := range []struct {
		text string
		kind string
		want config
	}{
		{`{"model_type": "qwen3_5_text"}`, "qwen3_5_text", dense},
		{`{"model_type": "qwen3_5", "text_config": {}}`, "qwen3_5", dense},
		{`{"model_type": "qwen3_5_moe_text"}`, "qwen3_5_moe_text", moe},
		{`{"model_type": "qwen3_5_moe", "text_config": {}}`, "qwen3_5_moe", moe},
		{`{"model_type": "qwen3_5_moe", "text_config": {"num_experts": 0, "hidden_size": 4096}}`, "qwen3_5_moe", dense},
	} {
		got, err := parseConfig(t, c.text, "")
		if err != nil {
			t.Fatal(err)
		}
		c.want.ModelType, c.want.Kind = c.kind, kindOf(&c.want)
		if fmt.Sprint(*got) != fmt.Sprint(c.want) {
			t.Errorf("%s resolves to\n%+v, want\n%+v", c.text, *got, c.want)
		}
	}
}

// TestConfigFields resolves one thing at a time.
func TestConfigFields(t *testing.T) {
	const experts = `"hidden_size": 64, "num_hidden_layers": 1, "num_experts": 32`
	for _, c := range []struct {
		name, text string
		field      func(c *config) any
		want       any
	}{
		{"flat", `{"model_type": "qwen3_5_text", ` + least + `}`, func(c *config) any { return c.Width }, 4096},
		{"nested", `{"model_type": "qwen3_5", "hidden_size": 1, "text_config": {` + least + `}}`, func(c *config) any { return c.Width }, 4096},
		{"type of the outer object", `{"model_type": "qwen3_5", "text_config": {"model_type": "qwen3_5_text", ` + least + `}}`, func(c *config) any { return c.ModelType }, "qwen3_5"},
		{"numbers as floats", `{"model_type": "x", ` + least + `, "vocab_size": 512.0}`, func(c *config) any { return c.Vocab }, 512},

		{"untied by default", `{` + least + `}`, tied, false},
		{"tied by the outer object", `{"tie_word_embeddings": true, "text_config": {` + least + `, "tie_word_embeddings": false}}`, tied, true},
		{"untied by the outer object", `{"tie_word_embeddings": false, "text_config": {` + least + `, "tie_word_embeddings": true}}`, tied, false},
		{"tied by the inner object", `{"text_config": {` + least + `, "tie_word_embeddings": true}}`, tied, true},
		{"tied by the inner object, null outside", `{"tie_word_embeddings": null, "text_config": {` + least + `, "tie_word_embeddings": true}}`, tied, true},

		{"no head", `{` + least + `}`, depth, 0},
		{"head", `{"text_config": {` + least + `, "mtp_num_hidden_layers": 1}}`, depth, 1},
		{"head by its other name", `{"text_config": {` + least + `, "num_nextn_predict_layers": 1}}`, depth, 1},
		{"head outside", `{"mtp_num_hidden_layers": 1, "text_config": {` + least + `}}`, depth, 1},
		{"head outside by its other name", `{"num_nextn_predict_layers": 1, "text_config": {` + least + `}}`, depth, 1},
		{"head inside counts first", `{"num_nextn_predict_layers": 3, "text_config": {` + least + `, "mtp_num_hidden_layers": 0, "num_nextn_predict_layers": 2}}`, depth, 0},

		{"rotation", `{` + least + `, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5, "partial_rotary_factor": 0.5}}`, rotation, "500000 128"},
		{"rotation by its old type", `{` + least + `, "rope_parameters": {"type": "default", "rope_theta": 5e5}}`, rotation, "500000 64"},
		{"rotation of three axes", `{` + least + `, "rope_parameters": {"type": "mrope", "mrope_section": [11, 11, 10]}}`, rotation, "1e+07 64"},
		{"rotation in its old place", `{` + least + `, "rope_theta": 5e5, "partial_rotary_factor": 1, "rope_scaling": null}`, rotation, "500000 256"},
		{"rotation, new place first", `{` + least + `, "rope_theta": 1, "partial_rotary_factor": 1, "rope_parameters": {"rope_theta": 5e5, "partial_rotary_factor": 0.5}}`, rotation, "500000 128"},

		{"layers by interval", `{` + least + `, "full_attention_interval": 3}`, func(c *config) any { return fmt.Sprint(c.layers) }, "[false false true false false true false false]"},
		{"layers by list", `{"hidden_size": 4096, "num_hidden_layers": 2, "intermediate_size": 1, "layer_types": ["full_attention", "linear_attention"]}`, func(c *config) any { return fmt.Sprint(c.layers) }, "[true false]"},
		{"layers by interval, list null", `{` + least + `, "layer_types": null}`, func(c *config) any { return fmt.Sprint(c.layers) }, "[false false false true false false false true]"},

		{"head width absent", `{` + least + `, "num_attention_heads": 32}`, func(c *config) any { return c.headDim }, 256},
		{"head width null", `{` + least + `, "num_attention_heads": 32, "head_dim": null}`, func(c *config) any { return c.headDim }, 128},
		{"silu gate", `{` + least + `, "output_gate_type": "swish"}`, func(c *config) any { return c.sigmoidGate }, false},
		{"sigmoid gate", `{` + least + `, "output_gate_type": "sigmoid"}`, func(c *config) any { return c.sigmoidGate }, true},
		{"post-norm", `{` + least + `, "mtp_hidden_state_mode": "post_norm"}`, func(c *config) any { return c.PreNorm }, false},
		{"pre-norm", `{` + least + `, "mtp_hidden_state_mode": "pre_norm"}`, func(c *config) any { return c.PreNorm }, true},
		{"epsilon", `{` + least + `, "rms_norm_eps": 1e-5}`, func(c *config) any { return c.Eps }, float32(1e-5)},

		{"dense", `{` + least + `, "num_experts": 0}`, func(c *config) any { return c.Experts }, 0},
		{"experts by default", `{` + experts + `}`, mixture, "32 8 512 512 true"},
		{"experts", `{` + experts + `, "num_experts_per_tok": 4, "moe_intermediate_size": 96, "shared_expert_intermediate_size": 64, "norm_topk_prob": false, "decoder_sparse_step": 1, "mlp_only_layers": []}`, mixture, "32 4 96 64 false"},
	} {
		t.Run("field="+c.name, func(t *testing.T) {
			cfg, err := parseConfig(t, c.text, "")
			if err != nil {
				t.Fatal(err)
			}
			if got := c.field(cfg); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

func tied(c *config) any { return c.Tied }

func depth(c *config) any { return c.MTPLayers }

func rotation(c *config) any { return fmt.Sprintf("%g %d", c.theta, c.rotary) }

func mixture(c *config) any {
	return fmt.Sprint(c.Experts, c.TopK, c.expertWidth, c.sharedWidth, c.normTopK)
}

// TestConfigStopIDs unites the lists of both files.
func TestConfigStopIDs(t *testing.T) {
	const released, other = `"vocab_size": 248320`, `"vocab_size": 1000`
	for _, c := range []struct {
		name, config, generation string
		want                     []int32
	}{
		{"nothing said", `{` + least + `, ` + released + `}`, "", nil},
		{"as released", `{"text_config": {` + least + `, "eos_token_id": 248044}}`, `{"eos_token_id": [248046, 248044]}`, []int32{248044, 248046}},
		{"one more", `{"eos_token_id": 7, "text_config": {` + least + `, "eos_token_id": [9, 7]}}`, `{"eos_token_id": 8}`, []int32{7, 8, 9}},
		{"another vocabulary", `{` + least + `, ` + other + `, "eos_token_id": 5}`, "", []int32{5}},
		{"ids outside of the vocabulary", `{` + least + `, ` + other + `, "eos_token_id": [5, 248044]}`, `{"eos_token_id": 1000}`, []int32{5}},
		{"null", `{` + least + `, ` + other + `, "eos_token_id": null}`, `{"eos_token_id": null}`, nil},
	} {
		t.Run("stop="+c.name, func(t *testing.T) {
			cfg, err := parseConfig(t, c.config, c.generation)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(cfg.Stop, c.want) {
				t.Errorf("%v, want %v", cfg.Stop, c.want)
			}
		})
	}
}

// TestConfigFrequencies compares with the specification's numbers.
func TestConfigFrequencies(t *testing.T) {
	f := (&config{theta: 1e7, rotary: 64}).freqs()
	if len(f) != 32 {
		t.Fatalf("%d frequencies, want 32", len(f))
	}
	for i, want := range map[int]float64{
		0: 1, 1: 0.6042963902381329, 2: 0.3651741272548377, 15: 0.0005232991146814947, 31: 1.6548170999431814e-07,
	} {
		if math.Float32bits(f[i]) != math.Float32bits(float32(want)) {
			t.Errorf("frequency %d is %v, want %v", i, f[i], float32(want))
		}
	}
}

// FuzzReadConfig looks for a text that makes reading it panic, or that resolves to impossible
// sizes.
func FuzzReadConfig(f *testing.F) {
	f.Add([]byte(`{"model_type": "qwen3_5", "text_config": {` + least + `}}`))
	f.Add([]byte(`{` + least + `, "num_experts": 4, "num_experts_per_tok": 2, "layer_types": ["full_attention"]}`))
	f.Add([]byte(`{` + least + `, "rope_parameters": {"rope_type": "yarn"}, "rms_norm_eps": 1e-6, "eos_token_id": [1, 2]}`))
	f.Add([]byte(`{` + least + `, "head_dim": null, "linear_num_key_heads": 3, "tie_word_embeddings": true}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var file fileConfig
		if err := checkpoint.DecodeJSON("config.json", text, &file); err != nil {
			return
		}
		part := file.Text
		if part == nil {
			part = &file.textConfig
		}
		c, err := resolve(part, &file.textConfig)
		if err != nil {
			return
		}
		for _, n := range []int{c.Vocab, c.Width, c.heads, c.kvHeads, c.headDim, c.keyHeads, c.valueHeads, c.keyDim, c.valueDim, c.kernel, c.rotary, len(c.layers)} {
			if n < 1 || n > 1<<24 {
				t.Fatalf("size %d in %+v", n, c)
			}
		}
		if c.Experts > 0 && (c.TopK < 1 || c.TopK > c.Experts) || c.rotary > c.headDim {
			t.Fatalf("resolved to %+v", c)
		}
	})
}
