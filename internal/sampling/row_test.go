package sampling

import (
	"math"
	"math/rand/v2"
)

// oddRow is a row with ties, zeros of both signs, -Inf and both kinds of NaN.
func oddRow(r *rand.Rand, n int) []float32 {
	row := make([]float32, n)
	offset := float32(r.IntN(3)*10 - 10)
	coarse := r.IntN(2) == 0
	for i := range row {
		z := float32(3 * r.NormFloat64())
		if coarse {
			z = float32(math.Round(float64(z)))
		}
		row[i] = z + offset
		switch r.IntN(40) {
		case 0:
			row[i] = float32(math.Inf(-1))
		case 1:
			row[i] = float32(math.NaN())
		case 2:
			row[i] = math.Float32frombits(0xffc00001)
		case 3:
			row[i] = float32(math.Copysign(0, -1))
		case 4:
			row[i] = 0
		case 5:
			row[i] = row[r.IntN(i+1)]
		}
	}
	return row
}
