package conformance

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Shapes of tensors: single rows and columns, odd ones, more than a page of memory.
var shapes = [][2]int{{1, 1}, {1, 7}, {7, 1}, {3, 5}, {17, 33}, {2, 20_000}}

// types are those of tensors.
var types = []dtype.Type{dtype.F32, dtype.F16, dtype.I8}

// host checks the numbers of a tensor that was written in two ways: if neither comes back, it is
// reading that is wrong.
func (c *checker) host() {
	c.on("Host")
	for _, s := range shapes {
		what := fmt.Sprintf("%d×%d", s[0], s[1])
		written, filled := c.written(s[0], s[1]), c.filled(s[0], s[1])
		if written != nil && filled != nil {
			c.find(what, "%v", written)
		}
		if written == nil {
			c.ranges(what, s[0], s[1])
		}
	}
	c.refuses("a view with gaps", func() error {
		x, err := c.b.Alloc(dtype.F32, 3, 5)
		must(err)
		defer c.b.Free(x)
		_, err = c.b.Host(x.ColRange(1, 3))
		return err
	})
}

// written is what is wrong with numbers that were written at once.
func (c *checker) written(rows, cols int) error {
	return try(func() {
		c.onRig(c.b, false, func(r *rig) [][]float32 {
			want := r.list(rows * cols)
			must(differ(r.read(r.tensor(rows, cols, want)), want))
			return nil
		})
	})
}

// filled is what is wrong with numbers that were set one by one, in a few places.
func (c *checker) filled(rows, cols int) error {
	return try(func() {
		c.onRig(c.b, false, func(r *rig) [][]float32 {
			x := r.bare(dtype.F32, rows, cols)
			want := make([]float32, rows*cols)
			for i := range want {
				if i%max(1, len(want)/50) == 0 || i == len(want)-1 {
					want[i] = float32(i + 1)
					at := x.RowRange(i/cols, i/cols+1).ColRange(i%cols, i%cols+1)
					r.b.Fill(at, want[i])
				}
			}
			must(differ(r.all(x), want))
			return nil
		})
	})
}

// ranges checks views without gaps: some rows, and a part of one row.
func (c *checker) ranges(what string, rows, cols int) {
	c.holds(what+", rows of it", func(r *rig) (got, want []float32) {
		x := r.random(rows, cols)
		all := slices.Clone(r.all(x))
		return r.all(x.RowRange(rows/2, rows)), all[rows/2*cols:]
	})
	c.holds(what+", a part of a row", func(r *rig) (got, want []float32) {
		x := r.random(rows, cols)
		all := slices.Clone(r.all(x))
		return r.all(x.RowRange(rows-1, rows).ColRange(cols/2, cols)), all[(rows-1)*cols+cols/2:]
	})
}

// stores checks Fill and Write, whole and in views. Views are made by Fill alone.
func (c *checker) stores() {
	special := []float32{0, float32(math.Copysign(0, -1)), 1.5, float32(math.Inf(-1)), float32(math.NaN())}
	c.on("Fill")
	for _, s := range shapes {
		for _, x := range special {
			for _, views := range []bool{false, true} {
				c.holds(fmt.Sprintf("%d×%d with %v, views %v", s[0], s[1], x, views), func(r *rig) (got, want []float32) {
					r.views = views
					t := r.space(s[0], s[1])
					r.b.Fill(t, x)
					return r.read(t), slices.Repeat([]float32{x}, s[0]*s[1])
				})
			}
		}
	}
	if c.broken {
		return
	}
	c.on("Write")
	for _, s := range shapes {
		for _, views := range []bool{false, true} {
			c.holds(fmt.Sprintf("%d×%d, views %v", s[0], s[1], views), func(r *rig) (got, want []float32) {
				r.views = views
				want = r.list(s[0] * s[1])
				return r.read(r.tensor(s[0], s[1], want)), want
			})
		}
	}
	c.refuses("too few numbers", func() error {
		x, err := c.b.Alloc(dtype.F32, 3, 5)
		must(err)
		defer c.b.Free(x)
		return c.b.Write(x, make([]float32, 14))
	})
}

// alloc checks what new memory is, and what cannot be had.
func (c *checker) alloc() {
	c.on("Alloc")
	for _, s := range append(shapes, [2]int{0, 5}, [2]int{5, 0}) {
		rows, cols := s[0], s[1]
		what := fmt.Sprintf("%d×%d", rows, cols)
		c.holds(what+" where numbers were before", func(r *rig) (got, want []float32) {
			for range 3 {
				x, err := r.b.Alloc(dtype.F32, rows, cols)
				must(err)
				r.b.Fill(x, 1)
				r.b.Free(x)
			}
			return r.all(r.bare(dtype.F32, rows, cols)), make([]float32, rows*cols)
		})
		c.holds(what+" beside another", func(r *rig) (got, want []float32) {
			x, y := r.bare(dtype.F32, rows, cols), r.bare(dtype.F32, rows, cols)
			r.b.Fill(x, 1)
			return r.all(y), make([]float32, rows*cols)
		})
		for _, kind := range types {
			x, err := c.b.Alloc(kind, rows, cols)
			switch {
			case err != nil:
				c.find(what, "%v: %v", kind, err)
				continue
			case x.Type != kind || x.Rows != rows || x.Cols != cols || x.Stride != cols:
				c.find(what, "%v: is %v %d×%d, rows %d apart", kind, x.Type, x.Rows, x.Cols, x.Stride)
			case x.Mem.Bytes() < int64(rows*cols*kind.Size()):
				c.find(what, "%v: has %d bytes", kind, x.Mem.Bytes())
			}
			c.b.Free(x)
		}
	}
	for what, f := range map[string]func() error{
		"more than any memory":      func() error { _, err := c.b.Alloc(dtype.F32, 1<<24, 1<<28); return err },
		"more than can be counted":  func() error { _, err := c.b.Alloc(dtype.F32, math.MaxInt/2, math.MaxInt/2); return err },
		"a negative number of rows": func() error { _, err := c.b.Alloc(dtype.F32, -1, 5); return err },
		"a type of weights":         func() error { _, err := c.b.Alloc(dtype.BF16, 3, 5); return err },
	} {
		var err error
		if fault := try(func() { err = f() }); err == nil || fault != nil {
			c.find(what, "returns %v, want an error", fault)
		}
	}
	if n := c.b.FreeMemory(); n <= 0 {
		c.on("FreeMemory")
		c.find("beside tensors of a few bytes", "%d bytes", n)
	}
	c.usage()
}

// usage checks what a device says of itself, if it does.
func (c *checker) usage() {
	if _, ok := c.b.(backend.Meter); !ok {
		return
	}
	c.on("Usage")
	const bytes = 3 << 20
	used := func(list []backend.Usage) (n int64) {
		for _, u := range list {
			n += u.Used
			if u.Device == "" || u.Used < 0 || u.Memory > 0 && (u.Used > u.Memory || u.Free > u.Memory) {
				c.find("of a device", "%+v", u)
			}
		}
		return n
	}
	x, err := c.b.Alloc(dtype.I8, 3, bytes/3)
	must(err)
	with := used(backend.UsageOf(c.b))
	c.b.Free(x)
	if without := used(backend.UsageOf(c.b)); with < bytes || without > with {
		c.find("with a tensor and without it", "%d and %d bytes are in use, the tensor has %d", with, without, bytes)
	}
}

// free checks that memory goes back alone, and once.
func (c *checker) free() {
	c.on("Free")
	c.holds("one of many, twice", func(r *rig) (got, want []float32) {
		var list []backend.Tensor
		for i := range 9 {
			x, err := r.b.Alloc(dtype.F32, 3, 33)
			must(err)
			r.b.Fill(x, float32(i))
			list = append(list, x)
		}
		for i := 0; i < len(list); i += 2 {
			r.b.Free(list[i])
			r.b.Free(list[i])
		}
		r.b.Free(backend.Tensor{}) // none
		for i := 1; i < len(list); i += 2 {
			x, err := r.b.Alloc(dtype.F32, 3, 33)
			must(err)
			r.b.Fill(x, -1)
			defer r.b.Free(x)
			defer r.b.Free(list[i])
		}
		for i := 1; i < len(list); i += 2 {
			got = append(got, r.all(list[i])...)
			want = append(want, slices.Repeat([]float32{float32(i)}, 99)...)
		}
		return got, want
	})
}

// copies checks Copy between tensors and views, of every type: those of float32 by their
// numbers, the others by their bytes.
func (c *checker) copies() {
	c.on("Copy")
	for _, s := range shapes {
		rows, cols := s[0], s[1]
		c.like(fmt.Sprintf("%d×%d", rows, cols), func(r *rig) [][]float32 {
			dst, src := r.random(rows, cols), r.random(rows, cols)
			r.b.Copy(dst, src)
			return [][]float32{r.read(dst), r.read(src)}
		})
	}
	c.holds("into a tensor without gaps", func(r *rig) (got, want []float32) {
		dst := r.random(3, 5)
		r.views = true
		src := r.random(3, 5)
		r.b.Copy(dst, src)
		return r.read(dst), r.read(src)
	})
	c.refuses("another shape", func() error {
		x, err := c.b.Alloc(dtype.F32, 3, 5)
		must(err)
		defer c.b.Free(x)
		c.b.Copy(x, x.RowRange(0, 2))
		return nil
	})
}

// bytes checks ReadBytes and WriteBytes. Numbers of float32 can be read and written otherwise
// and tell which of the two is wrong; those of other types only by both.
func (c *checker) bytes() {
	c.on("ReadBytes")
	for _, s := range shapes {
		c.like(fmt.Sprintf("%d×%d", s[0], s[1]), func(r *rig) [][]float32 {
			return [][]float32{r.numbers(r.random(s[0], s[1]))}
		})
	}
	if !c.broken {
		c.on("WriteBytes")
		for _, s := range shapes {
			c.like(fmt.Sprintf("%d×%d", s[0], s[1]), func(r *rig) [][]float32 {
				src, dst := r.random(s[0], s[1]), r.random(s[0], s[1])
				must(r.b.WriteBytes(dst, r.bytes(src)))
				return [][]float32{r.read(dst)}
			})
			for _, kind := range types {
				c.raw(kind, s[0], s[1])
			}
		}
	}
	for _, kind := range types {
		what := fmt.Sprintf("%v: a wrong number of bytes", kind)
		x, err := c.b.Alloc(kind, 3, 5)
		must(err)
		short := make([]byte, 15*kind.Size()-1)
		c.on("ReadBytes")
		c.refuses(what, func() error { return c.b.ReadBytes(short, x) })
		c.on("WriteBytes")
		c.refuses(what, func() error { return c.b.WriteBytes(x, short) })
		c.b.Free(x)
	}
}

// raw checks that any bytes come back as they were written, from views and their copies too.
func (c *checker) raw(kind dtype.Type, rows, cols int) {
	const above, left = 1, 2
	err := try(func() {
		c.onRig(c.b, false, func(r *rig) [][]float32 {
			x, size := r.bare(kind, rows+above, cols+left), kind.Size()
			all := make([]byte, x.Rows*x.Cols*size)
			for i := range all {
				all[i] = byte(r.rng.Uint32())
			}
			must(r.b.WriteBytes(x, all))
			var part []byte
			for i := range rows {
				part = append(part, all[((i+above)*x.Cols+left)*size:][:cols*size]...)
			}
			view, plain := x.RowRange(above, above+rows).ColRange(left, left+cols), r.bare(kind, rows, cols)
			r.b.Copy(plain, view)
			if !bytes.Equal(r.bytes(x), all) || !bytes.Equal(r.bytes(view), part) || !bytes.Equal(r.bytes(plain), part) {
				panic("other bytes come back")
			}
			clear(part)
			must(r.b.WriteBytes(view, part))
			for i := range rows {
				clear(all[((i+above)*x.Cols+left)*size:][:cols*size])
			}
			if !bytes.Equal(r.bytes(x), all) {
				panic("a view was not all that was written to")
			}
			return nil
		})
	})
	if err != nil {
		c.find(fmt.Sprintf("%v, %d×%d", kind, rows, cols), "%v", err)
	}
}

// bytes is what ReadBytes gives.
func (r *rig) bytes(t backend.Tensor) []byte {
	x := make([]byte, t.Rows*t.Cols*t.Type.Size())
	must(r.b.ReadBytes(x, t))
	return x
}

// numbers is bytes, each as a number of its own.
func (r *rig) numbers(t backend.Tensor) []float32 {
	data := r.bytes(t)
	x := make([]float32, len(data))
	for i, b := range data {
		x[i] = float32(b)
	}
	return x
}
