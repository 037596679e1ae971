package cpu

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/exactmath"
)

// everyBackend opens a backend of each instruction set, and the best one on several
// threads; the first is the definition: generic, one thread.
func everyBackend(t *testing.T) []*Backend {
	t.Helper()
	sets := runnable()
	slices.Reverse(sets)
	list := make([]*Backend, 0, len(sets)+2)
	for _, isa := range sets {
		list = append(list, openTest(t, Options{Threads: 1, ISA: isa}))
	}
	return append(list, openTest(t, Options{Threads: 2}), openTest(t, Options{Threads: 5}))
}

// bits are all numbers of a tensor, for comparison.
func bits(t *testing.T, x backend.Tensor) []float32 {
	t.Helper()
	if x.Type == dtype.F16 {
		list := make([]float32, 0, x.Rows*x.Cols)
		for _, h := range x.Mem.(*memory).f16 {
			list = append(list, dtype.FromF16(h))
		}
		return list
	}
	if x.Type == dtype.I8 {
		list := make([]float32, 0, x.Rows*x.Cols)
		for _, c := range x.Mem.(*memory).i8 {
			list = append(list, float32(c))
		}
		return list
	}
	return slices.Clone(x.Mem.(*memory).f32)
}

// sameLists fails the test where two lists of numbers differ.
func sameLists(t *testing.T, what string, got, want [][]float32) {
	t.Helper()
	for i := range want {
		for j := range want[i] {
			if !sameFloat(got[i][j], want[i][j]) {
				t.Fatalf("%s: tensor %d, number %d is %v, want %v", what, i, j, got[i][j], want[i][j])
			}
		}
	}
}

// sameEverywhere compares what run computes with the first backend's.
func sameEverywhere(t *testing.T, what string, list []*Backend, run func(b *Backend) [][]float32) {
	t.Helper()
	var want [][]float32
	for _, b := range list {
		got := run(b)
		if want == nil {
			want = got
		}
		sameLists(t, what+" "+b.Name(), got, want)
	}
}

// attendOver is what attention gives for the first positions of a text, over pages of a type.
func attendOver(t *testing.T, b *Backend, kind dtype.Type) []float32 {
	t.Helper()
	const heads, kvHeads, dim, rows = 8, 2, 64, 90
	rng := rand.New(rand.NewPCG(3, 3))
	a := &backend.Attention{Heads: heads, KVHeads: kvHeads, HeadDim: dim, Gate: true, Eps: 1e-6, Freqs: []float32{1, 0.3, 0.01}}
	a.QNorm, a.KNorm = randomTensor(t, b, rng, 1, dim), randomTensor(t, b, rng, 1, dim)
	q, k := randomTensor(t, b, rng, rows, 2*heads*dim), randomTensor(t, b, rng, rows, kvHeads*dim)
	v, dst := randomTensor(t, b, rng, rows, kvHeads*dim), randomTensor(t, b, rng, rows, heads*dim)
	var pages []backend.Tensor
	for range 2 {
		p, err := b.Alloc(dtype.I8, 1, a.PageBytes(kind))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, p)
	}
	b.Attend(dst, a, backend.Place{Type: kind}, q, k, v, []backend.Seq{{N: rows, Pages: pages}})
	return bits(t, dst)
}

// TestAttendOfCodesIsClose compares attention over pages of 8 bits and of 4 with float32, and checks
// that what is not a number does not become one.
func TestAttendOfCodesIsClose(t *testing.T) {
	b := openTest(t, Options{Threads: 1})
	want := attendOver(t, b, dtype.F32)
	for kind, most := range map[dtype.Type]float32{dtype.I8: 0.05, dtype.I4: 0.6} {
		worst := float32(0)
		for i, x := range attendOver(t, b, kind) {
			worst = max(worst, exactmath.Abs32(x-want[i]))
		}
		t.Logf("%v: worst error %v", kind, worst)
		if worst > most || worst == 0 {
			t.Errorf("%v: worst error %v", kind, worst)
		}
	}
}

// TestAttendOfCodesFindsANeedle asks a long context for single positions: a query that is the
// key of one of 4,096 gives it a weight of 0.999, so the answer must be its value, and another
// in no column.
func TestAttendOfCodesFindsANeedle(t *testing.T) {
	b := openTest(t, Options{Threads: 2})
	// Half a step of a value is up to 0.02 with 8 bits, and up to 0.32 with 4.
	for kind, most := range map[dtype.Type]float32{dtype.I8: 0.05, dtype.I4: 0.4} {
		if worst := needle(t, b, kind); worst > most {
			t.Errorf("%v: worst error %v", kind, worst)
		}
	}
}

// needle is the worst error of the answers to queries of single positions.
func needle(t *testing.T, b *Backend, kind dtype.Type) (worst float32) {
	t.Helper()
	const heads, kvHeads, dim, positions, rows = 4, 2, 256, 4096, 16
	rng := rand.New(rand.NewPCG(8, 8))
	a := &backend.Attention{Heads: heads, KVHeads: kvHeads, HeadDim: dim}
	k, v := randomTensor(t, b, rng, positions+rows, kvHeads*dim), randomTensor(t, b, rng, positions+rows, kvHeads*dim)
	q, dst := randomTensor(t, b, rng, rows, heads*dim), randomTensor(t, b, rng, rows, heads*dim)
	var pages []backend.Tensor
	for range positions/backend.PageTokens + 1 {
		p, err := b.Alloc(dtype.I8, 1, a.PageBytes(kind))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, p)
	}
	place := func(r, h int) int { return (r*heads + h) * (positions / (rows * heads)) } // one for every query
	for r := range rows {
		for h := range heads {
			copy(row(q, r)[h*dim:][:dim], row(k, place(r, h))[h/2*dim:][:dim])
		}
	}
	at := backend.Place{Type: kind}
	b.Attend(dst.RowRange(0, 0), a, at, q.RowRange(0, 0), k.RowRange(0, positions), v.RowRange(0, positions), []backend.Seq{{N: positions, Pages: pages}})
	b.Attend(dst, a, at, q, k.RowRange(positions, positions+rows), v.RowRange(positions, positions+rows), []backend.Seq{{N: rows, Pos: positions, Pages: pages}})
	for r := range rows {
		for i, y := range row(dst, r) {
			h := i / dim
			worst = max(worst, exactmath.Abs32(y-row(v, place(r, h))[h/2*dim+i%dim]))
		}
	}
	t.Logf("%v: worst error %v", kind, worst)
	return worst
}

// TestAttendOfCodesKeepsNotANumber puts a NaN or infinity into the key or the value of a row: rows that
// see it are NaN, and no others.
func TestAttendOfCodesKeepsNotANumber(t *testing.T) {
	const rows, bad = 90, 70
	for i, b := range everyBackend(t) {
		for j, x := range []float32{float32(math.NaN()), float32(math.Inf(1))} {
			kind := []dtype.Type{dtype.I8, dtype.I4}[(i+j)%2]
			for what := range 2 {
				rng := rand.New(rand.NewPCG(4, 4))
				a := &backend.Attention{Heads: 4, KVHeads: 2, HeadDim: 64}
				q, k, v := randomTensor(t, b, rng, rows, 256), randomTensor(t, b, rng, rows, 128), randomTensor(t, b, rng, rows, 128)
				dst := randomTensor(t, b, rng, rows, 256)
				row([]backend.Tensor{k, v}[what], bad)[3] = x // of the first head
				var pages []backend.Tensor
				for range 2 {
					p, err := b.Alloc(dtype.I8, 1, a.PageBytes(kind))
					if err != nil {
						t.Fatal(err)
					}
					pages = append(pages, p)
				}
				b.Attend(dst, a, backend.Place{Type: kind}, q, k, v, []backend.Seq{{N: rows, Pages: pages}})
				for r := range rows {
					for i, y := range row(dst, r) {
						if none := r >= bad && i < 128; (y != y) != none {
							t.Fatalf("%s, %v in %d: number %d of row %d is %v", b.Name(), x, what, i, r, y)
						}
					}
				}
			}
		}
	}
}

// expertsCase is a mixture of experts; bits is zero for weights of float32.
type expertsCase struct {
	rows, bits, group int
	normalize         bool
}

// Shapes of the mixture of experts under test.
const (
	expertWidth = 128
	expertInner = 64
	expertSum   = 192 // inner width of the shared expert
	expertCount = 8
	expertTopK  = 3
)

// weights are the matrices of a block: for each of its weights a stack.
func (c *expertsCase) weights(t *testing.T) [8][]dtype.Matrix {
	t.Helper()
	rng := rand.New(rand.NewPCG(6, 6))
	var list [8][]dtype.Matrix
	for i, shape := range [8][3]int{
		{expertCount, expertWidth, 1},
		{1, expertWidth, 1},
		{expertInner, expertWidth, expertCount},
		{expertInner, expertWidth, expertCount},
		{expertWidth, expertInner, expertCount},
		{expertSum, expertWidth, 1},
		{expertSum, expertWidth, 1},
		{expertWidth, expertSum, 1},
	} {
		for range shape[2] {
			m := randomMatrix(rng, shape[0], shape[1])
			if c.bits > 0 {
				q, err := dtype.Quantize(&m, c.bits, c.group, dtype.BF16)
				if err != nil {
					t.Fatal(err)
				}
				m = q
			}
			list[i] = append(list[i], m)
		}
	}
	return list
}

// check compares the block's answer with one computed expert by expert.
func (c *expertsCase) check(t *testing.T, b *Backend, stacks [8][]dtype.Matrix) {
	t.Helper()
	var w [8]backend.Weight
	for i, stack := range stacks {
		var err error
		if w[i], err = b.Load(backend.Int8, stack...); err != nil {
			t.Fatal(err)
		}
	}
	e := &backend.Experts{
		TopK: expertTopK, Normalize: c.normalize, Router: w[0], SharedRouter: w[1],
		Gate: w[2], Up: w[3], Down: w[4], SharedGate: w[5], SharedUp: w[6], SharedDown: w[7],
	}
	rng := rand.New(rand.NewPCG(9, 9))
	x, dst := randomTensor(t, b, rng, c.rows, expertWidth), randomTensor(t, b, rng, c.rows, expertWidth)
	byHand := bits(t, dst)
	b.Experts(dst, x, backend.Tensor{}, e)
	for r := range c.rows {
		expertsByHand(t, b, byHand[r*expertWidth:][:expertWidth], x.RowRange(r, r+1), e)
	}
	for i, got := range bits(t, dst) {
		if !sameFloat(got, byHand[i]) {
			t.Fatalf("%s: %+v: number %d is %v, by hand %v", b.Name(), *c, i, got, byHand[i])
		}
	}
}

func TestExpertsEqualTheirProducts(t *testing.T) {
	for _, c := range []expertsCase{
		{1, 4, 64, true}, {2, 8, 32, false}, {5, 4, 64, true}, {20, 4, 32, false}, {1, 0, 0, true}, {9, 0, 0, false},
	} {
		stacks := c.weights(t)
		for _, isa := range runnable() {
			c.check(t, openTest(t, Options{Threads: 1, ISA: isa}), stacks)
		}
	}
}

// expertsByHand computes one row by whole products.
func expertsByHand(t *testing.T, b *Backend, dst []float32, x backend.Tensor, e *backend.Experts) {
	t.Helper()
	generic := &kernel.Generic.Vector
	times := func(x backend.Tensor, w backend.Weight, n int) backend.Tensor {
		y, err := b.Alloc(dtype.F32, 1, w.Rows())
		if err != nil {
			t.Fatal(err)
		}
		b.product(x, n, []backend.Product{{Dst: y, W: w}})
		return y
	}
	expert := func(n int, gate, up, down backend.Weight) []float32 {
		g := times(x, gate, n)
		generic.SwiGLU(row(g, 0), row(g, 0), row(times(x, up, n), 0))
		return row(times(g, down, n), 0)
	}
	chosen, weights := make([]int32, e.TopK), make([]float32, e.TopK)
	chooseExperts(chosen, weights, row(times(x, e.Router, 0), 0), e.Normalize, generic.Softmax)
	sum := make([]float32, len(dst))
	for i, c := range chosen {
		generic.AddScaled(sum, expert(int(c), e.Gate, e.Up, e.Down), weights[i])
	}
	generic.AddScaled(sum, expert(0, e.SharedGate, e.SharedUp, e.SharedDown), exactmath.Sigmoid32(row(times(x, e.SharedRouter, 0), 0)[0]))
	generic.Add(dst, sum)
}

func TestChooseExpertsRanks(t *testing.T) {
	logits := []float32{1, 3, 2, 3, -5, 0}
	chosen, weights := make([]int32, 4), make([]float32, 4)
	chooseExperts(chosen, weights, logits, true, kernel.Generic.Vector.Softmax)
	if want := []int32{1, 3, 2, 0}; !slices.Equal(chosen, want) {
		t.Errorf("chosen %v, want %v", chosen, want)
	}
	if weights[0] != weights[1] || weights[1] <= weights[2] || weights[2] <= weights[3] {
		t.Errorf("weights %v", weights)
	}
	if sum := weights[0] + weights[1] + weights[2] + weights[3]; exactmath.Abs32(sum-1) > 1e-6 {
		t.Errorf("weights %v sum to %v", weights, sum)
	}
}

func TestOpsAllocateNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("portable kernels take their time, and what allocates is the same code around each kernel")
	}
	b := openTest(t, Options{Threads: 2})
	rng := rand.New(rand.NewPCG(10, 10))
	const rows, width = 3, 2048
	x, y, gain := randomTensor(t, b, rng, rows, width), randomTensor(t, b, rng, rows, width), randomTensor(t, b, rng, 1, width)
	e := mixture(t, b)
	table, ids := e.SharedGate, []int32{1, 2, 3}
	for name, run := range map[string]func(){
		"Attend":   attention(t, b, dtype.F16, rows, 500, false),
		"Attend 8": attention(t, b, dtype.I8, rows, 500, true),
		"Convolve": convolution(t, b, rows, width),
		"DeltaNet": deltaNet(t, b, rows, 2, 2),
		"Experts":  func() { b.Experts(y, x, backend.Tensor{}, e) },
		"RMSNorm":  func() { b.RMSNorm(y, x, gain, 1e-6) },
		"SwiGLU":   func() { b.GLU(y, x, y, backend.SiLU) },
		"Embed":    func() { b.Embed(y, table, ids, 0) },
	} {
		if n := allocations(b, 50, run); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
