package cpu

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
)

// eachOp is a product of every head with its own matrix. It runs over the pool twice: rows of
// heads are quantized, a part being a row of one head, and then multiplied, a part being a tile of
// one head's matrix. So the heads' small matrices keep all threads busy together.
type eachOp struct {
	p       backend.Product
	x       backend.Tensor
	w       *kernel.Weight
	in, out int        // columns from one head to the next
	heads   []matmulOp // one for each matrix
	putting bool       // the first of the two
}

// each computes a product that has Each.
func (b *Backend) each(x backend.Tensor, p *backend.Product) {
	backend.CheckProduct(x, p)
	op := &b.heads
	w := p.W.(*kernel.Weight)
	n := w.Count()
	op.p, op.x, op.w, op.in, op.out = *p, x, w, x.Cols/n, p.Dst.Cols/n
	if x.Rows == 0 {
		return
	}
	for len(op.heads) < n {
		op.heads = append(op.heads, matmulOp{})
	}
	for i := range n {
		op.heads[i].prepare(b, x.ColRange(i*op.in, i*op.in+w.Cols()), i, w)
	}
	if w.Integer() || w.Input != nil {
		op.putting = true
		b.pool.run(op, n*x.Rows, max(1, quantizeAlone/w.Cols()))
	}
	op.putting = false
	b.pool.run(op, n*w.Tiles(), 1)
}

func (op *eachOp) part(worker, from, to int) {
	if op.putting {
		for i := from; i < to; i++ {
			h := &op.heads[i/op.x.Rows]
			r := i % op.x.Rows
			h.set(r, func(in *kernel.Input) []float32 { return h.b.transform(worker, in, row(h.x, r)) })
		}
		return
	}
	for tiles := op.w.Tiles(); from < to; {
		i := from / tiles
		end := min(to, (i+1)*tiles)
		dst := op.p.Dst.ColRange(i*op.out, i*op.out+op.w.Rows())
		op.heads[i].tiles(worker, backend.Product{Dst: dst, Add: op.p.Add}, op.w, from-i*tiles, end-i*tiles)
		from = end
	}
}
