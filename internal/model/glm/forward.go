package glm

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model/network"
)

// rows are what layers of a network compute in. Of latent attention: low is the query before its second
// matrix, q the heads' queries, absorbed these with their latent parts, k the rows that are remembered,
// mixed the answers, which values makes narrow. Of the other: q, k, v, mixed.
type rows struct {
	*network.Network
	cfg *config

	low, q, absorbed, k, v, mixed, values backend.Tensor
	gate, up                              backend.Tensor // dense feed-forward
}

func newRows(c *config, n *network.Network) *rows {
	w := &rows{Network: n, cfg: c}
	n.Parts = []network.Part{{To: &w.gate, Width: c.intermediate}, {To: &w.up, Width: c.intermediate}}
	if c.rank == 0 {
		q, kv := c.heads*c.headDim, c.kvHeads*c.headDim
		n.Parts = append(n.Parts, network.Part{To: &w.q, Width: q}, network.Part{To: &w.k, Width: kv},
			network.Part{To: &w.v, Width: kv}, network.Part{To: &w.mixed, Width: q})
		return w
	}
	row := c.rank + c.rotary
	n.Parts = append(n.Parts, network.Part{To: &w.low, Width: max(c.queryRank, 1)}, network.Part{To: &w.q, Width: c.heads * (c.nope + c.rotary)},
		network.Part{To: &w.absorbed, Width: c.heads * row}, network.Part{To: &w.k, Width: row},
		network.Part{To: &w.mixed, Width: c.heads * c.rank}, network.Part{To: &w.values, Width: c.heads * c.valueDim})
	return w
}

// Place implements network.Layer.
func (y *layer) Place(at backend.Place) { y.at = at }

// CatchUp implements network.Layer: what the layer remembers of the pairs is all that is computed.
func (y *layer) CatchUp() {
	none := y.q.RowRange(0, 0)
	y.Backend.RMSNorm(y.H, y.X, y.inputNorm, y.Eps)
	if a := y.latent; a != nil {
		y.MatMul(y.H, backend.Product{Dst: y.k, W: a.keyDown})
		y.Backend.Attend(none, &a.Attention, y.at, none, y.k, backend.Tensor{}, y.Seqs)
		return
	}
	a := y.attn
	y.MatMul(y.H, backend.Product{Dst: y.k, W: a.k, Bias: a.kBias}, backend.Product{Dst: y.v, W: a.v, Bias: a.vBias})
	y.Backend.Attend(none, &a.Attention, y.at, none, y.k, y.v, y.Seqs)
}

// Forward implements network.Layer.
func (y *layer) Forward() {
	n, b := y.rows, y.Backend
	b.RMSNorm(n.H, n.X, y.inputNorm, n.Eps)
	if y.latent != nil {
		y.attendLatent()
	} else {
		y.attend()
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

// attend is grouped-query attention.
func (y *layer) attend() {
	n, a := y.rows, y.attn
	n.MatMul(n.H, backend.Product{Dst: n.q, W: a.q, Bias: a.qBias}, backend.Product{Dst: n.k, W: a.k, Bias: a.kBias}, backend.Product{Dst: n.v, W: a.v, Bias: a.vBias})
	n.Backend.Attend(n.mixed, &a.Attention, y.at, n.q, n.k, n.v, n.Seqs)
	n.MatMul(n.mixed, backend.Product{Dst: n.X, W: a.o, Add: true})
}

// attendLatent is latent attention.
func (y *layer) attendLatent() {
	n, a, b, c := y.rows, y.latent, y.Backend, y.cfg
	if c.queryRank == 0 {
		n.MatMul(n.H, backend.Product{Dst: n.q, W: a.query}, backend.Product{Dst: n.k, W: a.keyDown})
	} else {
		n.MatMul(n.H, backend.Product{Dst: n.low, W: a.queryDown}, backend.Product{Dst: n.k, W: a.keyDown})
		b.RMSNorm(n.low, n.low, a.queryNorm, a.Eps)
		n.MatMul(n.low, backend.Product{Dst: n.q, W: a.queryUp})
	}
	// Every head's query is its latent part, made of what is not rotated, and what is.
	n.MatMul(n.q, backend.Product{Dst: n.absorbed, W: a.embedQuery, Each: true})
	heads, own := byHead(n.absorbed, c.heads), byHead(n.q, c.heads)
	b.Copy(heads.ColRange(c.rank, heads.Cols), own.ColRange(c.nope, own.Cols))
	b.Attend(n.mixed, &a.Attention, y.at, n.absorbed, n.k, backend.Tensor{}, n.Seqs)
	n.MatMul(n.mixed, backend.Product{Dst: n.values, W: a.unembed, Each: true})
	n.MatMul(n.values, backend.Product{Dst: n.X, W: a.out, Add: true})
}

// byHead is rows of heads one after another as rows of one head each.
func byHead(t backend.Tensor, heads int) backend.Tensor {
	t.Rows, t.Cols, t.Stride = t.Rows*heads, t.Cols/heads, t.Cols/heads
	return t
}
