package gemma

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/model/network"
)

// config is the text part of config.json, resolved: every field has its final value.
type config struct {
	network.Settings
	kinds  []kind // of the layers
	shared int    // number of the last layers, which have no KV cache: they read that of an earlier layer of their kind

	heads   int
	of      [kinds]attention
	window  int  // of sliding layers
	keyIsV  bool // in full layers the values are the keys
	inner   int  // of the feed-forward
	double  bool // in layers without a KV cache it is twice as wide
	inputs  int  // width of a layer's own embedding; 0: there are none
	experts int  // width of an expert; 0: there are none
}

// kind is the kind of a layer.
type kind int

const (
	sliding kind = iota // sees a window
	full
	kinds
)

// kindNames are their names in config.json.
var kindNames = [kinds]string{"sliding_attention", "full_attention"}

// attention is what layers of a kind have in common.
type attention struct {
	kvHeads, dim int
	network.Rope
}

// Model types. The two differ in their defaults and in their towers for images and sound.
const (
	gemma4  = "gemma4"
	unified = "gemma4_unified"
	text    = "_text" // suffix of the type of text_config, and of checkpoints without towers
)

// fileConfig is config.json. The text model is nested in text_config, or at the top level.
type fileConfig struct {
	textConfig
	Text         *textConfig `json:"text_config"`
	Quantization struct {
		Method string `json:"quant_method"`
	} `json:"quantization_config"`
}

// textConfig has pointers where absence differs from zero.
type textConfig struct {
	network.File
	Hidden        string                       `json:"hidden_activation"`
	HeadDim       *checkpoint.Whole            `json:"head_dim"`
	FullDim       *checkpoint.Whole            `json:"global_head_dim"`
	FullKVHeads   *checkpoint.Whole            `json:"num_global_key_value_heads"`
	KeyIsValue    bool                         `json:"attention_k_eq_v"`
	Bias          bool                         `json:"attention_bias"`
	ScoreCap      *float64                     `json:"attn_logit_softcapping"`
	Bidirectional *string                      `json:"use_bidirectional_attention"`
	LayerTypes    []string                     `json:"layer_types"`
	PerLayer      map[string]layerConfig       `json:"per_layer_config"`
	Window        *checkpoint.Whole            `json:"sliding_window"`
	Shared        *checkpoint.Whole            `json:"num_kv_shared_layers"`
	Double        bool                         `json:"use_double_wide_mlp"`
	Inputs        network.Nullable             `json:"hidden_size_per_layer_input"`
	InputVocab    *checkpoint.Whole            `json:"vocab_size_per_layer_input"`
	Mixture       bool                         `json:"enable_moe_block"`
	Experts       *checkpoint.Whole            `json:"num_experts"`
	TopExperts    *checkpoint.Whole            `json:"top_k_experts"`
	OldWidth      *checkpoint.Whole            `json:"expert_intermediate_size"`
	Cap           *float64                     `json:"final_logit_softcapping"`
	Rope          map[string]*network.RopeFile `json:"rope_parameters"`
}

// layerConfig is what differs in a layer, or in all of a kind.
type layerConfig struct {
	HeadDim *checkpoint.Whole `json:"head_dim"`
	KVHeads *checkpoint.Whole `json:"num_key_value_heads"`
}

// tableName is a part of the names of the tensors of the layers' own embeddings.
const tableName = "embed_tokens_per_layer"

// readConfig decodes and checks config.json and the stop ids of generation_config.json.
func readConfig(c *checkpoint.Checkpoint) (*config, error) {
	var f fileConfig
	if err := checkpoint.DecodeJSON("config.json", c.Config(), &f); err != nil {
		return nil, fmt.Errorf("gemma: %w", err)
	}
	if m := f.Quantization.Method; m == "gemma" {
		return nil, fmt.Errorf("gemma: config.json has the quantization method %q, for phones, which rounds activations too: it is not supported; use the QAT file as GGUF (Q4_0) or with w4a16 weights", m)
	}
	t := f.text()
	if t.Inputs.Value == nil && !t.Inputs.Null && slices.ContainsFunc(c.Tensors(), isTable) { // the reference's default
		t.Inputs.Value = new(checkpoint.Whole)
		*t.Inputs.Value = 256
	}
	cfg, err := resolve(t)
	if err != nil {
		return nil, fmt.Errorf("gemma: config.json: %w", err)
	}
	if err := cfg.ReadStop(c, t.EOS, f.EOS); err != nil {
		return nil, fmt.Errorf("gemma: %w", err)
	}
	return cfg, nil
}

// isTable reports whether a tensor belongs to the layers' own embeddings. A config without their width may belong to a model
// without them.
func isTable(name string) bool { return strings.Contains(name, tableName) }

// text is the object that describes the text model, with the type and the architectures of the file.
func (f *fileConfig) text() *textConfig {
	t := &f.textConfig
	if f.Text != nil {
		t = f.Text
		t.ModelType = cmp.Or(t.ModelType, f.ModelType)
		t.Architectures = append(t.Architectures, f.Architectures...)
	}
	return t
}

// family is gemma4 or unified, from the model type or, if there is none, from the architectures. It is "" if both are unknown.
func (t *textConfig) family() string {
	switch strings.TrimSuffix(t.ModelType, text) {
	case gemma4:
		return gemma4
	case unified:
		return unified
	}
	for name, classes := range architectures {
		if t.ModelType == "" && slices.ContainsFunc(classes, func(class string) bool { return slices.Contains(t.Architectures, class) }) {
			return name
		}
	}
	return ""
}

var architectures = map[string][]string{
	gemma4:  {"Gemma4ForConditionalGeneration", "Gemma4ForCausalLM"},
	unified: {"Gemma4UnifiedForConditionalGeneration", "Gemma4UnifiedForCausalLM"},
}

// defaults are the reference's values for fields that a file leaves out.
var defaults = map[string]struct{ window, context int }{gemma4: {512, 131072}, unified: {1024, 262144}}

// resolve fills in the reference's defaults and checks what the model is built from.
func resolve(t *textConfig) (*config, error) {
	family := t.family()
	def, ok := defaults[family]
	if !ok {
		return nil, fmt.Errorf("model_type %q does not belong to this family", t.ModelType)
	}
	c := &config{keyIsV: t.KeyIsValue, double: t.Double}
	c.Package, c.ModelType, c.Tied = "gemma", family, network.Or(t.Tied, true)
	read := network.Reader{}
	read.Common(&c.Settings, &t.File, network.Settings{Vocab: 262144, Width: 2304, Context: def.context, Eps: 1e-6})
	c.EmbedFactor = float32(math.Sqrt(float64(c.Width)))
	c.inner = read.Size("intermediate_size", t.Intermediate, 9216, 1<<22)
	c.heads = read.Size("num_attention_heads", t.Heads, 8, 1<<12)
	c.window = read.Size("sliding_window", t.Window, def.window, 1<<30)
	layers := read.Size("num_hidden_layers", t.Layers, 30, 1<<12)
	if t.Mixture {
		c.Experts = read.Size("num_experts", t.Experts, 0, 1<<14)
		c.TopK = read.Size("top_k_experts", cmp.Or(t.TopExperts, t.TopK), 0, max(c.Experts, 1))
		c.experts = read.Size("moe_intermediate_size", cmp.Or(t.ExpertWidth, t.OldWidth), 0, 1<<20)
	}
	if network.Or(t.Inputs.Value, 0) != 0 {
		c.inputs = read.Size("hidden_size_per_layer_input", t.Inputs.Value, 0, 1<<16)
		if n := read.Size("vocab_size_per_layer_input", t.InputVocab, c.Vocab, 1<<24); n != c.Vocab && read.Err == nil {
			return nil, fmt.Errorf("vocab_size_per_layer_input is %d, want vocab_size, which is %d", n, c.Vocab)
		}
	}
	if read.Err != nil {
		return nil, read.Err
	}
	if err := cmp.Or(c.variants(t), c.layerKinds(t, layers), c.shares(t), c.sizes(t), c.rotations(t)); err != nil {
		return nil, err
	}
	c.Kind = c.title()
	return c, nil
}

// title is the kind of the model, for people.
func (c *config) title() string {
	switch {
	case c.experts > 0:
		return "Gemma 4, mixture of experts with windows"
	case c.inputs > 0:
		return "Gemma 4, dense with windows and layer embeddings"
	}
	return "Gemma 4, dense with windows"
}

// variants checks the switches of the architecture.
func (c *config) variants(t *textConfig) error {
	bound := network.Or(t.Cap, 0)
	c.LogitCap = float32(bound)
	switch {
	case t.Hidden != "" && t.Hidden != "gelu_pytorch_tanh":
		return fmt.Errorf("hidden_activation %q is not supported, want gelu_pytorch_tanh", t.Hidden)
	case t.Bias:
		return fmt.Errorf("attention_bias true is not supported")
	case t.ScoreCap != nil:
		return fmt.Errorf("attn_logit_softcapping %v is not supported: attention scores of Gemma 4 are not capped", *t.ScoreCap)
	case t.Bidirectional != nil && *t.Bidirectional != "vision":
		return fmt.Errorf("use_bidirectional_attention %q is not supported: it belongs to encoders", *t.Bidirectional)
	case !(bound >= 0 && bound < 1e6):
		return fmt.Errorf("final_logit_softcapping is %v, want a positive number", bound)
	case t.Mixture && t.Experts == nil:
		return fmt.Errorf("num_experts is missing, although enable_moe_block is true")
	}
	return nil
}

// layerKinds reads the kinds of the layers. The last one is full, as in the reference, whatever the list says.
func (c *config) layerKinds(t *textConfig, n int) error {
	c.kinds = make([]kind, n)
	for i := range c.kinds {
		if (i+1)%6 == 0 {
			c.kinds[i] = full
		}
	}
	if t.LayerTypes != nil {
		if len(t.LayerTypes) != n {
			return fmt.Errorf("layer_types has %d entries, num_hidden_layers is %d", len(t.LayerTypes), n)
		}
		for i, name := range t.LayerTypes {
			k := slices.Index(kindNames[:], name)
			if k < 0 {
				return fmt.Errorf("layer_types[%d] is %q, want %s or %s", i, name, kindNames[sliding], kindNames[full])
			}
			c.kinds[i] = kind(k)
		}
	}
	c.kinds[n-1] = full
	return nil
}

// shares reads how many layers read the KV cache of others.
func (c *config) shares(t *textConfig) error {
	n := int(network.Or(t.Shared, 0))
	if n < 0 || n >= len(c.kinds) {
		return fmt.Errorf("num_kv_shared_layers is %d, want a number from 0 to %d: at least one layer must have a KV cache", n, len(c.kinds)-1)
	}
	c.shared = n
	for i := range c.kinds {
		if c.owner(i) < 0 {
			return fmt.Errorf("layer %d reads the KV cache of a layer of the kind %s, but there is none before layer %d", i, kindNames[c.kinds[i]], len(c.kinds)-n)
		}
	}
	return nil
}

// owner is the layer whose KV cache layer i reads: i, or the last layer of the same kind that has one. It is -1 if there is none.
func (c *config) owner(i int) int {
	own := len(c.kinds) - c.shared
	if i < own {
		return i
	}
	for j := own - 1; j >= 0; j-- {
		if c.kinds[j] == c.kinds[i] {
			return j
		}
	}
	return -1
}
