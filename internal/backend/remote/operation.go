package remote

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Kinds of operations.
const (
	opFill uint8 = iota
	opCopy
	opCopyEach
	opEmbed
	opGather
	opMatMul
	opRMSNorm
	opLayerNorm
	opSwiGLU
	opGELU
	opExperts
	opAttend
	opConvolve
	opRotate
	opMix
	opDeltaNet
	opDraw
	opEmbedDrawn
	opCandidates
	opScore
	opKinds
)

// form is the tensors of a kind of operation, in the order of the method's parameters.
type form struct {
	name    string
	tensors int
	writes  int    // how many of them, from the first on, it writes
	absent  uint16 // bits of those that may be absent
}

var forms = [opKinds]form{
	opFill: {"Fill", 1, 1, 0}, opCopy: {"Copy", 2, 1, 0}, opCopyEach: {"CopyEach", 0, 0, 0}, opEmbed: {"Embed", 1, 1, 0},
	opGather: {"Gather", 2, 1, 0}, opMatMul: {"MatMul", 1, 0, 0}, opRMSNorm: {"RMSNorm", 3, 1, 0}, opLayerNorm: {"LayerNorm", 4, 1, 0},
	opSwiGLU: {"SwiGLU", 3, 1, 0}, opGELU: {"GELU", 2, 1, 0}, opExperts: {"Experts", 2, 1, 0},
	opAttend:   {"Attend", 4, 1, 1<<0 | 1<<1 | 1<<3}, // without queries, and without values of their own
	opConvolve: {"Convolve", 2, 1, 0}, opRotate: {"Rotate", 3, 1, 0}, opMix: {"Mix", 4, 1, 0}, opDeltaNet: {"DeltaNet", 5, 1, 0},
	opDraw: {"Draw", 3, 1, 1 << 2}, opEmbedDrawn: {"EmbedDrawn", 2, 1, 0}, opCandidates: {"Candidates", 3, 2, 0}, opScore: {"Score", 4, 1, 0},
}

// operation is an operation of a device with its operands. Which fields count depends on its kind.
type operation struct {
	kind      uint8
	t         [5]backend.Tensor
	x         float32
	n         int
	flag      bool
	table     backend.Weight
	list      []int32       // Embed's ids and Gather's rows, outside of a pass
	batch     []backend.Seq // outside of a pass
	at        backend.Place
	products  []backend.Product
	copies    []backend.Tensor // dst and src alternating
	experts   *backend.Experts
	attention *backend.Attention
	conv      *backend.Convolution
	delta     *backend.DeltaNet
	draws     []backend.Draw
}

func (o *operation) form() *form { return &forms[o.kind] }

// fields lists the fields of an operation. Those of a pass have no lists: they have the pass's.
func (o *operation) fields(c *coder, inPass bool) {
	if c.u8(&o.kind); o.kind >= opKinds {
		c.fail()
		o.kind = 0
	}
	for i := range o.form().tensors {
		c.tensor(&o.t[i])
	}
	switch o.kind {
	case opFill, opRMSNorm, opLayerNorm:
		c.f32(&o.x)
	case opCopyEach:
		list(c, &o.copies, c.tensor)
	case opEmbed, opEmbedDrawn:
		c.weight(&o.table)
	case opMatMul:
		list(c, &o.products, func(p *backend.Product) { c.product(p, inPass) })
	case opGELU:
		c.bool(&o.flag)
	case opExperts:
		c.experts(pointed(c, &o.experts))
	case opAttend:
		c.attention(pointed(c, &o.attention))
		c.kind(&o.at.Type)
		c.size(&o.at.Page)
	case opConvolve:
		x := pointed(c, &o.conv)
		c.tensor(&x.Base)
		c.tensor(&x.Delta)
		c.bool(&x.Add)
	case opRotate:
		c.size(&o.n)
	case opMix:
		c.size(&o.n)
		c.f32(&o.x)
	case opDeltaNet:
		c.deltaNet(pointed(c, &o.delta))
		c.size(&o.at.Delta)
	case opDraw, opCandidates:
		list(c, &o.draws, c.draw)
	}
	if inPass {
		return
	}
	switch o.kind {
	case opEmbed, opGather:
		c.ints(&o.list)
	case opAttend, opConvolve, opDeltaNet:
		list(c, &o.batch, c.sequence)
	}
}

// pointed is what a field points to, which is new while reading.
func pointed[T any](c *coder, x **T) *T {
	if c.reading {
		*x = new(T)
	}
	return *x
}

func (c *coder) product(p *backend.Product, inPass bool) {
	c.tensor(&p.Dst)
	c.weight(&p.W)
	c.tensor(&p.Bias)
	c.bool(&p.Add)
	c.bool(&p.Each)
	if !inPass {
		c.ints(&p.Only)
		return
	}
	only := p.Only != nil
	if c.bool(&only); c.reading && only {
		p.Only = []int32{} // those of the pass
	}
}

func (c *coder) experts(e *backend.Experts) {
	for _, w := range []*backend.Weight{&e.Router, &e.Gate, &e.Up, &e.Down, &e.SharedRouter, &e.SharedGate, &e.SharedUp, &e.SharedDown} {
		c.weight(w)
	}
	c.size(&e.TopK)
	c.bool(&e.Sigmoid)
	c.tensor(&e.Bias)
	c.size(&e.Groups)
	c.size(&e.TopGroups)
	c.bool(&e.Normalize)
	c.f32(&e.Scale)
}

func (c *coder) attention(a *backend.Attention) {
	for _, n := range []*int{&a.Heads, &a.KVHeads, &a.HeadDim, &a.ValueDim, &a.Latent, &a.Window, &a.Rows} {
		c.size(n)
	}
	for _, b := range []*bool{&a.Gate, &a.Interleaved, &a.Block} {
		c.bool(b)
	}
	c.tensor(&a.QNorm)
	c.tensor(&a.KNorm)
	for _, x := range []*float32{&a.Eps, &a.Turn, &a.Scale} {
		c.f32(x)
	}
	list(c, &a.Freqs, c.f32)
	list(c, &a.Sections, c.u8)
}

func (c *coder) deltaNet(d *backend.DeltaNet) {
	for _, n := range []*int{&d.KeyHeads, &d.ValueHeads, &d.KeyDim, &d.ValueDim, &d.Kernel} {
		c.size(n)
	}
	for _, t := range []*backend.Tensor{&d.Conv, &d.DecayRate, &d.DecayBias, &d.Norm} {
		c.tensor(t)
	}
	c.bool(&d.Tiled)
	c.bool(&d.SigmoidGate)
	c.f32(&d.Eps)
}

func (c *coder) draw(d *backend.Draw) {
	for _, n := range []*int{&d.Cols, &d.TopK, &d.Levels, &d.First} {
		c.size(n)
	}
	c.f64(&d.Temperature)
	c.f64(&d.TopP)
	c.u64(&d.Noise)
	c.ints(&d.Own)
}

func (c *coder) ask(a *backend.Ask) {
	c.size(&a.Cols)
	c.size(&a.K)
	c.ints(&a.Also)
	c.bool(&a.Sum)
	draw := a.Draw != nil
	if c.bool(&draw); draw {
		c.draw(pointed(c, &a.Draw))
	} else {
		a.Draw = nil
	}
}

// sequence is a sequence with its state, of an operation outside of a pass.
func (c *coder) sequence(s *backend.Seq) {
	c.rows(s)
	list(c, &s.Pages, c.tensor)
	list(c, &s.Delta, c.recurrent)
}

// rows is a sequence without its state.
func (c *coder) rows(s *backend.Seq) {
	c.size(&s.First)
	c.size(&s.N)
	c.size(&s.Pos)
	c.size(&s.Drafts)
	c.size(&s.Accepted)
	own := s.Positions != nil
	if c.bool(&own); !own {
		s.Positions = nil
		return
	}
	n := len(s.Positions)
	c.size(&n)
	if !c.reading {
		for _, p := range s.Positions {
			for _, x := range p {
				c.buf = le.AppendUint32(c.buf, uint32(x))
			}
		}
		return
	}
	s.Positions = s.Positions[:0]
	for range n {
		b := c.take(12)
		if b == nil {
			return
		}
		s.Positions = append(s.Positions, [3]int32{int32(le.Uint32(b)), int32(le.Uint32(b[4:])), int32(le.Uint32(b[8:]))})
	}
}

func (c *coder) recurrent(r *backend.Recurrent) {
	for _, t := range recurrentTensors(r) {
		c.tensor(t)
	}
}

func recurrentTensors(r *backend.Recurrent) [5]*backend.Tensor {
	return [5]*backend.Tensor{&r.State, &r.Tail, &r.Keys, &r.Deltas, &r.Decays}
}

// run queues an operation on a device, with the lists of a pass if it is of one.
func (o *operation) run(b backend.Backend, p *backend.Pass) {
	ids, rows, batch := o.list, o.list, o.batch
	if p != nil {
		ids, rows, batch = p.IDs, p.Want, p.Batch
	}
	t := &o.t
	switch o.kind {
	case opFill:
		b.Fill(t[0], o.x)
	case opCopy:
		b.Copy(t[0], t[1])
	case opCopyEach:
		var dst, src []backend.Tensor
		for i := 0; i < len(o.copies); i += 2 {
			dst, src = append(dst, o.copies[i]), append(src, o.copies[i+1])
		}
		backend.CopyEach(b, dst, src)
	case opEmbed:
		b.Embed(t[0], o.table, ids)
	case opGather:
		b.Gather(t[0], t[1], rows)
	case opMatMul:
		for i := range o.products {
			if p != nil && o.products[i].Only != nil {
				o.products[i].Only = p.Only
			}
		}
		b.MatMul(t[0], o.products...)
	case opRMSNorm:
		b.RMSNorm(t[0], t[1], t[2], o.x)
	case opLayerNorm:
		b.LayerNorm(t[0], t[1], t[2], t[3], o.x)
	case opSwiGLU:
		b.SwiGLU(t[0], t[1], t[2])
	case opGELU:
		b.GELU(t[0], t[1], o.flag)
	case opExperts:
		b.Experts(t[0], t[1], o.experts)
	case opAttend:
		b.Attend(t[0], o.attention, o.at, t[1], t[2], t[3], batch)
	case opConvolve:
		b.Convolve(t[0], t[1], o.conv, batch)
	case opRotate:
		b.Rotate(t[0], t[1], t[2], o.n)
	case opMix:
		b.Mix(t[0], t[1], t[2], t[3], o.n, o.x)
	case opDeltaNet:
		b.DeltaNet(t[0], o.delta, o.at, backend.DeltaInput{QKV: t[1], Z: t[2], B: t[3], A: t[4]}, batch)
	default:
		o.draw(b)
	}
}

// draw queues an operation of a device that draws.
func (o *operation) draw(b backend.Backend) {
	d, ok := b.(backend.Drawer)
	if !ok {
		panic(fmt.Sprintf("remote: %s on %s, which does not draw", o.form().name, b.Name()))
	}
	switch t := &o.t; o.kind {
	case opDraw:
		d.Draw(t[0], t[1], t[2], o.draws)
	case opEmbedDrawn:
		d.EmbedDrawn(t[0], o.table, t[1])
	case opCandidates:
		d.Candidates(t[0], t[1], t[2], o.draws)
	case opScore:
		d.Score(t[0], t[1], t[2], t[3])
	}
}

// written calls f with the tensors that an operation writes.
func (o *operation) written(f func(t *backend.Tensor)) {
	for i := range o.form().writes {
		f(&o.t[i])
	}
	for i := range o.products {
		f(&o.products[i].Dst)
	}
	for i := 0; i < len(o.copies); i += 2 {
		f(&o.copies[i])
	}
}

// numbers is how many numbers of its memory a view spans.
func numbers(t *backend.Tensor) int {
	if t.Rows == 0 || t.Cols == 0 {
		return 0
	}
	return (t.Rows-1)*t.Stride + t.Cols
}

// f32 reports whether a tensor has rows of float32 numbers.
func f32(t *backend.Tensor) bool { return t.Mem != nil && t.Type == dtype.F32 }
