package gemma

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
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

// summary is the sizes of a config.
func summary(c *config) string {
	return fmt.Sprint(c.Vocab, c.Width, c.inner, len(c.kinds), c.heads, c.of[sliding].kvHeads, c.of[sliding].dim, c.of[full].kvHeads, c.of[full].dim,
		c.window, c.shared, c.inputs, c.Experts, c.LogitCap, c.Eps, c.Context, c.Tied)
}

// TestConfigDefaults reads configs that have a model type and nothing else.
func TestConfigDefaults(t *testing.T) {
	for kind, want := range map[string]string{
		gemma4:         "262144 2304 9216 30 8 4 256 4 512 512 0 0 0 0 1e-06 131072 true",
		unified + text: "262144 2304 9216 30 8 4 256 4 512 1024 0 0 0 0 1e-06 262144 true",
	} {
		c, err := parse(t, fmt.Sprintf(`{"model_type": %q}`, kind))
		if err != nil {
			t.Error(err)
			continue
		}
		if got := summary(c); got != want {
			t.Errorf("%s: %s, want %s", kind, got, want)
		}
		for i, k := range c.kinds {
			if (k == full) != (i%6 == 5) {
				t.Errorf("%s: layer %d is of kind %d", kind, i, k)
			}
		}
	}
}

// TestConfigReleases reads the parts of released configs that decide the sizes: they are those of the shapes.
func TestConfigReleases(t *testing.T) {
	layerTypes := func(every, n int) string {
		var list []string
		for i := range n {
			k := sliding
			if (i+1)%every == 0 {
				k = full
			}
			list = append(list, strconv.Quote(kindNames[k]))
		}
		return "[" + strings.Join(list, ",") + "]"
	}
	for i, text := range []string{
		`"hidden_size": 1536, "num_hidden_layers": 35, "layer_types": ` + layerTypes(5, 35) + `, "intermediate_size": 6144, "num_attention_heads": 8, "num_key_value_heads": 1,
			"num_kv_shared_layers": 20, "use_double_wide_mlp": true, "hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144`,
		`"hidden_size": 2560, "num_hidden_layers": 42, "layer_types": ` + layerTypes(6, 42) + `, "intermediate_size": 10240, "num_attention_heads": 8, "num_key_value_heads": 2,
			"num_global_key_value_heads": 7, "num_kv_shared_layers": 18, "hidden_size_per_layer_input": 256`,
		`"hidden_size": 3840, "num_hidden_layers": 48, "intermediate_size": 15360, "num_attention_heads": 16, "num_key_value_heads": 8, "num_global_key_value_heads": 1,
			"attention_k_eq_v": true, "sliding_window": 1024, "hidden_size_per_layer_input": 0`,
		`"hidden_size": 2816, "num_hidden_layers": 30, "intermediate_size": 2112, "num_attention_heads": 16, "num_key_value_heads": 8, "num_global_key_value_heads": 2,
			"attention_k_eq_v": true, "sliding_window": 1024, "hidden_size_per_layer_input": null, "enable_moe_block": true, "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704`,
		`"hidden_size": 5376, "num_hidden_layers": 60, "intermediate_size": 21504, "num_attention_heads": 32, "num_key_value_heads": 16, "sliding_window": 1024,
			"attention_k_eq_v": true, "per_layer_config": {"full_attention": {"num_key_value_heads": 4, "head_dim": 512}}`,
	} {
		c, err := parse(t, `{"model_type": "gemma4", "text_config": {"model_type": "gemma4_text", "final_logit_softcapping": 30.0, "max_position_embeddings": 262144, `+text+`}}`)
		if err != nil {
			t.Fatal(err)
		}
		want := releasedShapes[i].resolved()
		if summary(c) != summary(want) || !slices.Equal(c.kinds, want.kinds) || c.of != want.of || c.EmbedFactor != want.EmbedFactor {
			t.Errorf("%s: %s, want %s", releasedShapes[i].name, summary(c), summary(want))
		}
	}
	for i, owners := range map[int][kinds]int{0: {13, 14}, 1: {22, 23}} {
		c := releasedShapes[i].resolved()
		for layer := len(c.kinds) - c.shared; layer < len(c.kinds); layer++ {
			if got := c.owner(layer); got != owners[c.kinds[layer]] {
				t.Errorf("%s: layer %d reads layer %d", releasedShapes[i].name, layer, got)
			}
		}
	}
}

// TestConfigRotation computes closed forms of the rotations as released.
func TestConfigRotation(t *testing.T) {
	c := releasedShapes[0].resolved()
	for k, want := range [kinds]map[int]float64{
		{0: 1, 1: 0.930572041, 2: 0.865964323, 127: 1.07460783e-4},
		{0: 1, 1: 0.947463526, 2: 0.897687132, 63: 0.0333762469, 64: 0, 255: 0},
	} {
		freqs := c.of[k].Freqs(c.of[k].dim)
		if len(freqs) != c.of[k].dim/2 {
			t.Fatalf("%d frequencies", len(freqs))
		}
		for i, x := range want {
			if math.Abs(float64(freqs[i])-x) > 1e-6*x {
				t.Errorf("%s: frequency %d is %v, want %v", kindNames[k], i, freqs[i], x)
			}
		}
	}
	for i, want := range []float32{39.191836, 50.596443, 61.967734, 53.065997, 73.321211} {
		if got := releasedShapes[i].resolved().EmbedFactor; got != want {
			t.Errorf("%s: embeddings times %v, want %v", releasedShapes[i].name, got, want)
		}
	}
	c, err := parse(t, `{"model_type": "gemma4_text", "rope_parameters": {"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 100, "factor": 4}}}`)
	if err != nil || c.of[full].Pairs != 128 || c.of[full].Freqs(512)[0] != 0.25 || c.of[sliding].Theta != 1e4 {
		t.Errorf("%v, %+v", err, c)
	}
}

// TestConfigRefuses checks the errors for configs that are not supported.
func TestConfigRefuses(t *testing.T) {
	for text, words := range map[string][]string{
		`"hidden_activation": "silu"`:                       {"hidden_activation", "silu"},
		`"attention_bias": true`:                            {"attention_bias"},
		`"attn_logit_softcapping": 50`:                      {"attn_logit_softcapping 50"},
		`"use_bidirectional_attention": "all"`:              {"use_bidirectional_attention", "encoders"},
		`"final_logit_softcapping": -1`:                     {"final_logit_softcapping is -1"},
		`"num_kv_shared_layers": 30`:                        {"num_kv_shared_layers is 30"},
		`"num_kv_shared_layers": 28`:                        {"kind full_attention", "before layer 2"},
		`"layer_types": ["full_attention"]`:                 {"layer_types has 1 entries"},
		`"num_hidden_layers": 1, "layer_types": ["linear"]`: {`layer_types[0] is "linear"`},
		`"enable_moe_block": true`:                          {"num_experts"},
		`"enable_moe_block": true, "num_experts": 4, "top_k_experts": 5, "moe_intermediate_size": 8`: {"top_k_experts is 5"},
		`"num_attention_heads": 6`: {"num_attention_heads 6", "4 key heads"},
		`"head_dim": 255`:          {"255 numbers"},
		`"rope_parameters": {"full_attention": {"rope_type": "yarn"}}`:                                     {"yarn"},
		`"rope_parameters": {"sliding_attention": {"rope_theta": 0.5}}`:                                    {"rope_theta is 0.5"},
		`"rope_parameters": {"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 2}}`: {"partial_rotary_factor is 2"},
		`"per_layer_config": {"linear": {}}`:                                                               {`"linear"`},
		`"per_layer_config": {"3": {"head_dim": 128}}`:                                                     {"layer 3", "not supported"},
		`"global_head_dim": 256, "per_layer_config": {"full_attention": {"head_dim": 128}}`:                {"differ"},
		`"hidden_size_per_layer_input": 16, "vocab_size_per_layer_input": 7`:                               {"vocab_size_per_layer_input is 7"},
	} {
		_, err := parse(t, `{"model_type": "gemma4_text", `+text+"}")
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
}

// FuzzReadConfig reads arbitrary configs: an error, or a model that can be laid out.
func FuzzReadConfig(f *testing.F) {
	f.Add(`{"model_type": "gemma4"}`)
	f.Add(`{"text_config": {"model_type": "gemma4_text", "num_kv_shared_layers": 3, "use_double_wide_mlp": true, "hidden_size_per_layer_input": 1}}`)
	f.Add(`{"model_type": "gemma4_unified", "layer_types": [], "num_hidden_layers": 2, "per_layer_config": {"0": null, "1": {"head_dim": 2.0}}}`)
	f.Add(`{"model_type": "gemma4", "rope_parameters": {"full_attention": null, "x": {}}, "head_dim": 2, "enable_moe_block": true, "num_experts": 2}`)
	f.Fuzz(func(t *testing.T, text string) {
		cfg, err := parse(t, text)
		if err != nil {
			return
		}
		for w := range network.Tables(cfg).Model {
			if w.Rows < 1 || w.Cols < 1 {
				t.Fatalf("%s is %d×%d", w.Name, w.Rows, w.Cols)
			}
		}
		cfg.Layout(model.Options{}, false)
	})
}

// TestOpenRefuses checks the errors for wrong tensors.
func TestOpenRefuses(t *testing.T) {
	remove := func(names ...string) edit {
		return func(_ *testing.T, f *folder) {
			maps.DeleteFunc(f.tensors, func(name string, _ tensor) bool { return slices.Contains(names, name) })
		}
	}
	const layer = "model.language_model.layers.2."
	for _, c := range []struct {
		name, fixture string
		edit          edit
		words         []string
	}{
		{"no layer scalar", "gemma4_dense", remove(layer + "layer_scalar"), []string{"layers.2.layer_scalar"}},
		{"values of their own where keys are values", "gemma4_dense", stores(map[string][]int{layer + "self_attn.v_proj.weight": {32, 64}}), []string{"v_proj", "not part of"}},
		{"no norm of keys", "gemma4_dense", remove(layer + "self_attn.k_norm.weight"), []string{"layers.2.self_attn.k_norm"}},
		{"values that are missing", "gemma4_ple", remove(layer + "self_attn.v_proj.weight"), []string{"layers.2.self_attn.v_proj"}},
		{"heads of the other kind", "gemma4_dense", setting("global_head_dim", 16), []string{"q_proj", "[128, 64], want [64, 64]"}},
		{"key heads of the other kind", "gemma4_moe", setting("num_global_key_value_heads", 4), []string{"k_proj", "[128, 64], want [256, 64]"}},
		{"fewer layers that share", "gemma4_ple", setting("num_kv_shared_layers", 3), []string{"layers.4.self_attn.k_proj"}},
		{"no double width", "gemma4_ple", setting("use_double_wide_mlp", false), []string{"[96, 64], want [48, 64]"}},
		{"no table of layer embeddings", "gemma4_ple", remove("model.language_model.embed_tokens_per_layer.weight"), []string{tableName}},
		{"a table that is not declared", "gemma4_ple", setting("hidden_size_per_layer_input", 0), []string{tableName, "not part of"}},
		{"a table of other layers", "gemma4_ple", stores(map[string][]int{"model.language_model.embed_tokens_per_layer.weight": {128, 112}}), []string{"[128, 112], want [128, 128]"}},
		{"no factors of experts", "gemma4_moe", remove(layer + "router.per_expert_scale"), []string{"layers.2.mlp.per_expert_scale"}},
		{"experts that are not declared", "gemma4_moe", setting("enable_moe_block", false), []string{"not part of a gemma4 model"}},
		{"a QAT file for phones", "gemma4_ple", func(_ *testing.T, f *folder) {
			f.config["quantization_config"] = map[string]any{"quant_method": "gemma"}
			f.tensors[layer+"mlp.up_proj.weight"] = tensor{typ: dtype.U8, shape: []int{48, 32}, data: make([]byte, 48*32)}
		}, []string{"for phones", "Q4_0"}},
		{"an unknown tensor", "gemma4_unified", stores(map[string][]int{layer + "self_attn.sinks": {4}}), []string{"sinks", "not part of a gemma4_unified model"}},
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

// TestWidthIsFoundByTensors reads a config that leaves the width of layer embeddings out: by the tensors it is the reference's
// default or none.
func TestWidthIsFoundByTensors(t *testing.T) {
	absent := setting("hidden_size_per_layer_input", nil)
	same(t, "logits", answers(t, fixture(t, "gemma4_dense", absent).write(t), prompt), answers(t, fixture(t, "gemma4_dense").write(t), prompt))
	cfg, err := readConfig(openFolder(t, fixture(t, "gemma4_ple", absent).write(t)))
	if err != nil || cfg.inputs != 256 {
		t.Errorf("%v, width %d", err, cfg.inputs)
	}
}
