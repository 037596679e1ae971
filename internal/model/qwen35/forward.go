package qwen35

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model/network"
)

// rows are what layers of a network compute in.
type rows struct {
	*network.Network
	cfg *config

	q, k, v, mixed   backend.Tensor // attention
	qkv, z, beta, dt backend.Tensor // delta rule
	gate, up         backend.Tensor // dense feed-forward
}

func newRows(c *config, n *network.Network) *rows {
	w := &rows{Network: n, cfg: c}
	heads, kv, values := c.heads*c.headDim, c.kvHeads*c.headDim, c.valueHeads*c.valueDim
	n.Parts = []network.Part{
		{To: &w.q, Width: 2 * heads},
		{To: &w.k, Width: kv},
		{To: &w.v, Width: kv},
		{To: &w.mixed, Width: max(heads, values)},
		{To: &w.qkv, Width: 2*c.keyHeads*c.keyDim + values},
		{To: &w.z, Width: values},
		{To: &w.beta, Width: c.valueHeads},
		{To: &w.dt, Width: c.valueHeads},
		{To: &w.gate, Width: c.intermediate},
		{To: &w.up, Width: c.intermediate},
	}
	return w
}

// Place implements network.Layer.
func (y *layer) Place(at backend.Place) { y.at = at }

// CatchUp implements network.Layer: keys and values of the pairs are all that is computed.
func (y *layer) CatchUp() {
	a, none := y.attn, y.q.RowRange(0, 0)
	y.Backend.RMSNorm(y.H, y.X, y.inputNorm, y.Eps)
	y.MatMul(y.H, backend.Product{Dst: y.k, W: a.k}, backend.Product{Dst: y.v, W: a.v})
	y.Backend.Attend(none, &a.Attention, y.at, none, y.k, y.v, y.Seqs)
}

// Forward implements network.Layer.
func (y *layer) Forward() {
	n, b := y.rows, y.Backend
	b.RMSNorm(n.H, n.X, y.inputNorm, n.Eps)
	if a := y.attn; a != nil {
		n.MatMul(n.H, backend.Product{Dst: n.q, W: a.q}, backend.Product{Dst: n.k, W: a.k}, backend.Product{Dst: n.v, W: a.v})
		mixed := n.mixed.ColRange(0, a.Heads*a.HeadDim)
		b.Attend(mixed, &a.Attention, y.at, n.q, n.k, n.v, n.Seqs)
		n.MatMul(mixed, backend.Product{Dst: n.X, W: a.o, Add: true})
	} else {
		d := y.delta
		in := backend.DeltaInput{QKV: n.qkv, Z: n.z, B: n.beta, A: n.dt}
		n.MatMul(n.H, backend.Product{Dst: in.QKV, W: d.qkv}, backend.Product{Dst: in.Z, W: d.z},
			backend.Product{Dst: in.B, W: d.b}, backend.Product{Dst: in.A, W: d.a})
		mixed := n.mixed.ColRange(0, d.ValueHeads*d.ValueDim)
		b.DeltaNet(mixed, &d.DeltaNet, y.at, in, n.Seqs)
		n.MatMul(mixed, backend.Product{Dst: n.X, W: d.out, Add: true})
	}
	b.RMSNorm(n.H, n.X, y.postNorm, n.Eps)
	if y.moe != nil {
		b.Experts(n.X, n.H, backend.Tensor{}, y.moe)
		return
	}
	n.MatMul(n.H, backend.Product{Dst: n.gate, W: y.mlp.gate}, backend.Product{Dst: n.up, W: y.mlp.up})
	b.GLU(n.gate, n.gate, n.up, backend.SiLU)
	n.MatMul(n.gate, backend.Product{Dst: n.X, W: y.mlp.down, Add: true})
}
