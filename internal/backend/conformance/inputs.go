package conformance

import (
	"fmt"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/exactmath"
)

// order is a random order of columns.
func (r *rig) order(cols int) *dtype.Input {
	in := &dtype.Input{}
	for _, c := range r.rng.Perm(cols) {
		in.Order = append(in.Order, int32(c))
	}
	return in
}

// rotation is a random rotation.
func (r *rig) rotation(rounds, cols int) *dtype.Input {
	t := &dtype.Rotation{Rounds: rounds, Scales: r.list(cols)}
	for range rounds * cols / dtype.RotationGroup {
		for _, p := range r.rng.Perm(dtype.RotationGroup) {
			t.Pairs = append(t.Pairs, uint8(p))
		}
		for _, angle := range r.list(dtype.RotationGroup / 2) {
			s, c := exactmath.Sincos32(angle)
			t.Cos, t.Sin = append(t.Cos, c), append(t.Sin, s)
		}
	}
	return &dtype.Input{Rotation: t}
}

// with is m, whose input is transformed.
func with(m dtype.Matrix, in *dtype.Input) dtype.Matrix {
	m.Input = in
	return m
}

// loadInputs checks that a weight has its transformation: products have the bits of those of rows that were
// transformed before.
func (c *checker) loadInputs() {
	const m, n, cols = 3, 37, 1152
	for what, input := range map[string]func(r *rig) *dtype.Input{
		"an order":    func(r *rig) *dtype.Input { return r.order(cols) },
		"one round":   func(r *rig) *dtype.Input { return r.rotation(1, cols) },
		"nine rounds": func(r *rig) *dtype.Input { return r.rotation(9, cols) },
	} {
		for _, how := range []backend.Compute{backend.Int8, backend.Float32} {
			c.holds(fmt.Sprintf("%s of the input, %v", what, how), func(r *rig) (got, want []float32) {
				w, in, x := r.quantized(n, cols, 4, 64), input(r), r.list(m*cols)
				y, z, turned := r.random(m, n), r.random(m, n), make([]float32, len(x))
				for i := 0; i < len(x); i += cols {
					in.Apply(turned[i:][:cols], x[i:][:cols])
				}
				r.b.MatMul(r.tensor(m, cols, x), backend.Product{Dst: y, W: r.load(how, with(w, in))})
				r.b.MatMul(r.tensor(m, cols, turned), backend.Product{Dst: z, W: r.load(how, w)})
				return r.read(y), r.read(z)
			})
		}
	}
	r := c.rig(c.b)
	short := r.order(cols)
	short.Order = short.Order[1:]
	for what, stack := range map[string][]dtype.Matrix{
		"an order that is too short":      {with(r.matrix(3, cols), short)},
		"a stack with several orders":     {with(r.matrix(3, cols), r.order(cols)), with(r.matrix(3, cols), r.order(cols))},
		"a stack with and without orders": {with(r.matrix(3, cols), r.order(cols)), r.matrix(3, cols)},
	} {
		c.refuses(what, func() error { _, err := c.b.Load(backend.Int8, stack...); return err })
	}
}

// matmulInputs checks products of one call with weights that transform their inputs in several ways: some
// alike, some by themselves, some not at all.
func (c *checker) matmulInputs() {
	for _, m := range some(c, []int{1, 5, 16, 17, 40}, 2) {
		c.like(fmt.Sprintf("several transformations of %d rows", m), func(r *rig) [][]float32 {
			const cols = 256
			x, turn, order := r.random(m, cols), r.rotation(8, cols), r.order(cols)
			copied := &dtype.Input{Order: slices.Clone(order.Order)}
			products := make([]backend.Product, 0, 8)
			for i, w := range []dtype.Matrix{
				with(r.quantized(20, cols, 4, 64), turn), r.quantized(37, cols, 4, 64), with(r.quantized(33, cols, 4, 128), turn),
				with(r.matrix(16, cols), turn), with(r.quantized(16, cols, 4, 64), order), with(r.quantized(48, cols, 8, 32), copied),
				with(r.quantized(20, cols, 4, 64), r.rotation(1, cols)), with(r.matrix(5, cols), order),
			} {
				products = append(products, backend.Product{Dst: r.random(m, w.Rows), W: r.load(backend.Int8, w), Add: i%3 == 1})
			}
			r.b.MatMul(x, products...)
			all := [][]float32{r.read(x)}
			for _, p := range products {
				all = append(all, r.read(p.Dst))
			}
			return all
		})
	}
	c.like("transformed heads", func(r *rig) [][]float32 {
		in := r.rotation(2, 128)
		w := r.load(backend.Int8, with(r.quantized(37, 128, 4, 32), in), with(r.quantized(37, 128, 4, 32), in))
		x, y := r.random(3, 2*140), r.random(3, 2*40)
		r.b.MatMul(x, backend.Product{Dst: y, W: w, Each: true})
		return [][]float32{r.read(y)}
	})
	c.like("transformed rows for some blocks", func(r *rig) [][]float32 {
		w, x, y := r.load(backend.Int8, with(r.quantized(200, 128, 4, 64), r.rotation(3, 128))), r.random(2, 128), r.random(2, 200)
		r.b.MatMul(x, backend.Product{Dst: y, W: w, Only: []int32{0, 3, 4, 12}})
		return [][]float32{r.read(y)}
	})
}

// expertsInputs checks mixtures whose inputs are transformed: those of all experts alike, those of the shared
// expert like them, by themselves or not at all.
func (c *checker) expertsInputs() {
	const width, inner, count = 256, 128, 6
	for _, how := range []backend.Compute{backend.Int8, backend.Float32} {
		for i, shared := range []string{"alike", "alone", "as it is"} {
			list := some(c, []int{1, 2, 21}, 2)
			if c.brief { // one or many rows, alternating
				list = list[(i+int(how))%2:][:1]
			}
			for _, rows := range list {
				c.like(fmt.Sprintf("transformed, %v, the shared expert %s, %d rows", how, shared, rows), func(r *rig) [][]float32 {
					load := func(rows, cols, count int, in *dtype.Input) backend.Weight {
						stack := make([]dtype.Matrix, count)
						for i := range stack {
							stack[i] = with(r.quantized(rows, cols, 4, 64), in)
						}
						return r.load(how, stack...)
					}
					up, down := r.rotation(8, width), r.rotation(8, inner)
					gate1, up1, down1 := up, up, down
					switch shared {
					case "alone":
						gate1, up1, down1 = r.rotation(2, width), r.rotation(2, width), r.order(inner)
					case "as it is":
						gate1, up1, down1 = nil, nil, nil
					}
					e := &backend.Experts{
						TopK: 2, Normalize: true,
						Router: r.load(how, r.matrix(count, width)), SharedRouter: load(1, width, 1, nil),
						Gate: load(inner, width, count, up), Up: load(inner, width, count, up), Down: load(width, inner, count, down),
						SharedGate: load(inner, width, 1, gate1), SharedUp: load(inner, width, 1, up1), SharedDown: load(width, inner, 1, down1),
					}
					x, dst := r.random(rows, width), r.random(rows, width)
					r.b.Experts(dst, x, backend.Tensor{}, e)
					return [][]float32{r.read(dst), r.read(x)}
				})
			}
		}
	}
}
