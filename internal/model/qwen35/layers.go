package qwen35

import (
	"fmt"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/exactmath"
)

// layer is one decoder layer: a mixer of positions, then a network per position. Field
// names are the checkpoint's.
type layer struct {
	inputNorm, postNorm backend.Tensor // [1, hidden]
	attn                *attention     // one of the two
	delta               *deltaNet
	mlp                 *mlp // one of the two
	moe                 *backend.Experts
}

// attention is a layer of gated attention.
type attention struct {
	backend.Attention
	q    backend.Weight // [2*heads*dim, hidden]: query and gate of each head
	k, v backend.Weight // [kvHeads*dim, hidden]
	o    backend.Weight // [hidden, heads*dim]
}

// deltaNet is a Gated DeltaNet layer.
type deltaNet struct {
	backend.DeltaNet
	qkv  backend.Weight // [channels, hidden]
	z    backend.Weight // [valueHeads*valueDim, hidden]
	b, a backend.Weight // [valueHeads, hidden]
	out  backend.Weight // [hidden, valueHeads*valueDim]
}

// mlp is a dense network per position.
type mlp struct {
	gate, up backend.Weight // [intermediate, hidden]
	down     backend.Weight // [hidden, intermediate]
}

// layer loads the layer with names that start with prefix.
func (l *loader) layer(prefix string, attention bool) layer {
	h := l.cfg.hidden
	y := layer{
		inputNorm: l.norm(prefix+"input_layernorm", h),
		postNorm:  l.norm(prefix+"post_attention_layernorm", h),
	}
	if attention {
		y.attn = l.attention(prefix + "self_attn.")
	} else {
		y.delta = l.deltaNet(prefix + "linear_attn.")
	}
	if l.cfg.experts > 0 {
		y.moe = l.experts(prefix + "mlp.")
	} else {
		n := l.cfg.intermediate
		y.mlp = &mlp{
			gate: l.matrix(prefix+"mlp.gate_proj", n, h),
			up:   l.matrix(prefix+"mlp.up_proj", n, h),
			down: l.matrix(prefix+"mlp.down_proj", h, n),
		}
	}
	return y
}

func (l *loader) attention(p string) *attention {
	c := l.cfg
	d := c.headDim
	return &attention{
		Attention: backend.Attention{
			Heads: c.heads, KVHeads: c.kvHeads, HeadDim: d, Eps: c.eps, Freqs: c.freqs(),
			QNorm: l.norm(p+"q_norm", d),
			KNorm: l.norm(p+"k_norm", d),
		},
		q: l.matrix(p+"q_proj", 2*c.heads*d, c.hidden),
		k: l.matrix(p+"k_proj", c.kvHeads*d, c.hidden),
		v: l.matrix(p+"v_proj", c.kvHeads*d, c.hidden),
		o: l.matrix(p+"o_proj", c.hidden, c.heads*d),
	}
}

func (l *loader) deltaNet(p string) *deltaNet {
	c := l.cfg
	values := c.valueHeads * c.valueDim
	y := &deltaNet{DeltaNet: backend.DeltaNet{
		KeyHeads: c.keyHeads, ValueHeads: c.valueHeads, KeyDim: c.keyDim, ValueDim: c.valueDim,
		Kernel: c.kernel, Eps: c.eps, SigmoidGate: c.sigmoidGate,
		DecayBias: l.tensor(l.vector(p+"dt_bias", c.valueHeads), 1, c.valueHeads),
		Norm:      l.tensor(l.vector(p+"norm.weight", c.valueDim), 1, c.valueDim),
	}}
	n := y.Channels()
	y.Conv = l.tensor(transpose(l.vector(p+"conv1d.weight", n*c.kernel), n, c.kernel), c.kernel, n)
	rate := l.vector(p+"A_log", c.valueHeads)
	for i, x := range rate {
		rate[i] = -float32(exactmath.Exp(float64(x)))
	}
	y.DecayRate = l.tensor(rate, 1, c.valueHeads)
	if l.names.has(p+"in_proj_qkvz", p+"in_proj_ba") {
		l.fusedProjections(y, p)
	} else {
		y.qkv = l.matrix(p+"in_proj_qkv", n, c.hidden)
		y.z = l.matrix(p+"in_proj_z", values, c.hidden)
		y.b = l.matrix(p+"in_proj_b", c.valueHeads, c.hidden)
		y.a = l.matrix(p+"in_proj_a", c.valueHeads, c.hidden)
	}
	y.out = l.matrix(p+"out_proj", c.hidden, values)
	return y
}

// fusedProjections loads Qwen3-Next's projections, which are grouped by key head: for each
// of them its query, its key, its values and their gates; and its b and a.
func (l *loader) fusedProjections(y *deltaNet, p string) {
	c := l.cfg
	qkvz, found := l.find(p+"in_proj_qkvz", 2*(c.keyHeads*c.keyDim+c.valueHeads*c.valueDim), c.hidden)
	ba, also := l.find(p+"in_proj_ba", 2*c.valueHeads, c.hidden)
	if !found || !also {
		return // before the lists below are as long as the config says
	}
	rows := fusedRows(c)
	y.qkv = l.load(p+"in_proj_qkvz", qkvz.Gather(rows.qkv))
	y.z = l.load(p+"in_proj_qkvz", qkvz.Gather(rows.z))
	l.release(&qkvz)
	y.b = l.load(p+"in_proj_ba", ba.Gather(rows.b))
	y.a = l.load(p+"in_proj_ba", ba.Gather(rows.a))
	l.release(&ba)
}

// fusedMap says which rows of Qwen3-Next's projections are which of ours.
type fusedMap struct {
	qkv, z []int // of in_proj_qkvz
	b, a   []int // of in_proj_ba
}

func fusedRows(c *config) fusedMap {
	r := c.valueHeads / c.keyHeads
	dk, dv := c.keyDim, r*c.valueDim
	var q, k, v []int
	var f fusedMap
	for m := range c.keyHeads {
		at := m * (2*dk + 2*dv)
		q = appendRange(q, at, dk)
		k = appendRange(k, at+dk, dk)
		v = appendRange(v, at+2*dk, dv)
		f.z = appendRange(f.z, at+2*dk+dv, dv)
		f.b = appendRange(f.b, 2*m*r, r)
		f.a = appendRange(f.a, (2*m+1)*r, r)
	}
	f.qkv = slices.Concat(q, k, v)
	return f
}

func appendRange(list []int, from, n int) []int {
	for i := range n {
		list = append(list, from+i)
	}
	return list
}

// experts loads a mixture of experts in whichever of the layouts it is stored.
func (l *loader) experts(p string) *backend.Experts {
	c := l.cfg
	h := c.hidden
	e := &backend.Experts{
		TopK: c.topK, Normalize: c.normTopK,
		Router:       l.matrix(p+"gate", c.experts, h),
		SharedRouter: l.matrix(p+"shared_expert_gate", 1, h),
		SharedGate:   l.matrix(p+"shared_expert.gate_proj", c.sharedWidth, h),
		SharedUp:     l.matrix(p+"shared_expert.up_proj", c.sharedWidth, h),
		SharedDown:   l.matrix(p+"shared_expert.down_proj", h, c.sharedWidth),
	}
	w := c.expertWidth
	switch {
	case l.names.has(p+"experts.gate_up_proj", p+"experts.down_proj"):
		both := l.stack(p+"experts.gate_up_proj", 2*w, h)
		gate, up := make([]dtype.Matrix, len(both)), make([]dtype.Matrix, len(both))
		for i := range both {
			gate[i], up[i] = both[i].RowRange(0, w), both[i].RowRange(w, 2*w)
		}
		e.Gate = l.load(p+"experts.gate_up_proj", gate...)
		e.Up = l.load(p+"experts.gate_up_proj", up...)
		e.Down = l.load(p+"experts.down_proj", l.stack(p+"experts.down_proj", h, w)...)
	case l.names.has(p+"switch_mlp.gate_proj", p+"switch_mlp.up_proj", p+"switch_mlp.down_proj"):
		e.Gate = l.load(p+"switch_mlp.gate_proj", l.stack(p+"switch_mlp.gate_proj", w, h)...)
		e.Up = l.load(p+"switch_mlp.up_proj", l.stack(p+"switch_mlp.up_proj", w, h)...)
		e.Down = l.load(p+"switch_mlp.down_proj", l.stack(p+"switch_mlp.down_proj", h, w)...)
	default:
		e.Gate = l.separate(p, "gate_proj", w, h)
		e.Up = l.separate(p, "up_proj", w, h)
		e.Down = l.separate(p, "down_proj", h, w)
	}
	return e
}

// stack finds the matrices of all experts in one tensor.
func (l *loader) stack(module string, rows, cols int) []dtype.Matrix {
	from, path, ok := l.names.module(module)
	if !ok {
		l.miss(module)
	}
	if l.stopped() || !ok {
		return nil
	}
	get := from.MatrixStack
	if l.look != nil {
		get = from.LookStack
	}
	m, err := get(path, l.cfg.experts, rows, cols)
	if err != nil {
		l.fail(fmt.Errorf("qwen35: %w", err))
	}
	return m
}

// separate loads experts that are stored one by one.
func (l *loader) separate(p, name string, rows, cols int) backend.Weight {
	if l.err != nil || len(l.missing) == mostMissing {
		return nil
	}
	stack := make([]dtype.Matrix, 0, l.cfg.experts)
	for i := range l.cfg.experts {
		m, _ := l.find(fmt.Sprintf("%sexperts.%d.%s", p, i, name), rows, cols)
		stack = append(stack, m)
	}
	return l.load(p+"experts."+name, stack...)
}

// transpose turns [rows, cols] into [cols, rows].
func transpose(v []float32, rows, cols int) []float32 {
	if len(v) != rows*cols {
		return nil // an error is on its way
	}
	t := make([]float32, len(v))
	for r := range rows {
		for c := range cols {
			t[c*rows+r] = v[r*cols+c]
		}
	}
	return t
}
