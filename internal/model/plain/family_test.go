// Package plain is a family that exists for tests only: layers of attention, a feed-forward each,
// no recurrence and no head. It is all that another family has to write, and the tests beside it
// hold that nothing outside of this folder knows of it: it is served, drafted for, surveyed and
// converted through model.Family.
package plain

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/network"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/state"
)

func init() {
	network.Register[struct{}](&model.Family{
		Package: "plain", Types: []string{"plain"}, Architectures: []string{"PlainForCausalLM"},
		Dialogue: model.Dialogue{Ends: []string{"<|im_end|>"}, Turns: []string{"<|im_start|>"}, Answers: []string{"<|im_start|>assistant"}},
	}, func(c *checkpoint.Checkpoint) (network.Config, error) { return read(c.Config()) }, nil, nil)
}

type config struct {
	network.Settings
	layers, heads, dim, inner int
}

func read(text []byte) (*config, error) {
	var f struct {
		network.File
		Dim int `json:"head_dim"`
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("plain: config.json: %w", err)
	}
	c, r := &config{dim: f.Dim}, network.Reader{}
	c.Package, c.ModelType, c.Kind, c.Stop = "plain", "plain", "Plain, dense", f.EOS
	r.Common(&c.Settings, &f.File, network.Settings{Eps: 1e-6})
	c.layers, c.heads, c.inner = int(*f.Layers), int(*f.Heads), int(*f.Intermediate)
	return c, r.Err
}

func (c *config) Layout(o model.Options, head bool) state.Layout {
	if head {
		return state.Layout{}
	}
	kind := state.KV{Type: o.KVType(), Heads: c.heads, Key: c.dim, Value: c.dim}
	return state.Layout{Layers: slices.Repeat([]state.Layer{kind}, c.layers), MaxDrafts: o.MaxDrafts}
}

func (c *config) Layers(n *network.Network, head bool) (list []network.Layer) {
	if head {
		return nil
	}
	w, inner := &rows{Network: n, config: c}, c.heads*c.dim
	n.Parts = []network.Part{
		{To: &w.q, Width: inner},
		{To: &w.k, Width: inner},
		{To: &w.v, Width: inner},
		{To: &w.mixed, Width: inner},
		{To: &w.gates, Width: c.inner},
		{To: &w.ups, Width: c.inner},
	}
	for range c.layers {
		list = append(list, &layer{rows: w, attention: backend.Attention{
			Heads: c.heads, KVHeads: c.heads, HeadDim: c.dim, Freqs: []float32{1, 0.1, 0.01, 0.001},
		}})
	}
	return list
}

func (*config) Files(c *checkpoint.Checkpoint, log *slog.Logger) (*weights.Files, error) {
	return weights.Open(c, weights.Reading{ModelType: "plain", Canonical: func(name string) (string, bool) {
		return strings.TrimPrefix(name, "model."), true
	}}, log)
}

func (*config) Bits(_ string, bits int) int                 { return bits }
func (*config) Check(*weights.Files, bool, *slog.Logger)    {}
func (*config) Describe(*weights.Survey, *weights.Files)    {}
func (*config) Converted(source []byte) weights.Converted   { return converted(source) }
func (*config) Repairs(*network.Head) (none []model.Repair) { return none }

// converted is a config.json; converted checkpoints are called and configured as the source is.
type converted []byte

func (converted) Name(canonical string) string {
	if strings.HasPrefix(canonical, weights.OutputMatrix) {
		return canonical
	}
	return "model." + canonical
}

func (c converted) Config(_, _ bool) (config map[string]any, err error) {
	err = json.Unmarshal(c, &config)
	return config, err
}

func (converted) HeadConfig() (map[string]any, error)       { return nil, weights.ErrNoHead }
func (converted) PromiseHead(map[string]any) (changed bool) { return false }

// rows are what layers compute in.
type rows struct {
	*network.Network
	*config
	q, k, v, mixed, gates, ups backend.Tensor
}

type layer struct {
	*rows
	at                     backend.Place
	attention              backend.Attention
	before, between        backend.Tensor
	query, key, value, out backend.Weight
	gate, up, down         backend.Weight
}

func (y *layer) Place(at backend.Place) { y.at = at }
func (y *layer) CatchUp()               {}

func (y *layer) Weights(list []weights.Weight, p string) []weights.Weight {
	w, q := y.Network.Width, y.heads*y.dim
	list = append(list,
		weights.NewGain(&y.before, p+"input_layernorm", w),
		weights.NewMatrix(&y.query, p+"self_attn.q_proj", q, w), weights.NewMatrix(&y.key, p+"self_attn.k_proj", q, w),
		weights.NewMatrix(&y.value, p+"self_attn.v_proj", q, w), weights.NewMatrix(&y.out, p+"self_attn.o_proj", w, q),
		weights.NewGain(&y.between, p+"post_attention_layernorm", w))
	return network.FeedForward(list, &y.gate, &y.up, &y.down, y.inner, w, p+"mlp.")
}

func (y *layer) Forward() {
	n, b := y.Network, y.Backend
	b.RMSNorm(n.H, n.X, y.before, n.Eps)
	n.MatMul(n.H, backend.Product{Dst: y.q, W: y.query}, backend.Product{Dst: y.k, W: y.key}, backend.Product{Dst: y.v, W: y.value})
	b.Attend(y.mixed, &y.attention, y.at, y.q, y.k, y.v, n.Seqs)
	n.MatMul(y.mixed, backend.Product{Dst: n.X, W: y.out, Add: true})
	b.RMSNorm(n.H, n.X, y.between, n.Eps)
	n.MatMul(n.H, backend.Product{Dst: y.gates, W: y.gate}, backend.Product{Dst: y.ups, W: y.up})
	b.GLU(y.gates, y.gates, y.ups, backend.SiLU)
	n.MatMul(y.gates, backend.Product{Dst: n.X, W: y.down, Add: true})
}
