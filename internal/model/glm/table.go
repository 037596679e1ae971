package glm

import (
	"fmt"
	"iter"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// The tables of this file are the only list of the family's weights: what each is called,
// what kind it is, its shape, the layouts in which it is stored, and where it goes. Loading,
// a survey, an inventory and a generated model all walk them. Rotated rows stay in the order in
// which every layout has them, see backend.Attention.Interleaved.

// weights are those of the model without its head, in the order of loading: the largest first,
// so that their pages of the file are not there too at the peak. A row is valid until the next.
func (m *Model) weights() iter.Seq[*weights.Weight] {
	c := m.cfg
	return func(yield func(*weights.Weight) bool) {
		list := []weights.Weight{weights.NewMatrix(&m.Embed, "embed_tokens", c.vocab, c.hidden)}
		if !c.tied {
			list = append(list, weights.NewMatrix(&m.Unembed, weights.OutputMatrix, c.vocab, c.hidden))
		}
		if !weights.Each(list, yield) {
			return
		}
		for i := range m.layers {
			list = m.layers[i].weights(list[:0], c, fmt.Sprintf("layers.%d.", i))
			if !weights.Each(list, yield) {
				return
			}
		}
		weights.Each([]weights.Weight{weights.NewGain(&m.Norm, "norm", c.hidden)}, yield)
	}
}

// weights are those of the head. Most releases store the model's embedding and output matrix with
// it once more, and some do not.
func (h *Head) weights() iter.Seq[*weights.Weight] {
	n, output, shared := h.cfg.hidden, weights.OutputMatrix, &h.model.Unembed
	if h.cfg.tied {
		output, shared = "embed_tokens", &h.model.Embed
	}
	list := []weights.Weight{
		weights.NewCopy(&h.Embed, "mtp.embed_tokens", h.cfg.vocab, n, "embed_tokens", &h.model.Embed),
		weights.NewCopy(&h.Unembed, "mtp.lm_head", h.cfg.vocab, n, output, shared),
		weights.NewMatrix(&h.pairs.FC, "mtp.fc", n, 2*n),
	}
	list = h.block.weights(list, h.cfg, "mtp.layers.0.")
	list = append(list,
		weights.NewGain(&h.Norm, "mtp.norm", n),
		weights.NewGain(&h.pairs.NormEmbed, "mtp.pre_fc_norm_embedding", n),
		weights.NewGain(&h.pairs.NormHidden, "mtp.pre_fc_norm_hidden", n))
	return func(yield func(*weights.Weight) bool) { weights.Each(list, yield) }
}

// The functions below append the weights of a layer or a part of it, whose names start with p, to
// a list.

func (y *layer) weights(list []weights.Weight, c *config, p string) []weights.Weight {
	list = append(list, weights.NewGain(&y.inputNorm, p+"input_layernorm", c.hidden))
	if y.latent != nil {
		list = y.latent.weights(list, c, p+"self_attn.")
	} else {
		list = y.attn.weights(list, c, p+"self_attn.")
	}
	list = append(list, weights.NewGain(&y.postNorm, p+"post_attention_layernorm", c.hidden))
	if y.moe != nil {
		return experts(list, y.moe, c, p+"mlp.")
	}
	return feedForward(list, &y.mlp.gate, &y.mlp.up, &y.mlp.down, c.intermediate, c.hidden, p+"mlp.")
}

func (a *latent) weights(list []weights.Weight, c *config, p string) []weights.Weight {
	query := c.heads * (c.nope + c.rotary)
	if c.queryRank == 0 {
		list = append(list, weights.NewMatrix(&a.query, p+"q_proj", query, c.hidden))
	} else {
		list = append(list,
			weights.NewMatrix(&a.queryDown, p+"q_a_proj", c.queryRank, c.hidden),
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
		weights.NewMatrix(&a.keyDown, p+"kv_a_proj_with_mqa", c.rank+c.rotary, c.hidden),
		weights.NewGain(&a.KNorm, p+"kv_a_layernorm", c.rank),
		weights.NewStack(&a.embedQuery, p+"embed_q", c.heads, c.rank, c.nope, whole(0, c.nope, true)),
		weights.NewStack(&a.unembed, p+"unembed_out", c.heads, c.valueDim, c.rank, whole(c.nope, c.nope+c.valueDim, false)),
		weights.NewMatrix(&a.out, p+"o_proj", c.hidden, c.heads*c.valueDim))
}

func (a *attention) weights(list []weights.Weight, c *config, p string) []weights.Weight {
	q, kv := c.heads*c.headDim, c.kvHeads*c.headDim
	list = append(list,
		weights.NewMatrix(&a.q, p+"q_proj", q, c.hidden),
		weights.NewMatrix(&a.k, p+"k_proj", kv, c.hidden),
		weights.NewMatrix(&a.v, p+"v_proj", kv, c.hidden),
		weights.NewMatrix(&a.o, p+"o_proj", c.hidden, q))
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

func feedForward(list []weights.Weight, gate, up, down *backend.Weight, width, hidden int, p string) []weights.Weight {
	return append(list,
		weights.NewMatrix(gate, p+"gate_proj", width, hidden),
		weights.NewMatrix(up, p+"up_proj", width, hidden),
		weights.NewMatrix(down, p+"down_proj", hidden, width))
}

// experts are the weights of a mixture of experts. Converted checkpoints stack them by
// projection, releases store them one by one. Router and bias stay as they are: scores lie close
// together, and choosing compares them.
func experts(list []weights.Weight, e *backend.Experts, c *config, p string) []weights.Weight {
	h, n := c.hidden, c.expertWidth
	stack := func(to *backend.Weight, name string, rows, cols int) weights.Weight {
		module := p + "switch_mlp." + name
		return weights.NewStack(to, module, c.experts, rows, cols,
			weights.Storage{Marks: []string{module}, Module: module}, weights.Storage{Module: p + "experts.%d." + name})
	}
	list = append(list,
		weights.NewRouter(&e.Router, p+"gate", c.experts, h).Kept(),
		weights.NewVector(&e.Bias, weights.Vector, p+biasName, 1, c.experts).Kept(),
		stack(&e.Gate, "gate_proj", n, h),
		stack(&e.Up, "up_proj", n, h),
		stack(&e.Down, "down_proj", h, n))
	return feedForward(list, &e.SharedGate, &e.SharedUp, &e.SharedDown, c.sharedWidth, h, p+"shared_experts.")
}

// biasName is the last part of the names of what is added to scores for choosing experts.
const biasName = "gate.e_score_correction_bias"
