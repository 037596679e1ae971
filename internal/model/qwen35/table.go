package qwen35

import (
	"fmt"
	"iter"
	"strings"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
)

// The tables of this file are the only list of the family's weights: what each is called,
// what kind it is, its shape, the layouts in which it is stored, and where it goes. Loading,
// a survey, an inventory and a generated model all walk them. A weight that some configs do
// without is a row under a condition.

// storage is a way in which some checkpoints store a weight that others store under its
// canonical name: as some rows of another module, or expert by expert.
type storage struct {
	marks  []string // modules: if any of them is stored, the weight is stored so; nil: it is if not otherwise
	module string   // that the weight is in; with a %d: one module for each expert
	groups int      // a stored matrix is that many groups of size rows; 0: it is the weight's own
	size   int
	parts  []cut // the weight is, part by part, these rows of each group
}

// cut is the rows [from, to) of a group.
type cut struct{ from, to int }

// apart reports whether experts are stored one by one.
func (s *storage) apart() bool { return strings.Contains(s.module, "%d") }

// take is the rows of a stored matrix that are the weight's.
func (s *storage) take(from *checkpoint.Weights, m *dtype.Matrix) dtype.Matrix {
	switch {
	case s.groups == 0:
		return *m
	case s.groups == 1 && len(s.parts) == 1:
		return m.RowRange(s.parts[0].from, s.parts[0].to)
	}
	rows := m.Gather(s.rows())
	from.ReleaseMatrix(*m) // they are copies
	return rows
}

// rows are the rows of a stored matrix that are the weight's, in its order.
func (s *storage) rows() []int {
	var list []int
	for _, p := range s.parts {
		for g := range s.groups {
			list = appendRange(list, g*s.size+p.from, p.to-p.from)
		}
	}
	return list
}

func appendRange(list []int, from, n int) []int {
	for i := range n {
		list = append(list, from+i)
	}
	return list
}

// matrix is the row of a matrix.
func matrix(to *backend.Weight, module string, rows, cols int, other ...storage) Weight {
	return Weight{Name: module + ".weight", Kind: Matrix, Rows: rows, Cols: cols, other: other, matrix: to}
}

// router is the row of a matrix that chooses.
func router(to *backend.Weight, module string, rows, cols int) Weight {
	w := matrix(to, module, rows, cols)
	w.Kind = Router
	return w
}

// gain is the row of a norm of the offset form: raw files store its gain less one.
func gain(to *backend.Tensor, module string, n int) Weight {
	return vector(to, Gain, module+".weight", 1, n)
}

// vector is the row of a weight that is no matrix.
func vector(to *backend.Tensor, kind Kind, name string, rows, cols int) Weight {
	return Weight{Name: name, Kind: kind, Rows: rows, Cols: cols, tensor: to}
}

// weights are those of the model without its head, in the order of loading. The largest
// come first: while a matrix is copied, its pages of the file are there too, and at the end
// that would be the peak. A row is valid until the next.
func (m *Model) weights() iter.Seq[*Weight] {
	c := m.cfg
	return func(yield func(*Weight) bool) {
		list := []Weight{matrix(&m.embed, "embed_tokens", c.vocab, c.hidden)}
		if !c.tied {
			list = append(list, matrix(&m.unembed, outputMatrix, c.vocab, c.hidden))
		}
		if !each(list, yield) {
			return
		}
		for i := range m.layers {
			list = m.layers[i].weights(list[:0], c, layerName(i, ""))
			if !each(list, yield) {
				return
			}
		}
		each([]Weight{gain(&m.norm, "norm", c.hidden)}, yield)
	}
}

const outputMatrix = "lm_head"

// layerName is the canonical name of a tensor of layer i.
func layerName(i int, name string) string { return fmt.Sprintf("layers.%d.%s", i, name) }

// weights are those of the head.
func (h *Head) weights() iter.Seq[*Weight] {
	n := h.cfg.hidden
	list := []Weight{matrix(&h.fc, "mtp.fc", n, 2*n)}
	list = h.block.weights(list, h.cfg, "mtp.layers.0.")
	list = append(list,
		gain(&h.norm, "mtp.norm", n),
		gain(&h.normEmbed, "mtp.pre_fc_norm_embedding", n),
		gain(&h.normHidden, "mtp.pre_fc_norm_hidden", n))
	return func(yield func(*Weight) bool) { each(list, yield) }
}

// each yields the rows of a table and reports whether to go on.
func each(list []Weight, yield func(*Weight) bool) bool {
	for i := range list {
		if !yield(&list[i]) {
			return false
		}
	}
	return true
}

// The functions below append the weights of a layer or a part of it, whose names start
// with p, to a list.

func (y *layer) weights(list []Weight, c *config, p string) []Weight {
	list = append(list, gain(&y.inputNorm, p+"input_layernorm", c.hidden))
	if y.attn != nil {
		list = y.attn.weights(list, c, p+"self_attn.")
	} else {
		list = y.delta.weights(list, c, p+"linear_attn.")
	}
	list = append(list, gain(&y.postNorm, p+"post_attention_layernorm", c.hidden))
	if y.moe != nil {
		return experts(list, y.moe, c, p+"mlp.")
	}
	return feedForward(list, &y.mlp.gate, &y.mlp.up, &y.mlp.down, c.intermediate, c.hidden, p+"mlp.")
}

func (a *attention) weights(list []Weight, c *config, p string) []Weight {
	q, kv := c.heads*c.headDim, c.kvHeads*c.headDim
	return append(list,
		matrix(&a.q, p+"q_proj", 2*q, c.hidden),
		matrix(&a.k, p+"k_proj", kv, c.hidden),
		matrix(&a.v, p+"v_proj", kv, c.hidden),
		matrix(&a.o, p+"o_proj", c.hidden, q),
		gain(&a.QNorm, p+"q_norm", c.headDim),
		gain(&a.KNorm, p+"k_norm", c.headDim))
}

func (d *deltaNet) weights(list []Weight, c *config, p string) []Weight {
	values := c.valueHeads * c.valueDim
	channels := d.Channels()
	// Qwen3-Next has two projections, grouped by key head: for each of them its query, its
	// key, its values and their gates; and its b and a.
	marks := []string{p + "in_proj_qkvz", p + "in_proj_ba"}
	r := c.valueHeads / c.keyHeads
	dk, dv := c.keyDim, r*c.valueDim
	qkvz := func(parts ...cut) storage { return storage{marks, marks[0], c.keyHeads, 2*dk + 2*dv, parts} }
	ba := func(part cut) storage { return storage{marks, marks[1], c.keyHeads, 2 * r, []cut{part}} }
	return append(list,
		matrix(&d.qkv, p+"in_proj_qkv", channels, c.hidden, qkvz(cut{0, dk}, cut{dk, 2 * dk}, cut{2 * dk, 2*dk + dv})),
		matrix(&d.z, p+"in_proj_z", values, c.hidden, qkvz(cut{2*dk + dv, 2*dk + 2*dv})),
		matrix(&d.b, p+"in_proj_b", c.valueHeads, c.hidden, ba(cut{0, r})),
		matrix(&d.a, p+"in_proj_a", c.valueHeads, c.hidden, ba(cut{r, 2 * r})),
		vector(&d.Conv, Conv, p+"conv1d.weight", channels, c.kernel),
		vector(&d.DecayRate, Decay, p+"A_log", 1, c.valueHeads),
		vector(&d.DecayBias, Vector, p+"dt_bias", 1, c.valueHeads),
		vector(&d.Norm, Vector, p+"norm.weight", 1, c.valueDim),
		matrix(&d.out, p+"out_proj", c.hidden, values))
}

func feedForward(list []Weight, gate, up, down *backend.Weight, width, hidden int, p string) []Weight {
	return append(list,
		matrix(gate, p+"gate_proj", width, hidden),
		matrix(up, p+"up_proj", width, hidden),
		matrix(down, p+"down_proj", hidden, width))
}

// experts are the weights of a mixture of experts. Converted checkpoints stack them by
// projection; raw ones stack them with gate and up in one tensor, or store them one by one.
func experts(list []Weight, e *backend.Experts, c *config, p string) []Weight {
	h, n := c.hidden, c.expertWidth
	fused := []string{p + "experts.gate_up_proj", p + "experts.down_proj"}
	stacked := []string{p + "switch_mlp.gate_proj", p + "switch_mlp.up_proj", p + "switch_mlp.down_proj"}
	stack := func(to *backend.Weight, name string, rows, cols int, raw storage) Weight {
		raw.marks, raw.groups = fused, 1
		module := p + "switch_mlp." + name
		w := matrix(to, module, rows, cols, raw, storage{marks: stacked, module: module}, storage{module: p + "experts.%d." + name})
		w.Experts = c.experts
		return w
	}
	list = append(list,
		router(&e.Router, p+"gate", c.experts, h),
		stack(&e.Gate, "gate_proj", n, h, storage{module: fused[0], size: 2 * n, parts: []cut{{0, n}}}),
		stack(&e.Up, "up_proj", n, h, storage{module: fused[0], size: 2 * n, parts: []cut{{n, 2 * n}}}),
		stack(&e.Down, "down_proj", h, n, storage{module: fused[1], size: h, parts: []cut{{0, h}}}))
	list = feedForward(list, &e.SharedGate, &e.SharedUp, &e.SharedDown, c.sharedWidth, h, p+"shared_expert.")
	return append(list, router(&e.SharedRouter, p+"shared_expert_gate", 1, h))
}
