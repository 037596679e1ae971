// Package plain is a family that exists for tests only: layers of attention, a feed-forward each,
// no recurrence and no head. It is all that another family has to write, and the tests beside it
// hold that nothing outside of this folder knows of it: it is served, drafted for, surveyed and
// converted through model.Family.
package plain

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/state"
)

func init() {
	model.Register(&model.Family{
		Package: "plain", Types: []string{"plain"}, Architectures: []string{"PlainForCausalLM"},
		Dialogue: model.Dialogue{Ends: []string{"<|im_end|>"}, Turns: []string{"<|im_start|>"}, Answers: []string{"<|im_start|>assistant"}},
		Open:     open, Survey: survey, Inventory: inventory,
	})
}

// network is a model with its weights, or without them for its table.
type network struct {
	Vocab   int   `json:"vocab_size"`
	Width   int   `json:"hidden_size"`
	Layers  int   `json:"num_hidden_layers"`
	Heads   int   `json:"num_attention_heads"`
	Dim     int   `json:"head_dim"`
	Wide    int   `json:"intermediate_size"`
	Context int   `json:"max_position_embeddings"`
	End     int32 `json:"eos_token_id"`

	embed, unembed backend.Weight
	norm           backend.Tensor
	layers         []layer
	layout         state.Layout
	loader         *weights.Loader
	b              backend.Backend
	made           []backend.Tensor // by the last Forward
}

type layer struct {
	attention              backend.Attention
	before, between        backend.Tensor
	query, key, value, out backend.Weight
	gate, up, down         backend.Weight
}

func read(c *checkpoint.Checkpoint) (*network, error) {
	n := &network{}
	if err := json.Unmarshal(c.Config(), n); err != nil {
		return nil, fmt.Errorf("plain: config.json: %w", err)
	}
	for range n.Layers {
		n.layers = append(n.layers, layer{attention: backend.Attention{
			Heads: n.Heads, KVHeads: n.Heads, HeadDim: n.Dim, Freqs: []float32{1, 0.1, 0.01, 0.001},
		}})
	}
	return n, nil
}

func (n *network) memory(o model.Options) state.Layout {
	kind := state.KV{Type: o.KVType(), Heads: n.Heads, Key: n.Dim, Value: n.Dim}
	return state.Layout{Layers: slices.Repeat([]state.Layer{kind}, n.Layers), MaxDrafts: o.MaxDrafts}
}

// table is the only list of the weights.
func (n *network) table() iter.Seq[*weights.Weight] {
	w, q := n.Width, n.Heads*n.Dim
	list := []weights.Weight{weights.NewMatrix(&n.embed, "embed_tokens", n.Vocab, w), weights.NewMatrix(&n.unembed, weights.OutputMatrix, n.Vocab, w)}
	for i := range n.layers {
		y, p := &n.layers[i], fmt.Sprintf("layers.%d.", i)
		list = append(list,
			weights.NewGain(&y.before, p+"input_layernorm", w),
			weights.NewMatrix(&y.query, p+"self_attn.q_proj", q, w), weights.NewMatrix(&y.key, p+"self_attn.k_proj", q, w),
			weights.NewMatrix(&y.value, p+"self_attn.v_proj", q, w), weights.NewMatrix(&y.out, p+"self_attn.o_proj", w, q),
			weights.NewGain(&y.between, p+"post_attention_layernorm", w),
			weights.NewMatrix(&y.gate, p+"mlp.gate_proj", n.Wide, w), weights.NewMatrix(&y.up, p+"mlp.up_proj", n.Wide, w), weights.NewMatrix(&y.down, p+"mlp.down_proj", w, n.Wide))
	}
	list = append(list, weights.NewGain(&n.norm, "norm", w))
	return func(yield func(*weights.Weight) bool) { weights.Each(list, yield) }
}

func files(c *checkpoint.Checkpoint, log *slog.Logger) (*weights.Files, error) {
	return weights.Open(c, weights.Reading{ModelType: "plain", Canonical: func(name string) (string, bool) {
		return strings.TrimPrefix(name, "model."), true
	}}, log)
}

func open(c *checkpoint.Checkpoint, b backend.Backend, o model.Options) (model.Model, error) {
	n, err := read(c)
	if err != nil {
		return nil, err
	}
	f, err := files(c, o.Log)
	if err != nil {
		return nil, err
	}
	n.b, n.layout, n.loader = b, n.memory(o), &weights.Loader{Backend: b, Compute: o.Compute, Progress: o.Progress}
	n.loader.From(f)
	if err := errors.Join(n.loader.Load(n.table()), n.loader.Err(), f.Leftover()); err != nil {
		n.loader.Free()
		return nil, err
	}
	return n, nil
}

func survey(c *checkpoint.Checkpoint) (*weights.Survey, error) {
	n, err := read(c)
	if err != nil {
		return nil, err
	}
	f, err := files(c, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	s := &weights.Survey{
		Family: "Plain, dense", ModelType: "plain", Hidden: n.Width, Vocab: n.Vocab, Context: n.Context, AttentionLayers: n.Layers,
		Stop: []int32{n.End}, Layout: n.memory(model.Options{}),
	}
	f.Survey(s, weights.Tables{Model: n.table()})
	return s, nil
}

func inventory(c *checkpoint.Checkpoint, part weights.Portion, log *slog.Logger) (*weights.Inventory, error) {
	n, err := read(c)
	if err != nil {
		return nil, err
	}
	f, err := files(c, log)
	if err != nil {
		return nil, err
	}
	return f.Inventory(part, weights.Tables{Model: n.table()}, converted(c.Config()))
}

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

func (n *network) Info() model.Info {
	return model.Info{
		Family: "plain", Vocab: n.Vocab, Width: n.Width, Layers: n.Layers, Context: n.Context, Stop: []int32{n.End},
		Parameters: n.loader.Parameters(), Bytes: n.loader.Bytes(), Compute: n.loader.Compute,
	}
}
func (n *network) Layout() state.Layout { return n.layout }
func (n *network) Head() model.Head     { return nil }

func (n *network) Close() error {
	n.Release()
	n.loader.Free()
	return nil
}

func (n *network) Release() {
	for _, t := range n.made {
		n.b.Free(t)
	}
	n.made = nil
}

func (n *network) Forward(batch []model.Span) (out model.Output, err error) {
	n.Release()
	var ids, want []int32
	for _, s := range batch {
		if err = s.Check(n.Vocab, n.Width); err == nil {
			err = s.State.Reserve(len(s.Tokens))
		}
		if err != nil {
			return out, err
		}
		ids = append(ids, s.Tokens...)
		for i := len(ids) - s.Want; i < len(ids); i++ {
			want = append(want, int32(i))
		}
	}
	tensor := func(rows, cols int) backend.Tensor {
		t, failed := n.b.Alloc(dtype.F32, rows, cols)
		err = errors.Join(err, failed)
		n.made = append(n.made, t)
		return t
	}
	rows, heads := len(ids), n.Heads*n.Dim
	x, h, query, key, value := tensor(rows, n.Width), tensor(rows, n.Width), tensor(rows, heads), tensor(rows, heads), tensor(rows, heads)
	mixed, gate, up := tensor(rows, heads), tensor(rows, n.Wide), tensor(rows, n.Wide)
	last, logits := tensor(len(want), n.Width), tensor(len(want), n.Vocab)
	if err != nil {
		return out, err
	}
	var seqs []backend.Seq
	first := 0
	for _, s := range batch {
		seqs = append(seqs, s.State.Seq(first, len(s.Tokens), s.Drafts, s.Positions))
		first += len(s.Tokens)
	}
	b, places := n.b, n.layout.Places()
	model.Embed(b, x, n.embed, ids, batch)
	b.Pass(backend.Pass{Of: n, Batch: seqs, Want: want}, func() {
		for i := range n.layers {
			y := &n.layers[i]
			b.RMSNorm(h, x, y.before, 1e-6)
			b.MatMul(h, backend.Product{Dst: query, W: y.query}, backend.Product{Dst: key, W: y.key}, backend.Product{Dst: value, W: y.value})
			b.Attend(mixed, &y.attention, places[i], query, key, value, seqs)
			b.MatMul(mixed, backend.Product{Dst: x, W: y.out, Add: true})
			b.RMSNorm(h, x, y.between, 1e-6)
			b.MatMul(h, backend.Product{Dst: gate, W: y.gate}, backend.Product{Dst: up, W: y.up})
			b.SwiGLU(gate, gate, up)
			b.MatMul(gate, backend.Product{Dst: x, W: y.down, Add: true})
		}
		b.RMSNorm(h, x, n.norm, 1e-6)
		b.Gather(last, h, want)
		b.MatMul(last, backend.Product{Dst: logits, W: n.unembed})
	})
	for _, s := range batch {
		s.State.Fed(len(s.Tokens), s.Drafts)
	}
	return model.Output{Device: b, Logits: logits, Hidden: h}, nil
}
