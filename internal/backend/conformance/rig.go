package conformance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// rig is a device while it computes one case. The same calls give the same numbers on every
// device.
type rig struct {
	b      backend.Backend
	source *rand.PCG
	rng    *rand.Rand // by source
	known  map[drawn]quantized
	views  bool // tensors are views with gaps, of memory that is otherwise not to be touched

	tensors []placed
	weights []backend.Weight
}

// placed is a tensor and the memory that it is a view of.
type placed struct{ view, whole backend.Tensor }

// What is around a view, and the number that is there.
const (
	rowsAround = 2
	colsBefore = 3
	colsAround = 8
	untouched  = -77.25
)

// rig is a new one of a device.
func (c *checker) rig(b backend.Backend) *rig {
	source := newSource()
	return &rig{b: b, source: source, rng: rand.New(source), known: c.quantized}
}

// onRig runs a case and gives its memory back.
func (c *checker) onRig(b backend.Backend, views bool, run func(r *rig) [][]float32) [][]float32 {
	r := c.rig(b)
	r.views = views
	defer r.close()
	results := run(r)
	for _, p := range r.tensors {
		r.intact(p)
	}
	return results
}

func (r *rig) close() {
	for _, w := range r.weights {
		r.b.Unload(w)
	}
	for _, p := range r.tensors {
		r.b.Free(p.whole)
	}
}

// tensor is a tensor of float32 with the numbers of x.
func (r *rig) tensor(rows, cols int, x []float32) backend.Tensor {
	t := r.space(rows, cols)
	must(r.b.Write(t, x))
	return t
}

// space is a tensor of float32 with numbers that do not matter.
func (r *rig) space(rows, cols int) backend.Tensor {
	p := placed{}
	var err error
	if r.views {
		p.whole, err = r.b.Alloc(dtype.F32, rows+rowsAround, cols+colsAround)
		must(err)
		r.b.Fill(p.whole, untouched)
		p.view = p.whole.RowRange(1, 1+rows).ColRange(colsBefore, colsBefore+cols)
	} else {
		p.whole, err = r.b.Alloc(dtype.F32, rows, cols)
		must(err)
		p.view = p.whole
	}
	r.tensors = append(r.tensors, p)
	return p.view
}

// list is n random numbers around zero.
func (r *rig) list(n int) []float32 {
	x := make([]float32, n)
	for at := 0; at < n; {
		at += copy(x[at:], normal()[r.rng.IntN(normals/2):])
	}
	return x
}

// normal is random numbers that all lists are pieces of: making them takes longer than computing
// with them.
var normal = sync.OnceValue(func() []float32 {
	rng, x := rand.New(newSource()), make([]float32, normals)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
})

const normals = 1 << 16

// random is a tensor of random numbers around zero.
func (r *rig) random(rows, cols int) backend.Tensor { return r.tensor(rows, cols, r.list(rows*cols)) }

// bare is memory of any type that is zero and fills its tensor.
func (r *rig) bare(t dtype.Type, rows, cols int) backend.Tensor {
	x, err := r.b.Alloc(t, rows, cols)
	must(err)
	r.tensors = append(r.tensors, placed{x, x})
	return x
}

// load is a weight.
func (r *rig) load(c backend.Compute, stack ...dtype.Matrix) backend.Weight {
	w, err := r.b.Load(c, stack...)
	must(err)
	r.weights = append(r.weights, w)
	return w
}

// find is the memory that a tensor of the rig, or a range of its rows, is a view of.
func (r *rig) find(t backend.Tensor) placed {
	for _, p := range r.tensors {
		if p.whole.Mem == t.Mem {
			return p
		}
	}
	panic("conformance: tensor of another rig")
}

// read is the numbers of a tensor of the rig, or of a view of it.
func (r *rig) read(t backend.Tensor) []float32 {
	all := r.all(r.find(t).whole)
	x := make([]float32, 0, t.Rows*t.Cols)
	for i := range t.Rows {
		x = append(x, all[t.Offset+i*t.Stride:][:t.Cols]...)
	}
	return x
}

// all is the numbers of a tensor without gaps.
func (r *rig) all(t backend.Tensor) []float32 {
	x, err := r.b.Host(t)
	must(err)
	if len(x) != t.Rows*t.Cols {
		panic(fmt.Sprintf("Host of %d×%d has %d numbers", t.Rows, t.Cols, len(x)))
	}
	return x
}

// intact panics if something was written beside a view.
func (r *rig) intact(p placed) {
	if !r.views || p.view == p.whole {
		return
	}
	all := r.all(p.whole)
	for i := range p.whole.Rows {
		row, first := all[i*p.whole.Cols:][:p.whole.Cols], p.whole.Cols
		if i > 0 && i <= p.view.Rows {
			first = colsBefore
		}
		check := func(from, to int) {
			for j, x := range row[from:to] {
				if x != untouched {
					panic(fmt.Sprintf("beside a view of %d×%d, at row %d and column %d, there is %v", p.view.Rows, p.view.Cols, i-1, from+j-colsBefore, x))
				}
			}
		}
		check(0, first)
		check(min(first+p.view.Cols, p.whole.Cols), p.whole.Cols)
	}
}

// eachRow has run compute the rows of dst one by one.
func eachRow(rows int, run func(from, to int)) {
	for i := range rows {
		run(i, i+1)
	}
}

// matrix is a plain matrix of random numbers around zero.
func (r *rig) matrix(rows, cols int) dtype.Matrix {
	m := dtype.Matrix{Rows: rows, Cols: cols, Type: dtype.F32, Data: make([]byte, 4*rows*cols)}
	dtype.FromF32(m.Data, dtype.F32, r.list(rows*cols))
	return m
}

// quantized is a random matrix of integers with scales of bf16; of floats if bits is zero.
func (r *rig) quantized(rows, cols, bits, group int) dtype.Matrix {
	if bits == 0 {
		return r.matrix(rows, cols)
	}
	return r.quantize(rows, cols, bits, group, dtype.BF16)
}

// drawn says which random matrix of integers is drawn: by the state of the source before.
type drawn struct {
	source                  string
	rows, cols, bits, group int
	scale                   dtype.Type
}

// quantized is a matrix of integers, and the state of the source behind it.
type quantized struct {
	m      dtype.Matrix
	source []byte
}

// quantize is a random matrix of integers, which must not be changed. Rigs of several devices and cases draw the same: quantizing takes
// longer than most operations.
func (r *rig) quantize(rows, cols, bits, group int, scale dtype.Type) dtype.Matrix {
	state, err := r.source.MarshalBinary()
	must(err)
	key := drawn{string(state), rows, cols, bits, group, scale}
	if x, ok := r.known[key]; ok {
		must(r.source.UnmarshalBinary(x.source))
		return x.m
	}
	m := r.matrix(rows, cols)
	q, err := dtype.Quantize(&m, bits, group, scale)
	must(err)
	state, err = r.source.MarshalBinary()
	must(err)
	r.known[key] = quantized{q, state}
	return q
}

// newSource is the source of the numbers of every case.
func newSource() *rand.PCG { return rand.NewPCG(1, 2) }

// drop gives the memory of a tensor back.
func (r *rig) drop(t backend.Tensor) {
	p := r.find(t)
	r.intact(p)
	r.b.Free(p.whole)
	r.tensors = slices.DeleteFunc(r.tensors, func(x placed) bool { return x == p })
}
