package vulkan

import (
	"math"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/exactmath"
	"github.com/foretoken/foretoken/internal/topk"
)

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
		best := &b.best[r]
		if b.lister.List(best, row, &asks[r]); asks[r].Sum && len(best.IDs) > 0 {
			best.Sum = sumOf(row, topk.Max(b.lister.Maxima))
		}
	}
	if len(asks) == 0 {
		return nil, b.wait()
	}
	return b.best[:len(asks)], nil
}

// sumOf is that of exp(x - highest) over the numbers of a row.
func sumOf(row []float32, highest float32) float32 {
	highest = min(highest, math.MaxFloat32)
	sum := 0.0
	for _, x := range row {
		if x == x { // NaN does not count
			sum += float64(exactmath.Exp32(min(x, math.MaxFloat32) - highest))
		}
	}
	return float32(sum)
}
