package cpu

import (
	"math"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/exactmath"
	"github.com/foretoken/foretoken/internal/topk"
)

// topOp finds the highest numbers of rows: a part is a row.
type topOp struct {
	b    *Backend
	src  backend.Tensor
	asks []backend.Ask
	best []backend.Best
}

// topScratch is the working memory of one thread.
type topScratch struct {
	backend.Lister
	block [topk.Block]float32
}

// Top returns the highest numbers of each row, which the threads share.
func (b *Backend) Top(src backend.Tensor, asks []backend.Ask) ([]backend.Best, error) {
	backend.CheckTop(src, asks)
	op := &b.top
	for len(op.best) < len(asks) {
		op.best = append(op.best, backend.Best{})
	}
	op.b, op.src, op.asks = b, src, asks
	b.pool.run(op, len(asks), 1)
	return op.best[:len(asks)], nil
}

func (op *topOp) part(worker, from, to int) {
	w := &op.b.workers[worker].top
	for r := from; r < to; r++ {
		a := &op.asks[r]
		z := row(op.src, r)
		if a.Cols > 0 {
			z = z[:a.Cols:a.Cols]
		}
		w.List(&op.best[r], z, a)
		if best := &op.best[r]; a.Sum && len(best.IDs) > 0 {
			best.Sum = w.sum(z, op.b.isa.Vector.Softmax)
		}
	}
}

// sum is that of exp(x - highest) over the numbers of a row, whose maxima are known. Blocks
// far below the highest add less than a hundred thousandth in a vocabulary of a million.
func (w *topScratch) sum(row []float32, softmax func(x []float32) (top, sum float32)) (total float32) {
	const far = 26
	highest := min(topk.Max(w.Maxima), math.MaxFloat32)
	for b, m := range w.Maxima {
		if m < highest-far {
			continue
		}
		n := copy(w.block[:], row[b*topk.Block:])
		for i, z := range w.block {
			if w.block[i] = min(z, math.MaxFloat32); i >= n || z != z {
				w.block[i] = float32(math.Inf(-1))
			}
		}
		top, sum := softmax(w.block[:])
		total += sum * exactmath.Exp32(top-highest)
	}
	return total
}
