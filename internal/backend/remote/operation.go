package remote

import (
	"fmt"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/topk"
)

// ops are the operations of backend.Ops and backend.Drawer, each in one method for both ends. On the leader, a method gets the
// operands and writes them. On the node, it gets zero values, reads the operands into them, and returns the computation.
// Both ends check operands: the leader so that wrong ones panic in the call, the node because it trusts no leader.
type ops struct {
	// do is called with the lists that an operation has outside of a pass, and its operands.
	do func(name string, lists backend.Pass, operands func(c *coder) run)
}

// run queues an operation on a device, with the lists of a pass.
type run func(b backend.Backend, p *backend.Pass)

var none backend.Tensor

// readers call each method for the node.
var readers = map[string]func(o ops){
	"Fill":       func(o ops) { o.Fill(none, 0) },
	"Copy":       func(o ops) { o.Copy(none, none) },
	"CopyEach":   func(o ops) { o.CopyEach(nil, nil) },
	"Embed":      func(o ops) { o.Embed(none, nil, nil, 0) },
	"Gather":     func(o ops) { o.Gather(none, none, nil) },
	"MatMul":     func(o ops) { o.MatMul(none) },
	"RMSNorm":    func(o ops) { o.RMSNorm(none, none, none, 0) },
	"LayerNorm":  func(o ops) { o.LayerNorm(none, none, none, none, 0) },
	"NormAdd":    func(o ops) { o.NormAdd(none, none, none, 0, 0) },
	"GLU":        func(o ops) { o.GLU(none, none, none, 0) },
	"Cap":        func(o ops) { o.Cap(none, 0) },
	"GELU":       func(o ops) { o.GELU(none, none, false) },
	"Rotate":     func(o ops) { o.Rotate(none, none, none, 0) },
	"Mix":        func(o ops) { o.Mix(none, none, none, none, 0, 0) },
	"Experts":    func(o ops) { o.Experts(none, none, backend.Tensor{}, &backend.Experts{}) },
	"Attend":     func(o ops) { o.Attend(none, &backend.Attention{}, backend.Place{}, none, none, none, nil) },
	"Convolve":   func(o ops) { o.Convolve(none, none, &backend.Convolution{}, nil) },
	"DeltaNet":   func(o ops) { o.DeltaNet(none, &backend.DeltaNet{}, backend.Place{}, backend.DeltaInput{}, nil) },
	"Draw":       func(o ops) { drawOps{o}.Draw(none, none, none, nil) },
	"EmbedDrawn": func(o ops) { drawOps{o}.EmbedDrawn(none, nil, none, 0) },
	"Candidates": func(o ops) { drawOps{o}.Candidates(none, none, none, nil) },
	"Score":      func(o ops) { drawOps{o}.Score(none, none, none, none) },
}

func refuse(format string, args ...any) { panic("remote: " + fmt.Sprintf(format, args...)) }

// Fill sets all numbers of dst.
func (o ops) Fill(dst backend.Tensor, x float32) {
	o.do("Fill", backend.Pass{}, func(c *coder) run {
		c.writes(&dst)
		c.f32(&x)
		return func(b backend.Backend, _ *backend.Pass) { b.Fill(dst, x) }
	})
}

// Copy copies src to dst.
func (o ops) Copy(dst, src backend.Tensor) {
	o.do("Copy", backend.Pass{}, func(c *coder) run {
		c.copies(&dst, &src)
		return func(b backend.Backend, _ *backend.Pass) { b.Copy(dst, src) }
	})
}

// CopyEach implements backend.Copier.
func (o ops) CopyEach(dst, src []backend.Tensor) {
	o.do("CopyEach", backend.Pass{}, func(c *coder) run {
		n := len(dst)
		for c.size(&n); c.reading && len(dst) < n && c.err == nil; {
			dst, src = append(dst, none), append(src, none)
			c.copies(&dst[len(dst)-1], &src[len(src)-1])
		}
		for i := 0; i < n && !c.reading; i++ {
			c.copies(&dst[i], &src[i])
		}
		return func(b backend.Backend, _ *backend.Pass) { backend.CopyEach(b, dst, src) }
	})
}

func (c *coder) copies(dst, src *backend.Tensor) {
	c.tensor(dst)
	c.tensor(src)
	c.must(dst.Mem != nil && src.Mem != nil, "Copy without tensors")
	c.changes(dst)
	backend.CheckCopy(*dst, *src)
}

// Embed implements backend.Ops, as all that follows.
func (o ops) Embed(dst backend.Tensor, table backend.Weight, ids []int32, factor float32) {
	o.do("Embed", backend.Pass{IDs: ids}, func(c *coder) run {
		c.writes(&dst)
		c.weights(&table)
		c.f32(&factor)
		backend.CheckEmbed(dst, table, c.pass.IDs)
		same(&c.needs.ids, dst.Rows)
		c.needs.vocab = min(c.needs.vocab, table.Rows())
		return func(b backend.Backend, p *backend.Pass) { b.Embed(dst, table, p.IDs, factor) }
	})
}

func (o ops) Gather(dst, x backend.Tensor, rows []int32) {
	o.do("Gather", backend.Pass{Want: rows}, func(c *coder) run {
		c.writes(&dst)
		c.reads(&x)
		backend.CheckGather(dst, x, c.pass.Want)
		same(&c.needs.want, dst.Rows)
		c.needs.from = min(c.needs.from, x.Rows)
		return func(b backend.Backend, p *backend.Pass) { b.Gather(dst, x, p.Want) }
	})
}

func (o ops) MatMul(x backend.Tensor, products ...backend.Product) {
	var only []int32
	for i := range products {
		switch blocks := products[i].Only; {
		case blocks == nil:
		case only == nil:
			only = blocks
		case !slices.Equal(only, blocks): // a pass has one list
			o.MatMul(x, products[:i]...)
			o.MatMul(x, products[i:]...)
			return
		}
	}
	o.do("MatMul", backend.Pass{Only: only}, func(c *coder) run {
		c.reads(&x)
		list(c, &products, (*coder).product)
		c.must(len(products) > 0, "MatMul without products")
		for i := range products {
			p := &products[i]
			if backend.CheckProduct(x, p); p.Only != nil {
				c.needs.blocks = min(c.needs.blocks, blocks(p.W.Rows()))
			}
		}
		return func(b backend.Backend, p *backend.Pass) {
			for i := range products {
				if products[i].Only != nil {
					products[i].Only = p.Only
				}
			}
			b.MatMul(x, products...)
		}
	})
}

// product lists the fields of a product. Its blocks are those of the pass.
func (c *coder) product(p *backend.Product) {
	c.writes(&p.Dst)
	c.weights(&p.W)
	c.may(&p.Bias)
	c.bool(&p.Add)
	c.bool(&p.Each)
	only := p.Only != nil
	if c.bool(&only); c.reading && only {
		p.Only = []int32{}
	}
}

func (o ops) RMSNorm(dst, x, gain backend.Tensor, eps float32) {
	o.do("RMSNorm", backend.Pass{}, func(c *coder) run {
		c.writes(&dst)
		c.reads(&x, &gain)
		c.f32(&eps)
		backend.CheckRMSNorm(dst, x, gain)
		return func(b backend.Backend, _ *backend.Pass) { b.RMSNorm(dst, x, gain, eps) }
	})
}

func (o ops) NormAdd(dst, x, gain backend.Tensor, eps, scale float32) {
	o.do("NormAdd", backend.Pass{}, func(c *coder) run {
		c.writes(&dst)
		c.reads(&x, &gain)
		c.f32(&eps)
		c.f32(&scale)
		backend.CheckNormAdd(dst, x, gain)
		return func(b backend.Backend, _ *backend.Pass) { b.NormAdd(dst, x, gain, eps, scale) }
	})
}

func (o ops) LayerNorm(dst, x, gain, bias backend.Tensor, eps float32) {
	o.do("LayerNorm", backend.Pass{}, func(c *coder) run {
		c.writes(&dst)
		c.reads(&x, &gain, &bias)
		c.f32(&eps)
		backend.CheckLayerNorm(dst, x, gain, bias)
		return func(b backend.Backend, _ *backend.Pass) { b.LayerNorm(dst, x, gain, bias, eps) }
	})
}

func (o ops) GLU(dst, gate, up backend.Tensor, f backend.Activation) {
	o.do("GLU", backend.Pass{}, func(c *coder) run {
		c.writes(&dst)
		c.reads(&gate, &up)
		c.u8((*uint8)(&f))
		backend.CheckGLU(dst, gate, up, f)
		return func(b backend.Backend, _ *backend.Pass) { b.GLU(dst, gate, up, f) }
	})
}

func (o ops) Cap(x backend.Tensor, cap float32) {
	o.do("Cap", backend.Pass{}, func(c *coder) run {
		c.writes(&x)
		c.f32(&cap)
		backend.CheckCap(x, cap)
		return func(b backend.Backend, _ *backend.Pass) { b.Cap(x, cap) }
	})
}

func (o ops) GELU(dst, x backend.Tensor, tanh bool) {
	o.do("GELU", backend.Pass{}, func(c *coder) run {
		c.writes(&dst)
		c.reads(&x)
		c.bool(&tanh)
		backend.CheckGELU(dst, x)
		return func(b backend.Backend, _ *backend.Pass) { b.GELU(dst, x, tanh) }
	})
}

func (o ops) Rotate(x, cos, sin backend.Tensor, heads int) {
	o.do("Rotate", backend.Pass{}, func(c *coder) run {
		c.writes(&x)
		c.reads(&cos, &sin)
		c.dims(&heads)
		backend.CheckRotate(x, cos, sin, heads)
		return func(b backend.Backend, _ *backend.Pass) { b.Rotate(x, cos, sin, heads) }
	})
}

func (o ops) Mix(dst, q, k, v backend.Tensor, heads int, scale float32) {
	o.do("Mix", backend.Pass{}, func(c *coder) run {
		c.writes(&dst)
		c.reads(&q, &k, &v)
		c.dims(&heads)
		c.f32(&scale)
		backend.CheckMix(dst, q, k, v, heads)
		return func(b backend.Backend, _ *backend.Pass) { b.Mix(dst, q, k, v, heads, scale) }
	})
}

func (o ops) Experts(dst, x, router backend.Tensor, e *backend.Experts) {
	o.do("Experts", backend.Pass{}, func(c *coder) run {
		c.writes(&dst)
		c.reads(&x)
		c.may(&router, &e.PerExpert)
		c.u8((*uint8)(&e.Activation))
		c.weights(&e.Router, &e.Gate, &e.Up, &e.Down)
		c.mayWeights(&e.SharedRouter, &e.SharedGate, &e.SharedUp, &e.SharedDown)
		c.dims(&e.TopK)
		c.counts(&e.Groups, &e.TopGroups)
		c.may(&e.Bias)
		c.bool(&e.Sigmoid)
		c.bool(&e.Normalize)
		c.f32(&e.Scale)
		backend.CheckExperts(dst, x, router, e)
		wide := max(x.Cols, e.Gate.Rows())
		if e.SharedGate != nil {
			wide = max(wide, e.SharedGate.Rows())
		}
		c.must(x.Rows <= maxWork/wide/(e.TopK+1), "too many rows for so many experts")
		return func(b backend.Backend, _ *backend.Pass) { b.Experts(dst, x, router, e) }
	})
}

const (
	alignment = 16      // of the parts of pages, in bytes
	maxHead   = 1 << 14 // numbers of a head, of which devices have working memory for several rows
	maxWork   = 1 << 30 // numbers that experts are fed or answer in a call: working memory of a device
)

func (o ops) Attend(dst backend.Tensor, a *backend.Attention, at backend.Place, q, k, v backend.Tensor, batch []backend.Seq) {
	o.do("Attend", backend.Pass{Batch: batch}, func(c *coder) run {
		c.may(&dst, &q, &k, &v) // without queries, without keys, or without values of their own
		c.must(q.Mem != nil || k.Mem != nil, "Attend without tensors")
		c.changes(&dst)
		c.attention(a)
		c.u8((*uint8)(&at.Type)) // which may be I4, a type that no tensor has
		c.size(&at.Window)
		c.size(&at.Page)
		c.must((memoryType(at.Type) || at.Type == dtype.I4) && at.Page%alignment == 0, "a page of another type, or not aligned")
		backend.CheckAttend(dst, a, q, k, v)
		same(&c.needs.rows, max(q.Rows, k.Rows))
		c.needs.paged(&at, a)
		return func(b backend.Backend, p *backend.Pass) { b.Attend(dst, a, at, q, k, v, p.Batch) }
	})
}

func (c *coder) attention(a *backend.Attention) {
	c.dims(&a.Heads, &a.KVHeads, &a.HeadDim)
	c.counts(&a.ValueDim, &a.Latent, &a.Window, &a.Rows)
	c.must(max(a.HeadDim, a.ValueDim) <= maxHead, "a head that is too wide")
	for _, b := range []*bool{&a.Gate, &a.Interleaved, &a.Block, &a.Before} {
		c.bool(b)
	}
	c.may(&a.QNorm, &a.KNorm)
	for _, x := range []*float32{&a.Eps, &a.Turn, &a.Scale} {
		c.f32(x)
	}
	c.floats(&a.Freqs)
	list(c, &a.Sections, (*coder).u8)
}

// memoryType reports whether memory can have numbers of a type.
func memoryType(t dtype.Type) bool { return t == dtype.F32 || t == dtype.F16 || t == dtype.I8 }

func (o ops) Convolve(dst, x backend.Tensor, v *backend.Convolution, batch []backend.Seq) {
	bare := make([]backend.Seq, len(batch)) // a convolution has no state, and that of others may be elsewhere
	for i := range batch {
		bare[i].First, bare[i].N = batch[i].First, batch[i].N
	}
	o.do("Convolve", backend.Pass{Batch: bare}, func(c *coder) run {
		c.writes(&dst)
		c.reads(&x, &v.Base, &v.Delta)
		c.bool(&v.Add)
		backend.CheckConvolve(dst, x, v)
		same(&c.needs.rows, x.Rows)
		return func(b backend.Backend, p *backend.Pass) { b.Convolve(dst, x, v, p.Batch) }
	})
}

func (o ops) DeltaNet(dst backend.Tensor, d *backend.DeltaNet, at backend.Place, in backend.DeltaInput, batch []backend.Seq) {
	o.do("DeltaNet", backend.Pass{Batch: batch}, func(c *coder) run {
		c.writes(&dst)
		c.reads(&in.QKV, &in.Z, &in.B, &in.A, &d.Conv, &d.DecayRate, &d.DecayBias, &d.Norm)
		c.dims(&d.KeyHeads, &d.ValueHeads, &d.KeyDim, &d.ValueDim, &d.Kernel)
		c.bool(&d.Tiled)
		c.bool(&d.SigmoidGate)
		c.f32(&d.Eps)
		c.size(&at.Delta)
		backend.CheckDeltaNet(dst, d, &in)
		same(&c.needs.rows, in.QKV.Rows)
		c.needs.recurrent(at.Delta, d)
		return func(b backend.Backend, p *backend.Pass) { b.DeltaNet(dst, d, at, in, p.Batch) }
	})
}

// drawOps are the operations of backend.Drawer.
type drawOps struct{ ops ops }

// Draw implements backend.Drawer, as all that follows.
func (o drawOps) Draw(drawn, logits, tokens backend.Tensor, draws []backend.Draw) {
	o.ops.do("Draw", backend.Pass{}, func(c *coder) run {
		c.writes(&drawn)
		c.reads(&logits)
		c.may(&tokens)
		c.draws(&draws, logits.Cols)
		backend.CheckDraw(drawn, logits, tokens, draws)
		return func(b backend.Backend, _ *backend.Pass) { b.(backend.Drawer).Draw(drawn, logits, tokens, draws) }
	})
}

func (o drawOps) EmbedDrawn(dst backend.Tensor, table backend.Weight, drawn backend.Tensor, factor float32) {
	o.ops.do("EmbedDrawn", backend.Pass{}, func(c *coder) run {
		c.writes(&dst)
		c.weights(&table)
		c.reads(&drawn)
		c.f32(&factor)
		backend.CheckEmbedDrawn(dst, table, drawn)
		return func(b backend.Backend, _ *backend.Pass) { b.(backend.Drawer).EmbedDrawn(dst, table, drawn, factor) }
	})
}

func (o drawOps) Candidates(ids, best, logits backend.Tensor, draws []backend.Draw) {
	o.ops.do("Candidates", backend.Pass{}, func(c *coder) run {
		c.writes(&ids, &best)
		c.reads(&logits)
		c.draws(&draws, logits.Cols)
		backend.CheckCandidates(ids, best, logits, draws)
		return func(b backend.Backend, _ *backend.Pass) { b.(backend.Drawer).Candidates(ids, best, logits, draws) }
	})
}

func (o drawOps) Score(scores, left, mid, right backend.Tensor) {
	o.ops.do("Score", backend.Pass{}, func(c *coder) run {
		c.writes(&scores)
		c.reads(&left, &mid, &right)
		backend.CheckScore(scores, left, mid, right)
		return func(b backend.Backend, _ *backend.Pass) { b.(backend.Drawer).Score(scores, left, mid, right) }
	})
}

// draws lists draws, and checks that they are within a row of logits.
func (c *coder) draws(x *[]backend.Draw, cols int) {
	list(c, x, (*coder).draw)
	checkDraws(*x, cols)
}

func (c *coder) draw(d *backend.Draw) {
	c.counts(&d.Cols, &d.TopK, &d.Levels, &d.First)
	c.f64(&d.Temperature)
	c.f64(&d.TopP)
	c.u64(&d.Noise)
	c.ints(&d.Own)
}

func checkDraws(list []backend.Draw, cols int) {
	for i := range list {
		d := &list[i]
		if d.Cols > cols || d.Levels > topk.Levels || !(d.Temperature >= 0) {
			refuse("a draw with %d of %d columns in %d levels at temperature %v", d.Cols, cols, d.Levels, d.Temperature)
		}
		checkBlocks(d.Own, blocks(cols))
	}
}

// blocks is how many blocks rows of a weight are.
func blocks(rows int) int { return (rows + backend.RowBlock - 1) / backend.RowBlock }

// checkBlocks panics unless blocks ascend below n.
func checkBlocks(list []int32, n int) {
	last := int32(-1)
	for _, b := range list {
		if b <= last || int(b) >= n {
			refuse("block %d after block %d, of %d", b, last, n)
		}
		last = b
	}
}
