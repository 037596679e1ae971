package conformance

import (
	"fmt"
	"math"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/exactmath"
)

// Shapes of operations on rows: one long row, which is cut into pieces, and odd ones.
var rowShapes = [][2]int{{1, 5000}, {3, 1000}, {17, 130}, {40, 33}, {2, 1}}

func (c *checker) gather() {
	c.on("Gather")
	for _, s := range rowShapes {
		c.like(fmt.Sprintf("%d×%d", s[0], s[1]), func(r *rig) [][]float32 {
			x := r.random(s[0], s[1])
			rows := []int32{int32(s[0] - 1), 0, int32(s[0] / 2), int32(s[0] - 1), 0}
			dst := r.random(len(rows), s[1])
			r.b.Gather(dst, x, rows)
			return [][]float32{r.read(dst), r.read(x)}
		})
	}
	c.like("no rows", func(r *rig) [][]float32 {
		x, y := r.random(2, 5), r.random(2, 5)
		r.b.Gather(y.RowRange(1, 1), x, nil)
		return [][]float32{r.read(y)}
	})
}

func (c *checker) rmsnorm() {
	c.on("RMSNorm")
	c.like("400×520", func(r *rig) [][]float32 { // rounding hides the order of sums in nearly all rows
		x, gain := r.random(400, 520), r.random(1, 520)
		r.b.RMSNorm(x, x, gain, 1e-6)
		return [][]float32{r.read(x)}
	})
	for _, s := range rowShapes {
		what := fmt.Sprintf("%d×%d", s[0], s[1])
		for _, eps := range []float32{1e-6, 0.5} {
			c.like(fmt.Sprintf("%s, eps %v", what, eps), func(r *rig) [][]float32 {
				x, gain, dst := r.random(s[0], s[1]), r.random(1, s[1]), r.random(s[0], s[1])
				r.b.RMSNorm(dst, x, gain, eps)
				r.b.RMSNorm(x, x, gain, eps)
				return [][]float32{r.read(dst), r.read(x)}
			})
		}
		c.holds(what+" and each row alone", func(r *rig) (got, want []float32) {
			x, gain, y, z := r.random(s[0], s[1]), r.random(1, s[1]), r.random(s[0], s[1]), r.random(s[0], s[1])
			r.b.RMSNorm(y, x, gain, 1e-6)
			eachRow(s[0], func(i, j int) { r.b.RMSNorm(z.RowRange(i, j), x.RowRange(i, j), gain, 1e-6) })
			return r.read(y), r.read(z)
		})
	}
}

func (c *checker) normAdd() {
	c.on("NormAdd")
	for i, s := range rowShapes {
		what := fmt.Sprintf("%d×%d", s[0], s[1])
		eps, scale := []float32{1e-6, 0.5}[i%2], []float32{1, 0.6, -0.7071}[i%3]
		c.like(what, func(r *rig) [][]float32 {
			x, gain, dst := r.random(s[0], s[1]), r.random(1, s[1]), r.random(s[0], s[1])
			r.b.NormAdd(dst, x, gain, eps, scale)
			return [][]float32{r.read(dst), r.read(x), r.read(gain)}
		})
		c.holds(what+" and its parts", func(r *rig) (got, want []float32) {
			x, gain, dst, normed := r.random(s[0], s[1]), r.random(1, s[1]), r.random(s[0], s[1]), r.random(s[0], s[1])
			want = r.read(dst)
			r.b.NormAdd(dst, x, gain, eps, scale)
			r.b.RMSNorm(normed, x, gain, eps)
			for i, n := range r.read(normed) {
				want[i] = float32(want[i]+n) * scale
			}
			return r.read(dst), want
		})
		c.holds(what+" and each row alone", func(r *rig) (got, want []float32) {
			x, gain, y, z := r.random(s[0], s[1]), r.random(1, s[1]), r.random(s[0], s[1]), r.random(s[0], s[1])
			r.b.Copy(z, y)
			r.b.NormAdd(y, x, gain, eps, scale)
			eachRow(s[0], func(i, j int) { r.b.NormAdd(z.RowRange(i, j), x.RowRange(i, j), gain, eps, scale) })
			return r.read(y), r.read(z)
		})
	}
}

func (c *checker) glu() {
	c.on("GLU")
	for _, f := range []backend.Activation{backend.SiLU, backend.GELUTanh} {
		for _, s := range rowShapes {
			what := fmt.Sprintf("%d×%d by function %d", s[0], s[1], f)
			c.like(what, func(r *rig) [][]float32 {
				gate, up, dst := r.random(s[0], s[1]), r.random(s[0], s[1]), r.random(s[0], s[1])
				r.b.GLU(dst, gate, up, f)
				r.b.GLU(gate, gate, up, f)
				return [][]float32{r.read(dst), r.read(gate), r.read(up)}
			})
			c.holds(what+" and each row alone", func(r *rig) (got, want []float32) {
				x, y, z, one := r.random(s[0], s[1]), r.random(s[0], s[1]), r.random(s[0], s[1]), r.random(s[0], s[1])
				r.b.GLU(z, x, y, f)
				eachRow(s[0], func(i, j int) { r.b.GLU(one.RowRange(i, j), x.RowRange(i, j), y.RowRange(i, j), f) })
				return r.read(z), r.read(one)
			})
		}
	}
}

// caps checks numbers of all sizes, and that minus infinity stays.
func (c *checker) caps() {
	c.on("Cap")
	for i, s := range rowShapes {
		limit := []float32{30, 0.5}[i%2]
		c.like(fmt.Sprintf("%d×%d at %v", s[0], s[1], limit), func(r *rig) [][]float32 {
			x := r.random(s[0], s[1])
			r.b.Cap(x, limit)
			return [][]float32{r.read(x)}
		})
	}
	inf := float32(math.Inf(1))
	numbers := []float32{0, inf, -inf, float32(math.NaN()), -inf, -inf, 30, -math.MaxFloat32}
	for e := -149; e < 128; e++ {
		numbers = append(numbers, float32(math.Ldexp(1.37, e)), -float32(math.Ldexp(1.37, e)))
	}
	for x := float32(-200); x < 200; x += 0.7 {
		numbers = append(numbers, x)
	}
	capped := func(r *rig) []float32 {
		x := r.tensor(1, len(numbers), numbers)
		r.b.Cap(x, 30)
		return r.read(x)
	}
	c.like("numbers of all sizes", func(r *rig) [][]float32 { return [][]float32{capped(r)} })
	c.holds("numbers of all sizes, one by one", func(r *rig) (got, want []float32) {
		for _, x := range numbers {
			want = append(want, exactmath.Cap32(x, 30))
		}
		return capped(r), want
	})
}

func (c *checker) layerNorm() {
	c.on("LayerNorm")
	for _, s := range rowShapes {
		what := fmt.Sprintf("%d×%d", s[0], s[1])
		for _, eps := range []float32{1e-6, 0.5} {
			c.like(fmt.Sprintf("%s, eps %v", what, eps), func(r *rig) [][]float32 {
				x, gain, bias, dst := r.random(s[0], s[1]), r.random(1, s[1]), r.random(1, s[1]), r.random(s[0], s[1])
				r.b.LayerNorm(dst, x, gain, bias, eps)
				r.b.LayerNorm(x, x, gain, bias, eps)
				return [][]float32{r.read(dst), r.read(x)}
			})
		}
		c.holds(what+" and each row alone", func(r *rig) (got, want []float32) {
			x, gain, bias := r.random(s[0], s[1]), r.random(1, s[1]), r.random(1, s[1])
			y, z := r.random(s[0], s[1]), r.random(s[0], s[1])
			r.b.LayerNorm(y, x, gain, bias, 1e-6)
			eachRow(s[0], func(i, j int) { r.b.LayerNorm(z.RowRange(i, j), x.RowRange(i, j), gain, bias, 1e-6) })
			return r.read(y), r.read(z)
		})
	}
	c.like("a row of one number, and one with what is none", func(r *rig) [][]float32 {
		numbers := append(slices.Repeat([]float32{3}, 70), r.list(70)...)
		numbers[100] = float32(math.NaN())
		x, gain, bias := r.tensor(2, 70, numbers), r.random(1, 70), r.random(1, 70)
		r.b.LayerNorm(x, x, gain, bias, 1e-6)
		return [][]float32{r.read(x)}
	})
}

func (c *checker) gelu() {
	c.on("GELU")
	for _, tanh := range []bool{false, true} {
		for _, s := range rowShapes {
			what := fmt.Sprintf("%d×%d, tanh %v", s[0], s[1], tanh)
			c.like(what, func(r *rig) [][]float32 {
				x, dst := r.random(s[0], s[1]), r.random(s[0], s[1])
				r.b.GELU(dst, x, tanh)
				r.b.GELU(x, x, tanh)
				return [][]float32{r.read(dst), r.read(x)}
			})
			c.holds(what+" and each row alone", func(r *rig) (got, want []float32) {
				x, y, one := r.random(s[0], s[1]), r.random(s[0], s[1]), r.random(s[0], s[1])
				r.b.GELU(y, x, tanh)
				eachRow(s[0], func(i, j int) { r.b.GELU(one.RowRange(i, j), x.RowRange(i, j), tanh) })
				return r.read(y), r.read(one)
			})
		}
		c.like(fmt.Sprintf("numbers of all sizes, tanh %v", tanh), func(r *rig) [][]float32 {
			numbers := []float32{0, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())}
			for e := -149; e < 128; e++ {
				x := float32(math.Ldexp(1.37, e))
				numbers = append(numbers, x, -x)
			}
			for x := float32(-20); x < 20; x += 0.03 {
				numbers = append(numbers, x)
			}
			x := r.tensor(1, len(numbers), numbers)
			r.b.GELU(x, x, tanh)
			return [][]float32{r.read(x)}
		})
	}
}

func (c *checker) rotate() {
	c.on("Rotate")
	for _, s := range [][3]int{{1, 16, 64}, {40, 3, 12}, {17, 2, 72}, {3, 4, 32}, {5, 1, 2}} { // rows, heads, dim
		what := fmt.Sprintf("%d rows of %d heads of %d", s[0], s[1], s[2])
		c.like(what, func(r *rig) [][]float32 {
			x, cos, sin := r.random(s[0], s[1]*s[2]), r.random(s[0], s[2]/2), r.random(s[0], s[2]/2)
			r.b.Rotate(x, cos, sin, s[1])
			return [][]float32{r.read(x), r.read(cos), r.read(sin)}
		})
		c.holds(what+", and each row alone", func(r *rig) (got, want []float32) {
			x, cos, sin := r.random(s[0], s[1]*s[2]), r.random(s[0], s[2]/2), r.random(s[0], s[2]/2)
			y := r.random(s[0], s[1]*s[2])
			r.b.Copy(y, x)
			r.b.Rotate(x, cos, sin, s[1])
			eachRow(s[0], func(i, j int) { r.b.Rotate(y.RowRange(i, j), cos.RowRange(i, j), sin.RowRange(i, j), s[1]) })
			return r.read(x), r.read(y)
		})
	}
}

// shapes checks that wrong shapes, which only our own mistakes make, do not pass.
func (c *checker) shapes() {
	r := c.rig(c.b)
	defer r.close()
	x, y, narrow := r.random(3, 64), r.random(3, 64), r.random(3, 63)
	w := r.load(backend.Int8, r.matrix(16, 64))
	for op, f := range map[string]func(){
		"Embed":     func() { r.b.Embed(y, w, []int32{1, 2}, 0) },
		"Gather":    func() { r.b.Gather(narrow, x, []int32{0, 1, 2}) },
		"MatMul":    func() { r.b.MatMul(x, backend.Product{Dst: y, W: w}) },
		"RMSNorm":   func() { r.b.RMSNorm(y, x, narrow.RowRange(0, 1), 1e-6) },
		"LayerNorm": func() { r.b.LayerNorm(y, x, x.RowRange(0, 1), narrow.RowRange(0, 1), 1e-6) },
		"NormAdd":   func() { r.b.NormAdd(y, x, narrow.RowRange(0, 1), 1e-6, 1) },
		"GLU":       func() { r.b.GLU(x, x, narrow, backend.SiLU) },
		"Cap":       func() { r.b.Cap(x, 0) },
		"GELU":      func() { r.b.GELU(narrow, x, true) },
		"Rotate":    func() { r.b.Rotate(x, narrow.ColRange(0, 16), narrow.ColRange(0, 15), 2) },
		"Convolve":  func() { r.b.Convolve(y, x, &backend.Convolution{Base: x, Delta: narrow}, []backend.Seq{{N: 3}}) },
		"Mix":       func() { r.b.Mix(y, x, x, x, 3, 1) },
		"Top":       func() { _, _ = r.b.Top(x, make([]backend.Ask, 2)) },
		"Attend": func() {
			r.b.Attend(y, &backend.Attention{Heads: 2, KVHeads: 1, HeadDim: 32}, backend.Place{Type: dtype.F16}, x, x, x, []backend.Seq{{N: 3}})
		},
		"DeltaNet": func() {
			d := &backend.DeltaNet{KeyHeads: 1, ValueHeads: 1, KeyDim: 16, ValueDim: 32, Kernel: 3, Conv: x, Norm: x}
			r.b.DeltaNet(y, d, backend.Place{}, backend.DeltaInput{QKV: x, Z: x, B: x, A: x}, []backend.Seq{{N: 3}})
		},
		"Experts": func() {
			r.b.Experts(y, x, backend.Tensor{}, &backend.Experts{Router: w, Gate: w, Up: w, Down: w, TopK: 2})
		},
	} {
		c.on(op)
		if try(f) == nil {
			c.find("wrong shapes", "were accepted")
		}
	}
	c.on("Embed")
	if try(func() { r.b.Embed(y, w, []int32{1, 16, 2}, 0) }) == nil {
		c.find("an id beyond the table", "was accepted")
	}
}
