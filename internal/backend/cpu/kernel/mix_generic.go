package kernel

import "github.com/foretoken/foretoken/internal/exactmath"

// Mix is attention without mask and cache. A block of MixQueries queries of one head goes through
// the keys, MixKeys at a time, and keeps for every query the highest score so far, the sum of
// weights exp(score-top) and the sum of values times their weights. Where a block of keys raises
// the top both sums are scaled down first.
//
// A query's result has this order, in which lanes do not appear: a score is a chain of fused
// multiplications and additions over the columns; both sums are chains over the keys. So queries
// lie in lanes: numbers of queries are [.., MixQueries], those of keys and values are read one by
// one.
type Mix struct {
	// Product is the chains of scores, or of columns of values: to row r of dst, [rows, MixQueries],
	// it adds row i of a, [n, MixQueries], times b[i*down+r*across], for all i. Rows are a
	// multiple of MixTile. dst is multiplied with scale first; if that is nil it begins with zero.
	// next is read after this; it is only prefetched.
	Product func(dst, a, b, next []float32, n, down, across int, scale *[MixQueries]float32)
	// Weights replaces scores, [keys, MixQueries], by weights, and adds them to s.
	Weights func(scores []float32, s *MixSums)
	// Divide divides each row of x, [rows, MixQueries], by y.
	Divide func(x []float32, y *[MixQueries]float32)
}

const (
	MixQueries = 32 // queries of a block
	MixTile    = 8  // keys, or columns of values, that are computed together
	MixKeys    = 64 // keys after which sums may be scaled
)

// MixSums is the state of a block of queries besides its sums of values.
type MixSums struct {
	Top    [MixQueries]float32 // highest scores
	Weight [MixQueries]float32 // sums of weights
	Scale  [MixQueries]float32 // factors of the sums of values
}

var mixGeneric = Mix{Product: mixProduct, Weights: mixWeights, Divide: mixDivide}

func mixProduct(dst, a, b, _ []float32, n, down, across int, scale *[MixQueries]float32) {
	for r := range len(dst) / MixQueries {
		y := dst[r*MixQueries:][:MixQueries]
		for q := range y {
			if scale == nil {
				y[q] = 0
			} else {
				y[q] *= scale[q]
			}
		}
		for i := range n {
			exactmath.AXPY32(y, a[i*MixQueries:][:MixQueries], b[i*down+r*across])
		}
	}
}

func mixWeights(scores []float32, s *MixSums) {
	for q := range MixQueries {
		top := s.Top[q]
		for i := q; i < len(scores); i += MixQueries {
			if scores[i] > top {
				top = scores[i]
			}
		}
		s.Scale[q] = exactmath.Exp32(s.Top[q] - top)
		weight := float32(s.Weight[q] * s.Scale[q])
		for i := q; i < len(scores); i += MixQueries {
			scores[i] = exactmath.Exp32(scores[i] - top)
			weight += scores[i]
		}
		s.Top[q], s.Weight[q] = top, weight
	}
}

func mixDivide(x []float32, y *[MixQueries]float32) {
	for i := range x {
		x[i] /= y[i%MixQueries]
	}
}
