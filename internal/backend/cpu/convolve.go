package cpu

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
)

// convolveOp is a convolution along the rows of sequences, a part being a piece of a row.
type convolveOp struct {
	dst, x backend.Tensor
	c      *backend.Convolution
	batch  []backend.Seq
	owner  []int32 // sequence of each row
}

// Convolve is a short convolution.
func (b *Backend) Convolve(dst, x backend.Tensor, c *backend.Convolution, batch []backend.Seq) {
	backend.CheckConvolve(dst, x, c)
	op := &b.conv
	op.dst, op.x, op.c, op.batch = dst, x, c, batch
	op.owner = owners(op.owner, batch, x.Rows)
	b.pool.run(op, x.Rows*pieces(x.Cols), 2)
}

func (op *convolveOp) part(_, from, to int) {
	for i := from; i < to; i++ {
		n := pieces(op.x.Cols)
		op.piece(i/n, i%n*piece, min(i%n*piece+piece, op.x.Cols))
	}
}

// piece computes columns [from, to) of row r.
func (op *convolveOp) piece(r, from, to int) {
	y, delta := row(op.dst, r)[from:to], row(op.c.Delta, r)
	if !op.c.Add {
		clear(y)
	}
	taps := op.c.Base.Rows
	groups := len(delta) / taps
	for t := range min(taps, r-op.batch[op.owner[r]].First+1) {
		kernel.AddTap(y, row(op.c.Base, t)[from:to], delta[t*groups:][:groups], row(op.x, r-t)[from:to], from, op.x.Cols/groups)
	}
}
