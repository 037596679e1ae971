package vulkan

import (
	"math"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/exactmath"
	"github.com/foretoken/foretoken/internal/topk"
)

// topScratch is the working memory of Top.
type topScratch struct {
	maxima      []float32
	keys, spare []uint64
}

// Top returns the highest numbers of each row. The host finds them.
func (b *Backend) Top(src backend.Tensor, asks []backend.Ask) ([]backend.Best, error) {
	backend.CheckTop(src, asks)
	for len(b.best) < len(asks) {
		b.best = append(b.best, backend.Best{})
	}
	for r := range asks {
		row, err := b.Host(src.RowRange(r, r+1))
		if err != nil {
			return nil, err
		}
		if n := asks[r].Cols; n > 0 {
			row = row[:n:n]
		}
		b.top.list(&b.best[r], row, &asks[r])
	}
	if len(asks) == 0 {
		return nil, b.wait()
	}
	return b.best[:len(asks)], nil
}

// list answers an ask of a row.
func (w *topScratch) list(best *backend.Best, row []float32, a *backend.Ask) {
	best.IDs, best.Logits, best.Also, best.Sum, best.Drawn = best.IDs[:0], best.Logits[:0], best.Also[:0], 0, -1
	for _, id := range a.Also {
		best.Also = append(best.Also, row[id])
	}
	best.Low = float32(math.Inf(1))
	if a.K == 0 {
		return
	}
	w.maxima = topk.Maxima(w.maxima[:0], row)
	var low float32
	low, w.spare = topk.Kth(w.maxima, a.K, -math.MaxFloat32, w.spare)
	best.Low = min(low, math.MaxFloat32)
	w.keys = topk.Gather(w.keys[:0], row, w.maxima, best.Low)
	for _, k := range w.keys {
		id := topk.ID(k)
		best.IDs = append(best.IDs, id)
		best.Logits = append(best.Logits, row[id])
	}
	if a.Sum && len(best.IDs) > 0 {
		highest := min(topk.Max(w.maxima), math.MaxFloat32)
		sum := 0.0
		for _, x := range row {
			if x == x { // NaN does not count
				sum += exactmath.Exp(float64(min(x, math.MaxFloat32)) - float64(highest))
			}
		}
		best.Sum = float32(sum)
	}
}
