package drafter

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/model/network"
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
	Rope map[string]*network.RopeFile `json:"rope_parameters"`
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
	r := network.Reader{}
	c.width = r.Size("hidden_size", t.Hidden, 0, 1<<20)
	c.intermediate = r.Size("intermediate_size", t.Intermediate, 0, 1<<22)
	c.heads = r.Size("num_attention_heads", t.Heads, 0, 1<<12)
	layers := r.Size("num_hidden_layers", t.Layers, 4, 1<<8)
	backbone := r.Size("backbone_hidden_size", f.Backbone, 0, 1<<20)
	vocab := r.Size("vocab_size", t.Vocab, 262144, 1<<24)
	if r.Err != nil {
		return fmt.Errorf("config.json: %w", r.Err)
	}
	c.layers = make([]layerKind, layers)
	c.target.Width, c.target.Vocab, c.target.Layers = cmp.Or(c.target.Width, backbone), cmp.Or(c.target.Vocab, vocab), cmp.Or(c.target.Layers, anyLayers)
	c.draftVocab, c.ownOutput = vocab, true
	c.eps = float32(network.Or(t.Eps, 1e-6))
	bound := network.Or(t.Cap, 0)
	c.logitCap = float32(bound)
	switch {
	case backbone != c.target.Width:
		return fmt.Errorf("config.json: backbone_hidden_size is %d, but the model's hidden rows have %d: the drafter was made for another model", backbone, c.target.Width)
	case vocab != c.target.Vocab:
		return fmt.Errorf("config.json: vocab_size is %d, but the model's vocabulary has %d: the drafter was made for another model", vocab, c.target.Vocab)
	case t.Shared != nil && *t.Shared != 0 && int(*t.Shared) != len(c.layers):
		return fmt.Errorf("config.json: num_kv_shared_layers is %d: an assistant with a KV cache of its own is not supported, want %d", *t.Shared, len(c.layers))
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
	r := network.Reader{}
	window := r.Size("sliding_window", t.Window, 1024, 1<<28)
	sliding := assistantKind{kvHeads: r.Size("num_key_value_heads", t.KVHeads, 0, 1<<12), dim: r.Size("head_dim", t.HeadDim, 256, 1<<12)}
	full := assistantKind{kvHeads: sliding.kvHeads, dim: r.Size("global_head_dim", t.FullDim, 512, 1<<12)}
	if t.KeyIsValue && t.FullKVHeads != nil {
		full.kvHeads = r.Size("num_global_key_value_heads", t.FullKVHeads, 0, 1<<12)
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
			k.dim, k.kvHeads = r.Size("head_dim", own.HeadDim, k.dim, 1<<12), r.Size("num_key_value_heads", own.KVHeads, k.kvHeads, 1<<12)
		}
		if r.Err != nil {
			return fmt.Errorf("config.json: %w", r.Err)
		}
		if k.dim%2 != 0 || c.heads%k.kvHeads != 0 || window == 1 {
			return fmt.Errorf("config.json: layer %d has %d heads of %d numbers for %d heads of keys in a window of %d, which do not fit together", i, c.heads, k.dim, k.kvHeads, window)
		}
		rope, err := t.Rope[name].WindowRope(k.dim)
		if name == fullLayer {
			rope, err = t.Rope[name].FullRope(k.dim)
		}
		if err != nil {
			return fmt.Errorf("config.json: %w", err)
		}
		k.freqs = rope.Freqs(k.dim)
		c.assistant[i] = k
	}
	return nil
}

// hidesTokens reports whether a tensor is one of the clusters of the vocabulary that some assistants draft from. They are not read: the
// output matrix is small beside the model, and drafts from all of it need no second step.
func hidesTokens(name string) bool { return strings.HasPrefix(name, "masked_embedding.") }
