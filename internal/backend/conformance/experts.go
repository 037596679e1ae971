package conformance

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// expertsCase is a mixture of experts.
type expertsCase struct {
	bits, group int // of weights; 0: float32, less: with zero points
	normalize   bool
}

// Shapes of the mixtures.
const (
	expertWidth  = 128
	expertInner  = 64
	expertShared = 192 // inner width of the shared expert
	expertCount  = 8
	expertTopK   = 3
)

// block makes the mixture. Two of its experts are always chosen with the same weight.
func (c *expertsCase) block(r *rig) *backend.Experts {
	load := func(rows, cols, count int) backend.Weight {
		stack := make([]dtype.Matrix, count)
		for i := range stack {
			if c.bits < 0 {
				stack[i] = pointed{-c.bits, c.group, dtype.BF16, true}.matrix(r, rows, cols)
				continue
			}
			stack[i] = r.quantized(rows, cols, c.bits, c.group)
		}
		return r.load(backend.Int8, stack...)
	}
	router := r.matrix(expertCount, expertWidth)
	copy(router.Data[5*router.RowBytes():][:router.RowBytes()], router.Data[2*router.RowBytes():])
	return &backend.Experts{
		TopK: expertTopK, Normalize: c.normalize,
		Router: r.load(backend.Int8, router), SharedRouter: load(1, expertWidth, 1),
		Gate: load(expertInner, expertWidth, expertCount), Up: load(expertInner, expertWidth, expertCount), Down: load(expertWidth, expertInner, expertCount),
		SharedGate: load(expertShared, expertWidth, 1), SharedUp: load(expertShared, expertWidth, 1), SharedDown: load(expertWidth, expertShared, 1),
	}
}

// experts checks mixtures: what they add, row by row, for rows that choose the same experts and
// for few.
func (c *checker) experts() {
	c.on("Experts")
	for _, k := range some(c, []expertsCase{{4, 64, true}, {8, 32, false}, {0, 0, true}, {-4, 32, true}}, 2) {
		for _, rows := range some(c, []int{1, 2, 5, 20}, 2) {
			c.like(fmt.Sprintf("%+v, %d rows", k, rows), func(r *rig) [][]float32 {
				e, x, dst := k.block(r), r.random(rows, expertWidth), r.random(rows, expertWidth)
				r.b.Experts(dst, x, backend.Tensor{}, e)
				return [][]float32{r.read(dst), r.read(x)}
			})
		}
		c.holds(fmt.Sprintf("%+v, rows and each alone", k), func(r *rig) (got, want []float32) {
			const rows = 13
			e, x, start := k.block(r), r.random(rows, expertWidth), r.list(rows*expertWidth)
			y, z := r.tensor(rows, expertWidth, start), r.tensor(rows, expertWidth, start)
			r.b.Experts(y, x, backend.Tensor{}, e)
			eachRow(rows, func(i, j int) { r.b.Experts(z.RowRange(i, j), x.RowRange(i, j), backend.Tensor{}, e) })
			return r.read(y), r.read(z)
		})
	}
	c.expertsInputs()
}
