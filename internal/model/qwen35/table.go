package qwen35

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model/network"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// The tables of this file are the only list of the family's weights: what each is called,
// what kind it is, its shape, the layouts in which it is stored, and where it goes. Loading,
// a survey, an inventory and a generated model all walk them. A weight that some configs do
// without is a row under a condition.

// The functions below append the weights of a layer or a part of it, whose names start
// with p, to a list.

// Weights implements network.Layer.
func (y *layer) Weights(list []weights.Weight, p string) []weights.Weight {
	c := y.cfg
	list = append(list, weights.NewGain(&y.inputNorm, p+"input_layernorm", c.Width))
	if y.attn != nil {
		list = y.attn.weights(list, c, p+"self_attn.")
	} else {
		list = y.delta.weights(list, c, y.Converting && c.tiled, p+"linear_attn.")
	}
	list = append(list, weights.NewGain(&y.postNorm, p+"post_attention_layernorm", c.Width))
	if y.moe != nil {
		return experts(list, y.moe, c, p+"mlp.")
	}
	return network.FeedForward(list, &y.mlp.gate, &y.mlp.up, &y.mlp.down, c.intermediate, c.Width, p+"mlp.")
}

func (a *attention) weights(list []weights.Weight, c *config, p string) []weights.Weight {
	q, kv := c.heads*c.headDim, c.kvHeads*c.headDim
	return append(list,
		weights.NewMatrix(&a.q, p+"q_proj", 2*q, c.Width),
		weights.NewMatrix(&a.k, p+"k_proj", kv, c.Width),
		weights.NewMatrix(&a.v, p+"v_proj", kv, c.Width),
		weights.NewMatrix(&a.o, p+"o_proj", c.Width, q),
		weights.NewGain(&a.QNorm, p+"q_norm", c.headDim),
		weights.NewGain(&a.KNorm, p+"k_norm", c.headDim))
}

func (d *deltaNet) weights(list []weights.Weight, c *config, untile bool, p string) []weights.Weight {
	values := c.valueHeads * c.valueDim
	channels := d.Channels()
	// Qwen3-Next has two projections, grouped by key head: for each of them its query, its
	// key, its values and their gates; and its b and a.
	marks := []string{p + "in_proj_qkvz", p + "in_proj_ba"}
	r := c.valueHeads / c.keyHeads
	dk, dv := c.keyDim, r*c.valueDim
	qkvz := func(parts ...weights.Cut) weights.Storage {
		return weights.Storage{Marks: marks, Module: marks[0], Groups: c.keyHeads, Size: 2*dk + 2*dv, Parts: parts}
	}
	ba := func(part weights.Cut) weights.Storage {
		return weights.Storage{Marks: marks, Module: marks[1], Groups: c.keyHeads, Size: 2 * r, Parts: []weights.Cut{part}}
	}
	cut := func(from, to int) weights.Cut { return weights.Cut{From: from, To: to} }
	// What is converted has value heads in the order of their key heads, whatever the checkpoint has.
	heads := func(w weights.Weight, o weights.Order) weights.Weight {
		if !untile {
			return w
		}
		tiled := backend.DeltaNet{KeyHeads: c.keyHeads, ValueHeads: c.valueHeads, Tiled: true}
		for h := range c.valueHeads {
			o.Pieces = append(o.Pieces, tiled.ValueHead(h/r, h%r))
		}
		return w.Reordered(o)
	}
	rows := func(first, size int) weights.Order { return weights.Order{First: first, Size: size} }
	keys := 2 * c.keyHeads * dk
	return append(list,
		heads(weights.NewMatrix(&d.qkv, p+"in_proj_qkv", channels, c.Width, qkvz(cut(0, dk), cut(dk, 2*dk), cut(2*dk, 2*dk+dv))), rows(keys, c.valueDim)),
		heads(weights.NewMatrix(&d.z, p+"in_proj_z", values, c.Width, qkvz(cut(2*dk+dv, 2*dk+2*dv))), rows(0, c.valueDim)),
		heads(weights.NewMatrix(&d.b, p+"in_proj_b", c.valueHeads, c.Width, ba(cut(0, r))), rows(0, 1)),
		heads(weights.NewMatrix(&d.a, p+"in_proj_a", c.valueHeads, c.Width, ba(cut(r, 2*r))), rows(0, 1)),
		heads(weights.NewVector(&d.Conv, weights.Conv, p+"conv1d.weight", channels, c.kernel), rows(keys*c.kernel, c.valueDim*c.kernel)),
		heads(weights.NewVector(&d.DecayRate, weights.Decay, p+"A_log", 1, c.valueHeads), rows(0, 1)),
		heads(weights.NewVector(&d.DecayBias, weights.Vector, p+"dt_bias", 1, c.valueHeads), rows(0, 1)),
		weights.NewVector(&d.Norm, weights.Vector, p+"norm.weight", 1, c.valueDim),
		heads(weights.NewMatrix(&d.out, p+"out_proj", c.Width, values), weights.Order{Columns: true}))
}

// experts are the weights of a mixture of experts. Converted checkpoints stack them by
// projection; raw ones stack them with gate and up in one tensor, or store them one by one.
func experts(list []weights.Weight, e *backend.Experts, c *config, p string) []weights.Weight {
	h, n := c.Width, c.expertWidth
	fused := []string{p + "experts.gate_up_proj", p + "experts.down_proj"}
	stacked := []string{p + "switch_mlp.gate_proj", p + "switch_mlp.up_proj", p + "switch_mlp.down_proj"}
	stack := func(to *backend.Weight, name string, rows, cols int, raw weights.Storage) weights.Weight {
		raw.Marks, raw.Groups = fused, 1
		module := p + "switch_mlp." + name
		w := weights.NewMatrix(to, module, rows, cols, raw, weights.Storage{Marks: stacked, Module: module}, weights.Storage{Module: p + "experts.%d." + name})
		w.Experts = c.Experts
		return w
	}
	list = append(list,
		weights.NewRouter(&e.Router, p+"gate", c.Experts, h),
		stack(&e.Gate, "gate_proj", n, h, weights.Storage{Module: fused[0], Size: 2 * n, Parts: []weights.Cut{{From: 0, To: n}}}),
		stack(&e.Up, "up_proj", n, h, weights.Storage{Module: fused[0], Size: 2 * n, Parts: []weights.Cut{{From: n, To: 2 * n}}}),
		stack(&e.Down, "down_proj", h, n, weights.Storage{Module: fused[1], Size: h, Parts: []weights.Cut{{From: 0, To: h}}}))
	list = network.FeedForward(list, &e.SharedGate, &e.SharedUp, &e.SharedDown, c.sharedWidth, h, p+"shared_expert.")
	return append(list, weights.NewRouter(&e.SharedRouter, p+"shared_expert_gate", 1, h))
}
