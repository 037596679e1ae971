package qwen35

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/exactmath"
	"github.com/foretoken/foretoken/internal/model/network"
	"github.com/foretoken/foretoken/internal/model/qwen35/vision"
)

// config is the text part of config.json, resolved: every field has its final value.
type config struct {
	network.Settings
	layers []bool // true: full attention

	intermediate             int
	heads, kvHeads, headDim  int
	keyHeads, valueHeads     int  // of the linear layers
	tiled                    bool // their value heads, see backend.DeltaNet
	keyDim, valueDim, kernel int
	theta                    float64
	rotary                   int    // rotated dimensions of a head
	sections                 [3]int // rotated pairs that turn by time, height and width
	sigmoidGate              bool

	expertWidth, sharedWidth int
	normTopK                 bool

	vision    *vision.Config // nil: it is not promised, or cannot be read
	visionErr error          // in what it cannot
}

// fileConfig is config.json as it is written. Numbers are pointers where absence differs
// from zero.
type fileConfig struct {
	textConfig
	Text   *textConfig     `json:"text_config"`
	Vision json.RawMessage `json:"vision_config"`
}

type textConfig struct {
	network.File
	HeadDim             network.Nullable  `json:"head_dim"`
	AttentionBias       bool              `json:"attention_bias"`
	OutputGate          *bool             `json:"attn_output_gate"`
	GateType            string            `json:"output_gate_type"`
	LayerTypes          []string          `json:"layer_types"`
	Interval            *checkpoint.Whole `json:"full_attention_interval"`
	Kernel              *checkpoint.Whole `json:"linear_conv_kernel_dim"`
	KeyDim              *checkpoint.Whole `json:"linear_key_head_dim"`
	ValueDim            *checkpoint.Whole `json:"linear_value_head_dim"`
	KeyHeads            *checkpoint.Whole `json:"linear_num_key_heads"`
	ValueHeads          *checkpoint.Whole `json:"linear_num_value_heads"`
	Tiled               bool              `json:"linear_value_heads_tiled"` // ours: of GGUF files
	Rope                *ropeConfig       `json:"rope_parameters"`
	RopeScaling         *ropeConfig       `json:"rope_scaling"`
	Experts             *checkpoint.Whole `json:"num_experts"`
	SharedWidth         *checkpoint.Whole `json:"shared_expert_intermediate_size"`
	DenseLayers         []int             `json:"mlp_only_layers"`
	MTPLayers           *checkpoint.Whole `json:"mtp_num_hidden_layers"`
	DedicatedEmbeddings bool              `json:"mtp_use_dedicated_embeddings"`
	HiddenMode          string            `json:"mtp_hidden_state_mode"`
}

type ropeConfig struct {
	Type          string   `json:"rope_type"`
	OldType       string   `json:"type"`
	Theta         *float64 `json:"rope_theta"`
	PartialRotary *float64 `json:"partial_rotary_factor"`
	Sections      []int    `json:"mrope_section"`
	Interleaved   *bool    `json:"mrope_interleaved"`
}

// releasedVocab is the length of the releases' vocabulary, padding included.
const releasedVocab = 248320

// readConfig decodes and checks config.json and the stop ids of generation_config.json.
func readConfig(c *checkpoint.Checkpoint) (*config, error) {
	var f fileConfig
	if err := checkpoint.DecodeJSON("config.json", c.Config(), &f); err != nil {
		return nil, fmt.Errorf("qwen35: %w", err)
	}
	t := f.Text
	if t == nil {
		t = &f.textConfig
	}
	cfg, err := resolve(t, &f.textConfig)
	if err != nil {
		return nil, fmt.Errorf("qwen35: config.json: %w", err)
	}
	if err := cfg.ReadStop(c, t.EOS, f.EOS); err != nil {
		return nil, fmt.Errorf("qwen35: %w", err)
	}
	cfg.vision, cfg.visionErr = readVision(f.Vision)
	return cfg, nil
}

// resolve fills in defaults and checks what the model is built from. top is the outer
// object, which holds some fields in some files.
func resolve(t, top *textConfig) (*config, error) {
	cfg := &config{theta: 1e7, normTopK: network.Or(t.NormTopK, true), tiled: t.Tiled}
	cfg.Package, cfg.ModelType = "qwen35", top.ModelType
	moe := t.mixture(top.ModelType)
	def := defaultsOf(moe)
	read := network.Reader{}
	read.Common(&cfg.Settings, &t.File, network.Settings{Vocab: releasedVocab, Width: def.hidden, Context: 32768, Eps: 1e-6})
	cfg.heads = read.Size("num_attention_heads", t.Heads, 16, 1<<12)
	cfg.kvHeads = read.Size("num_key_value_heads", t.KVHeads, def.kvHeads, 1<<12)
	dim := 256
	if t.HeadDim.Null {
		dim = cfg.Width / max(cfg.heads, 1)
	}
	cfg.headDim = read.Size("head_dim", t.HeadDim.Value, dim, 1<<12)
	cfg.keyHeads = read.Size("linear_num_key_heads", t.KeyHeads, 16, 1<<12)
	cfg.valueHeads = read.Size("linear_num_value_heads", t.ValueHeads, 32, 1<<12)
	cfg.keyDim = read.Size("linear_key_head_dim", t.KeyDim, 128, 1<<12)
	cfg.valueDim = read.Size("linear_value_head_dim", t.ValueDim, 128, 1<<12)
	cfg.kernel = read.Size("linear_conv_kernel_dim", t.Kernel, 4, 64)
	layers := read.Size("num_hidden_layers", t.Layers, def.layers, 1<<12)
	interval := read.Size("full_attention_interval", t.Interval, 4, 1<<12)
	if moe {
		cfg.Experts = read.Size("num_experts", t.Experts, 256, 1<<14)
		cfg.TopK = read.Size("num_experts_per_tok", t.TopK, 8, cfg.Experts)
		cfg.expertWidth = read.Size("moe_intermediate_size", t.ExpertWidth, 512, 1<<20)
		cfg.sharedWidth = read.Size("shared_expert_intermediate_size", t.SharedWidth, 512, 1<<20)
	} else {
		cfg.intermediate = read.Size("intermediate_size", t.Intermediate, 12288, 1<<22)
	}
	if read.Err != nil {
		return nil, read.Err
	}
	cfg.Kind = kindOf(cfg)
	cfg.Tied = network.Or(cmp.Or(top.Tied, t.Tied), false)
	cfg.MTPLayers = int(network.Or(cmp.Or(t.MTPLayers, t.NextLayers, top.MTPLayers, top.NextLayers), 0))
	if err := cmp.Or(cfg.variants(t), cfg.rope(t)); err != nil {
		return nil, err
	}
	return cfg, cfg.layerKinds(t.LayerTypes, layers, interval)
}

// kindOf is the kind of the model, for people.
func kindOf(c *config) string {
	switch {
	case c.ModelType == "qwen3_next":
		return "Qwen3-Next, mixture of experts"
	case c.Experts > 0:
		return "Qwen3.5, mixture of experts"
	}
	return "Qwen3.5, dense"
}

// mixture reports whether the model has experts: by their number, and without one by the
// type of the model.
func (t *textConfig) mixture(topType string) bool {
	if t.Experts != nil {
		return *t.Experts != 0
	}
	return t.ModelType == "qwen3_5_moe_text" || topType == "qwen3_5_moe"
}

// defaults are the sizes that differ between the reference's two families. Tools that
// write only what differs from the reference leave out even these.
type defaults struct{ hidden, layers, kvHeads int }

func defaultsOf(moe bool) defaults {
	if moe {
		return defaults{hidden: 2048, layers: 40, kvHeads: 2}
	}
	return defaults{hidden: 4096, layers: 32, kvHeads: 4}
}

// variants checks the switches of the architecture.
func (c *config) variants(t *textConfig) error {
	switch {
	case t.AttentionBias:
		return fmt.Errorf("attention_bias true is not supported")
	case !network.Or(t.OutputGate, true):
		return fmt.Errorf("attn_output_gate false is not supported")
	case c.heads%c.kvHeads != 0:
		return fmt.Errorf("num_attention_heads %d is not a multiple of num_key_value_heads %d", c.heads, c.kvHeads)
	case c.valueHeads%c.keyHeads != 0:
		return fmt.Errorf("linear_num_value_heads %d is not a multiple of linear_num_key_heads %d", c.valueHeads, c.keyHeads)
	case len(t.DenseLayers) > 0:
		return fmt.Errorf("mlp_only_layers %v is not supported: every layer must have experts", t.DenseLayers)
	case t.DedicatedEmbeddings:
		return fmt.Errorf("mtp_use_dedicated_embeddings true is not supported")
	}
	switch t.GateType {
	case "", "silu", "swish":
	case "sigmoid":
		c.sigmoidGate = true
	default:
		return fmt.Errorf("output_gate_type %q is not supported, want silu, swish or sigmoid", t.GateType)
	}
	switch t.HiddenMode {
	case "", "post_norm":
	case "pre_norm":
		c.PreNorm = true
	default:
		return fmt.Errorf("mtp_hidden_state_mode %q is not supported, want post_norm or pre_norm", t.HiddenMode)
	}
	return nil
}

// rope reads the rotation from whichever place has it.
func (c *config) rope(t *textConfig) error {
	r := cmp.Or(t.Rope, t.RopeScaling)
	theta, partial := t.Theta, t.PartialRotary
	if r != nil {
		for _, kind := range []string{r.Type, r.OldType} {
			if kind != "" && kind != "default" && kind != "mrope" {
				return fmt.Errorf("rope_type %q is not supported, want default", kind)
			}
		}
		theta, partial = cmp.Or(r.Theta, theta), cmp.Or(r.PartialRotary, partial)
	}
	factor := network.Or(partial, 0.25)
	c.theta = network.Or(theta, c.theta)
	if !(c.theta > 0) || math.IsInf(c.theta, 0) {
		return fmt.Errorf("rope_theta is %v, want a positive number", c.theta)
	}
	if !(factor > 0 && factor <= 1) {
		return fmt.Errorf("partial_rotary_factor is %v, want a number in (0, 1]", factor)
	}
	c.rotary = int(float64(c.headDim) * factor)
	if c.rotary == 0 || c.rotary%2 != 0 {
		return fmt.Errorf("head_dim %d times partial_rotary_factor %v is %d, want an even number of dimensions", c.headDim, factor, c.rotary)
	}
	return c.axes(r)
}

// axes reads how many rotated pairs turn by each of a position's three numbers.
func (c *config) axes(r *ropeConfig) error {
	pairs := c.rotary / 2
	c.sections = [3]int{(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3}
	switch {
	case r == nil:
	case !network.Or(r.Interleaved, true):
		return fmt.Errorf("mrope_interleaved false is not supported")
	case r.Sections != nil && (len(r.Sections) != 3 || slices.Min(r.Sections) < 0):
		return fmt.Errorf("mrope_section is %v, want the pairs of three axes", r.Sections)
	default:
		copy(c.sections[:], r.Sections)
	}
	return nil
}

// layerKinds says which layers are attention: by the list if there is one.
func (c *config) layerKinds(types []string, n, interval int) error {
	c.layers = make([]bool, n)
	if types == nil {
		for i := range c.layers {
			c.layers[i] = (i+1)%interval == 0
		}
		return nil
	}
	if len(types) != n {
		return fmt.Errorf("layer_types has %d entries, num_hidden_layers is %d", len(types), n)
	}
	for i, t := range types {
		switch t {
		case "full_attention":
			c.layers[i] = true
		case "linear_attention":
		default:
			return fmt.Errorf("layer_types[%d] is %q, want full_attention or linear_attention", i, t)
		}
	}
	return nil
}

// freqs are the angles per position of the rotated pairs.
func (c *config) freqs() []float32 {
	f := make([]float32, c.rotary/2)
	for i := range f {
		f[i] = float32(exactmath.Exp(-exactmath.LogOfExp(c.theta) * float64(2*i) / float64(c.rotary)))
	}
	return f
}

// turns says which axis rotates each pair: time, height and width alternate, as long as
// the section of height or width has pairs.
func (c *config) turns() []uint8 {
	axes := make([]uint8, c.rotary/2)
	for i := range axes {
		if axis := i % 3; i < 3*c.sections[axis] {
			axes[i] = uint8(axis)
		}
	}
	return axes
}
