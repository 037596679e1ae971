package cpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
)

// closeTo fails where got is further from want than limit, relative to the largest number wanted.
func closeTo(t *testing.T, what string, got backend.Tensor, want [][]float64, limit float64) {
	t.Helper()
	worst, most := 0.0, 0.0
	for r := range want {
		for c, y := range want[r] {
			most = max(most, math.Abs(y))
			if e := math.Abs(float64(row(got, r)[c]) - y); !(e <= worst) {
				worst = e
			}
		}
	}
	if t.Logf("%s: worst error %.2g of %.3g", what, worst, most); !(worst <= limit*most) {
		t.Errorf("%s: worst error %v, largest number %v", what, worst, most)
	}
}

// TestMixEqualsFloat64 compares attention without mask and cache with its definition.
func TestMixEqualsFloat64(t *testing.T) {
	for _, b := range everyBackend(t) {
		rng := rand.New(rand.NewPCG(5, 5))
		for _, c := range [][3]int{{70, 2, 64}, {200, 1, 72}, {5, 3, 12}} {
			n, heads, dim := c[0], c[1], c[2]
			d := heads * dim
			x, dst := randomTensor(t, b, rng, n, 3*d), randomTensor(t, b, rng, n, d)
			scale := 1 / math.Sqrt(float64(dim))
			b.Mix(dst, x.ColRange(0, d), x.ColRange(d, 2*d), x.ColRange(2*d, 3*d), heads, float32(scale))
			want := make([][]float64, n)
			for r := range want {
				want[r] = make([]float64, d)
				for h := range heads {
					mixFloat64(want[r][h*dim:][:dim], func(j, part, i int) float64 {
						return float64(row(x, j)[part*d+h*dim+i])
					}, r, n, scale)
				}
			}
			closeTo(t, b.Name(), dst, want, 1e-6)
		}
	}
}

// mixFloat64 is row r of a head. at is number i of row j of queries, keys or values, parts 0 to 2.
func mixFloat64(dst []float64, at func(j, part, i int) float64, r, n int, scale float64) {
	sum := 0.0
	for j := range n {
		score := 0.0
		for i := range dst {
			score += at(r, 0, i) * at(j, 1, i)
		}
		w := math.Exp(score * scale)
		sum += w
		for i := range dst {
			dst[i] += w * at(j, 2, i)
		}
	}
	for i := range dst {
		dst[i] /= sum
	}
}

// TestTowerRowsEqualFloat64 compares LayerNorm, GELU and Rotate with their definitions.
func TestTowerRowsEqualFloat64(t *testing.T) {
	const rows, heads, dim, cols, eps = 9, 3, 24, 72, 1e-6
	for _, b := range everyBackend(t) {
		rng := rand.New(rand.NewPCG(6, 6))
		x, gain, bias := randomTensor(t, b, rng, rows, cols), randomTensor(t, b, rng, 1, cols), randomTensor(t, b, rng, 1, cols)
		cos, sin := randomTensor(t, b, rng, rows, dim/2), randomTensor(t, b, rng, rows, dim/2)
		norm, exact, tanh := randomTensor(t, b, rng, rows, cols), randomTensor(t, b, rng, rows, cols), randomTensor(t, b, rng, rows, cols)
		for i := range row(x, 0) {
			row(x, 0)[i] += 1000 // far from zero: the mean itself has an error of up to 3e-5
		}
		want := [4][][]float64{}
		for r := range rows {
			for i := range want {
				want[i] = append(want[i], make([]float64, cols))
			}
			mean, variance := 0.0, 0.0
			for _, v := range row(x, r) {
				mean += float64(v) / cols
			}
			for _, v := range row(x, r) {
				variance += (float64(v) - mean) * (float64(v) - mean) / cols
			}
			for c, f := range row(x, r) {
				v, h, i := float64(f), c/dim, c%(dim/2)
				want[0][r][c] = (v-mean)/math.Sqrt(variance+eps)*float64(row(gain, 0)[c]) + float64(row(bias, 0)[c])
				want[1][r][c] = v * (1 + math.Erf(v/math.Sqrt2)) / 2
				want[2][r][c] = v * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v))) / 2
				other := float64(row(x, r)[h*dim+(c%dim+dim/2)%dim])
				if c%dim < dim/2 {
					other = -other
				}
				want[3][r][c] = v*float64(row(cos, r)[i]) + other*float64(row(sin, r)[i])
			}
		}
		b.LayerNorm(norm, x, gain, bias, eps)
		b.GELU(exact, x, false)
		b.GELU(tanh, x, true)
		b.Rotate(x, cos, sin, heads)
		for i, got := range []backend.Tensor{norm, exact, tanh, x} {
			what := []string{"LayerNorm", "GELU", "GELU by tanh", "Rotate"}[i]
			closeTo(t, b.Name()+", "+what+" far from zero", got.RowRange(0, 1), want[i][:1], 5e-5)
			closeTo(t, b.Name()+", "+what, got.RowRange(1, rows), want[i][1:], 1e-6)
		}
	}
}
