package conformance

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
)

// mixCase is attention without mask and cache.
type mixCase struct{ rows, keys, heads, dim int }

// A brief run takes every other.
var mixCases = []mixCase{
	{70, 70, 2, 64},
	{33, 129, 3, 72},
	{5, 64, 3, 12},
	{1, 1, 2, 32},
	{31, 7, 1, 5},
	{64, 200, 1, 1},
	{97, 65, 2, 80},
}

func (k *mixCase) String() string {
	return fmt.Sprintf("%d queries, %d keys, %d heads of %d", k.rows, k.keys, k.heads, k.dim)
}

// scale is a usual one.
func (k *mixCase) scale() float32 { return 1 / float32(math.Sqrt(float64(k.dim))) }

// operands are queries, keys and values.
func (k *mixCase) operands(r *rig) (q, keys, values backend.Tensor) {
	d := k.heads * k.dim
	return r.random(k.rows, d), r.random(k.keys, d), r.random(k.keys, d)
}

// mix checks attention without mask and cache: against the oracle; on columns of one tensor, which
// is how a tower has them; with each row alone and in pieces; where scores are large or no numbers.
func (c *checker) mix() {
	c.on("Mix")
	for _, k := range some(c, mixCases, 2) {
		what := k.String()
		c.like(what, func(r *rig) [][]float32 {
			q, keys, values := k.operands(r)
			dst := r.random(k.rows, k.heads*k.dim)
			r.b.Mix(dst, q, keys, values, k.heads, k.scale())
			r.b.Mix(q, q, keys, values, k.heads, 3)
			return [][]float32{r.read(dst), r.read(q), r.read(keys), r.read(values)}
		})
		c.holds(what+", in pieces of rows", func(r *rig) (got, want []float32) {
			q, keys, values := k.operands(r)
			dst := r.random(k.rows, k.heads*k.dim)
			r.b.Mix(dst, q, keys, values, k.heads, k.scale())
			want = r.read(dst)
			r.b.Fill(dst, 0)
			sizes := []int{1, 7, 30, 2}
			for i, n := 0, 0; i < k.rows; n++ {
				j := min(i+sizes[n%len(sizes)], k.rows)
				r.b.Mix(dst.RowRange(i, j), q.RowRange(i, j), keys, values, k.heads, k.scale())
				i = j
			}
			return r.read(dst), want
		})
		c.holds(what+", heads one by one", func(r *rig) (got, want []float32) {
			q, keys, values := k.operands(r)
			dst := r.random(k.rows, k.heads*k.dim)
			r.b.Mix(dst, q, keys, values, k.heads, k.scale())
			want = r.read(dst)
			r.b.Fill(dst, 0)
			for h := range k.heads {
				i, j := h*k.dim, (h+1)*k.dim
				r.b.Mix(dst.ColRange(i, j), q.ColRange(i, j), keys.ColRange(i, j), values.ColRange(i, j), 1, k.scale())
			}
			return r.read(dst), want
		})
	}
	c.like("columns of one tensor", func(r *rig) [][]float32 {
		const n, heads, dim, d = 90, 2, 72, 144
		x := r.random(n, 3*d)
		r.b.Mix(x.ColRange(0, d), x.ColRange(0, d), x.ColRange(d, 2*d), x.ColRange(2*d, 3*d), heads, 0.1)
		return [][]float32{r.read(x)}
	})
	c.like("no rows", func(r *rig) [][]float32 {
		x, y := r.random(3, 8), r.random(3, 8)
		r.b.Mix(y.RowRange(1, 1), x.RowRange(1, 1), x, x, 2, 1)
		return [][]float32{r.read(y)}
	})
	c.mixOdd()
}

// mixOdd has scores that are large, all equal, infinite, or no numbers.
func (c *checker) mixOdd() {
	const n, heads, dim = 75, 1, 16
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	odd := map[string]func(q, k, v []float32){
		"large scores":             func(q, _, _ []float32) { scaleAll(q, 300) },
		"scores of zero":           func(q, _, _ []float32) { clear(q) },
		"growing scores":           func(_, k, _ []float32) { grow(k, heads*dim) },
		"a query that is infinite": func(q, _, _ []float32) { q[5*heads*dim] = inf },
		"a query of NaN":           func(q, _, _ []float32) { q[5*heads*dim] = nan },
		"a key that is infinite":   func(_, k, _ []float32) { k[70*heads*dim+3] = -inf },
		"a key of NaN":             func(_, k, _ []float32) { k[70*heads*dim+3] = nan },
		"a value that is infinite": func(_, _, v []float32) { v[70*heads*dim+3] = inf },
		"a value of NaN":           func(_, _, v []float32) { v[70*heads*dim+3] = nan },
		"scores beyond float32":    func(q, k, _ []float32) { scaleAll(q, 1e30); scaleAll(k, 1e30) },
	}
	for _, name := range slices.Sorted(maps.Keys(odd)) { // in the same order every time
		change := odd[name]
		c.like(name, func(r *rig) [][]float32 {
			q, k, v := r.list(n*heads*dim), r.list(n*heads*dim), r.list(n*heads*dim)
			change(q, k, v)
			dst := r.random(n, heads*dim)
			r.b.Mix(dst, r.tensor(n, heads*dim, q), r.tensor(n, heads*dim, k), r.tensor(n, heads*dim, v), heads, 0.25)
			return [][]float32{r.read(dst)}
		})
	}
}

func scaleAll(x []float32, by float32) {
	for i := range x {
		x[i] *= by
	}
}

// grow has every row of x larger than the one before.
func grow(x []float32, cols int) {
	for i := range x {
		x[i] *= float32(i / cols)
	}
}
