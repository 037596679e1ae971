package glm

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model/network"
)

// transformer is what the model and its head have in common.
type transformer struct {
	network.Network
	cfg *config

	// What layers compute in. Of latent attention: low is the query before its second matrix, q
	// the heads' queries, absorbed these with their latent parts, k the rows that are remembered,
	// mixed the answers, which values makes narrow. Of the other: q, k, v, mixed.
	low, q, absorbed, k, v, mixed, values backend.Tensor
	gate, up                              backend.Tensor // dense feed-forward
}

func (n *transformer) begin(cfg *config, queue func()) {
	n.cfg = cfg
	n.Package, n.Vocab, n.Width, n.Eps, n.Queue = "glm", cfg.vocab, cfg.hidden, cfg.eps, queue
	n.Parts = []network.Part{{To: &n.gate, Width: cfg.intermediate}, {To: &n.up, Width: cfg.intermediate}}
	if cfg.rank == 0 {
		q, kv := cfg.heads*cfg.headDim, cfg.kvHeads*cfg.headDim
		n.Parts = append(n.Parts, network.Part{To: &n.q, Width: q}, network.Part{To: &n.k, Width: kv},
			network.Part{To: &n.v, Width: kv}, network.Part{To: &n.mixed, Width: q})
		return
	}
	row := cfg.rank + cfg.rotary
	n.Parts = append(n.Parts, network.Part{To: &n.low, Width: max(cfg.queryRank, 1)}, network.Part{To: &n.q, Width: cfg.heads * (cfg.nope + cfg.rotary)},
		network.Part{To: &n.absorbed, Width: cfg.heads * row}, network.Part{To: &n.k, Width: row},
		network.Part{To: &n.mixed, Width: cfg.heads * cfg.rank}, network.Part{To: &n.values, Width: cfg.heads * cfg.valueDim})
}

// layer runs one layer.
func (n *transformer) layer(y *layer) {
	b := n.Backend
	b.RMSNorm(n.H, n.X, y.inputNorm, n.Eps)
	if y.latent != nil {
		n.attendLatent(y)
	} else {
		n.attend(y)
	}
	b.RMSNorm(n.H, n.X, y.postNorm, n.Eps)
	if y.moe != nil {
		b.Experts(n.X, n.H, y.moe)
		return
	}
	n.MatMul(n.H, backend.Product{Dst: n.gate, W: y.mlp.gate}, backend.Product{Dst: n.up, W: y.mlp.up})
	b.SwiGLU(n.gate, n.gate, n.up)
	n.MatMul(n.gate, backend.Product{Dst: n.X, W: y.mlp.down, Add: true})
}

// attend is grouped-query attention.
func (n *transformer) attend(y *layer) {
	a := y.attn
	n.MatMul(n.H, backend.Product{Dst: n.q, W: a.q, Bias: a.qBias}, backend.Product{Dst: n.k, W: a.k, Bias: a.kBias}, backend.Product{Dst: n.v, W: a.v, Bias: a.vBias})
	n.Backend.Attend(n.mixed, &a.Attention, y.at, n.q, n.k, n.v, n.Seqs)
	n.MatMul(n.mixed, backend.Product{Dst: n.X, W: a.o, Add: true})
}

// attendLatent is latent attention.
func (n *transformer) attendLatent(y *layer) {
	a, b, c := y.latent, n.Backend, n.cfg
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
