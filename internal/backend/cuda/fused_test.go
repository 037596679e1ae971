package cuda

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// load is a random matrix on the device.
func (x *bench) load(rows, cols, bits, group int) backend.Weight {
	x.tb.Helper()
	return x.stack(1, rows, cols, bits, group)
}

func (x *bench) stack(n, rows, cols, bits, group int) backend.Weight {
	x.tb.Helper()
	var list []dtype.Matrix
	for range n {
		list = append(list, randomMatrix(x.tb, x.rng, rows, cols, bits, group, dtype.BF16))
	}
	w, err := x.b.Load(backend.Int8, list...)
	if err != nil {
		x.tb.Fatal(err)
	}
	return w
}

// pass runs operations as a pass, twice: the second time what was recorded.
func (x *bench) pass(p backend.Pass, again bool, queue func()) {
	x.tb.Helper()
	p.Of = x
	x.b.Pass(p, queue)
	if again {
		x.b.Pass(p, queue)
	}
	b, ok := x.b.(*Backend)
	if !ok {
		return
	}
	x.launches = map[string]int{}
	for _, r := range b.passes.Known {
		for _, op := range r.ops {
			name := op.launch.Function.Name()
			switch kind, _, _ := strings.Cut(name, "_"); kind {
			case "relay", "few", "panel", "row", "gated", "answer":
				x.launches["product"]++
			default:
				x.launches[name]++
			}
		}
	}
}

// Products of the same rows are one launch if they lie alike, have at most maxRelay rows, and do not add to
// the same memory: with biases, sums, widths that are no whole tiles, and more of them than fit in one. They are two launches if they
// are multiplied in halves.
func TestProductsOfOneInputAreOneLaunch(t *testing.T) {
	for _, rows := range []int{1, 5, 20, 50} {
		b := open(t, Options{})
		var last *bench
		alike(t, b, func(x *bench) (results [][]float32) {
			last = x
			const cols = 192
			in, sum := x.random(rows, cols, 1), x.random(rows, 24, 1)
			var list []backend.Product
			for i, outs := range []int{40, 1, 16, 33, 8, 64, 5, 17, 9} { // one more than a launch has
				p := backend.Product{Dst: x.random(rows, outs, 1), W: x.load(outs, cols, 4, 64), Add: i%2 == 1}
				if i%3 == 0 {
					p.Bias = x.random(1, outs, 1)
				}
				list = append(list, p)
			}
			for range 2 { // the same memory
				list = append(list, backend.Product{Dst: sum, W: x.load(24, cols, 4, 64), Add: true})
			}
			list = append(list, backend.Product{Dst: x.random(rows, 24, 1), W: x.load(24, cols, 8, 64)})
			x.pass(backend.Pass{Batch: []backend.Seq{{N: rows}}}, false, func() { x.b.MatMul(in, list...) })
			for i := range list {
				results = append(results, x.read(list[i].Dst))
			}
			return results
		})
		// Eight, one with a sum, the other sum, and the one of 8 bits.
		want := 4
		if rows > maxRelay {
			want = 6 // and one of 8 bits, which is not in halves
		}
		if n := last.launches["product"]; n != want {
			t.Errorf("%d rows: %d launches", rows, n)
		}
	}
}

// A product of one row norms and rounds it, and two matrices with a gate compute it: what a dense layer has
// of kernels is its products. Everything that was computed is left where it belongs, whatever the widths are.
func TestProductsOfOneRowNormAndGate(t *testing.T) {
	for _, c := range []struct {
		cols, wide, outs, rows int
		add, inPlace           bool // the last product, which follows SiLU or else GELU; the norm
		launches               map[string]int
	}{
		{4288, 192, 40, 1, true, false, map[string]int{}}, // chunks that are not whole, tiles that end with other warps
		{4096, 128, 320, 1, false, false, map[string]int{}},
		{4096, 64, 40, 1, true, true, map[string]int{"rms_norm": 1}},
		{2048, 64, 40, 1, true, false, map[string]int{"rms_norm": 1, "swiglu": 1}}, // too narrow a row for as many
		{6144, 64, 16, 1, true, false, map[string]int{}},
		{6208, 64, 16, 1, true, false, map[string]int{"rms_norm": 1, "swiglu": 1}}, // too wide
		{4096, 64, 40, 2, true, false, map[string]int{"rms_norm": 1, "swiglu": 1}},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			b := open(t, Options{})
			if c.cols < wideRow { // products that fill the device, or they norm all the same
				c.wide = (b.info.Multiprocessors + 3) / 4 * 64
			}
			var last *bench
			alike(t, b, func(x *bench) [][]float32 {
				last = x
				in, gain, h := x.random(c.rows, c.cols, 3), x.random(1, c.cols, 1), x.random(c.rows, c.cols, 1)
				if c.inPlace {
					h = in
				}
				gate, up, y, z := x.random(c.rows, c.wide, 1), x.random(c.rows, c.wide, 1), x.random(c.rows, c.outs, 1), x.random(c.rows, 24, 1)
				first, second, third, other := x.load(c.wide, c.cols, 4, 64), x.load(c.wide, c.cols, 4, 64), x.load(c.outs, c.wide, 4, 64), x.load(24, c.cols, 4, 64)
				x.pass(backend.Pass{Batch: []backend.Seq{{N: c.rows}}}, true, func() {
					x.b.RMSNorm(h, in, gain, 1e-6)
					x.b.MatMul(h, backend.Product{Dst: gate, W: first}, backend.Product{Dst: up, W: second})
					x.b.GLU(gate, gate, up, map[bool]backend.Activation{true: backend.SiLU, false: backend.GELUTanh}[c.add])
					x.b.MatMul(gate, backend.Product{Dst: y, W: third, Add: c.add})
					x.b.MatMul(h, backend.Product{Dst: z, W: other})
				})
				return [][]float32{x.read(h), x.read(gate), x.read(up), x.read(y), x.read(z)}
			})
			c.launches["product"], c.launches["quantize"] = 3, 1 // one for the other product
			if !maps.Equal(last.launches, c.launches) {
				t.Errorf("launches %v, want %v", last.launches, c.launches)
			}
		})
	}
}

// Of many rows a warp gates several groups at a time, where a row is a whole number of those.
func TestGatesOfManyRowsAreRounded(t *testing.T) {
	for _, c := range []struct{ cols, group int }{{384, 32}, {256, 64}, {384, 128}, {192, 64}} {
		b := open(t, Options{})
		var last *bench
		alike(t, b, func(x *bench) [][]float32 {
			last = x
			gate, up, y, w := x.random(9, c.cols, 3), x.random(9, c.cols, 1), x.random(9, 20, 1), x.load(20, c.cols, 4, c.group)
			x.pass(backend.Pass{Batch: []backend.Seq{{N: 9}}}, true, func() {
				x.b.GLU(gate, gate, up, backend.SiLU)
				x.b.MatMul(gate, backend.Product{Dst: y, W: w})
			})
			return [][]float32{x.read(gate), x.read(y)}
		})
		if n := last.launches["quantize"]; n != 0 {
			t.Errorf("%+v: %d launches more than there must be", c, n)
		}
	}
}

// Of many rows a warp norms and gates eight groups of 16 at a time, and fewer at the end of a row that is no whole number of those.
func TestGroupsOf16OfManyRowsAreRounded(t *testing.T) {
	for _, cols := range []int{256, 320} {
		b := open(t, Options{})
		var last *bench
		alike(t, b, func(x *bench) [][]float32 {
			last = x
			w, err := x.b.Load(backend.Int8, randomBlocks(t, x.rng, dtype.NVFP4, 20, cols))
			if err != nil {
				t.Fatal(err)
			}
			const rows = 49
			gain, in, gate, up := x.random(1, cols, 1), x.random(rows, cols, 3), x.random(rows, cols, 3), x.random(rows, cols, 1)
			dst, y, z := x.random(rows, cols, 1), x.random(rows, 20, 1), x.random(rows, 20, 1)
			x.pass(backend.Pass{Batch: []backend.Seq{{N: rows}}}, true, func() {
				x.b.RMSNorm(dst, in, gain, 1e-6)
				x.b.MatMul(dst, backend.Product{Dst: y, W: w})
				x.b.GLU(gate, gate, up, backend.SiLU)
				x.b.MatMul(gate, backend.Product{Dst: z, W: w})
			})
			return [][]float32{x.read(dst), x.read(y), x.read(gate), x.read(z)}
		})
		if n := last.launches["quantize"]; n != 0 {
			t.Errorf("%d columns: %d launches more than there must be", cols, n)
		}
	}
}

// What DeltaNet, attention and chosen rows leave for a product is rounded by their last kernel, in groups
// of every size that it has together, attention that takes its pages one after another included.
func TestAnswersAreRoundedForProducts(t *testing.T) {
	for _, group := range []int{32, 64, 128} {
		b := open(t, Options{})
		var last *bench
		alike(t, b, func(x *bench) [][]float32 {
			last = x
			d := &backend.DeltaNet{KeyHeads: 1, ValueHeads: 3, KeyDim: 8, ValueDim: 128, Kernel: 2, Eps: 1e-6}
			values := d.ValueHeads * d.ValueDim
			d.Conv, d.Norm = x.random(2, d.Channels(), 1), x.random(1, d.ValueDim, 1)
			d.DecayRate, d.DecayBias = x.random(1, d.ValueHeads, -0.1), x.random(1, d.ValueHeads, 1)
			s := backend.Seq{N: 2, Drafts: 1, Delta: []backend.Recurrent{{
				State: x.random(d.ValueHeads*d.KeyDim, d.ValueDim, 0.1), Tail: x.random(3, d.Channels(), 1),
				Keys: x.random(1, d.KeyDim, 1), Deltas: x.random(1, values, 1), Decays: x.random(1, d.ValueHeads, 1),
			}}}
			in := backend.DeltaInput{QKV: x.random(2, d.Channels(), 1), Z: x.random(2, values, 1), B: x.random(2, d.ValueHeads, 1), A: x.random(2, d.ValueHeads, 1)}
			dst, y, w := x.alloc(dtype.F32, 2, values), x.random(2, 20, 1), x.load(20, values, 4, group)
			last, z := x.alloc(dtype.F32, 1, values), x.random(1, 20, 1)
			conv, mixed := &backend.Convolution{Base: x.random(2, values, 1), Delta: x.random(2, 48, 1)}, x.alloc(dtype.F32, 2, values)
			p := backend.Pass{Batch: []backend.Seq{s}, Want: []int32{1}}
			x.pass(p, false, func() {
				x.b.DeltaNet(dst, d, backend.Place{}, in, p.Batch)
				x.b.MatMul(dst, backend.Product{Dst: y, W: w, Add: true})
				x.b.Gather(last, dst, p.Want)
				x.b.MatMul(last, backend.Product{Dst: z, W: w})
				x.b.Convolve(mixed, dst, conv, p.Batch)
				x.b.MatMul(mixed, backend.Product{Dst: y, W: w, Add: true})
			})
			return [][]float32{x.read(dst), x.read(y), x.read(last), x.read(z), x.read(mixed)}
		})
		if n := last.launches["quantize"]; n != 0 {
			t.Errorf("groups of %d: %d launches more than there must be", group, n)
		}
	}
	for _, c := range []struct {
		kind             dtype.Type
		room, group, all int
	}{{dtype.F16, 1 << 20, 64, 0}, {dtype.I8, 1 << 20, 32, 0}, {dtype.F16, 1, 64, 0}, {dtype.F32, 1 << 20, 128, 1}} {
		b := open(t, Options{})
		b.attention.splitBytes = c.room
		var last *bench
		alike(t, b, func(x *bench) [][]float32 {
			last = x
			a := &backend.Attention{Heads: 4, KVHeads: 2, HeadDim: 64, Gate: true, Eps: 1e-6, Freqs: []float32{1, 0.3}}
			a.QNorm, a.KNorm = x.random(1, a.HeadDim, 1), x.random(1, a.HeadDim, 1)
			s := backend.Seq{N: 3, Pos: 64, Pages: []backend.Tensor{x.alloc(dtype.I8, 1, a.PageBytes(c.kind)), x.alloc(dtype.I8, 1, a.PageBytes(c.kind))}}
			q, k, v := x.random(3, a.Queries(), 1), x.random(3, 128, 1), x.random(3, 128, 1)
			dst, y, w := x.random(3, 256, 1), x.random(3, 20, 1), x.load(20, 256, 4, c.group)
			p := backend.Pass{Batch: []backend.Seq{s}}
			x.pass(p, true, func() {
				x.b.Attend(dst, a, backend.Place{Type: c.kind}, q, k, v, p.Batch)
				x.b.MatMul(dst, backend.Product{Dst: y, W: w})
			})
			return [][]float32{x.read(dst), x.read(y)}
		})
		if n := last.launches["quantize"]; n != c.all {
			t.Errorf("%v, groups of %d: %d launches of quantize, want %d", c.kind, c.group, n, c.all)
		}
	}
}

// The experts of one row are two kernels, which both choose them, if the choice is a usual one. Their router may read another row.
// Of one chunk and several, of whole chunks and not, with more experts than warps, and with every kind of shared expert.
func TestExpertsOfOneRowAreTwoKernels(t *testing.T) {
	for _, c := range []struct {
		cols, wide, n, choices  int
		shared, router, sigmoid bool
	}{{2048, 64, 9, 8, true, true, false}, {1600, 576, 2, 1, true, false, true}, {1600, 64, 18, 17, false, false, false}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			b := open(t, Options{})
			var last *bench
			alike(t, b, func(x *bench) [][]float32 {
				last = x
				e := &backend.Experts{
					Router: x.load(c.n, c.cols, 4, 64), Gate: x.stack(c.n, c.wide, c.cols, 4, 64), Up: x.stack(c.n, c.wide, c.cols, 4, 64), Down: x.stack(c.n, c.cols, c.wide, 4, 64),
					TopK: c.choices, Normalize: true, Sigmoid: c.sigmoid, Activation: map[bool]backend.Activation{false: backend.SiLU, true: backend.GELUTanh}[c.sigmoid],
				}
				if c.shared {
					e.SharedGate, e.SharedUp, e.SharedDown = x.load(c.wide, c.cols, 4, 64), x.load(c.wide, c.cols, 4, 64), x.load(c.cols, c.wide, 4, 64)
				}
				if c.router {
					e.SharedRouter = x.load(1, c.cols, 4, 64)
				}
				in, gain, h, dst := x.random(1, c.cols, 1), x.random(1, c.cols, 1), x.alloc(dtype.F32, 1, c.cols), x.random(1, c.cols, 1)
				routed, other := x.alloc(dtype.F32, 1, c.cols), x.random(1, c.cols, 1)
				x.pass(backend.Pass{Batch: []backend.Seq{{N: 1}}}, true, func() {
					if c.shared {
						x.b.RMSNorm(h, in, gain, 1e-6)
						x.b.Experts(dst, h, backend.Tensor{}, e)
						return
					}
					x.b.RMSNorm(routed, in, other, 1e-6)
					x.b.RMSNorm(h, in, gain, 1e-6)
					x.b.Experts(dst, h, routed, e)
				})
				return [][]float32{x.read(dst), x.read(h), x.read(routed)}
			})
			want := map[string]int{"product": 3}
			if !c.shared { // both norms are rounded by their kernels
				want["rms_norm"] = 2
			}
			if c.sigmoid {
				want["choose_one"] = 1
			}
			if !maps.Equal(last.launches, want) {
				t.Errorf("launches %v", last.launches)
			}
		})
	}
}

// One row and several choose the same of hundreds of experts, of which many are alike, and of few where a logit is not a
// number.
func TestExpertsAreRankedLikeTheCPU(t *testing.T) {
	for _, c := range []struct{ n, rows, alike, odd int }{{510, 1, 3, 0}, {510, 3, 3, 0}, {200, 1, 2, 0}, {200, 1, 1, 9}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			alike(t, open(t, Options{}), func(x *bench) [][]float32 {
				const cols, wide = 1600, 64
				router := randomMatrix(t, x.rng, c.n/c.alike, cols, 0, 0, dtype.F32)
				router.Data, router.Rows = bytes.Repeat(router.Data, c.alike), c.n
				if c.odd > 0 {
					copy(router.Data[c.odd*router.RowBytes():], []byte{0, 0, 0xc0, 0x7f})
				}
				stack := func(rows, cols int) backend.Weight {
					few := []dtype.Matrix{randomMatrix(t, x.rng, rows, cols, 4, 64, dtype.BF16), randomMatrix(t, x.rng, rows, cols, 4, 64, dtype.BF16)}
					w, err := x.b.Load(backend.Int8, slices.Repeat(few, c.n/2)...)
					if err != nil {
						t.Fatal(err)
					}
					return w
				}
				w, err := x.b.Load(backend.Int8, router)
				if err != nil {
					t.Fatal(err)
				}
				e := &backend.Experts{Router: w, Gate: stack(wide, cols), Up: stack(wide, cols), Down: stack(cols, wide), TopK: 5, Scale: 1.5}
				in, dst := x.random(c.rows, cols, 1), x.random(c.rows, cols, 1)
				x.b.Experts(dst, in, backend.Tensor{}, e)
				return [][]float32{x.read(dst)}
			})
		})
	}
}

// A shared expert that is like the others is one of their jobs; one that is not is computed apart. One row
// needs no slots to be brought to.
func TestExpertsShareLaunches(t *testing.T) {
	for _, c := range []struct{ rows, width, bits, products, quantize int }{
		{1, 64, 4, 3, 0}, {3, 64, 4, 3, 1}, {20, 64, 4, 3, 1}, {1, 128, 4, 4, 0}, {3, 128, 4, 4, 1}, {1, 64, 8, 5, 0},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			b := open(t, Options{})
			var last *bench
			alike(t, b, func(x *bench) [][]float32 {
				last = x
				const cols, wide, n = 128, 64, 6
				e := &backend.Experts{
					Router: x.load(n, cols, 4, 64), Gate: x.stack(n, wide, cols, 4, 64), Up: x.stack(n, wide, cols, 4, 64), Down: x.stack(n, cols, wide, 4, 64),
					TopK: 2, Normalize: true, SharedRouter: x.load(1, cols, 4, 64),
					SharedGate: x.load(c.width, cols, c.bits, 64), SharedUp: x.load(c.width, cols, c.bits, 64), SharedDown: x.load(cols, c.width, c.bits, 64),
				}
				in, gain, h, dst := x.random(c.rows, cols, 1), x.random(1, cols, 1), x.alloc(dtype.F32, c.rows, cols), x.random(c.rows, cols, 1)
				x.pass(backend.Pass{Batch: []backend.Seq{{N: c.rows}}}, false, func() {
					x.b.RMSNorm(h, in, gain, 1e-6)
					x.b.Experts(dst, h, backend.Tensor{}, e)
				})
				return [][]float32{x.read(dst)}
			})
			if n, k := last.launches["product"], last.launches["quantize"]; n != c.products || k != c.quantize {
				t.Errorf("%d launches of products, %d of quantize", n, k)
			}
		})
	}
}
