package cpu

import (
	"fmt"
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

// attendCase is an attention layer and the rows of a call.
type attendCase struct {
	heads, kvHeads, dim int
	kind                dtype.Type
	seqs                [][2]int // position, rows
}

// run feeds the case, step rows of each sequence at a time, and returns output and pages.
func (c *attendCase) run(t *testing.T, b *Backend, step int) [][]float32 {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, 3))
	a := &backend.Attention{Heads: c.heads, KVHeads: c.kvHeads, HeadDim: c.dim, Gate: true, Eps: 1e-6, Freqs: []float32{1, 0.3, 0.01}}
	a.QNorm, a.KNorm = randomTensor(t, b, rng, 1, c.dim), randomTensor(t, b, rng, 1, c.dim)
	var all [][]float32
	for _, s := range c.seqs {
		rows := s[1]
		q, k := randomTensor(t, b, rng, rows, 2*c.heads*c.dim), randomTensor(t, b, rng, rows, c.kvHeads*c.dim)
		v, dst := randomTensor(t, b, rng, rows, c.kvHeads*c.dim), randomTensor(t, b, rng, rows, c.heads*c.dim)
		var pages []backend.Tensor
		for i := 0; i*backend.PageTokens < s[0]+rows; i++ {
			pages = append(pages, c.page(t, b, rng))
		}
		for i := 0; i < rows; i += step {
			n := min(step, rows-i)
			b.Attend(dst.RowRange(i, i+n), a, c.place(), q.RowRange(i, i+n), k.RowRange(i, i+n), v.RowRange(i, i+n),
				[]backend.Seq{{N: n, Pos: s[0] + i, Pages: pages}})
		}
		all = append(all, bits(t, dst))
		for _, p := range pages {
			all = append(all, bits(t, p))
		}
	}
	return all
}

// place is the second layer of two.
func (c *attendCase) place() backend.Place {
	return backend.Place{Type: c.kind, Page: 2 * backend.PageBytes(c.kind, c.kvHeads, c.dim)}
}

// page is a page of two layers with random contents.
func (c *attendCase) page(t *testing.T, b *Backend, rng *rand.Rand) backend.Tensor {
	t.Helper()
	p, err := b.Alloc(dtype.I8, 1, 4*backend.PageBytes(c.kind, c.kvHeads, c.dim))
	if err != nil {
		t.Fatal(err)
	}
	fillPage(p, c.kind, c.dim, randomTensor(t, b, rng, 4*c.kvHeads*backend.PageTokens, c.dim))
	return p
}

// fillPage writes the rows of x, which are of one width, to a page.
func fillPage(page backend.Tensor, kind dtype.Type, width int, x backend.Tensor) {
	op := attendOp{vector: &kernel.Generic.Vector, set: &kernel.Generic, at: backend.Place{Type: kind}}
	n := backend.PageBytes(kind, 1, width)
	for r := range x.Rows {
		rows := page.Mem.(*memory).i8[page.Offset+r/backend.PageTokens*n:][:n]
		op.store(&attendBuffers{}, rows, r%backend.PageTokens, row(x, r))
	}
}

func TestAttendSameEverywhere(t *testing.T) {
	list := everyBackend(t)
	for _, c := range []attendCase{
		{2, 1, 32, dtype.F16, [][2]int{{0, 1}, {200, 1}, {63, 4}, {700, 1}}},
		{8, 2, 64, dtype.F16, [][2]int{{0, 70}, {130, 3}}},
		{4, 4, 16, dtype.F32, [][2]int{{0, 20}, {300, 7}}},
		{6, 2, 24, dtype.F32, [][2]int{{100, 9}}},
		{20, 1, 48, dtype.F16, [][2]int{{190, 4}}},
		{8, 2, 64, dtype.I8, [][2]int{{0, 70}, {130, 3}, {700, 1}}},
		{6, 2, 24, dtype.I8, [][2]int{{100, 9}}},
		{3, 3, 7, dtype.I8, [][2]int{{60, 5}}},
	} {
		sameEverywhere(t, fmt.Sprintf("%+v", c), list, func(b *Backend) [][]float32 { return c.run(t, b, 100) })
		best := list[len(list)-2]
		sameLists(t, fmt.Sprintf("%+v by rows", c), c.run(t, best, 1), c.run(t, best, 100))
	}
}

// TestAttendOf8BitsIsClose compares attention over pages of 8 bits with float32, and checks
// that what is not a number does not become one.
func TestAttendOf8BitsIsClose(t *testing.T) {
	b := openTest(t, Options{Threads: 1})
	c := attendCase{8, 2, 64, dtype.F32, [][2]int{{0, 90}}}
	want := c.run(t, b, 100)[0]
	c.kind = dtype.I8
	worst := float32(0)
	for i, x := range c.run(t, b, 100)[0] {
		worst = max(worst, exactmath.Abs32(x-want[i]))
	}
	t.Logf("worst error %v", worst)
	if worst > 0.05 || worst == 0 {
		t.Errorf("worst error %v", worst)
	}
	codes := make([]int8, 4)
	for _, x := range []float32{float32(math.NaN()), float32(math.Inf(-1))} {
		var buf []byte
		if scale := kernel.Generic.QuantizeRow(codes, []float32{1, x, 2, 3}, &buf); scale == scale {
			t.Errorf("a row with %v has scale %v", x, scale)
		}
	}
}

// TestAttendBatchEqualsAlone feeds sequences together and one by one.
func TestAttendBatchEqualsAlone(t *testing.T) {
	b := openTest(t, Options{Threads: 3})
	rng := rand.New(rand.NewPCG(4, 4))
	a := &backend.Attention{Heads: 4, KVHeads: 2, HeadDim: 32, Gate: true, Eps: 1e-6, Freqs: []float32{1, 0.5}}
	a.QNorm, a.KNorm = randomTensor(t, b, rng, 1, 32), randomTensor(t, b, rng, 1, 32)
	const rows = 11
	q, k, v := randomTensor(t, b, rng, rows, 256), randomTensor(t, b, rng, rows, 64), randomTensor(t, b, rng, rows, 64)
	together, alone := randomTensor(t, b, rng, rows, 128), randomTensor(t, b, rng, rows, 128)
	batch := []backend.Seq{{First: 0, N: 5, Pos: 700}, {First: 5, N: 1, Pos: 3}, {First: 6, N: 5, Pos: 126}}
	for i := range batch {
		for range batch[i].Pos/backend.PageTokens + 2 {
			page, err := b.Alloc(dtype.I8, 1, 2*backend.PageBytes(dtype.F32, 2, 32))
			if err != nil {
				t.Fatal(err)
			}
			fillPage(page, dtype.F32, 32, randomTensor(t, b, rng, 4*backend.PageTokens, 32))
			batch[i].Pages = append(batch[i].Pages, page)
		}
	}
	at := backend.Place{Type: dtype.F32}
	b.Attend(together, a, at, q, k, v, batch)
	for _, s := range batch {
		from, to := s.First, s.First+s.N
		s.First = 0
		b.Attend(alone.RowRange(from, to), a, at, q.RowRange(from, to), k.RowRange(from, to), v.RowRange(from, to), []backend.Seq{s})
	}
	sameLists(t, "alone", [][]float32{bits(t, alone)}, [][]float32{bits(t, together)})
}

// deltaCase is a DeltaNet layer and what is fed to one sequence: rows, drafts, and how
// many of the drafts are then accepted.
type deltaCase struct {
	keyHeads, share, keyDim, valueDim, kernel int
	sigmoid                                   bool
	calls                                     [][3]int
}

// run feeds the calls and returns outputs and memory.
func (c *deltaCase) run(t *testing.T, b *Backend) [][]float32 {
	t.Helper()
	rng := rand.New(rand.NewPCG(5, 5))
	values := c.keyHeads * c.share
	d := &backend.DeltaNet{KeyHeads: c.keyHeads, ValueHeads: values, KeyDim: c.keyDim, ValueDim: c.valueDim, Kernel: c.kernel, Eps: 1e-6, SigmoidGate: c.sigmoid}
	n := d.Channels()
	d.Conv, d.Norm = randomTensor(t, b, rng, c.kernel, n), randomTensor(t, b, rng, 1, c.valueDim)
	d.DecayBias, d.DecayRate = randomTensor(t, b, rng, 1, values), randomTensor(t, b, rng, 1, values)
	for i, x := range row(d.DecayRate, 0) {
		row(d.DecayRate, 0)[i] = -exactmath.Abs32(x)
	}
	const drafts = 8
	mem := backend.Recurrent{
		State: randomTensor(t, b, rng, values*c.keyDim, c.valueDim), Tail: randomTensor(t, b, rng, c.kernel-1+drafts, n),
		Keys: randomTensor(t, b, rng, drafts, c.keyHeads*c.keyDim), Deltas: randomTensor(t, b, rng, drafts, values*c.valueDim),
		Decays: randomTensor(t, b, rng, drafts, values),
	}
	var all [][]float32
	accepted := 0
	for _, call := range c.calls {
		rows := call[0]
		in := backend.DeltaInput{
			QKV: randomTensor(t, b, rng, rows, n), Z: randomTensor(t, b, rng, rows, values*c.valueDim),
			B: randomTensor(t, b, rng, rows, values), A: randomTensor(t, b, rng, rows, values),
		}
		dst := randomTensor(t, b, rng, rows, values*c.valueDim)
		b.DeltaNet(dst, d, backend.Place{}, in, []backend.Seq{{N: rows, Drafts: call[1], Accepted: accepted, Delta: []backend.Recurrent{mem}}})
		accepted = call[2]
		all = append(all, bits(t, dst))
	}
	for _, x := range []backend.Tensor{mem.State, mem.Tail, mem.Keys, mem.Deltas, mem.Decays} {
		all = append(all, bits(t, x))
	}
	return all
}

func TestDeltaNetSameEverywhere(t *testing.T) {
	list := everyBackend(t)
	for _, c := range []deltaCase{
		{2, 2, 32, 64, 4, false, [][3]int{{5, 0, 0}, {1, 0, 0}, {4, 3, 2}, {4, 3, 0}, {3, 2, 2}, {2, 2, 1}, {1, 0, 0}}},
		{3, 1, 20, 48, 3, true, [][3]int{{2, 1, 1}, {7, 2, 1}, {1, 0, 0}}},
		{1, 3, 7, 24, 2, false, [][3]int{{9, 4, 4}, {1, 1, 1}, {2, 0, 0}}},
		{2, 1, 16, 32, 4, false, [][3]int{{130, 2, 2}, {66, 5, 3}, {64, 0, 0}}},
	} {
		sameEverywhere(t, fmt.Sprintf("%+v", c), list, func(b *Backend) [][]float32 { return c.run(t, b) })
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

// run returns the block's answer, after holding it against one computed expert by expert.
func (c *expertsCase) run(t *testing.T, b *Backend, stacks [8][]dtype.Matrix) [][]float32 {
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
	b.Experts(dst, x, e)
	got := [][]float32{bits(t, dst)}
	if b.pool.size() > 1 {
		return got // joins take long on a machine that has other things to do
	}
	for r := range c.rows {
		expertsByHand(t, b, byHand[r*expertWidth:][:expertWidth], x.RowRange(r, r+1), e)
	}
	sameLists(t, fmt.Sprintf("%+v by hand", *c), got, [][]float32{byHand})
	return got
}

func TestExpertsSameEverywhere(t *testing.T) {
	list := everyBackend(t)
	for _, c := range []expertsCase{
		{1, 4, 64, true}, {2, 8, 32, false}, {5, 4, 64, true}, {20, 4, 32, false}, {1, 0, 0, true}, {9, 0, 0, false},
	} {
		stacks := c.weights(t)
		sameEverywhere(t, fmt.Sprintf("%+v", c), list, func(b *Backend) [][]float32 { return c.run(t, b, stacks) })
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

func TestRowwiseSameEverywhere(t *testing.T) {
	list := everyBackend(t)
	for _, shape := range [][2]int{{1, 5000}, {3, 1000}, {17, 130}, {40, 33}} {
		sameEverywhere(t, fmt.Sprint(shape), list, func(b *Backend) [][]float32 {
			rng := rand.New(rand.NewPCG(8, 8))
			x, y := randomTensor(t, b, rng, shape[0], shape[1]), randomTensor(t, b, rng, shape[0], shape[1])
			gain := randomTensor(t, b, rng, 1, shape[1])
			normed := randomTensor(t, b, rng, shape[0], shape[1])
			b.RMSNorm(normed, x, gain, 1e-6)
			b.SwiGLU(x, x, y)
			return [][]float32{bits(t, normed), bits(t, x)}
		})
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
		"Attend":   attention(t, b, dtype.F16, rows, 500),
		"Attend 8": attention(t, b, dtype.I8, rows, 500),
		"DeltaNet": deltaNet(t, b, rows, 2, 2),
		"Experts":  func() { b.Experts(y, x, e) },
		"RMSNorm":  func() { b.RMSNorm(y, x, gain, 1e-6) },
		"SwiGLU":   func() { b.SwiGLU(y, x, y) },
		"Embed":    func() { b.Embed(y, table, ids) },
	} {
		run()
		// The mean is rounded down: what the runtime needs now and then to wake a thread does not count.
		if n := testing.AllocsPerRun(50, run); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
