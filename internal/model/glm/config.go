package glm

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/model/network"
)

// config is config.json, resolved: every field has its final value.
type config struct {
	network.Settings
	fileType string // as the file has it, which may be that of a folder with nothing but a head
	dense    []bool // layers with a dense feed-forward; the others have experts

	intermediate            int
	heads, kvHeads, headDim int // kvHeads and headDim: of grouped-query attention
	queryRank               int // of latent attention; 0: one matrix instead of two
	rank                    int // of keys and values: the latent part of a row; 0: grouped-query attention
	nope, rotary, valueDim  int // numbers of a head that are not rotated, that are, and of its value
	interleaved             bool
	bias, headNorms         bool // of grouped-query attention
	rope                    rope

	expertWidth, sharedWidth int
	groups, topGroups        int
	expertScale              float32
	normTopK                 bool
}

// innerEps is that of the norms inside latent attention: the reference builds them with its
// default, whatever rms_norm_eps says.
const innerEps = 1e-6

// Types of models.
const (
	lite     = "glm4_moe_lite" // latent attention
	deepseek = "deepseek_v3"   // latent attention, groups of experts, YaRN
	grouped  = "glm4_moe"      // grouped-query attention
)

// fileConfig is config.json as it is written, or what a wrapper nests in it.
type fileConfig struct {
	textConfig
	Text *textConfig `json:"text_config"`
}

// textConfig has pointers where absence differs from zero.
type textConfig struct {
	network.File
	HeadDim     *checkpoint.Whole `json:"head_dim"`
	QueryRank   network.Nullable  `json:"q_lora_rank"`
	Rank        *checkpoint.Whole `json:"kv_lora_rank"`
	Nope        *checkpoint.Whole `json:"qk_nope_head_dim"`
	Rotary      *checkpoint.Whole `json:"qk_rope_head_dim"`
	ValueDim    *checkpoint.Whole `json:"v_head_dim"`
	Interleave  *bool             `json:"rope_interleave"`
	Bias        bool              `json:"attention_bias"`
	HeadNorms   bool              `json:"use_qk_norm"`
	Rope        *ropeConfig       `json:"rope_parameters"`
	RopeScaling *ropeConfig       `json:"rope_scaling"`
	Experts     *checkpoint.Whole `json:"n_routed_experts"`
	Shared      *checkpoint.Whole `json:"n_shared_experts"`
	Groups      *checkpoint.Whole `json:"n_group"`
	TopGroups   *checkpoint.Whole `json:"topk_group"`
	ExpertScale *float64          `json:"routed_scaling_factor"`
	Scoring     string            `json:"scoring_func"`
	TopKMethod  string            `json:"topk_method"`
	FirstDense  *checkpoint.Whole `json:"first_k_dense_replace"`
	LayerKinds  []string          `json:"mlp_layer_types"`
	LayerFreq   *checkpoint.Whole `json:"moe_layer_freq"`
	MTPLayers   *checkpoint.Whole `json:"num_mtp_layers"`
}

// readConfig decodes and checks config.json and the stop ids of generation_config.json.
func readConfig(c *checkpoint.Checkpoint) (*config, error) {
	var f fileConfig
	if err := checkpoint.DecodeJSON("config.json", c.Config(), &f); err != nil {
		return nil, fmt.Errorf("glm: %w", err)
	}
	t := f.text()
	cfg, err := resolve(t)
	if err != nil {
		return nil, fmt.Errorf("glm: config.json: %w", err)
	}
	cfg.fileType = cmp.Or(f.ModelType, cfg.ModelType)
	if err := cfg.ReadStop(c, t.EOS, f.EOS); err != nil {
		return nil, fmt.Errorf("glm: %w", err)
	}
	return cfg, nil
}

// text is the object that describes the model, with the type that is known.
func (f *fileConfig) text() *textConfig {
	t := &f.textConfig
	if f.Text != nil {
		t = f.Text
		t.ModelType = cmp.Or(t.ModelType, f.ModelType)
		t.Architectures = append(t.Architectures, f.Architectures...)
	}
	return t
}

// kind is the type of the model: by the name, by that of a head's folder, or by the architecture.
func (t *textConfig) kind() string {
	for kind, names := range kinds {
		if slices.Contains(names, t.ModelType) {
			return kind
		}
	}
	for kind, class := range architectures {
		if t.ModelType == "" && slices.Contains(t.Architectures, class) {
			return kind
		}
	}
	return ""
}

// resolve fills in the reference's defaults and checks what the model is built from.
func resolve(t *textConfig) (*config, error) {
	kind := t.kind()
	def, ok := defaults[kind]
	if !ok {
		return nil, fmt.Errorf("model_type %q does not belong to this family", t.ModelType)
	}
	cfg := &config{normTopK: network.Or(t.NormTopK, true)}
	cfg.Package, cfg.ModelType, cfg.Kind, cfg.OwnTables, cfg.Tied = "glm", kind, titles[kind], true, network.Or(t.Tied, false)
	read := network.Reader{}
	read.Common(&cfg.Settings, &t.File, network.Settings{Vocab: def.vocab, Width: def.hidden, Context: def.context, Eps: float32(def.eps)})
	cfg.intermediate = read.Size("intermediate_size", t.Intermediate, def.intermediate, 1<<22)
	cfg.heads = read.Size("num_attention_heads", t.Heads, def.heads, 1<<12)
	layers := read.Size("num_hidden_layers", t.Layers, def.layers, 1<<12)
	cfg.Experts = read.Size("n_routed_experts", t.Experts, def.experts, 1<<14)
	cfg.TopK = read.Size("num_experts_per_tok", t.TopK, def.topK, max(cfg.Experts, 1))
	cfg.expertWidth = read.Size("moe_intermediate_size", t.ExpertWidth, def.expertWidth, 1<<20)
	cfg.sharedWidth = cfg.expertWidth * read.Size("n_shared_experts", t.Shared, 1, 1<<8)
	cfg.groups = read.Size("n_group", t.Groups, def.groups, 1<<14)
	cfg.topGroups = read.Size("topk_group", t.TopGroups, def.topGroups, 1<<14)
	if kind == grouped {
		cfg.kvHeads = read.Size("num_key_value_heads", t.KVHeads, 8, 1<<12)
		cfg.headDim = read.Size("head_dim", t.HeadDim, 128, 1<<12)
	} else {
		cfg.latentSizes(&read, t, def)
	}
	if read.Err != nil {
		return nil, read.Err
	}
	cfg.MTPLayers = int(max(network.Or(t.NextLayers, 0), network.Or(t.MTPLayers, 0)))
	if err := cmp.Or(cfg.variants(t), cfg.choice(t, def), cfg.rotation(t)); err != nil {
		return nil, err
	}
	return cfg, cfg.layerKinds(t, layers)
}

// latentSizes reads those of latent attention.
func (c *config) latentSizes(read *network.Reader, t *textConfig, def sizes) {
	if !t.QueryRank.Null {
		c.queryRank = read.Size("q_lora_rank", t.QueryRank.Value, def.queryRank, 1<<20)
	}
	c.rank = read.Size("kv_lora_rank", t.Rank, 512, 1<<20)
	c.nope = read.Size("qk_nope_head_dim", t.Nope, def.nope, 1<<12)
	c.rotary = read.Size("qk_rope_head_dim", t.Rotary, 64, 1<<12)
	c.valueDim = read.Size("v_head_dim", t.ValueDim, def.valueDim, 1<<12)
	c.interleaved = network.Or(t.Interleave, true)
}

// kinds are the model types of the family, with those of folders that have nothing but a head.
var kinds = map[string][]string{
	lite: {lite, lite + "_mtp"}, deepseek: {deepseek, deepseek + "_mtp"}, grouped: {grouped, grouped + "_mtp"},
}

var architectures = map[string]string{
	lite: "Glm4MoeLiteForCausalLM", deepseek: "DeepseekV3ForCausalLM", grouped: "Glm4MoeForCausalLM",
}

// titles are the kinds of models, for people.
var titles = map[string]string{
	lite:     "GLM-4.7-Flash, mixture of experts over latent rows",
	deepseek: "DeepSeek-V3, mixture of experts over latent rows",
	grouped:  "GLM-4.5, mixture of experts",
}

// sizes are the reference's values for fields that a file leaves out.
type sizes struct {
	vocab, hidden, intermediate, layers, heads, context int
	queryRank, nope, valueDim                           int
	experts, topK, expertWidth, groups, topGroups       int
	expertScale, eps                                    float64
	firstDense                                          int
}

var defaults = map[string]sizes{
	lite: {
		vocab: 154880, hidden: 2048, intermediate: 10240, layers: 47, heads: 20, context: 202752, queryRank: 768, nope: 192, valueDim: 256,
		experts: 64, topK: 4, expertWidth: 1536, groups: 1, topGroups: 1, expertScale: 1.8, eps: 1e-5, firstDense: 1,
	},
	deepseek: {
		vocab: 129280, hidden: 7168, intermediate: 18432, layers: 61, heads: 128, context: 4096, queryRank: 1536, nope: 128, valueDim: 128,
		experts: 256, topK: 8, expertWidth: 2048, groups: 8, topGroups: 4, expertScale: 2.5, eps: 1e-6, firstDense: 3,
	},
	grouped: {
		vocab: 151552, hidden: 4096, intermediate: 10944, layers: 46, heads: 96, context: 131072,
		experts: 128, topK: 8, expertWidth: 1408, groups: 1, topGroups: 1, expertScale: 1, eps: 1e-5, firstDense: 1,
	},
}

// variants checks the switches of the architecture.
func (c *config) variants(t *textConfig) error {
	switch {
	case c.rank > 0 && t.Bias:
		return fmt.Errorf("attention_bias true is not supported with latent attention")
	case c.rank == 0 && c.heads%c.kvHeads != 0:
		return fmt.Errorf("num_attention_heads %d is not a multiple of num_key_value_heads %d", c.heads, c.kvHeads)
	case c.rotary%2 != 0:
		return fmt.Errorf("qk_rope_head_dim is %d, want an even number", c.rotary)
	case network.Or(t.LayerFreq, 1) != 1:
		return fmt.Errorf("moe_layer_freq %d is not supported, want 1", *t.LayerFreq)
	}
	c.bias, c.headNorms = t.Bias, t.HeadNorms
	return nil
}

// choice checks how experts are chosen.
func (c *config) choice(t *textConfig, def sizes) error {
	scale := network.Or(t.ExpertScale, def.expertScale)
	c.expertScale = float32(scale)
	switch {
	case !(scale > 0) || math.IsInf(scale, 0):
		return fmt.Errorf("routed_scaling_factor is %v, want a positive number", scale)
	case t.Scoring != "" && t.Scoring != "sigmoid":
		return fmt.Errorf("scoring_func %q is not supported, want sigmoid", t.Scoring)
	case t.TopKMethod != "" && t.TopKMethod != "noaux_tc":
		return fmt.Errorf("topk_method %q is not supported, want noaux_tc", t.TopKMethod)
	case c.Experts%c.groups != 0:
		return fmt.Errorf("n_routed_experts %d is not a multiple of n_group %d", c.Experts, c.groups)
	case c.groups > 1 && c.Experts/c.groups < 2:
		return fmt.Errorf("n_group %d leaves fewer than two experts per group", c.groups)
	case c.topGroups > c.groups:
		return fmt.Errorf("topk_group %d is more than n_group %d", c.topGroups, c.groups)
	case c.TopK > c.topGroups*(c.Experts/c.groups):
		return fmt.Errorf("num_experts_per_tok %d is more than the %d experts of topk_group %d groups", c.TopK, c.topGroups*(c.Experts/c.groups), c.topGroups)
	}
	return nil
}

// layerKinds says which layers have no experts: by the list if there is one.
func (c *config) layerKinds(t *textConfig, n int) error {
	c.dense = make([]bool, n)
	if t.LayerKinds == nil {
		first := int(network.Or(t.FirstDense, checkpoint.Whole(defaults[c.ModelType].firstDense)))
		if first < 0 || first > n {
			return fmt.Errorf("first_k_dense_replace is %d, want a number from 0 to num_hidden_layers, which is %d", first, n)
		}
		for i := range first {
			c.dense[i] = true
		}
		return nil
	}
	if len(t.LayerKinds) != n {
		return fmt.Errorf("mlp_layer_types has %d entries, num_hidden_layers is %d", len(t.LayerKinds), n)
	}
	for i, kind := range t.LayerKinds {
		if kind != "dense" && kind != "sparse" {
			return fmt.Errorf("mlp_layer_types[%d] is %q, want dense or sparse", i, kind)
		}
		c.dense[i] = kind == "dense"
	}
	return nil
}
