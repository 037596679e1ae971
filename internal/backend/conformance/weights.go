package conformance

import (
	"fmt"
	"math"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// format is one encoding of weights.
type format struct {
	name   string
	matrix func(r *rig, rows, cols int) dtype.Matrix
	group  int // columns have to be a multiple of it
}

// formats are all encodings: plain, integers of any width in groups of any size, the small
// floats, and GGUF's blocks.
func formats() []format {
	list := []format{{"f32", (*rig).matrix, 1}}
	for _, t := range []dtype.Type{dtype.BF16, dtype.F16} {
		list = append(list, format{t.String(), func(r *rig, rows, cols int) dtype.Matrix { return r.plain(t, rows, cols) }, 1})
	}
	for _, bits := range []int{2, 3, 4, 5, 6, 8} {
		for _, group := range []int{16, 32, 64, 128} {
			for _, scale := range []dtype.Type{dtype.BF16, dtype.F16, dtype.F32} {
				list = append(list, affine(bits, group, scale))
			}
		}
	}
	for _, p := range points {
		list = append(list, format{p.String(), p.matrix, p.group})
	}
	for _, m := range []dtype.Matrix{
		{Format: dtype.MXFP4, Group: 32, ScaleType: dtype.F8E8M0, Global: 1},
		{Format: dtype.NVFP4, Group: 16, ScaleType: dtype.F8E4M3, Global: 0.75},
		{Format: dtype.MXFP8, Group: 32, ScaleType: dtype.F8E8M0, Global: 1},
		{Format: dtype.FP8, Group: 48, ScaleType: dtype.F32, Global: 1},
	} {
		f := format{m.Format.String(), func(r *rig, rows, cols int) dtype.Matrix { return r.codes(m, rows, cols) }, m.Group}
		if m.Format == dtype.FP8 {
			f.group = 1
		}
		list = append(list, f)
	}
	for f := dtype.Q4_0; f.Blocks(); f++ {
		columns, _ := f.BlockSize()
		list = append(list, format{f.String(), func(r *rig, rows, cols int) dtype.Matrix { return r.blocks(f, rows, cols) }, columns})
	}
	return append(list, long...)
}

// long are formats with groups that are longer than those of files, and with a group that is a row.
var long = []format{
	affine(4, 256, dtype.BF16), affine(8, 144, dtype.F16), affine(6, 640, dtype.F32),
	{"8 bits, a group for each row", func(r *rig, rows, cols int) dtype.Matrix { return r.quantized(rows, cols, 8, cols) }, 272},
}

// affine is a format of integers with biases.
func affine(bits, group int, scale dtype.Type) format {
	return format{fmt.Sprintf("%d bits in groups of %d, scales of %v", bits, group, scale), func(r *rig, rows, cols int) dtype.Matrix {
		return r.quantize(rows, cols, bits, group, scale)
	}, group}
}

// pointed is a format with zero points.
type pointed struct {
	bits, group int
	scale       dtype.Type
	zeros       bool // they are stored
}

// points are formats with zero points: every width, and the groups and scales of files.
var points = []pointed{
	{4, 128, dtype.BF16, true},
	{4, 32, dtype.F16, false},
	{8, 128, dtype.F32, false},
	{4, 64, dtype.F16, true},
	{8, 32, dtype.BF16, true},
	{3, 128, dtype.F16, true},
	{2, 64, dtype.BF16, false},
	{5, 32, dtype.F32, true},
	{6, 16, dtype.F16, true},
	{8, 96, dtype.BF16, true},
	{4, 384, dtype.BF16, true},
}

func (p pointed) String() string {
	return fmt.Sprintf("%d bits with zero points in groups of %d, scales of %v, stored: %v", p.bits, p.group, p.scale, p.zeros)
}

// matrix is a random one.
func (p pointed) matrix(r *rig, rows, cols int) dtype.Matrix {
	m := dtype.Matrix{Rows: rows, Cols: cols, Format: dtype.ZeroPoint, Bits: p.bits, Group: p.group, ScaleType: p.scale}
	m.Data, m.Scales = make([]byte, rows*m.RowBytes()), make([]byte, rows*m.ScaleRowBytes())
	for i := range m.Data {
		m.Data[i] = byte(r.rng.Uint32())
	}
	dtype.FromF32(m.Scales, p.scale, r.list(rows*m.Groups()))
	if p.zeros {
		m.Zeros = make([]byte, rows*m.Groups())
		for i := range m.Zeros {
			m.Zeros[i] = byte(r.rng.IntN(1 << p.bits))
		}
	}
	return m
}

// plain is a random matrix of an unquantized type.
func (r *rig) plain(t dtype.Type, rows, cols int) dtype.Matrix {
	m := dtype.Matrix{Rows: rows, Cols: cols, Type: t, Data: make([]byte, rows*cols*t.Size())}
	dtype.FromF32(m.Data, t, r.list(rows*cols))
	return m
}

// codes fills a matrix of small floats with random codes that all stand for finite numbers.
func (r *rig) codes(m dtype.Matrix, rows, cols int) dtype.Matrix {
	m.Rows, m.Cols = rows, cols
	m.Data, m.Scales = make([]byte, rows*m.RowBytes()), make([]byte, rows*m.ScaleRowBytes())
	for i := range m.Data {
		m.Data[i] = byte(r.rng.Uint32())
		if m.ElementBits() == 8 && m.Data[i]&0x7f == 0x7f {
			m.Data[i] = 0
		}
	}
	if m.ScaleType == dtype.F32 {
		x := r.list(len(m.Scales) / 4)
		dtype.FromF32(m.Scales, dtype.F32, x)
		return m
	}
	for i := range m.Scales {
		m.Scales[i] = byte(120 + r.rng.IntN(7)) // near one as E8M0, near 400 as E4M3
	}
	return m
}

// blocks fills a matrix of a block format with random bytes and mild halves.
func (r *rig) blocks(f dtype.Format, rows, cols int) dtype.Matrix {
	m := dtype.NewBlocks(f, rows, cols)
	m.Data = make([]byte, rows*m.RowBytes())
	for i := range m.Data {
		m.Data[i] = byte(r.rng.Uint32())
	}
	_, size := f.BlockSize()
	for at := 0; at < len(m.Data); at += size {
		f.PutHalves(m.Data[at:], func() uint16 { return dtype.ToF16(r.list(1)[0]) })
	}
	return m
}

// values are the numbers of a matrix.
func values(m dtype.Matrix) []float32 {
	x := make([]float32, m.Rows*m.Cols)
	for i := range m.Rows {
		m.Row(x[i*m.Cols:][:m.Cols], i)
	}
	return x
}

// load checks a weight in every format by what it is seen through. Where both its rows and its
// products are wrong, it is Load that is.
func (c *checker) load() {
	c.on("Load")
	for _, f := range some(c, formats(), 7) {
		const rows = 37
		cols := 130
		if f.group > 1 {
			cols = wholeGroups(128, f.group) + 2*f.group
		}
		what := fmt.Sprintf("%s, %d×%d", f.name, rows, cols)
		if seen, multiplied := c.seen(f, rows, cols), c.multiplied(f, rows, cols); seen != nil && multiplied != nil {
			c.find(what, "rows: %v; products: %v", seen, multiplied)
		}
	}
	if c.broken {
		return
	}
	err := try(func() {
		c.onRig(c.b, false, func(r *rig) [][]float32 {
			a, b := r.quantized(37, 64, 4, 32), r.quantized(37, 64, 4, 32)
			if w := r.load(backend.Int8, a, b); w.Rows() != 37 || w.Cols() != 64 || w.Count() != 2 || w.Bytes() < 37*64 {
				panic(fmt.Sprintf("two of 37×64 are %d of %d×%d, %d bytes", w.Count(), w.Rows(), w.Cols(), w.Bytes()))
			}
			return nil
		})
	})
	if err != nil {
		c.find("a stack", "%v", err)
	}
	c.loadInputs()
	r := c.rig(c.b)
	short := r.matrix(3, 5)
	short.Data = short.Data[:50]
	for what, stack := range map[string][]dtype.Matrix{
		"nothing":       {},
		"two shapes":    {r.matrix(3, 5), r.matrix(5, 3)},
		"two formats":   {r.matrix(3, 64), r.quantized(3, 64, 4, 32)},
		"too few bytes": {short},
	} {
		c.refuses(what, func() error { _, err := c.b.Load(backend.Int8, stack...); return err })
	}
}

// seen is what is wrong with the rows of a weight.
func (c *checker) seen(f format, rows, cols int) error {
	return try(func() {
		c.onRig(c.b, false, func(r *rig) [][]float32 {
			m := f.matrix(r, rows, cols)
			want := values(m)
			m.Data = slices.Clone(m.Data)
			w, dst := r.load(backend.Int8, m), r.bare(dtype.F32, rows, cols)
			clear(m.Data) // it has been read
			ids := make([]int32, rows)
			for i := range ids {
				ids[i] = int32(i)
			}
			r.b.Embed(dst, w, ids, 0)
			must(differ(positive(r.all(dst)), positive(want)))
			return nil
		})
	})
}

// positive is x with every -0 as 0: formats differ in whether a code of zero has a sign.
func positive(x []float32) []float32 {
	y := make([]float32, len(x))
	for i := range x {
		y[i] = x[i] + 0
	}
	return y
}

// multiplied is what is wrong with products of a weight.
func (c *checker) multiplied(f format, rows, cols int) error {
	run := func(r *rig) [][]float32 {
		w, x, y := r.load(backend.Float32, f.matrix(r, rows, cols)), r.random(1, cols), r.random(1, rows)
		r.b.MatMul(x, backend.Product{Dst: y, W: w})
		return [][]float32{r.read(y)}
	}
	return try(func() {
		want, err := c.answer(fmt.Sprintf("%s, %d×%d", f.name, rows, cols), run)
		must(err)
		must(differ(c.onRig(c.b, false, run)[0], want[0]))
	})
}

// embedFactor checks rows that are multiplied.
func (c *checker) embedFactor() {
	c.on("Embed")
	c.like("a factor", func(r *rig) [][]float32 {
		ids, dst := []int32{3, 0, 36}, r.random(3, 130)
		r.b.Embed(dst, r.load(backend.Int8, r.matrix(37, 130)), ids, 73.321211)
		return [][]float32{r.read(dst)}
	})
}

// embed checks rows of tables: repeated, in any order, the first and the last.
func (c *checker) embed() {
	c.on("Embed")
	for i, f := range formats() {
		for j, s := range [][2]int{{1, 128}, {37, 384}, {64, 130}} {
			if (i+j)%3 != 0 {
				continue
			}
			s[1] = wholeGroups(s[1], f.group)
			c.like(fmt.Sprintf("%s, %d×%d", f.name, s[0], s[1]), func(r *rig) [][]float32 {
				m := f.matrix(r, s[0], s[1])
				ids := []int32{int32(s[0] - 1), 0, int32(s[0] / 2), 0, int32(s[0] - 1), int32(s[0] / 3), 0}
				dst := r.random(len(ids), s[1])
				r.b.Embed(dst, r.load(backend.Int8, m), ids, 0)
				var want []float32
				all := values(m)
				for _, id := range ids {
					want = append(want, all[int(id)*s[1]:][:s[1]]...)
				}
				got := r.read(dst)
				must(differ(positive(got), positive(want)))
				return [][]float32{got}
			})
		}
	}
}

// Rows of products: single, a few as with drafts, around the widths of vectors and tiles, many.
var productRows = []int{1, 2, 3, 5, 8, 16, 17, 40}

// matmul checks products.
func (c *checker) matmul() {
	c.on("MatMul")
	for i, f := range some(c, formats(), 7) {
		for _, how := range []backend.Compute{backend.Int8, backend.Float32} {
			// Every format meets some numbers of rows and shapes; all meet all of them together.
			m, n, k := productRows[(i+int(how)*3)%len(productRows)], []int{1, 16, 37, 70}[i%4], []int{128, 256, 130, 7}[i/4%4]
			if k%f.group != 0 {
				k = wholeGroups(256, f.group)
			}
			c.like(fmt.Sprintf("%s by %v, %d rows, %d×%d", f.name, how, m, n, k), func(r *rig) [][]float32 {
				x, w := r.random(m, k), r.load(how, f.matrix(r, n, k))
				y, sum := r.random(m, n), r.random(m, n)
				r.b.MatMul(x, backend.Product{Dst: y, W: w}, backend.Product{Dst: sum, W: w, Add: true})
				return [][]float32{r.read(y), r.read(sum), r.read(x)}
			})
		}
	}
	for _, f := range c.usual() {
		cols := wholeGroups(192, f.group)
		for _, m := range productRows {
			c.like(fmt.Sprintf("%s, %d rows", f.name, m), func(r *rig) [][]float32 {
				x, w, y := r.random(m, cols), r.load(backend.Int8, f.matrix(r, 90, cols)), r.random(m, 90)
				r.b.MatMul(x, backend.Product{Dst: y, W: w})
				return [][]float32{r.read(y)}
			})
		}
		c.holds(f.name+": 40 rows and each alone", func(r *rig) (got, want []float32) {
			x, w := r.random(40, cols), r.load(backend.Int8, f.matrix(r, 90, cols))
			y, z := r.random(40, 90), r.random(40, 90)
			r.b.MatMul(x, backend.Product{Dst: y, W: w})
			eachRow(40, func(i, j int) { r.b.MatMul(x.RowRange(i, j), backend.Product{Dst: z.RowRange(i, j), W: w}) })
			return r.read(y), r.read(z)
		})
		c.only(f)
		c.faults(f)
	}
	for _, f := range long {
		cols := 2 * f.group
		c.like(fmt.Sprintf("%s, 3 rows", f.name), func(r *rig) [][]float32 {
			x, w, y := r.random(3, cols), r.load(backend.Int8, f.matrix(r, 20, cols)), r.random(3, 20)
			r.b.MatMul(x, backend.Product{Dst: y, W: w})
			return [][]float32{r.read(y)}
		})
	}
	c.like("several weights of one input", func(r *rig) [][]float32 {
		x := r.random(5, 192)
		products := make([]backend.Product, 0, 5)
		for i, w := range []dtype.Matrix{r.quantized(20, 192, 4, 64), r.matrix(37, 192), r.quantized(16, 192, 8, 32), r.quantized(7, 192, 6, 64), r.quantized(33, 192, 4, 16)} {
			products = append(products, backend.Product{Dst: r.random(5, w.Rows), W: r.load(backend.Int8, w), Add: i%2 == 1})
		}
		r.b.MatMul(x, products...)
		var all [][]float32
		for _, p := range products {
			all = append(all, r.read(p.Dst))
		}
		return all
	})
	c.each()
	c.matmulInputs()
	c.like("no rows", func(r *rig) [][]float32 {
		x, y := r.random(2, 64), r.random(2, 16)
		r.b.MatMul(x.RowRange(1, 1), backend.Product{Dst: y.RowRange(1, 1), W: r.load(backend.Int8, r.matrix(16, 64))})
		return [][]float32{r.read(y)}
	})
}

// usual are formats that meet every number of rows: floats, integers of 4 and 8 bits and, in the whole suite, one of each kind
// that is multiplied in another way.
func (c *checker) usual() []format {
	var list []format
	for _, bits := range []int{0, 4, 8} {
		list = append(list, format{fmt.Sprintf("%d bits", bits), func(r *rig, rows, cols int) dtype.Matrix { return r.quantized(rows, cols, bits, 64) }, 64})
	}
	if !c.brief {
		list = append(list, format{"zero points", pointed{4, 64, dtype.F16, true}.matrix, 64})
		for _, f := range []dtype.Format{dtype.Q2K, dtype.IQ3S} {
			list = append(list, format{f.String(), func(r *rig, rows, cols int) dtype.Matrix { return r.blocks(f, rows, cols) }, 256})
		}
	}
	return list
}

// wholeGroups is cols or the next number that groups divide.
func wholeGroups(cols, group int) int { return (cols + group - 1) / group * group }

// each checks products of every head with a matrix of its own: they have the bits of the heads'
// products one by one, and what lies between the heads is left alone.
func (c *checker) each() {
	for _, bits := range []int{0, 4, 8} {
		for _, m := range []int{1, 3, 17} {
			const heads, rows, cols, in, out = 3, 37, 64, 80, 40
			what := fmt.Sprintf("%d bits, %d rows of heads", bits, m)
			stack := func(r *rig) (w backend.Weight, one [heads]backend.Weight) {
				var list []dtype.Matrix
				for i := range heads {
					list = append(list, r.quantized(rows, cols, bits, 32))
					one[i] = r.load(backend.Int8, list[i])
				}
				return r.load(backend.Int8, list...), one
			}
			c.like(what, func(r *rig) [][]float32 {
				w, _ := stack(r)
				x, y, sum := r.random(m, heads*in), r.random(m, heads*out), r.random(m, heads*out)
				r.b.MatMul(x, backend.Product{Dst: y, W: w, Each: true}, backend.Product{Dst: sum, W: w, Each: true, Add: true})
				return [][]float32{r.read(y), r.read(sum), r.read(x)}
			})
			c.holds(what+", one by one", func(r *rig) (got, want []float32) {
				w, one := stack(r)
				x, y, z := r.random(m, heads*in), r.random(m, heads*out), r.random(m, heads*out)
				r.b.Copy(z, y)
				r.b.MatMul(x, backend.Product{Dst: y, W: w, Each: true})
				for i := range one {
					r.b.MatMul(x.ColRange(i*in, i*in+cols), backend.Product{Dst: z.ColRange(i*out, i*out+rows), W: one[i]})
				}
				return r.read(y), r.read(z)
			})
		}
	}
}

// only checks products of some blocks of rows: they have the bits of the whole product, and the
// rest is left alone.
func (c *checker) only(f format) {
	what, cols := f.name, wholeGroups(64, f.group)
	only := []int32{0, 1, 2, 5, 7, 8, 30, 31} // the last block is short
	c.holds(what+": some blocks of rows", func(r *rig) (got, want []float32) {
		w, x := r.load(backend.Int8, f.matrix(r, 500, cols)), r.random(3, cols)
		all, some := r.random(3, 500), r.random(3, 500)
		r.b.Fill(some, -7)
		r.b.MatMul(x, backend.Product{Dst: all, W: w})
		r.b.MatMul(x, backend.Product{Dst: some, W: w, Only: only})
		whole := r.read(all)
		for i := range whole {
			value := float32(-7)
			for _, block := range only {
				if i%500/backend.RowBlock == int(block) {
					value = whole[i]
				}
			}
			want = append(want, value)
		}
		return r.read(some), want
	})
	c.like(what+": some blocks of rows, added", func(r *rig) [][]float32 {
		w, x, y := r.load(backend.Int8, f.matrix(r, 500, cols)), r.random(3, cols), r.random(3, 500)
		r.b.MatMul(x, backend.Product{Dst: y, W: w, Only: only, Add: true}, backend.Product{Dst: r.random(3, 500), W: w})
		return [][]float32{r.read(y)}
	})
}

// faults checks that a number that is not finite is not rounded away, and stays in its row.
func (c *checker) faults(f format) {
	what, cols := f.name, wholeGroups(128, f.group)
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		c.holds(fmt.Sprintf("%s: %v in a row", what, bad), func(r *rig) (got, want []float32) {
			w, x, y := r.load(backend.Int8, f.matrix(r, 16, cols)), r.random(2, cols), r.random(2, 16)
			r.b.Fill(x.RowRange(1, 2).ColRange(70, 71), float32(bad))
			r.b.MatMul(x, backend.Product{Dst: y, W: w})
			for i, v := range r.read(y) {
				finite := float32(0)
				if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
					finite = 1
				}
				got, want = append(got, finite), append(want, float32(i/16))
			}
			return got, want
		})
	}
}

// unload checks that a weight goes alone, and once.
func (c *checker) unload() {
	c.on("Unload")
	c.holds("one of two, twice", func(r *rig) (got, want []float32) {
		a, b := r.load(backend.Int8, r.quantized(37, 64, 4, 32)), r.load(backend.Int8, r.quantized(37, 64, 4, 32))
		x, before, after := r.random(2, 64), r.random(2, 37), r.random(2, 37)
		r.b.Fill(before, 0)
		r.b.Fill(after, 0)
		r.b.MatMul(x, backend.Product{Dst: before, W: b})
		r.b.Unload(a)
		r.b.Unload(a)
		r.b.MatMul(x, backend.Product{Dst: after, W: b})
		return r.read(after), r.read(before)
	})
}
