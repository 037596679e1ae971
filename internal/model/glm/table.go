package glm

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model/network"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// The tables of this file are the only list of the family's weights: what each is called,
// what kind it is, its shape, the layouts in which it is stored, and where it goes. Loading,
// a survey, an inventory and a generated model all walk them. Rotated rows stay in the order in
// which every layout has them, see backend.Attention.Interleaved.

// The functions below append the weights of a layer or a part of it, whose names start with p, to
// a list.

// Weights implements network.Layer.
func (y *layer) Weights(list []weights.Weight, p string) []weights.Weight {
	c := y.cfg
	list = append(list, weights.NewGain(&y.inputNorm, p+"input_layernorm", c.Width))
	if y.latent != nil {
		list = y.latent.weights(list, c, p+"self_attn.")
	} else {
		list = y.attn.weights(list, c, p+"self_attn.")
	}
	list = append(list, weights.NewGain(&y.postNorm, p+"post_attention_layernorm", c.Width))
	if y.moe != nil {
		return experts(list, y.moe, c, p+"mlp.")
	}
	return network.FeedForward(list, &y.mlp.gate, &y.mlp.up, &y.mlp.down, c.intermediate, c.Width, p+"mlp.")
}

func (a *latent) weights(list []weights.Weight, c *config, p string) []weights.Weight {
	query := c.heads * (c.nope + c.rotary)
	if c.queryRank == 0 {
		list = append(list, weights.NewMatrix(&a.query, p+"q_proj", query, c.Width))
	} else {
		list = append(list,
			weights.NewMatrix(&a.queryDown, p+"q_a_proj", c.queryRank, c.Width),
			weights.NewGain(&a.queryNorm, p+"q_a_layernorm", c.queryRank),
			weights.NewMatrix(&a.queryUp, p+"q_b_proj", query, c.queryRank))
	}
	// Releases have the two stacks in one matrix: of every head the rows that make its keys out of
	// a latent row, which queries go through the other way, and those that make its values.
	whole := func(from, to int, transposed bool) weights.Storage {
		return weights.Storage{
			Marks: []string{p + "kv_b_proj"}, Module: p + "kv_b_proj", Groups: c.heads, Size: c.nope + c.valueDim,
			Parts: []weights.Cut{{From: from, To: to}}, Stacked: true, Transposed: transposed,
		}
	}
	return append(list,
		weights.NewMatrix(&a.keyDown, p+"kv_a_proj_with_mqa", c.rank+c.rotary, c.Width),
		weights.NewGain(&a.KNorm, p+"kv_a_layernorm", c.rank),
		weights.NewStack(&a.embedQuery, p+"embed_q", c.heads, c.rank, c.nope, whole(0, c.nope, true)),
		weights.NewStack(&a.unembed, p+"unembed_out", c.heads, c.valueDim, c.rank, whole(c.nope, c.nope+c.valueDim, false)),
		weights.NewMatrix(&a.out, p+"o_proj", c.Width, c.heads*c.valueDim))
}

func (a *attention) weights(list []weights.Weight, c *config, p string) []weights.Weight {
	q, kv := c.heads*c.headDim, c.kvHeads*c.headDim
	list = append(list,
		weights.NewMatrix(&a.q, p+"q_proj", q, c.Width),
		weights.NewMatrix(&a.k, p+"k_proj", kv, c.Width),
		weights.NewMatrix(&a.v, p+"v_proj", kv, c.Width),
		weights.NewMatrix(&a.o, p+"o_proj", c.Width, q))
	if c.bias {
		list = append(list,
			weights.NewVector(&a.qBias, weights.Vector, p+"q_proj.bias", 1, q),
			weights.NewVector(&a.kBias, weights.Vector, p+"k_proj.bias", 1, kv),
			weights.NewVector(&a.vBias, weights.Vector, p+"v_proj.bias", 1, kv))
	}
	if c.headNorms {
		list = append(list, weights.NewGain(&a.QNorm, p+"q_norm", c.headDim), weights.NewGain(&a.KNorm, p+"k_norm", c.headDim))
	}
	return list
}

// experts are the weights of a mixture of experts. Converted checkpoints stack them by
// projection, releases store them one by one. Router and bias stay as they are: scores lie close
// together, and choosing compares them.
func experts(list []weights.Weight, e *backend.Experts, c *config, p string) []weights.Weight {
	h, n := c.Width, c.expertWidth
	stack := func(to *backend.Weight, name string, rows, cols int) weights.Weight {
		module := p + "switch_mlp." + name
		return weights.NewStack(to, module, c.Experts, rows, cols,
			weights.Storage{Marks: []string{module}, Module: module}, weights.Storage{Module: p + "experts.%d." + name})
	}
	list = append(list,
		weights.NewRouter(&e.Router, p+"gate", c.Experts, h).Kept(),
		weights.NewVector(&e.Bias, weights.Vector, p+biasName, 1, c.Experts).Kept(),
		stack(&e.Gate, "gate_proj", n, h),
		stack(&e.Up, "up_proj", n, h),
		stack(&e.Down, "down_proj", h, n))
	return network.FeedForward(list, &e.SharedGate, &e.SharedUp, &e.SharedDown, c.sharedWidth, h, p+"shared_experts.")
}

// biasName is the last part of the names of what is added to scores for choosing experts.
const biasName = "gate.e_score_correction_bias"
