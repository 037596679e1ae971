package cuda

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/dtype"
)

// randomBlocks is a matrix of a block format with random bytes and mild halves.
func randomBlocks(tb testing.TB, rng *rand.Rand, f dtype.Format, rows, cols int) dtype.Matrix {
	tb.Helper()
	if f == dtype.MXFP4 || f == dtype.NVFP4 {
		return randomMicroscaled(tb, rng, f, rows, cols)
	}
	columns, size := f.BlockSize()
	m := dtype.NewBlocks(f, rows, cols)
	m.Data = make([]byte, rows*cols/columns*size)
	for i := range m.Data {
		m.Data[i] = byte(rng.Uint32())
	}
	switch f {
	case dtype.MXFP4Blocks:
		for at := 0; at < len(m.Data); at += size {
			m.Data[at] = byte(110 + rng.IntN(30))
		}
	case dtype.NVFP4Blocks:
		m.Global = 0.3
	}
	for at := 0; at < len(m.Data); at += size {
		f.PutHalves(m.Data[at:], func() uint16 { return dtype.ToF16(float32(rng.NormFloat64())) })
	}
	if err := m.Validate(); err != nil {
		tb.Fatal(err)
	}
	return m
}

var superFormats = []dtype.Format{dtype.Q4K, dtype.Q5K, dtype.Q6K, dtype.IQ4XS, dtype.Q2K, dtype.Q3K, dtype.TQ2, dtype.IQ1M, dtype.IQ3S, dtype.IQ2XS}

// TestBlocksEqualCPU multiplies with GGUF's blocks: rows around the sizes of strips, widths that are no whole
// tile, an odd number of superblocks.
func TestBlocksEqualCPU(t *testing.T) {
	b, oracle := open(t, Options{}), backendtest.Open(t, backend.Options{Threads: 1})
	rng := rand.New(rand.NewPCG(1, 2))
	for _, f := range []dtype.Format{dtype.Q4_0, dtype.Q5_0, dtype.Q8_0, dtype.Q4_1, dtype.IQ4NL} {
		for _, rows := range []int{1, 9, 40} {
			sameProduct(t, b, oracle, randomBlocks(t, rng, f, 40, 32*5), rows, backend.Product{Add: rows == 9})
		}
	}
	for _, f := range superFormats {
		for _, rows := range []int{1, 2, 4, 5, 8, 9, 17, 20, 33, 70} {
			outs, cols := 40, 256*3
			if rows < 3 {
				outs, cols = 16*70, 256*9
			}
			p := backend.Product{Add: rows%2 == 0}
			if rows == 4 || rows == 20 {
				p.Only = []int32{0, 2}
			}
			sameProduct(t, b, oracle, randomBlocks(t, rng, f, outs, cols), rows, p)
		}
	}
}

// TestEmbedOfBlocks reads rows of weights that lie for products.
func TestEmbedOfBlocks(t *testing.T) {
	for _, f := range slices.Concat(superFormats, []dtype.Format{dtype.Q4_0, dtype.Q5_0, dtype.Q8_0}, tableFormats) {
		alike(t, open(t, Options{}), func(x *bench) [][]float32 {
			y := x.random(4, 256*3, 1)
			x.b.Embed(y, x.loadAs(f, 1, 40, 256*3), []int32{0, 13, 39, 22}, 0)
			return [][]float32{x.read(y)}
		})
	}
}

// TestAnswersAreRoundedForSuperblocks has norms, gates, convolutions and chosen rows round for products with superblocks. Only what
// DeltaNet leaves, heads of half a superblock, is rounded by a kernel of its own.
func TestAnswersAreRoundedForSuperblocks(t *testing.T) {
	for _, rows := range []int{1, 2, 12} {
		b := open(t, Options{})
		var last *bench
		alike(t, b, func(x *bench) [][]float32 {
			last = x
			d := &backend.DeltaNet{KeyHeads: 1, ValueHeads: 4, KeyDim: 8, ValueDim: 128, Kernel: 2, Eps: 1e-6}
			if rows == 2 {
				d.KeyDim = 128
			}
			values := d.ValueHeads * d.ValueDim
			d.Conv, d.Norm = x.random(2, d.Channels(), 1), x.random(1, d.ValueDim, 1)
			d.DecayRate, d.DecayBias = x.random(1, d.ValueHeads, -0.1), x.random(1, d.ValueHeads, 1)
			s := backend.Seq{N: rows, Delta: []backend.Recurrent{{
				State: x.random(d.ValueHeads*d.KeyDim, d.ValueDim, 0.1), Tail: x.random(3, d.Channels(), 1),
				Keys: x.random(1, d.KeyDim, 1), Deltas: x.random(1, values, 1), Decays: x.random(1, d.ValueHeads, 1),
			}}}
			in := backend.DeltaInput{QKV: x.random(rows, d.Channels(), 1), Z: x.random(rows, values, 1), B: x.random(rows, d.ValueHeads, 1), A: x.random(rows, d.ValueHeads, 1)}
			dst, h, gain := x.alloc(dtype.F32, rows, values), x.alloc(dtype.F32, rows, 256), x.random(1, 256, 1)
			normed, up, chosen, y := x.alloc(dtype.F32, rows, 256), x.random(rows, 256, 1), x.alloc(dtype.F32, 1, 256), x.random(1, 40, 1)
			first, second, third, fourth := x.loadAs(dtype.Q4K, 1, 256, values), x.loadAs(dtype.Q5K, 1, 256, 256), x.loadAs(dtype.Q6K, 1, 256, 256), x.loadAs(dtype.IQ4XS, 1, 40, 256)
			conv, mixed := &backend.Convolution{Base: x.random(2, 256, 1), Delta: x.random(rows, 32, 1)}, x.alloc(dtype.F32, rows, 256)
			p := backend.Pass{Batch: []backend.Seq{s}, Want: []int32{int32(rows - 1)}}
			x.pass(p, false, func() {
				x.b.DeltaNet(dst, d, backend.Place{}, in, p.Batch)
				x.b.MatMul(dst, backend.Product{Dst: h, W: first})
				x.b.RMSNorm(normed, h, gain, 1e-6)
				x.b.MatMul(normed, backend.Product{Dst: h, W: second})
				x.b.GLU(h, h, up, backend.SiLU)
				x.b.MatMul(h, backend.Product{Dst: up, W: third})
				x.b.Gather(chosen, up, p.Want)
				x.b.MatMul(chosen, backend.Product{Dst: y, W: fourth, Add: true})
				x.b.Convolve(mixed, up, conv, p.Batch)
				x.b.MatMul(mixed, backend.Product{Dst: h, W: second})
			})
			return [][]float32{x.read(dst), x.read(normed), x.read(h), x.read(up), x.read(chosen), x.read(y), x.read(mixed)}
		})
		if n := last.launches["quantize_super"]; n != 1 {
			t.Errorf("%d rows: %d launches of quantize", rows, n)
		}
	}
}

// TestSuperblocksInPasses has what is before products of superblocks round for them or not, and products of other
// formats beside them, whose rows are rounded otherwise.
func TestSuperblocksInPasses(t *testing.T) {
	for _, rows := range []int{1, 3, 11} {
		b := open(t, Options{})
		alike(t, b, func(x *bench) [][]float32 {
			const cols, wide = 512, 256
			in, gain, h := x.random(rows, cols, 3), x.random(1, cols, 1), x.random(rows, cols, 1)
			gate, up, y, z := x.random(rows, wide, 1), x.random(rows, wide, 1), x.random(rows, 40, 1), x.random(rows, 24, 1)
			last, u, v := x.random(1, cols, 1), x.random(1, 24, 1), x.random(rows, 24, 1)
			first, second, third := x.loadAs(dtype.Q4K, 1, wide, cols), x.loadAs(dtype.Q4K, 1, wide, cols), x.loadAs(dtype.Q6K, 1, 40, wide)
			fives, other, affine := x.loadAs(dtype.Q5K, 1, 24, cols), x.load(24, cols, 4, 128), x.load(24, cols, 4, 64)
			p := backend.Pass{Batch: []backend.Seq{{N: rows}}, Want: []int32{int32(rows - 1)}}
			x.pass(p, true, func() {
				x.b.RMSNorm(h, in, gain, 1e-6)
				x.b.MatMul(h, backend.Product{Dst: gate, W: first}, backend.Product{Dst: up, W: second})
				x.b.GLU(gate, gate, up, backend.SiLU)
				x.b.MatMul(gate, backend.Product{Dst: y, W: third, Add: true})
				x.b.RMSNorm(h, h, gain, 1e-6)
				x.b.MatMul(h, backend.Product{Dst: z, W: other}, backend.Product{Dst: v, W: fives}, backend.Product{Dst: z, W: affine, Add: true})
				x.b.Gather(last, h, p.Want)
				x.b.MatMul(last, backend.Product{Dst: u, W: fives})
			})
			return [][]float32{x.read(h), x.read(gate), x.read(up), x.read(y), x.read(z), x.read(u), x.read(v)}
		})
	}
}

// TestExpertsOfSuperblocks has stacks of them, with shared experts that are alike and others that are not.
func TestExpertsOfSuperblocks(t *testing.T) {
	for _, c := range []struct {
		rows, shared   int
		gate, up, down dtype.Format
	}{{1, 256, dtype.Q4K, dtype.Q4K, dtype.Q6K}, {3, 256, dtype.Q5K, dtype.Q5K, dtype.Q2K}, {20, 512, dtype.Q4K, dtype.Q4K, dtype.IQ3XXS}, {2, 0, dtype.IQ4XS, dtype.Q8_0, dtype.Q4_0}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			alike(t, open(t, Options{}), func(x *bench) [][]float32 {
				const cols, wide, n = 256, 256, 4
				e := &backend.Experts{
					Router: x.load(n, cols, 8, 64), Gate: x.loadAs(c.gate, n, wide, cols), Up: x.loadAs(c.up, n, wide, cols), Down: x.loadAs(c.down, n, cols, wide),
					TopK: 2, Normalize: true,
				}
				if c.shared > 0 {
					e.SharedRouter = x.load(1, cols, 8, 64)
					e.SharedGate, e.SharedUp, e.SharedDown = x.loadAs(c.gate, 1, c.shared, cols), x.loadAs(c.up, 1, c.shared, cols), x.loadAs(c.down, 1, cols, c.shared)
				}
				in, gain, h, dst := x.random(c.rows, cols, 1), x.random(1, cols, 1), x.alloc(dtype.F32, c.rows, cols), x.random(c.rows, cols, 1)
				x.pass(backend.Pass{Batch: []backend.Seq{{N: c.rows}}}, true, func() {
					x.b.RMSNorm(h, in, gain, 1e-6)
					x.b.Experts(dst, h, backend.Tensor{}, e)
				})
				return [][]float32{x.read(dst), x.read(h)}
			})
		})
	}
}

// TestSuperblocksOfOneRowNorm has products of one row norm and round it: of one superblock for a warp and more, and with
// a product of another format behind them, whose rows are rounded alike.
func TestSuperblocksOfOneRowNorm(t *testing.T) {
	for i, cols := range []int{256, 2048, 4352, 6144} {
		for _, f := range superFormats {
			if i > 1 && f == superFormats[i] {
				continue
			}
			b := open(t, Options{})
			var last *bench
			alike(t, b, func(x *bench) [][]float32 {
				last = x
				in, gain, h := x.random(1, cols, 3), x.random(1, cols, 1), x.random(1, cols, 1)
				y, z, u := x.random(1, 40, 1), x.random(1, 24, 1), x.random(1, 24, 1)
				first, second, third := x.loadAs(f, 1, 40, cols), x.loadAs(f, 1, 24, cols), x.loadAs(superFormats[i], 1, 24, cols)
				x.pass(backend.Pass{Batch: []backend.Seq{{N: 1}}}, true, func() {
					x.b.RMSNorm(h, in, gain, 1e-6)
					x.b.MatMul(h, backend.Product{Dst: y, W: first, Add: true}, backend.Product{Dst: z, W: second}, backend.Product{Dst: u, W: third})
				})
				return [][]float32{x.read(h), x.read(y), x.read(z), x.read(u)}
			})
			if cols >= wideRow && last.launches["rms_norm_super"] > 0 || last.launches["quantize_super"] > 0 {
				t.Errorf("%v, %d columns: launches %v", f, cols, last.launches)
			}
		}
	}
}

// TestSuperblocksOfOneRowGate has two matrices of one row gate what they have in common and round it for a third, twice, so
// that what counts the tiles must be zero again.
func TestSuperblocksOfOneRowGate(t *testing.T) {
	for _, c := range []struct {
		cols, wide  int
		f, down     dtype.Format
		add, inside bool
	}{
		{4096, 768, dtype.Q4K, dtype.Q6K, true, true},
		{4352, 256, dtype.Q5K, dtype.Q4K, false, false},
		{512, 512, dtype.Q6K, dtype.IQ4XS, true, true},
	} {
		b := open(t, Options{})
		var last *bench
		alike(t, b, func(x *bench) [][]float32 {
			last = x
			in, gain, h := x.random(1, c.cols, 3), x.random(1, c.cols, 1), x.random(1, c.cols, 1)
			gate, up, y := x.random(1, c.wide, 1), x.random(1, c.wide, 1), x.random(1, 40, 1)
			first, second, third := x.loadAs(c.f, 1, c.wide, c.cols), x.loadAs(c.f, 1, c.wide, c.cols), x.loadAs(c.down, 1, 40, c.wide)
			dst := gate
			if !c.inside {
				dst = x.random(1, c.wide, 1)
			}
			x.pass(backend.Pass{Batch: []backend.Seq{{N: 1}}}, true, func() {
				x.b.RMSNorm(h, in, gain, 1e-6)
				x.b.MatMul(h, backend.Product{Dst: gate, W: first}, backend.Product{Dst: up, W: second})
				x.b.GLU(dst, gate, up, backend.SiLU)
				x.b.MatMul(dst, backend.Product{Dst: y, W: third, Add: c.add})
			})
			return [][]float32{x.read(h), x.read(gate), x.read(up), x.read(dst), x.read(y)}
		})
		if n := last.launches["swiglu_super"] + last.launches["quantize_super"]; n != 0 {
			t.Errorf("%+v: launches %v", c, last.launches)
		}
	}
}
