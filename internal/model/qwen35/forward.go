package qwen35

import (
	"fmt"
	"math"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model"
)

// transformer is what the model and its head have in common: tokens come in through one
// matrix and leave through another, after a norm.
type transformer struct {
	b       backend.Backend
	cfg     *config
	embed   backend.Weight // [vocab, hidden]
	unembed backend.Weight // [vocab, hidden]
	norm    backend.Tensor // [1, hidden]
	work    workspace
	call    call
	queue   func() // the operations of a call

	products []backend.Product // of the running product
}

// workspace is the activations of a call, sized for the largest so far.
type workspace struct {
	rows, wants int // that fit

	x, hidden, h     backend.Tensor // residual stream, its final norm, input of a layer's part
	q, k, v, mixed   backend.Tensor // attention
	qkv, z, beta, dt backend.Tensor // delta rule
	gate, up         backend.Tensor // dense feed-forward
	last, logits     backend.Tensor // wanted rows
}

// call is one Forward: views of the workspace, and whose rows are whose.
type call struct {
	workspace
	ids      []int32
	seqs     []backend.Seq
	want     []int32 // rows whose logits are wanted
	only     []int32 // blocks of the vocabulary whose logits are computed, nil: all
	embedded bool    // x has its rows already
}

// begin checks the spans, reserves their state and lays out their rows.
func (n *transformer) begin(batch []model.Span, only []int32) (*call, error) {
	c := &n.call
	c.ids, c.want, c.only, c.embedded = c.ids[:0], c.want[:0], only, false
	for i, s := range batch {
		if err := s.Check(n.cfg.vocab, n.cfg.hidden); err != nil {
			return nil, fmt.Errorf("qwen35: span %d: %w", i, err)
		}
		if err := s.State.Reserve(len(s.Tokens)); err != nil {
			return nil, err
		}
		c.ids = append(c.ids, s.Tokens...)
		for j := len(s.Tokens) - s.Want; j < len(s.Tokens); j++ {
			c.want = append(c.want, int32(len(c.ids)-len(s.Tokens)+j))
		}
	}
	if err := n.grow(len(c.ids), len(c.want)); err != nil {
		return nil, err
	}
	c.seqs = c.seqs[:0]
	first := 0
	for _, s := range batch {
		c.seqs = append(c.seqs, s.State.Seq(first, len(s.Tokens), s.Drafts, s.Positions))
		first += len(s.Tokens)
	}
	c.workspace = n.work.view(len(c.ids), len(c.want))
	return c, nil
}

// layer runs one layer.
func (n *transformer) layer(c *call, l *layer) {
	b, eps := n.b, n.cfg.eps
	b.RMSNorm(c.h, c.x, l.inputNorm, eps)
	if a := l.attn; a != nil {
		n.matmul(c.h, backend.Product{Dst: c.q, W: a.q}, backend.Product{Dst: c.k, W: a.k}, backend.Product{Dst: c.v, W: a.v})
		mixed := c.mixed.ColRange(0, a.Heads*a.HeadDim)
		b.Attend(mixed, &a.Attention, l.at, c.q, c.k, c.v, c.seqs)
		n.matmul(mixed, backend.Product{Dst: c.x, W: a.o, Add: true})
	} else {
		d := l.delta
		in := backend.DeltaInput{QKV: c.qkv, Z: c.z, B: c.beta, A: c.dt}
		n.matmul(c.h, backend.Product{Dst: in.QKV, W: d.qkv}, backend.Product{Dst: in.Z, W: d.z},
			backend.Product{Dst: in.B, W: d.b}, backend.Product{Dst: in.A, W: d.a})
		mixed := c.mixed.ColRange(0, d.ValueHeads*d.ValueDim)
		b.DeltaNet(mixed, &d.DeltaNet, l.at, in, c.seqs)
		n.matmul(mixed, backend.Product{Dst: c.x, W: d.out, Add: true})
	}
	b.RMSNorm(c.h, c.x, l.postNorm, eps)
	if l.moe != nil {
		b.Experts(c.x, c.h, l.moe)
		return
	}
	n.matmul(c.h, backend.Product{Dst: c.gate, W: l.mlp.gate}, backend.Product{Dst: c.up, W: l.mlp.up})
	b.SwiGLU(c.gate, c.gate, c.up)
	n.matmul(c.gate, backend.Product{Dst: c.x, W: l.mlp.down, Add: true})
}

// matmul hands the products over in a list that is kept: one made for the call
// would be garbage afterwards, several times a layer.
func (n *transformer) matmul(x backend.Tensor, products ...backend.Product) {
	n.products = append(n.products[:0], products...)
	n.b.MatMul(x, n.products...)
}

// project computes the final norm and the wanted logits. With a list of blocks of the
// vocabulary the other logits are minus infinity.
func (n *transformer) project(c *call) {
	n.b.RMSNorm(c.hidden, c.x, n.norm, n.cfg.eps)
	n.b.Gather(c.last, c.hidden, c.want)
	if c.only != nil {
		n.b.Fill(c.logits, float32(math.Inf(-1)))
	}
	n.matmul(c.last, backend.Product{Dst: c.logits, W: n.unembed, Only: c.only})
}

// embedding is the first operation of a call, unless that was done.
func (n *transformer) embedding(c *call) {
	if !c.embedded {
		n.b.Embed(c.x, n.embed, c.ids)
	}
}

// pass has the device run the operations of a call. Rows that are in no list of ids are embedded
// before it.
func (n *transformer) pass(c *call, batch []model.Span) {
	if model.HasInputs(batch) {
		model.Embed(n.b, c.x, n.embed, c.ids, batch)
		c.embedded = true
	}
	p := backend.Pass{Of: n, IDs: c.ids, Batch: c.seqs, Want: c.want, Only: c.only}
	if c.embedded {
		p.IDs = nil
	}
	n.b.Pass(p, n.queue)
}

// finish moves the sequences on.
func (n *transformer) finish(c *call, batch []model.Span) model.Output {
	for _, s := range batch {
		s.State.Fed(len(s.Tokens), s.Drafts)
	}
	out := model.Output{Device: n.b, Logits: c.logits, Hidden: c.hidden}
	if n.cfg.preNorm {
		out.Hidden = c.x
	}
	return out
}

// parts are the tensors with one row per token; x is the first.
func (r *workspace) parts() [13]*backend.Tensor {
	return [...]*backend.Tensor{
		&r.x, &r.hidden, &r.h, &r.q, &r.k, &r.v, &r.mixed,
		&r.qkv, &r.z, &r.beta, &r.dt, &r.gate, &r.up,
	}
}

// widths are the columns of parts.
func (c *config) widths() [13]int {
	heads, kv, values := c.heads*c.headDim, c.kvHeads*c.headDim, c.valueHeads*c.valueDim
	return [...]int{
		c.hidden, c.hidden, c.hidden, 2 * heads, kv, kv, max(heads, values),
		2*c.keyHeads*c.keyDim + values, values, c.valueHeads, c.valueHeads, c.intermediate, c.intermediate,
	}
}

// view is the workspace cut to a call of rows rows, of which wants are wanted.
func (r workspace) view(rows, wants int) workspace {
	for _, t := range r.parts() {
		*t = t.RowRange(0, rows)
	}
	r.last, r.logits = r.last.RowRange(0, wants), r.logits.RowRange(0, wants)
	return r
}

// grow makes the workspace fit a call of rows rows, of which wants are wanted. Its contents
// are lost.
func (n *transformer) grow(rows, wants int) error {
	r := &n.work
	if rows <= r.rows && wants <= r.wants {
		return nil
	}
	rows, wants = max(rows, r.rows), max(wants, r.wants)
	r.free(n.b)
	var err error
	alloc := func(rows, cols int) (t backend.Tensor) {
		if err == nil {
			t, err = n.b.Alloc(dtype.F32, rows, cols)
		}
		return t
	}
	widths := n.cfg.widths()
	for i, t := range r.parts() {
		*t = alloc(rows, widths[i])
	}
	r.last, r.logits = alloc(wants, n.cfg.hidden), alloc(wants, n.cfg.vocab)
	if err != nil {
		r.free(n.b)
		return err
	}
	r.rows, r.wants = rows, wants
	return nil
}

// free gives the workspace back.
func (r *workspace) free(b backend.Backend) {
	for _, t := range r.parts() {
		b.Free(*t)
	}
	b.Free(r.last)
	b.Free(r.logits)
	*r = workspace{}
}
