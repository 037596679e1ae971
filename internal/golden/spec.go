package golden

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"testing"
)

// SpecConfig is one of the small models of the specification: two head
// layouts, A and B, each dense and with experts. The weights are a function of
// their names (see Tensors), so the same numbers can be computed by hand.
type SpecConfig struct {
	Name          string
	Heads         int // of queries
	KVHeads       int
	KeyHeads      int // of the Gated DeltaNet
	ValueHeads    int
	Experts       int // 0: a dense MLP
	ExpertsActive int
}

// Sizes of all models of the specification.
const (
	specHidden       = 8
	specLayers       = 4 // three of Gated DeltaNet, then one of full attention
	specIntermediate = 16
	specVocab        = 16
	specHeadDim      = 8
	specRotary       = 4 // dimensions that rotate
	specTheta        = 1e4
	specKeyDim       = 4
	specValueDim     = 4
	specKernel       = 4
	specExpertWidth  = 6 // of routed and shared experts
	specEps          = 1e-6
)

// SpecTensor is one tensor as the releases would store it, in float32.
type SpecTensor struct {
	Name   string
	Shape  []int
	Values []float32
}

// JSON is the model's config.json, nested as in the releases.
func (c SpecConfig) JSON() []byte {
	text := map[string]any{
		"model_type":              "qwen3_5_text",
		"vocab_size":              specVocab,
		"hidden_size":             specHidden,
		"num_hidden_layers":       specLayers,
		"intermediate_size":       specIntermediate,
		"num_attention_heads":     c.Heads,
		"num_key_value_heads":     c.KVHeads,
		"head_dim":                specHeadDim,
		"hidden_act":              "silu",
		"max_position_embeddings": 4096,
		"rms_norm_eps":            specEps,
		"attention_bias":          false,
		"attn_output_gate":        true,
		"full_attention_interval": specLayers,
		"linear_conv_kernel_dim":  specKernel,
		"linear_key_head_dim":     specKeyDim,
		"linear_value_head_dim":   specValueDim,
		"linear_num_key_heads":    c.KeyHeads,
		"linear_num_value_heads":  c.ValueHeads,
		"mtp_num_hidden_layers":   1,
		"rope_parameters": map[string]any{
			"rope_type":             "default",
			"rope_theta":            specTheta,
			"partial_rotary_factor": float64(specRotary) / specHeadDim,
		},
	}
	top := map[string]any{
		"architectures":       []string{"Qwen3_5ForConditionalGeneration"},
		"model_type":          "qwen3_5",
		"tie_word_embeddings": false,
		"text_config":         text,
	}
	if c.Experts > 0 {
		top["architectures"] = []string{"Qwen3_5MoeForConditionalGeneration"}
		top["model_type"] = "qwen3_5_moe"
		text["model_type"] = "qwen3_5_moe_text"
		text["num_experts"] = c.Experts
		text["num_experts_per_tok"] = c.ExpertsActive
		text["moe_intermediate_size"] = specExpertWidth
		text["shared_expert_intermediate_size"] = specExpertWidth
		delete(text, "intermediate_size")
	}
	b, err := json.MarshalIndent(top, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("golden: config of %s: %v", c.Name, err))
	}
	return b
}

// Tensors are the model's weights under the names of the releases: experts
// fused, in the head too; norms without the 1 they are offset by; convolution
// weights [channels, 1, kernel]. The caller owns them, and may rename or reshape
// them into any other layout before giving them to Write.
func (c SpecConfig) Tensors() []SpecTensor {
	w := &specWeights{config: c}
	const model = "model.language_model."
	w.add(model+"embed_tokens.weight", tables, specVocab, specHidden)
	for i := range specLayers {
		layer := fmt.Sprintf("%slayers.%d.", model, i)
		w.add(layer+"input_layernorm.weight", offsets, specHidden)
		if i < specLayers-1 {
			w.deltaNet(layer + "linear_attn.")
		} else {
			w.attention(layer + "self_attn.")
		}
		w.add(layer+"post_attention_layernorm.weight", offsets, specHidden)
		w.mlp(layer + "mlp.")
	}
	w.add(model+"norm.weight", offsets, specHidden)
	w.add("lm_head.weight", tables, specVocab, specHidden)

	w.add("mtp.pre_fc_norm_embedding.weight", offsets, specHidden)
	w.add("mtp.pre_fc_norm_hidden.weight", offsets, specHidden)
	w.add("mtp.fc.weight", matrices, specHidden, 2*specHidden)
	w.add("mtp.layers.0.input_layernorm.weight", offsets, specHidden)
	w.attention("mtp.layers.0.self_attn.")
	w.add("mtp.layers.0.post_attention_layernorm.weight", offsets, specHidden)
	w.mlp("mtp.layers.0.mlp.")
	w.add("mtp.norm.weight", offsets, specHidden)
	return w.tensors
}

// Checkpoint writes the model to a new folder and returns its path.
func (c SpecConfig) Checkpoint(tb testing.TB) string {
	tb.Helper()
	dir := tb.TempDir()
	Write(tb, dir, c.JSON(), c.Tensors())
	return dir
}

// specRange is the interval from which the values of a kind of tensor are drawn.
type specRange struct{ lo, hi float64 }

var (
	tables   = specRange{-1, 1} // embedding and output
	matrices = specRange{-0.6, 0.6}
	offsets  = specRange{-0.3, 0.3} // norms whose gain is 1 + w
	gains    = specRange{0.7, 1.3}  // the gated norm, whose gain is w
	decays   = specRange{0, 1.5}    // A_log
	steps    = specRange{-0.5, 1}   // dt_bias
)

type specWeights struct {
	config  SpecConfig
	tensors []SpecTensor
}

func (w *specWeights) deltaNet(prefix string) {
	keys := w.config.KeyHeads * specKeyDim
	values := w.config.ValueHeads * specValueDim
	channels := 2*keys + values
	w.add(prefix+"in_proj_qkv.weight", matrices, channels, specHidden)
	w.add(prefix+"in_proj_z.weight", matrices, values, specHidden)
	w.add(prefix+"in_proj_b.weight", matrices, w.config.ValueHeads, specHidden)
	w.add(prefix+"in_proj_a.weight", matrices, w.config.ValueHeads, specHidden)
	w.add(prefix+"conv1d.weight", matrices, channels, 1, specKernel)
	w.add(prefix+"A_log", decays, w.config.ValueHeads)
	w.add(prefix+"dt_bias", steps, w.config.ValueHeads)
	w.add(prefix+"norm.weight", gains, specValueDim)
	w.add(prefix+"out_proj.weight", matrices, specHidden, values)
}

func (w *specWeights) attention(prefix string) {
	w.add(prefix+"q_proj.weight", matrices, 2*w.config.Heads*specHeadDim, specHidden) // queries and gates
	w.add(prefix+"k_proj.weight", matrices, w.config.KVHeads*specHeadDim, specHidden)
	w.add(prefix+"v_proj.weight", matrices, w.config.KVHeads*specHeadDim, specHidden)
	w.add(prefix+"o_proj.weight", matrices, specHidden, w.config.Heads*specHeadDim)
	w.add(prefix+"q_norm.weight", offsets, specHeadDim)
	w.add(prefix+"k_norm.weight", offsets, specHeadDim)
}

func (w *specWeights) mlp(prefix string) {
	if w.config.Experts == 0 {
		w.swiglu(prefix, specIntermediate)
		return
	}
	w.add(prefix+"gate.weight", matrices, w.config.Experts, specHidden)
	w.add(prefix+"experts.gate_up_proj", matrices, w.config.Experts, 2*specExpertWidth, specHidden)
	w.add(prefix+"experts.down_proj", matrices, w.config.Experts, specHidden, specExpertWidth)
	w.swiglu(prefix+"shared_expert.", specExpertWidth)
	w.add(prefix+"shared_expert_gate.weight", matrices, 1, specHidden)
}

func (w *specWeights) swiglu(prefix string, width int) {
	w.add(prefix+"gate_proj.weight", matrices, width, specHidden)
	w.add(prefix+"up_proj.weight", matrices, width, specHidden)
	w.add(prefix+"down_proj.weight", matrices, specHidden, width)
}

// add fills a tensor from a linear congruential generator seeded by its name.
func (w *specWeights) add(name string, in specRange, shape ...int) {
	n := 1
	for _, d := range shape {
		n *= d
	}
	h := fnv.New32a()
	h.Write([]byte(name))
	x := h.Sum32()
	values := make([]float32, n)
	for i := range values {
		x = 1664525*x + 1013904223
		u := float64(x>>8) / (1 << 24)
		values[i] = float32(in.lo + float64((in.hi-in.lo)*u))
	}
	w.tensors = append(w.tensors, SpecTensor{Name: name, Shape: shape, Values: values})
}
