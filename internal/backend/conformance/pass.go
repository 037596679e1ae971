package conformance

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// network is a small one, for passes: embedding, attention, a wanted part of the output. As another
// network it has attention inside blocks and a convolution.
type network struct {
	r     *rig
	c     attendCase
	layer *backend.Attention
	block *backend.Attention // the same, in blocks
	conv  *backend.Convolution
	embed backend.Weight // [48, 64]
	out   backend.Weight // [64, 64]
	q     backend.Weight
	k, v  backend.Weight
}

func newNetwork(r *rig) *network {
	n := &network{r: r, c: attendCase{2, 1, 32, dtype.F16}}
	n.layer = n.c.layer(r)
	block := *n.layer
	block.Block = true
	n.block, n.conv = &block, &backend.Convolution{Base: r.random(2, 64), Delta: r.random(5, 8), Add: true}
	n.embed, n.out = r.load(backend.Int8, r.quantized(48, 64, 8, 32)), r.load(backend.Int8, r.quantized(64, 64, 8, 32))
	n.q, n.k, n.v = r.load(backend.Int8, r.matrix(128, 64)), r.load(backend.Int8, r.matrix(32, 64)), r.load(backend.Int8, r.matrix(32, 64))
	return n
}

// workspace is the memory of a network's passes.
type workspace struct{ x, q, k, v, mixed, last, out backend.Tensor }

func (n *network) workspace(rows, wants int) *workspace {
	r := n.r
	return &workspace{
		r.random(rows, 64), r.random(rows, 128), r.random(rows, 32), r.random(rows, 32), r.random(rows, 64),
		r.random(wants, 64), r.random(wants, 64),
	}
}

// run is a pass, as another network if twice is set, and its output.
func (n *network) run(of any, w *workspace, p backend.Pass, twice bool) []float32 {
	b := n.r.b
	p.Of = of
	b.Pass(p, func() {
		b.Embed(w.x, n.embed, p.IDs, 0)
		b.MatMul(w.x, backend.Product{Dst: w.q, W: n.q}, backend.Product{Dst: w.k, W: n.k}, backend.Product{Dst: w.v, W: n.v})
		if twice {
			b.Attend(w.mixed, n.block, n.c.place(attendLayer), w.q, w.k, w.v, p.Batch)
			b.Convolve(w.mixed, w.x, n.conv, p.Batch)
		} else {
			b.Attend(w.mixed, n.layer, n.c.place(attendLayer), w.q, w.k, w.v, p.Batch)
		}
		b.Gather(w.last, w.mixed, p.Want)
		b.Fill(w.out, -3)
		b.MatMul(w.last, backend.Product{Dst: w.out, W: n.out, Only: p.Only})
	})
	return n.r.read(w.out)
}

// pass checks that a pass computes what its operations do, however many of its shape went before:
// with other lists, of another network, in other memory. If an operation is wrong, so are passes:
// that says nothing about them.
func (c *checker) pass() {
	c.on("Pass")
	if len(c.findings) > 0 {
		return
	}
	c.holds("passes of one shape with released pages", func(r *rig) (got, want []float32) { return windowCases[0].released(r, 65, r.b.Pass) })
	c.like("passes of one shape", func(r *rig) [][]float32 {
		n := newNetwork(r)
		s := []*attended{n.c.sequence(r, n.layer, 80), n.c.sequence(r, n.layer, 80)}
		batch := func(first, rest int) []backend.Seq {
			return []backend.Seq{{N: first, Pages: s[0].pages}, {First: first, N: rest, Pages: s[1].pages}}
		}
		var one, other struct{ _ int }
		var results [][]float32
		w := n.workspace(5, 2)
		for i, p := range []backend.Pass{
			{IDs: []int32{1, 2, 3, 4, 5}, Batch: batch(2, 3), Want: []int32{1, 4}, Only: []int32{0, 2}},
			{IDs: []int32{47, 0, 9, 9, 30}, Batch: batch(4, 1), Want: []int32{3, 0}, Only: []int32{1, 3}},
			{IDs: []int32{7, 8, 11, 12, 13}, Batch: batch(1, 4), Want: []int32{2, 2}},
			{IDs: []int32{21, 22, 23, 24, 25}, Batch: batch(3, 2), Want: []int32{4, 1}, Only: []int32{3}},
			{IDs: []int32{20, 19, 18, 17, 16}, Batch: batch(5, 0)[:1], Want: []int32{0, 4}},
		} {
			results = append(results, n.run(&one, w, p, false), n.run(&other, w, p, true))
			if i == 2 { // in other memory from here on
				for _, t := range []backend.Tensor{w.x, w.q, w.k, w.v, w.mixed, w.last, w.out} {
					r.drop(t)
				}
				w = n.workspace(5, 2)
			}
		}
		return append(results, s[0].stored(), s[1].stored())
	})
}
