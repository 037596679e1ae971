package qwen35

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model/network"
)

// transformer is what the model and its head have in common.
type transformer struct {
	network.Network
	cfg *config

	// What layers compute in.
	q, k, v, mixed   backend.Tensor // attention
	qkv, z, beta, dt backend.Tensor // delta rule
	gate, up         backend.Tensor // dense feed-forward
}

// begin makes a network of a config, without weights, whose operations queue queues.
func (n *transformer) begin(c *config, queue func()) {
	n.cfg = c
	n.Package, n.Vocab, n.Width, n.Eps, n.Queue = "qwen35", c.vocab, c.hidden, c.eps, queue
	heads, kv, values := c.heads*c.headDim, c.kvHeads*c.headDim, c.valueHeads*c.valueDim
	n.Parts = []network.Part{
		{To: &n.q, Width: 2 * heads},
		{To: &n.k, Width: kv},
		{To: &n.v, Width: kv},
		{To: &n.mixed, Width: max(heads, values)},
		{To: &n.qkv, Width: 2*c.keyHeads*c.keyDim + values},
		{To: &n.z, Width: values},
		{To: &n.beta, Width: c.valueHeads},
		{To: &n.dt, Width: c.valueHeads},
		{To: &n.gate, Width: c.intermediate},
		{To: &n.up, Width: c.intermediate},
	}
}

// layer runs one layer.
func (n *transformer) layer(l *layer) {
	b := n.Backend
	b.RMSNorm(n.H, n.X, l.inputNorm, n.Eps)
	if a := l.attn; a != nil {
		n.MatMul(n.H, backend.Product{Dst: n.q, W: a.q}, backend.Product{Dst: n.k, W: a.k}, backend.Product{Dst: n.v, W: a.v})
		mixed := n.mixed.ColRange(0, a.Heads*a.HeadDim)
		b.Attend(mixed, &a.Attention, l.at, n.q, n.k, n.v, n.Seqs)
		n.MatMul(mixed, backend.Product{Dst: n.X, W: a.o, Add: true})
	} else {
		d := l.delta
		in := backend.DeltaInput{QKV: n.qkv, Z: n.z, B: n.beta, A: n.dt}
		n.MatMul(n.H, backend.Product{Dst: in.QKV, W: d.qkv}, backend.Product{Dst: in.Z, W: d.z},
			backend.Product{Dst: in.B, W: d.b}, backend.Product{Dst: in.A, W: d.a})
		mixed := n.mixed.ColRange(0, d.ValueHeads*d.ValueDim)
		b.DeltaNet(mixed, &d.DeltaNet, l.at, in, n.Seqs)
		n.MatMul(mixed, backend.Product{Dst: n.X, W: d.out, Add: true})
	}
	b.RMSNorm(n.H, n.X, l.postNorm, n.Eps)
	if l.moe != nil {
		b.Experts(n.X, n.H, l.moe)
		return
	}
	n.MatMul(n.H, backend.Product{Dst: n.gate, W: l.mlp.gate}, backend.Product{Dst: n.up, W: l.mlp.up})
	b.SwiGLU(n.gate, n.gate, n.up)
	n.MatMul(n.gate, backend.Product{Dst: n.X, W: l.mlp.down, Add: true})
}
