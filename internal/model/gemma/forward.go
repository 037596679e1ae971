package gemma

import (
	"math"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model/network"
)

// rows are the tensors that the layers of a network compute in.
type rows struct {
	*network.Network
	cfg *config
	of  [kinds]kindRows

	gated, ups             backend.Tensor // of the feed-forward
	routed, dense, mixture backend.Tensor // input of the router, results of the feed-forward and of the experts
	inputs, contexts, mix  backend.Tensor // inputs of all layers, projections that are part of them, gate of one layer
	perLayer
}

// kindRows are the tensors of attention in layers of one kind.
type kindRows struct {
	attention
	q, k, v, mixed backend.Tensor
}

func newRows(c *config, n *network.Network) *rows {
	w := &rows{Network: n, cfg: c}
	inner := c.inner
	if c.double && c.shared > 0 {
		inner *= 2
	}
	n.Parts = []network.Part{{To: &w.gated, Width: inner}, {To: &w.ups, Width: inner}}
	used := [kinds]bool{}
	for _, k := range c.kinds {
		used[k] = true
	}
	for k := range w.of {
		a := &w.of[k]
		if a.attention = c.of[k]; !used[k] {
			continue
		}
		q, kv := c.heads*a.dim, a.kvHeads*a.dim
		n.Parts = append(n.Parts, network.Part{To: &a.q, Width: q}, network.Part{To: &a.k, Width: kv},
			network.Part{To: &a.v, Width: kv}, network.Part{To: &a.mixed, Width: q})
	}
	if c.experts > 0 {
		n.Parts = append(n.Parts, network.Part{To: &w.routed, Width: c.Width}, network.Part{To: &w.dense, Width: c.Width},
			network.Part{To: &w.mixture, Width: c.Width})
	}
	if c.inputs > 0 {
		all := len(c.kinds) * c.inputs
		n.Parts = append(n.Parts, network.Part{To: &w.inputs, Width: all}, network.Part{To: &w.contexts, Width: all},
			network.Part{To: &w.mix, Width: c.inputs})
		n.Prepare = w.lookUp
		n.Carry = func() (x, spare backend.Tensor) { return w.inputs, w.contexts }
	}
	return w
}

// lookUp writes the layers' own embeddings of the tokens to the device. A row that is given in place of a token gets those of token 0.
func (w *rows) lookUp() error {
	cols := w.own.Cols()
	n := len(w.IDs) * cols
	if cap(w.numbers) < n {
		w.numbers = make([]float32, n)
	}
	if err := w.own.Read(w.numbers[:n], w.IDs); err != nil {
		return err
	}
	factor := float32(math.Sqrt(float64(w.cfg.inputs)))
	for i := range n {
		w.numbers[i] *= factor
	}
	return w.Backend.Write(w.inputs, w.numbers[:n])
}

// Place implements network.Layer.
func (y *layer) Place(at backend.Place) { y.at = at }

// CatchUp implements network.Layer. The family has no heads.
func (y *layer) CatchUp() {}

// Forward implements network.Layer.
func (y *layer) Forward() {
	n, b := y.rows, y.Backend
	if y.first() {
		y.makeInputs()
	}
	b.RMSNorm(n.H, n.X, y.inputNorm, n.Eps)
	y.attend()
	b.NormAdd(n.X, n.H, y.postNorm, n.Eps, 1)

	b.RMSNorm(n.H, n.X, y.preFeed, n.Eps)
	gate, up := n.gated.ColRange(0, y.inner), n.ups.ColRange(0, y.inner)
	n.MatMul(n.H, backend.Product{Dst: gate, W: y.gate}, backend.Product{Dst: up, W: y.up})
	b.GLU(gate, gate, up, backend.GELUTanh)
	n.MatMul(gate, backend.Product{Dst: n.H, W: y.down})
	answer := n.H
	if y.moe != nil {
		y.mixIn()
		answer = n.dense
	}
	if n.cfg.inputs == 0 {
		b.NormAdd(n.X, answer, y.postFeed, n.Eps, y.scalar)
		return
	}
	b.NormAdd(n.X, answer, y.postFeed, n.Eps, 1)
	y.addInput()
}

// attend replaces H, its input, by the result of attention.
func (y *layer) attend() {
	n, a := y.rows, y.kindRows
	if y.owner != y {
		n.MatMul(n.H, backend.Product{Dst: a.q, W: y.query})
		n.Backend.Attend(a.mixed, &y.Attention, y.owner.at, a.q, backend.Tensor{}, backend.Tensor{}, n.Seqs)
	} else {
		values := a.v
		if y.keyIsValue() {
			n.MatMul(n.H, backend.Product{Dst: a.q, W: y.query}, backend.Product{Dst: a.k, W: y.key})
			values = a.k
		} else {
			n.MatMul(n.H, backend.Product{Dst: a.q, W: y.query}, backend.Product{Dst: a.k, W: y.key}, backend.Product{Dst: a.v, W: y.value})
		}
		n.Backend.RMSNorm(byHead(a.v, a.kvHeads), byHead(values, a.kvHeads), y.valueNorm, n.Eps)
		n.Backend.Attend(a.mixed, &y.Attention, y.at, a.q, a.k, a.v, n.Seqs)
	}
	n.MatMul(a.mixed, backend.Product{Dst: n.H, W: y.out})
}

// mixIn stores the sum of the results of the feed-forward, which is in H, and of the experts in dense, each after its norm. The
// experts and their router read the residual stream, each through a norm of its own.
func (y *layer) mixIn() {
	n, b := y.rows, y.Backend
	b.Fill(n.mixture, 0)
	b.RMSNorm(n.dense, n.H, y.postDense, n.Eps)
	b.RMSNorm(n.routed, n.X, y.routerGain, n.Eps)
	b.RMSNorm(n.H, n.X, y.preExperts, n.Eps)
	b.Experts(n.mixture, n.H, n.routed, y.moe)
	b.NormAdd(n.dense, n.mixture, y.postExperts, n.Eps, 1)
}

// makeInputs computes the inputs of all layers from rows that have the layers' own embeddings of the tokens. It adds a normalized
// projection of the embedding to each, and multiplies the sum with √½. The reference multiplies the projection with width^-½. The
// norm cancels this factor, except in epsilon, which is multiplied with the width instead.
func (y *layer) makeInputs() {
	n, c := y.rows, y.cfg
	n.MatMul(n.X, backend.Product{Dst: n.contexts, W: n.context})
	layers := len(c.kinds)
	n.Backend.NormAdd(byHead(n.inputs, layers), byHead(n.contexts, layers), n.contextNorm, n.Eps*float32(c.Width), float32(math.Sqrt(0.5)))
}

// addInput adds the layer's input to the residual stream, through a gate.
func (y *layer) addInput() {
	n, b, p := y.rows, y.Backend, y.cfg.inputs
	n.MatMul(n.X, backend.Product{Dst: n.mix, W: y.inputGate})
	b.GLU(n.mix, n.mix, n.inputs.ColRange(y.number*p, (y.number+1)*p), backend.GELUTanh)
	n.MatMul(n.mix, backend.Product{Dst: n.H, W: y.inputOut})
	b.NormAdd(n.X, n.H, y.postInput, n.Eps, y.scalar)
}

// byHead is rows of heads one after another as rows of one head each.
func byHead(t backend.Tensor, heads int) backend.Tensor {
	t.Rows, t.Cols, t.Stride = t.Rows*heads, t.Cols/heads, t.Cols/heads
	return t
}
