package drafter

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/exactmath"
)

// assistantKind is what the layers of an assistant read: heads of keys, and the rotation of queries.
type assistantKind struct {
	kvHeads, dim int
	freqs        []float32
}

// assistantFile is config.json of an assistant.
type assistantFile struct {
	ModelType string            `json:"model_type"`
	Backbone  *checkpoint.Whole `json:"backbone_hidden_size"`
	Text      assistantText     `json:"text_config"`
}

// assistantText is the object that describes the layers.
type assistantText struct {
	Hidden       *checkpoint.Whole `json:"hidden_size"`
	Intermediate *checkpoint.Whole `json:"intermediate_size"`
	Layers       *checkpoint.Whole `json:"num_hidden_layers"`
	Shared       *checkpoint.Whole `json:"num_kv_shared_layers"`
	Heads        *checkpoint.Whole `json:"num_attention_heads"`
	KVHeads      *checkpoint.Whole `json:"num_key_value_heads"`
	FullKVHeads  *checkpoint.Whole `json:"num_global_key_value_heads"`
	KeyIsValue   bool              `json:"attention_k_eq_v"`
	HeadDim      *checkpoint.Whole `json:"head_dim"`
	FullDim      *checkpoint.Whole `json:"global_head_dim"`
	Window       *checkpoint.Whole `json:"sliding_window"`
	LayerTypes   []string          `json:"layer_types"`
	Vocab        *checkpoint.Whole `json:"vocab_size"`
	Eps          *float64          `json:"rms_norm_eps"`
	Cap          *float64          `json:"final_logit_softcapping"`
	Activation   string            `json:"hidden_activation"`
	Bias         bool              `json:"attention_bias"`
	Mixture      bool              `json:"enable_moe_block"`
	Double       bool              `json:"use_double_wide_mlp"`
	Inputs       *checkpoint.Whole `json:"hidden_size_per_layer_input"`
	PerLayer     map[string]struct {
		HeadDim *checkpoint.Whole `json:"head_dim"`
		KVHeads *checkpoint.Whole `json:"num_key_value_heads"`
	} `json:"per_layer_config"`
	Rope map[string]*struct {
		Type    string   `json:"rope_type"`
		Theta   *float64 `json:"rope_theta"`
		Partial *float64 `json:"partial_rotary_factor"`
	} `json:"rope_parameters"`
}

// Names of kinds of layers in config.json.
const slidingLayer, fullLayer = "sliding_attention", "full_attention"

// assistantConfig resolves the config of an assistant.
func assistantConfig(c *config, data []byte) error {
	var f assistantFile
	if err := checkpoint.DecodeJSON("config.json", data, &f); err != nil {
		return err
	}
	t := &f.Text
	r := &sizes{}
	c.width = r.of("hidden_size", t.Hidden, 0, 1<<20)
	c.intermediate = r.of("intermediate_size", t.Intermediate, 0, 1<<22)
	c.heads = r.of("num_attention_heads", t.Heads, 0, 1<<12)
	c.layers = make([]layerKind, r.of("num_hidden_layers", t.Layers, 4, 1<<8))
	backbone := r.of("backbone_hidden_size", f.Backbone, 0, 1<<20)
	vocab := r.of("vocab_size", t.Vocab, 262144, 1<<24)
	if r.err != nil {
		return r.err
	}
	c.target.Width, c.target.Vocab, c.target.Layers = cmp.Or(c.target.Width, backbone), cmp.Or(c.target.Vocab, vocab), cmp.Or(c.target.Layers, anyLayers)
	c.draftVocab, c.ownOutput = vocab, true
	c.eps = 1e-6
	if t.Eps != nil {
		c.eps = float32(*t.Eps)
	}
	bound := 0.0
	if t.Cap != nil {
		bound = *t.Cap
	}
	c.logitCap = float32(bound)
	switch {
	case backbone != c.target.Width:
		return fmt.Errorf("config.json: backbone_hidden_size is %d, but the model's hidden rows have %d: the drafter was made for another model", backbone, c.target.Width)
	case vocab != c.target.Vocab:
		return fmt.Errorf("config.json: vocab_size is %d, but the model's vocabulary has %d: the drafter was made for another model", vocab, c.target.Vocab)
	case t.Shared != nil && *t.Shared != 0 && int(*t.Shared) != len(c.layers):
		return fmt.Errorf("config.json: num_kv_shared_layers is %d: an assistant with memory of its own is not supported, want %d", *t.Shared, len(c.layers))
	case t.Mixture || t.Double || t.Inputs != nil && *t.Inputs != 0:
		return errors.New("config.json: an assistant with experts, double width or embeddings of layers is not supported")
	case t.Bias || t.Activation != "" && t.Activation != "gelu_pytorch_tanh":
		return fmt.Errorf("config.json: attention_bias %t and hidden_activation %q are not supported, want false and gelu_pytorch_tanh", t.Bias, t.Activation)
	case !(bound >= 0 && bound < 1e6) || !(c.eps > 0 && c.eps < 1):
		return fmt.Errorf("config.json: final_logit_softcapping %v and rms_norm_eps %v are out of range", bound, c.eps)
	}
	return t.kinds(c)
}

// kinds reads what each layer reads.
func (t *assistantText) kinds(c *config) error {
	types := t.LayerTypes
	if types == nil {
		types = slices.Repeat([]string{slidingLayer}, len(c.layers))
		types[len(types)-1] = fullLayer
	}
	if len(types) != len(c.layers) {
		return fmt.Errorf("config.json: layer_types has %d entries, num_hidden_layers is %d", len(types), len(c.layers))
	}
	r := &sizes{}
	window := r.of("sliding_window", t.Window, 1024, 1<<28)
	sliding := assistantKind{kvHeads: r.of("num_key_value_heads", t.KVHeads, 0, 1<<12), dim: r.of("head_dim", t.HeadDim, 256, 1<<12)}
	full := assistantKind{kvHeads: sliding.kvHeads, dim: r.of("global_head_dim", t.FullDim, 512, 1<<12)}
	if t.KeyIsValue && t.FullKVHeads != nil {
		full.kvHeads = r.of("num_global_key_value_heads", t.FullKVHeads, 0, 1<<12)
	}
	c.assistant = make([]assistantKind, len(types))
	for i, name := range types {
		k := sliding
		switch name {
		case slidingLayer:
			c.layers[i] = layerKind{window: window, causal: true}
		case fullLayer:
			k, c.layers[i] = full, layerKind{causal: true}
		default:
			return fmt.Errorf("config.json: layer_types[%d] is %q, want %s or %s", i, name, fullLayer, slidingLayer)
		}
		for _, key := range []string{name, fmt.Sprint(i)} {
			own := t.PerLayer[key]
			k.dim, k.kvHeads = r.of("head_dim", own.HeadDim, k.dim, 1<<12), r.of("num_key_value_heads", own.KVHeads, k.kvHeads, 1<<12)
		}
		if r.err != nil {
			return r.err
		}
		if k.dim%2 != 0 || c.heads%k.kvHeads != 0 || window == 1 {
			return fmt.Errorf("config.json: layer %d has %d heads of %d numbers for %d heads of keys in a window of %d, which do not fit together", i, c.heads, k.dim, k.kvHeads, window)
		}
		var err error
		if k.freqs, err = t.rotation(name, k.dim); err != nil {
			return err
		}
		c.assistant[i] = k
	}
	return nil
}

// rotation is the frequencies of a kind of layers: full ones rotate a part of the pairs, and the exponent is that of the whole head.
func (t *assistantText) rotation(name string, dim int) ([]float32, error) {
	theta, part := 1e4, 1.0
	if name == fullLayer {
		theta, part = 1e6, 0.25
	}
	if p := t.Rope[name]; p != nil {
		if p.Type != "" && p.Type != "default" && p.Type != "proportional" {
			return nil, fmt.Errorf("config.json: rope_type %q is not supported, want default or proportional", p.Type)
		}
		if p.Theta != nil {
			theta = *p.Theta
		}
		if p.Partial != nil {
			part = *p.Partial
		}
	}
	if !(theta >= 1 && theta < 1e12) || !(part > 0 && part <= 1) {
		return nil, fmt.Errorf("config.json: rope_theta %v and partial_rotary_factor %v are out of range", theta, part)
	}
	log, freqs := exactmath.LogOfExp(theta), make([]float32, dim/2)
	for i := range int(part * float64(dim) / 2) {
		freqs[i] = float32(exactmath.Exp(-log * float64(2*i) / float64(dim)))
	}
	return freqs, nil
}

// sizes reads sizes and keeps the first error.
type sizes struct{ err error }

// of is a number from 1 to limit. It is def if the key is absent; def 0: the key must be there.
func (r *sizes) of(key string, v *checkpoint.Whole, def, limit int) int {
	switch {
	case v == nil && def > 0:
		return def
	case r.err != nil:
	case v == nil:
		r.err = fmt.Errorf("config.json: %s is missing", key)
	case *v < 1 || int(*v) > limit:
		r.err = fmt.Errorf("config.json: %s is %d, want a number from 1 to %d", key, *v, limit)
	default:
		return int(*v)
	}
	return 1
}

// hidesTokens reports whether a tensor is one of the clusters of the vocabulary that some assistants draft from. They are not read: the
// output matrix is small beside the model, and drafts from all of it need no second step.
func hidesTokens(name string) bool { return strings.HasPrefix(name, "masked_embedding.") }
