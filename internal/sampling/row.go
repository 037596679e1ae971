package sampling

import (
	"math"

	"github.com/foretoken/foretoken/internal/topk"
)

// finite appends the row to dst with the largest number for +Inf, and returns it.
func finite(dst, row []float32) []float32 {
	for _, z := range row {
		dst = append(dst, min(z, math.MaxFloat32))
	}
	return dst
}

// first is the lowest index of a logit equal to top, which is the highest maximum.
func first(row, maxima []float32, top float32) int {
	for b, m := range maxima {
		if m != top {
			continue
		}
		for i := b * topk.Block; ; i++ {
			if row[i] == top {
				return i
			}
		}
	}
	return 0
}
