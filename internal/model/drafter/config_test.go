package drafter

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// Tensors that tell the kind of a drafter.
var (
	dflashTensors  = []string{"hidden_norm.weight", "fc.weight", "layers.0.self_attn.q_norm.weight"}
	dflash2Tensors = append([]string{"candidate_selector.predecessor_codebook"}, dflashTensors...)
	dsparkTensors  = append([]string{"markov_head.markov_w1.weight"}, dflashTensors...)
	eagleTensors   = []string{"layers.0.hidden_norm.weight", "fc.weight", "lm_head.weight", "d2t"}
)

var small = model.Target{Width: 128, Vocab: 512, Layers: 4}

// keys are those that all configs of these tests have.
const keys = `"hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 512`

func tensorNames(list []string) names {
	n := names{}
	for _, name := range list {
		n[short(name)] = true
	}
	return n
}

// TestConfigsThatDoNotFit has a config for everything that is refused. The messages name what was found and what is wanted, and
// those of the documentation are among them.
func TestConfigsThatDoNotFit(t *testing.T) {
	const flash, spark, eagle = `"block_size": 8, "mask_token_id": 510, "target_layer_ids": [0, 1, 2], `, `"markov_rank": 16, `, `"num_hidden_layers": 1, "draft_vocab_size": 192, "target_layer_ids": [0, 1, 3], `
	var said []string
	for _, c := range []struct {
		tensors []string
		config  string
		want    string
	}{
		{dflashTensors, flash + `"hidden_size": 64`, "hidden_size is 64, but the model's hidden rows have 128"},
		{dflashTensors, flash + `"vocab_size": 1000`, "vocab_size is 1000, but the model's vocabulary has 512"},
		{dflashTensors, flash + `"num_target_layers": 36`, "num_target_layers is 36, but the model's layers are 4"},
		{dflashTensors, flash + `"target_hidden_size": 256`, "target_hidden_size is 256, but the model's hidden rows have 128"},
		{dflashTensors, flash + `"target_layer_ids": [1, 4]`, "reads the input of layer 5, but the model has 4 layers"},
		{dflashTensors, flash + `"target_layer_ids": [-2, 1]`, "reads the input of layer -1, but the model has 4 layers"},
		{dflashTensors, flash + `"target_layer_ids": [1, 1]`, "reads the input of layer 2 twice"},
		{dflashTensors, flash + `"target_layer_ids": [1]`, "reads the inputs of 1 layers of the model, want at least 2"},
		{dflashTensors, flash + `"mask_token_id": 512`, "mask_token_id is 512, but the model's vocabulary has 512 tokens"},
		{dflashTensors, flash + `"mask_token_id": null`, "mask_token_id is missing"},
		{dflashTensors, flash + `"block_size": 64`, "block_size is 64, want a number from 1 to 32"},
		{dflashTensors, flash + `"block_size": 1`, "block_size is 1, want at least 2"},
		{dflashTensors, flash + `"block_size": null`, "block_size is missing"},
		{dflashTensors, flash + `"layer_types": ["full_attention"]`, "layer_types has 1 entries, num_hidden_layers is 2"},
		{dflashTensors, flash + `"layer_types": ["full_attention", "linear_attention"]`, `layer_types[1] is "linear_attention", want full_attention or sliding_attention`},
		{dflashTensors, flash + `"sliding_window": -4`, "sliding_window is -4, want a positive number"},
		{dflashTensors, flash + `"rope_scaling": {"type": "yarn"}`, `rope_type "yarn" is not supported, want default`},
		{dflashTensors, flash + `"rope_theta": 0`, "rope_theta is 0, want a positive number"},
		{dflashTensors, flash + `"rope_is_neox_style": false`, "rope_is_neox_style false is not supported"},
		{dflashTensors, flash + `"hidden_act": "gelu"`, `hidden_act "gelu" is not supported, want silu`},
		{dflashTensors, flash + `"rms_norm_eps": -1`, "rms_norm_eps is -1, want a small positive number"},
		{dflashTensors, flash + `"num_key_value_heads": 3`, "num_attention_heads 4 is not a multiple of num_key_value_heads 3"},
		{dflashTensors, flash + `"head_dim": 31`, "head_dim is 31, want an even number"},
		{dflashTensors, flash + `"num_attention_heads": 0`, "num_attention_heads is 0, want a number from 1 to 4096"},
		{dflashTensors, flash + `"dflash_config": {"input_embedding_scale": 2}`, "input_embedding_scale 2 is not supported"},
		{dflashTensors, flash + `"dflash_config": {"output_multiplier": 0.5}`, "output_multiplier 0.5 is not supported"},
		{dflashTensors, flash + `"dflash_config": {"final_logit_softcapping": 30}`, "final_logit_softcapping 30 is not supported"},
		{dflashTensors, flash + `"dflash_config": {"use_swa": true}`, "use_swa true is not supported"},
		{dflashTensors, flash + `"draft_vocab_size": 100`, "draft_vocab_size is 100 and the model's vocabulary has 512 tokens: want d2t if and only if they differ"},
		{append([]string{"mask_embedding"}, dflashTensors...), flash, "tensor mask_embedding is not supported"},
		{dflash2Tensors, flash + `"conv_kernel_size": 2, "conv_group_size": 48, "selector_rank": 16, "selector_top_k": 8`, "conv_group_size 48 does not divide hidden_size 128"},
		{dflash2Tensors, flash, "conv_kernel_size is missing"},
		{dsparkTensors, flash + spark + `"markov_head_type": "rnn"`, `markov_head_type "rnn" is not supported, want vanilla or gated`},
		{dsparkTensors, flash, "markov_rank is missing"},
		{eagleTensors, eagle + `"num_hidden_layers": 2`, "an EAGLE-3 drafter of 2 layers is not supported, want 1"},
		{eagleTensors, eagle + `"hidden_size": 64`, "hidden_size is 64 and the model's hidden rows have 128: the drafter needs an embed_tokens and an lm_head of its own"},
		{eagleTensors[:3], eagle, "draft_vocab_size is 192 and the model's vocabulary has 512 tokens, but the file has no d2t"},
		{append([]string{"d2t"}, eagleTensors[:2]...), eagle, "the file has d2t but no lm_head"},
		{eagleTensors, eagle + `"draft_vocab_size": 1000`, "draft_vocab_size is 1000, want a number from 1 to 512"},
		{eagleTensors, eagle + `"target_layer_ids": null, "eagle_aux_hidden_state_layer_ids": [1, 2, 5]`, "reads the input of layer 5, but the model has 4 layers"},
		{[]string{"fc.weight"}, `"architectures": ["LlamaForCausalLM"]`, `unknown kind (architectures ["LlamaForCausalLM"])`},
		{append([]string{"prefix_gru.weight_ih"}, dflashTensors...), flash, "tensor prefix_gru.weight_ih: Domino drafters are not supported"},
		{append([]string{"mask_hidden"}, eagleTensors...), eagle, "tensor mask_hidden: P-EAGLE drafters are not supported"},
		{append([]string{"layers.0.self_attn.kv_a_proj_with_mqa.weight"}, dflashTensors...), flash, "drafters with latent attention"},
		{append([]string{"layers.0.self_attn.attention_sink_bias"}, dflashTensors...), flash, "drafters with attention sinks are not supported"},
		{append([]string{"aux_hidden_norms.0.weight"}, dflashTensors...), flash, "drafters with gated attention (Laguna) are not supported"},
		{dflashTensors, flash + `"hidden_size": 1.5`, "1.5 is not a whole number"},
		{dflashTensors, flash + `"layer_types": 5`, "layer_types: found number, want array"},
	} {
		_, err := readConfig([]byte("{"+keys+", "+c.config+trailing(c.config)+"}"), tensorNames(c.tensors), small)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.config, err, c.want)
			continue
		}
		said = append(said, err.Error())
	}
	_, section, _ := strings.Cut(string(filetest.Read(t, "../../../docs/speculation.md")), "### Drafters that do not fit")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := regexp.MustCompile("\\| `(.*)` \\|").FindAllStringSubmatch(section, -1)
	for _, row := range rows {
		if !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, row[1]) }) {
			t.Errorf("docs/speculation.md has the message %q, which is never said", row[1])
		}
	}
	if len(rows) < 15 {
		t.Errorf("docs/speculation.md has %d messages", len(rows))
	}
}

// trailing completes a list of keys that ends with a comma.
func trailing(config string) string {
	if strings.HasSuffix(strings.TrimSpace(config), ",") {
		return `"model_type": "qwen3"`
	}
	return ""
}

// TestConfigsOfAllSchemas resolves the places in which exporters write their keys.
func TestConfigsOfAllSchemas(t *testing.T) {
	large := model.Target{Width: 128, Vocab: 512, Layers: 36}
	for name, c := range map[string]struct {
		tensors []string
		config  string
		target  model.Target
		taps    []int
		check   func(*config) bool
	}{
		"z-lab":          {dflashTensors, `"block_size": 8, "dflash_config": {"mask_token_id": 510, "target_layer_ids": [1, 16, 30]}`, large, []int{2, 17, 31}, func(c *config) bool { return c.kind == DFlash && c.block == 8 && c.mask == 510 && !c.anchor }},
		"nested block":   {dflashTensors, `"dflash_config": {"block_size": 6, "mask_token_id": 0, "target_layer_ids": [-1, 2]}`, large, []int{0, 3}, func(c *config) bool { return c.block == 6 }},
		"default taps":   {dflashTensors, `"block_size": 8, "mask_token_id": 1`, large, []int{2, 34}, nil},
		"speculators":    {dflashTensors, `"speculators_model_type": "dflash", "block_size": 8, "mask_token_id": 1, "aux_hidden_state_layer_ids": [2, 18], "transformer_layer_config": {"rope_theta": 5}`, large, []int{2, 18}, func(c *config) bool { return c.theta == 5 }},
		"windows":        {dflashTensors, `"block_size": 8, "mask_token_id": 1, "sliding_window": 12, "layer_types": ["sliding_attention", "full_attention"]`, large, []int{2, 34}, func(c *config) bool { return c.layers[0] == layerKind{12, true} && c.layers[1] == layerKind{} }},
		"open windows":   {dflashTensors, `"block_size": 8, "mask_token_id": 1, "is_causal": false, "sliding_window": 12, "layer_types": ["sliding_attention", "full_attention"]`, large, []int{2, 34}, func(c *config) bool { return c.layers[0] == layerKind{12, false} }},
		"unused windows": {dflashTensors, `"block_size": 8, "mask_token_id": 1, "use_sliding_window": false, "sliding_window": 12, "layer_types": ["sliding_attention", "full_attention"]`, large, []int{2, 34}, func(c *config) bool { return c.layers[0] == layerKind{} }},
		"causal":         {dflashTensors, `"block_size": 8, "mask_token_id": 1, "dflash_config": {"causal": true}`, large, []int{2, 34}, func(c *config) bool { return c.layers[1] == layerKind{0, true} }},
		"headless":       {dflashTensors, `"architectures": ["Qwen3DSparkModel"], "markov_rank": 0, "block_size": 7, "mask_token_id": 1`, large, []int{2, 34}, func(c *config) bool { return c.kind == DSpark && c.anchor && c.markov == 0 }},
		"DSpark":         {dsparkTensors, `"markov_rank": 16, "dspark_target_layer_ids": [3, 4], "block_size": 7, "mask_token_id": 1`, large, []int{4, 5}, func(c *config) bool { return c.kind == DSpark && c.anchor && c.markov == 16 && c.confMarkov }},
		"rows behind":    {dsparkTensors, `"markov_rank": 16, "sample_from_anchor": false, "markov_head_type": "gated", "block_size": 7, "mask_token_id": 1`, large, []int{2, 34}, func(c *config) bool { return !c.anchor && c.gated }},
		"EAGLE default":  {eagleTensors, `"num_hidden_layers": 1, "draft_vocab_size": 192`, large, []int{2, 18, 33}, func(c *config) bool { return c.kind == EAGLE3 && c.mapped && c.draftVocab == 192 }},
		"EAGLE top":      {eagleTensors, `"num_hidden_layers": 1, "draft_vocab_size": 192, "eagle_aux_hidden_state_layer_ids": [24, 30, 36]`, large, []int{24, 30, 36}, nil},
		"EAGLE nested":   {eagleTensors, `"num_hidden_layers": 1, "draft_vocab_size": 192, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 11, 21], "norm_before_fc": true}`, large, []int{2, 12, 22}, func(c *config) bool { return c.beforeFC }},
		"EAGLE inputs":   {eagleTensors, `"num_hidden_layers": 1, "draft_vocab_size": 192, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 11, 36]}`, large, []int{1, 11, 36}, nil},
		"EAGLE last row": {eagleTensors, `"num_hidden_layers": 1, "draft_vocab_size": 192, "eagle_config": {"use_aux_hidden_state": false}`, large, []int{37}, func(c *config) bool { return c.noFC }},
		"midlayer":       {[]string{"model.midlayer.hidden_norm.weight", "fc_norm.0.weight"}, `"num_hidden_layers": 1, "norm_output": true`, large, []int{2, 18, 33}, func(c *config) bool { return c.kind == EAGLE3 && c.fcNorms && c.normOutput && !c.ownOutput }},
	} {
		got, err := readConfig([]byte("{"+keys+", "+c.config+"}"), tensorNames(c.tensors), c.target)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !slices.Equal(got.taps, c.taps) || c.check != nil && !c.check(got) {
			t.Errorf("%s: taps %v, want %v; %+v", name, got.taps, c.taps, *got)
		}
	}
}

// FuzzConfig reads any config for any file: it is an error, or sizes within their limits.
func FuzzConfig(f *testing.F) {
	for i, config := range []string{
		`"block_size": 8, "mask_token_id": 510, "target_layer_ids": [0, 1, 2], "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8`,
		`"block_size": 8, "mask_token_id": 5, "conv_kernel_size": 2, "conv_group_size": 16, "selector_rank": 16, "selector_top_k": 8`,
		`"block_size": 7, "mask_token_id": 5, "markov_rank": 16, "rope_parameters": {"rope_theta": 5}`,
		`"num_hidden_layers": 1, "draft_vocab_size": 192, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 3]}`,
	} {
		f.Add([]byte("{"+keys+", "+config+"}"), uint8(i))
	}
	kinds := [][]string{dflashTensors, dflash2Tensors, dsparkTensors, eagleTensors}
	f.Fuzz(func(t *testing.T, data []byte, kind uint8) {
		Promises(data)
		tensors := tensorNames(kinds[int(kind)%len(kinds)])
		if c, err := readConfig(data, tensors, model.Target{}); err == nil { // as inspect does
			c.describe()
			_, table := newDrafter(c, &weights.Loader{}, model.Options{MaxDrafts: 8}).network()
			for w := range table {
				if w.Parameters() <= 0 {
					t.Errorf("%s has %d parameters", w.Name, w.Parameters())
				}
			}
		}
		c, err := readConfig(data, tensors, small)
		if err != nil {
			return
		}
		if len(c.layers) < 1 || c.heads < 1 || c.kvHeads < 1 || c.headDim < 2 || c.width < 1 || len(c.taps) == 0 || c.kind != EAGLE3 && c.block < 1 {
			t.Errorf("%+v", *c)
		}
		if c.draftVocab < 1 || c.draftVocab > small.Vocab || int(c.mask) >= small.Vocab || slices.Max(c.taps) > small.Layers+1 {
			t.Errorf("%+v", *c)
		}
		c.freqs()
	})
}

// TestPromises tells configs of drafters from those of models.
func TestPromises(t *testing.T) {
	for config, want := range map[string]bool{
		`{"architectures": ["Qwen3DSparkModel"]}`:            true,
		`{"dflash_config": {}}`:                              true,
		`{"speculators_model_type": "eagle3"}`:               true,
		`{"architectures": ["Qwen3_5ForCausalLM"]}`:          false,
		`{"model_type": "qwen3_5", "num_hidden_layers": 36}`: false,
		`[]`: false,
	} {
		if got := Promises(json.RawMessage(config)); got != want {
			t.Errorf("%s: %v, want %v", config, got, want)
		}
	}
}
