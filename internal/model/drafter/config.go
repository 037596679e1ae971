package drafter

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/exactmath"
	"github.com/foretoken/foretoken/internal/model"
)

// config is config.json, resolved for a target: every field has its final value.
type config struct {
	kind         Kind
	width        int // of the drafter's own rows
	target       model.Target
	draftVocab   int // rows of the output matrix
	intermediate int
	heads        int
	kvHeads      int
	headDim      int
	eps          float32
	theta        float64
	interleaved  bool // neighbors are rotated, not halves
	bias         bool // of the projections of attention
	taps         []int
	spread       bool   // the config does not name them
	made         string // name of the target, if the config has it
	layers       []layerKind
	sliding      layerKind // what a layer with the window of config.json sees, whether there is one or not

	// Of block drafters.
	block  int   // maximum rows
	mask   int32 // id of the rows after the first
	anchor bool  // the first row is read: row j drafts the token after its own position

	// Of DFlash2.
	kernel, group int // of the convolution
	rank, top     int // of the selector

	// Of DSpark.
	markov     int // rank, 0: there is no Markov head
	gated      bool
	confMarkov bool // the confidence head also takes the row of the Markov head

	// Of EAGLE-3.
	beforeResidual bool // the residual stream starts at the normalized row
	beforeFC       bool // one norm over all taps
	fcNorms        bool // a norm for each tap
	normOutput     bool // the row that is passed on is normalized
	noFC           bool // the row is the target's, as it is

	// Of assistants.
	assistant []assistantKind // what each layer reads
	logitCap  float32
	itself    bool // a row stands at the position of the model's last one, and sees it: a Repair

	// What the file has beyond that, by its tensors.
	ownEmbed, ownOutput, headNorms, confidence bool
	mapped                                     bool // d2t
	absolute                                   bool // d2t has ids, not differences
}

// layerKind is what the attention of a layer sees.
type layerKind struct {
	window int  // positions, 0: all
	causal bool // no rows of the block after its own
}

// fileConfig is config.json as it is written: by DeepSeek flat, by z-lab and SpecForge with a part of the keys under dflash_config
// or eagle_config, by speculators with the keys of the layers under transformer_layer_config.
type fileConfig struct {
	fileKeys
	DFlash *fileKeys `json:"dflash_config"`
	Eagle  *fileKeys `json:"eagle_config"`
	Layer  *fileKeys `json:"transformer_layer_config"`

	Architectures []string `json:"architectures"`
	Speculators   string   `json:"speculators_model_type"`
	// Names of the target: of speculators, and of SpecForge.
	Verifier struct {
		Verifier struct {
			Name string `json:"name_or_path"`
		} `json:"verifier"`
	} `json:"speculators_config"`
	TargetName  string `json:"target_model_name_or_path"`
	Absolute    bool   `json:"d2t_absolute"`     // ours: of GGUF files
	Interleaved bool   `json:"rope_interleaved"` // the same
}

// fileKeys are the keys, wherever they stand. They are pointers because absence differs from zero.
type fileKeys struct {
	Hidden       *checkpoint.Whole `json:"hidden_size"`
	TargetHidden *checkpoint.Whole `json:"target_hidden_size"`
	Intermediate *checkpoint.Whole `json:"intermediate_size"`
	Layers       *checkpoint.Whole `json:"num_hidden_layers"`
	Heads        *checkpoint.Whole `json:"num_attention_heads"`
	KVHeads      *checkpoint.Whole `json:"num_key_value_heads"`
	HeadDim      *checkpoint.Whole `json:"head_dim"`
	Eps          *float64          `json:"rms_norm_eps"`
	Theta        *float64          `json:"rope_theta"`
	Rope         *ropeConfig       `json:"rope_parameters"`
	RopeScaling  *ropeConfig       `json:"rope_scaling"`
	Neox         *bool             `json:"rope_is_neox_style"`
	Activation   *string           `json:"hidden_act"`
	Bias         *bool             `json:"attention_bias"`
	Vocab        *checkpoint.Whole `json:"vocab_size"`
	DraftVocab   *checkpoint.Whole `json:"draft_vocab_size"`
	TargetLayers *checkpoint.Whole `json:"num_target_layers"`

	TargetIDs []checkpoint.Whole `json:"target_layer_ids"`
	DSparkIDs []checkpoint.Whole `json:"dspark_target_layer_ids"`
	AuxIDs    []checkpoint.Whole `json:"aux_hidden_state_layer_ids"`
	EagleIDs  []checkpoint.Whole `json:"eagle_aux_hidden_state_layer_ids"`

	Block      *checkpoint.Whole `json:"block_size"`
	Mask       *checkpoint.Whole `json:"mask_token_id"`
	LayerTypes []string          `json:"layer_types"`
	Window     *checkpoint.Whole `json:"sliding_window"`
	UseWindow  *bool             `json:"use_sliding_window"`
	IsCausal   *bool             `json:"is_causal"`
	Causal     *bool             `json:"causal"`
	UseSWA     *bool             `json:"use_swa"`
	EmbedScale *float64          `json:"input_embedding_scale"`
	Multiplier *float64          `json:"output_multiplier"`
	Softcap    *float64          `json:"final_logit_softcapping"`

	Kernel *checkpoint.Whole `json:"conv_kernel_size"`
	Group  *checkpoint.Whole `json:"conv_group_size"`
	Rank   *checkpoint.Whole `json:"selector_rank"`
	Top    *checkpoint.Whole `json:"selector_top_k"`

	Markov     *checkpoint.Whole `json:"markov_rank"`
	MarkovType *string           `json:"markov_head_type"`
	ConfMarkov *bool             `json:"confidence_head_with_markov"`
	FromAnchor *bool             `json:"sample_from_anchor"`

	BeforeResidual *bool `json:"norm_before_residual"`
	BeforeFC       *bool `json:"norm_before_fc"`
	FCNorm         *bool `json:"fc_norm"`
	NormOutput     *bool `json:"norm_output"`
	UseAux         *bool `json:"use_aux_hidden_state"`
}

type ropeConfig struct {
	Type    string   `json:"rope_type"`
	OldType string   `json:"type"`
	Theta   *float64 `json:"rope_theta"`
}

// Sizes of a target that neither the caller nor the config knows: limits of any.
const (
	anyVocab  = math.MaxInt32
	anyLayers = 1 << 12
)

// readConfig resolves a config for a target, given the canonical names of the file's tensors. Sizes of the target that are 0 are
// those of the config.
func readConfig(data []byte, tensors names, t model.Target) (*config, error) {
	var f fileConfig
	if err := checkpoint.DecodeJSON("config.json", data, &f); err != nil {
		return nil, fmt.Errorf("drafter: %w", err)
	}
	c := &config{target: t, absolute: f.Absolute, interleaved: f.Interleaved}
	var err error
	switch c.kind, err = kindOf(tensors, f.Architectures); {
	case err != nil:
	case c.kind == GemmaAssistant:
		err = assistantConfig(c, data)
	default:
		err = f.resolve(c, tensors)
	}
	if err != nil {
		return nil, fmt.Errorf("drafter: %w", err)
	}
	return c, nil
}

// places are the objects that a key may stand in, in the order of preference.
func (f *fileConfig) places() []*fileKeys {
	return slices.DeleteFunc([]*fileKeys{&f.fileKeys, f.DFlash, f.Eagle, f.Layer}, func(k *fileKeys) bool { return k == nil })
}

// pick is the value of a key, nil if no place has it.
func pick[T any](f *fileConfig, of func(*fileKeys) *T) *T {
	for _, k := range f.places() {
		if v := of(k); v != nil {
			return v
		}
	}
	return nil
}

// value is pick with a default.
func value[T any](f *fileConfig, def T, of func(*fileKeys) *T) T {
	if v := pick(f, of); v != nil {
		return *v
	}
	return def
}

// list is pick for lists.
func list[T any](f *fileConfig, of func(*fileKeys) []T) []T {
	for _, k := range f.places() {
		if v := of(k); v != nil {
			return v
		}
	}
	return nil
}

// reader reads sizes and keeps the first error.
type reader struct {
	f   *fileConfig
	err error
}

// size is a number from 1 to limit. It is def if the key is absent; def 0: the key must be there.
func (r *reader) size(key string, def, limit int, of func(*fileKeys) *checkpoint.Whole) int {
	v := pick(r.f, of)
	if v == nil {
		if def == 0 {
			r.fail("config.json: %s is missing", key)
		}
		return def
	}
	if *v < 1 || int(*v) > limit {
		r.fail("config.json: %s is %d, want a number from 1 to %d", key, *v, limit)
	}
	return int(*v)
}

// equal checks a size of the target that the config repeats.
func (r *reader) equal(key string, want int, what string, of func(*fileKeys) *checkpoint.Whole) {
	if v := pick(r.f, of); v != nil && int(*v) != want {
		r.fail("config.json: %s is %d, but the %s %d: the drafter was made for another model", key, *v, what, want)
	}
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

// resolve fills in c.
func (f *fileConfig) resolve(c *config, tensors names) error {
	r := &reader{f: f}
	c.width = r.size("hidden_size", 0, 1<<20, func(k *fileKeys) *checkpoint.Whole { return k.Hidden })
	f.complete(c, r)
	r.equal("target_hidden_size", c.target.Width, "model's hidden rows have", func(k *fileKeys) *checkpoint.Whole { return k.TargetHidden })
	r.equal("vocab_size", c.target.Vocab, "model's vocabulary has", func(k *fileKeys) *checkpoint.Whole { return k.Vocab })
	r.equal("num_target_layers", c.target.Layers, "model's layers are", func(k *fileKeys) *checkpoint.Whole { return k.TargetLayers })
	c.intermediate = r.size("intermediate_size", 0, 1<<22, func(k *fileKeys) *checkpoint.Whole { return k.Intermediate })
	c.heads = r.size("num_attention_heads", 0, 1<<12, func(k *fileKeys) *checkpoint.Whole { return k.Heads })
	c.kvHeads = r.size("num_key_value_heads", c.heads, 1<<12, func(k *fileKeys) *checkpoint.Whole { return k.KVHeads })
	c.headDim = r.size("head_dim", max(c.width/max(c.heads, 1), 1), 1<<12, func(k *fileKeys) *checkpoint.Whole { return k.HeadDim })
	c.draftVocab = r.size("draft_vocab_size", c.target.Vocab, c.target.Vocab, func(k *fileKeys) *checkpoint.Whole { return k.DraftVocab })
	c.layers = make([]layerKind, r.size("num_hidden_layers", 0, 1<<8, func(k *fileKeys) *checkpoint.Whole { return k.Layers }))
	if r.err != nil {
		return r.err
	}
	if c.made = f.Verifier.Verifier.Name; c.made == "" {
		c.made = f.TargetName
	}
	c.ownEmbed, c.ownOutput, c.mapped = tensors.has("embed_tokens"), tensors.has("lm_head"), tensors["d2t"]
	c.headNorms = tensors.has("layers.0.self_attn.q_norm")
	c.bias = value(f, false, func(k *fileKeys) *bool { return k.Bias })
	c.confidence = tensors.has("confidence_head.proj")
	whole := c.ownEmbed || c.ownOutput && !c.mapped || c.kind == DFlash2 || tensors.has("markov_head.markov_w1")
	if c.target.Vocab == anyVocab && whole {
		return errors.New("config.json: vocab_size is missing")
	}
	if err := cmp.Or(f.variants(c), f.rope(c), c.fits(), f.tapped(c)); err != nil {
		return err
	}
	if c.kind == EAGLE3 {
		return f.eagle(c, tensors)
	}
	return f.blocks(c, tensors)
}

// complete sets the sizes of the target that the caller does not know.
func (f *fileConfig) complete(c *config, r *reader) {
	t := &c.target
	if t.Width == 0 {
		t.Width = r.size("target_hidden_size", c.width, 1<<20, func(k *fileKeys) *checkpoint.Whole { return k.TargetHidden })
	}
	if t.Vocab == 0 {
		t.Vocab = r.size("vocab_size", anyVocab, 1<<24, func(k *fileKeys) *checkpoint.Whole { return k.Vocab })
	}
	if t.Layers == 0 {
		t.Layers = r.size("num_target_layers", anyLayers, anyLayers, func(k *fileKeys) *checkpoint.Whole { return k.TargetLayers })
	}
}

// variants refuses what nothing here computes.
func (f *fileConfig) variants(c *config) error {
	eps := value(f, 1e-6, func(k *fileKeys) *float64 { return k.Eps })
	c.eps = float32(eps)
	act := value(f, "silu", func(k *fileKeys) *string { return k.Activation })
	odd := func(of func(*fileKeys) *float64, plain float64) float64 {
		if v := value(f, plain, of); v != plain {
			return v
		}
		return 0
	}
	scale := odd(func(k *fileKeys) *float64 { return k.EmbedScale }, 1)
	multiplier := odd(func(k *fileKeys) *float64 { return k.Multiplier }, 1)
	softcap := odd(func(k *fileKeys) *float64 { return k.Softcap }, 0)
	switch {
	case !(eps >= 0 && eps < 1):
		return fmt.Errorf("config.json: rms_norm_eps is %v, want a small positive number", eps)
	case act != "silu" && act != "swish":
		return fmt.Errorf("config.json: hidden_act %q is not supported, want silu", act)
	case c.heads%c.kvHeads != 0:
		return fmt.Errorf("config.json: num_attention_heads %d is not a multiple of num_key_value_heads %d", c.heads, c.kvHeads)
	case c.headDim%2 != 0:
		return fmt.Errorf("config.json: head_dim is %d, want an even number", c.headDim)
	case scale != 0:
		return fmt.Errorf("config.json: input_embedding_scale %v is not supported", scale)
	case multiplier != 0:
		return fmt.Errorf("config.json: output_multiplier %v is not supported", multiplier)
	case softcap != 0:
		return fmt.Errorf("config.json: final_logit_softcapping %v is not supported", softcap)
	case value(f, false, func(k *fileKeys) *bool { return k.UseSWA }):
		return fmt.Errorf("config.json: use_swa true is not supported, want layer_types and sliding_window")
	}
	return nil
}

// rope reads the rotation.
func (f *fileConfig) rope(c *config) error {
	c.theta = value(f, 10000, func(k *fileKeys) *float64 { return k.Theta })
	for _, r := range []*ropeConfig{
		pick(f, func(k *fileKeys) *ropeConfig { return k.RopeScaling }), pick(f, func(k *fileKeys) *ropeConfig { return k.Rope }),
	} {
		if r == nil {
			continue
		}
		if kind := cmp.Or(r.Type, r.OldType, "default"); kind != "default" {
			return fmt.Errorf("config.json: rope_type %q is not supported, want default", kind)
		}
		if r.Theta != nil {
			c.theta = *r.Theta
		}
	}
	if !(c.theta > 0) || math.IsInf(c.theta, 0) {
		return fmt.Errorf("config.json: rope_theta is %v, want a positive number", c.theta)
	}
	if !value(f, true, func(k *fileKeys) *bool { return k.Neox }) {
		return fmt.Errorf("config.json: rope_is_neox_style false is not supported: the pairs of the rotation must be halves of a head")
	}
	return nil
}

// fits compares the widths of the drafter and its target.
func (c *config) fits() error {
	switch {
	case c.width == c.target.Width:
		return nil
	case c.kind != EAGLE3:
		return fmt.Errorf("config.json: hidden_size is %d, but the model's hidden rows have %d: the drafter was made for another model", c.width, c.target.Width)
	case !c.ownEmbed || !c.ownOutput:
		return fmt.Errorf("config.json: hidden_size is %d and the model's hidden rows have %d: the drafter needs an embed_tokens and an lm_head of its own", c.width, c.target.Width)
	}
	return nil
}

// freqs are the angles per position of the rotated pairs: those of a whole head.
func (c *config) freqs() []float32 {
	f := make([]float32, c.headDim/2)
	for i := range f {
		f[i] = float32(exactmath.Exp(-exactmath.LogOfExp(c.theta) * float64(2*i) / float64(c.headDim)))
	}
	return f
}

// names are the canonical names of a file's tensors.
type names map[string]bool

// has reports whether there is a tensor of a module.
func (n names) has(module string) bool {
	_, ok := checkpoint.Elements(module, func(name string) bool { return n[name] })
	return ok
}

// some is the first tensor, in the order of names, whose name has a part; "" if there is none.
func (n names) some(part string) string {
	found := ""
	for name := range n {
		if strings.Contains(name, part) && (found == "" || name < found) {
			found = name
		}
	}
	return found
}

// Promises reports whether a config.json names a drafter rather than a model: whether it is worth to be opened as one.
func Promises(data []byte) bool {
	var f struct {
		Architectures []string        `json:"architectures"`
		DFlash        json.RawMessage `json:"dflash_config"`
		Eagle         json.RawMessage `json:"eagle_config"`
		Speculators   string          `json:"speculators_model_type"`
	}
	if json.Unmarshal(data, &f) != nil {
		return false
	}
	return f.DFlash != nil || f.Eagle != nil || f.Speculators != "" || slices.ContainsFunc(f.Architectures, func(a string) bool {
		_, ok := architectures[a]
		return ok
	})
}
