package gemma

import (
	"math"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model/network"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// The tables of this file are the only list of the family's weights: what each is called,
// what kind it is, its shape, the layouts in which it is stored, and where it goes. Loading,
// a survey, an inventory and a generated model all walk them.

// Weights implements network.Layer.
func (y *layer) Weights(list []weights.Weight, p string) []weights.Weight {
	c := y.cfg
	if y.first() {
		list = y.layerInputs(list, p)
	}
	list = append(list, weights.NewGain(&y.inputNorm, p+"input_layernorm", c.Width))
	list = y.heads(list, p+"self_attn.")
	list = append(list,
		weights.NewGain(&y.postNorm, p+"post_attention_layernorm", c.Width),
		weights.NewGain(&y.preFeed, p+"pre_feedforward_layernorm", c.Width))
	list = network.FeedForward(list, &y.gate, &y.up, &y.down, y.inner, c.Width, p+"mlp.")
	if y.moe != nil {
		list = y.mixture(list, p)
	}
	list = append(list, weights.NewGain(&y.postFeed, p+"post_feedforward_layernorm", c.Width))
	if c.inputs > 0 {
		list = append(list,
			weights.NewMatrix(&y.inputGate, p+"per_layer_input_gate", c.inputs, c.Width),
			weights.NewMatrix(&y.inputOut, p+"per_layer_projection", c.Width, c.inputs),
			weights.NewGain(&y.postInput, p+"post_per_layer_input_norm", c.Width))
	}
	return append(list, weights.NewVector(nil, weights.Vector, p+"layer_scalar", 1, 1).Then(func(v []float32) { y.scalar = v[0] }))
}

// layerInputs are the weights from which the first layer computes the inputs of all layers.
func (y *layer) layerInputs(list []weights.Weight, p string) []weights.Weight {
	c := y.cfg
	all := len(c.kinds) * c.inputs
	return append(list,
		weights.NewLookup(&y.own, p+tableName, c.Vocab, all),
		weights.NewMatrix(&y.context, p+"per_layer_model_projection", all, c.Width),
		weights.NewGain(&y.contextNorm, p+"per_layer_projection_norm", c.inputs))
}

// heads are the weights of attention. A layer that reads the KV cache of another has queries only. Values have a norm without a gain.
func (y *layer) heads(list []weights.Weight, p string) []weights.Weight {
	c, a := y.cfg, y.kindRows
	q, kv := c.heads*a.dim, a.kvHeads*a.dim
	list = append(list, weights.NewMatrix(&y.query, p+"q_proj", q, c.Width), weights.NewGain(&y.QNorm, p+"q_norm", a.dim))
	if y.owner == y {
		list = append(list,
			weights.NewMatrix(&y.key, p+"k_proj", kv, c.Width),
			weights.NewGain(&y.KNorm, p+"k_norm", a.dim),
			weights.NewOnes(&y.valueNorm, p+"v_norm", a.dim))
		if !y.keyIsValue() {
			list = append(list, weights.NewMatrix(&y.value, p+"v_proj", kv, c.Width))
		}
	}
	return append(list, weights.NewMatrix(&y.out, p+"o_proj", c.Width, q))
}

// mixture are the weights of a mixture of experts. Converted checkpoints stack them by projection; releases stack them with
// gates and ups in one tensor; others store them one by one. The router sees a row of its own, whose factor is
// part of the gain.
func (y *layer) mixture(list []weights.Weight, p string) []weights.Weight {
	c, e := y.cfg, y.moe
	h, n, m := c.Width, c.experts, p+"mlp."
	fused := []string{m + "experts.gate_up_proj", m + "experts.down_proj"}
	stack := func(to *backend.Weight, name string, rows, cols int, released weights.Storage) weights.Weight {
		module := m + "switch_mlp." + name
		released.Marks, released.Groups = fused, 1
		return weights.NewStack(to, module, c.Experts, rows, cols, released,
			weights.Storage{Marks: []string{module}, Module: module}, weights.Storage{Module: m + "experts.%d." + name})
	}
	factor := float32(1 / math.Sqrt(float64(h)))
	return append(list,
		weights.NewGain(&y.postDense, p+"post_feedforward_layernorm_1", h),
		weights.NewGain(&y.preExperts, p+"pre_feedforward_layernorm_2", h),
		weights.NewGain(&y.postExperts, p+"post_feedforward_layernorm_2", h),
		weights.NewVector(&y.routerGain, weights.Vector, p+"router.scale", 1, h).Kept().Then(func(v []float32) {
			for i := range v {
				v[i] *= factor
			}
		}),
		weights.NewRouter(&e.Router, m+"gate", c.Experts, h),
		weights.NewVector(&e.PerExpert, weights.Vector, m+"per_expert_scale", 1, c.Experts).Kept(),
		stack(&e.Gate, "gate_proj", n, h, weights.Storage{Module: fused[0], Size: 2 * n, Parts: []weights.Cut{{From: 0, To: n}}}),
		stack(&e.Up, "up_proj", n, h, weights.Storage{Module: fused[0], Size: 2 * n, Parts: []weights.Cut{{From: n, To: 2 * n}}}),
		stack(&e.Down, "down_proj", h, n, weights.Storage{Module: fused[1], Size: h, Parts: []weights.Cut{{From: 0, To: h}}}))
}
