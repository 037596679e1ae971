package cuda

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
	"github.com/foretoken/foretoken/internal/dtype"
)

// TestSymmetricEqualCPU multiplies with blocks whose codes lie signed, in pairs of groups: every number of rows around
// the sizes of strips, columns that are no whole chunk and no whole pair, outputs that are no whole tile, more tiles
// than teams.
func TestSymmetricEqualCPU(t *testing.T) {
	b, oracle := open(t, Options{}), backendtest.Open(t, backend.Options{Threads: 1})
	rng := rand.New(rand.NewPCG(1, 2))
	for _, f := range []dtype.Format{dtype.Q4_0, dtype.Q8_0, dtype.Q5_0} {
		for _, rows := range []int{1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33, 130} {
			if f == dtype.Q5_0 && rows > 1 && rows != 9 {
				continue
			}
			outs, groups := 40, 10
			switch {
			case rows < 3:
				outs, groups = 16*70, 18
			case rows < 6: // as many chunks as a team has warps, and one more
				groups = 72
			case rows == 7: // slower, and right
				groups = 9
			}
			m := randomBlocks(t, rng, f, outs, 32*groups)
			sameProduct(t, b, oracle, m, rows, productOf(rows))
		}
	}
}

// Symmetric codes lie in the memory of the file, of 5 bits in that of 8.
func TestSymmetricTakesWhatTheFileHas(t *testing.T) {
	b := open(t, Options{})
	for f, bits := range map[dtype.Format]float64{dtype.Q4_0: 4.5, dtype.Q5_0: 8.5, dtype.Q8_0: 8.5} {
		w, err := b.Load(backend.Int8, randomBlocks(t, rand.New(rand.NewPCG(1, 2)), f, 32, 256))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := w.(*weight).Bytes(), int64(32*256*bits/8); got != want {
			t.Errorf("%v: %d bytes, want %d", f, got, want)
		}
	}
}

// A product of one row with symmetric codes norms, rounds and gates like one with others, and leaves rows rounded for
// what is like it only.
func TestSymmetricProductsOfOneRowNormAndGate(t *testing.T) {
	for _, c := range []struct {
		cols, wide, outs int
		format, last     dtype.Format // last: of the last product
		launches         map[string]int
	}{
		{4288, 192, 40, dtype.Q4_0, dtype.Q4_0, map[string]int{"quantize": 1}},               // chunks that are not whole, tiles that end with other warps
		{4096, 128, 320, dtype.Q4_0, dtype.Q8_0, map[string]int{"swiglu": 1, "quantize": 1}}, // whose kernels take nothing over
		{6144, 64, 16, dtype.Q4_0, dtype.Q4_0, map[string]int{"quantize": 1}},
		{4096, 128, 40, dtype.Q4_0, dtype.Affine, map[string]int{"swiglu": 1, "quantize": 1}}, // rounded in groups of 64
		{4288, 192, 40, dtype.NVFP4, dtype.NVFP4, map[string]int{"quantize": 1}},
		{6144, 64, 16, dtype.NVFP4, dtype.NVFP4, map[string]int{"quantize": 1}},
		{4096, 128, 40, dtype.MXFP4, dtype.MXFP4, map[string]int{"quantize": 1}},
		{4096, 128, 40, dtype.IQ4NL, dtype.IQ4NL, map[string]int{"quantize": 1}},
		{4288, 192, 40, dtype.ZeroPoint, dtype.ZeroPoint, map[string]int{"quantize": 1}}, // rounded with whole sums
		{4096, 128, 40, dtype.ZeroPoint, dtype.Affine, map[string]int{"swiglu": 1, "quantize": 1}},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			b := open(t, Options{})
			var last *bench
			alike(t, b, func(x *bench) [][]float32 {
				last = x
				in, gain, h := x.random(1, c.cols, 3), x.random(1, c.cols, 1), x.random(1, c.cols, 1)
				gate, up, y, z := x.random(1, c.wide, 1), x.random(1, c.wide, 1), x.random(1, c.outs, 1), x.random(1, 24, 1)
				first, second, other := x.loadAs(c.format, 1, c.wide, c.cols), x.loadAs(c.format, 1, c.wide, c.cols), x.loadAs(c.format, 1, 24, c.cols)
				third := x.loadAs(c.last, 1, c.outs, c.wide)
				x.pass(backend.Pass{Batch: []backend.Seq{{N: 1}}}, true, func() {
					x.b.RMSNorm(h, in, gain, 1e-6)
					x.b.MatMul(h, backend.Product{Dst: gate, W: first}, backend.Product{Dst: up, W: second})
					x.b.GLU(gate, gate, up, backend.SiLU)
					x.b.MatMul(gate, backend.Product{Dst: y, W: third, Add: true})
					x.b.MatMul(h, backend.Product{Dst: z, W: other})
				})
				return [][]float32{x.read(h), x.read(gate), x.read(up), x.read(y), x.read(z)}
			})
			c.launches["product"] = 3
			if !maps.Equal(last.launches, c.launches) {
				t.Errorf("launches %v, want %v", last.launches, c.launches)
			}
		})
	}
}

// Experts of one row are two kernels, if all of their matrices are symmetric; otherwise more.
func TestSymmetricExpertsOfOneRow(t *testing.T) {
	for _, c := range []struct {
		cols, wide, n, choices int
		shared                 bool
		format, down           dtype.Format
		launches               map[string]int
	}{
		{2048, 64, 9, 8, true, dtype.Q4_0, dtype.Q4_0, map[string]int{"product": 3}},
		{1600, 576, 3, 2, false, dtype.Q4_0, dtype.Q4_0, map[string]int{"product": 3}},
		{1600, 576, 3, 2, true, dtype.NVFP4, dtype.NVFP4, map[string]int{"product": 3}},
		{1600, 64, 3, 2, true, dtype.MXFP4, dtype.MXFP4, map[string]int{"product": 3}},
		{1600, 64, 3, 2, false, dtype.IQ4NL, dtype.IQ4NL, map[string]int{"product": 3}},
		{1600, 64, 3, 2, true, dtype.Q4_0, dtype.Q8_0, map[string]int{"product": 3, "choose_one": 1, "swiglu": 1, "combine": 1}},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			b := open(t, Options{})
			var last *bench
			alike(t, b, func(x *bench) [][]float32 {
				last = x
				e := &backend.Experts{
					Router: x.loadAs(c.format, 1, c.n, c.cols), Gate: x.loadAs(c.format, c.n, c.wide, c.cols), Up: x.loadAs(c.format, c.n, c.wide, c.cols), Down: x.loadAs(c.down, c.n, c.cols, c.wide),
					TopK: c.choices, Normalize: true,
				}
				if c.shared {
					e.SharedGate, e.SharedUp, e.SharedDown = x.loadAs(c.format, 1, c.wide, c.cols), x.loadAs(c.format, 1, c.wide, c.cols), x.loadAs(c.down, 1, c.cols, c.wide)
				}
				in, gain, h, dst := x.random(1, c.cols, 1), x.random(1, c.cols, 1), x.alloc(dtype.F32, 1, c.cols), x.random(1, c.cols, 1)
				x.pass(backend.Pass{Batch: []backend.Seq{{N: 1}}}, true, func() {
					x.b.RMSNorm(h, in, gain, 1e-6)
					x.b.Experts(dst, h, backend.Tensor{}, e)
				})
				return [][]float32{x.read(dst), x.read(h)}
			})
			if !maps.Equal(last.launches, c.launches) {
				t.Errorf("launches %v, want %v", last.launches, c.launches)
			}
		})
	}
}

// Where there are many rows and enough outputs to fill the device, a block has twice as many rows.
func TestTallBlocksEqualCPU(t *testing.T) {
	b, oracle := open(t, Options{}), backendtest.Open(t, backend.Options{Threads: 1})
	rng := rand.New(rand.NewPCG(1, 2))
	for key, forms := range tensors {
		if !forms.tall {
			continue
		}
		const rows = 4*manyRows - 9
		block := key.group*2*key.bits + 64
		name := fmt.Sprintf("%s.many_%d_%d_8", forms.module, key.bits, key.group)
		row := key.group + 8
		if key.scales == dtype.F8E4M3 {
			row = halvedBlock / strip
		}
		blocks := b.occupancy(name, 64, manyStages*(manyOutputs*block+2*manyRows*row))
		outs := (blocks+1)/2*manyOutputs*16 - 20
		m := randomMatrix(t, rng, outs, 5*64, key.bits, key.group, dtype.BF16)
		switch {
		case key.zeros:
			m = randomPoints(t, rng, outs, 5*64, key.bits, key.group, dtype.F16, true)
		case key.kind == kernel.Halves:
			m = randomBlocks(t, rng, map[dtype.Type]dtype.Format{dtype.BF16: dtype.MXFP4, dtype.F8E4M3: dtype.NVFP4}[key.scales], outs, 5*64)
		case key.kind == kernel.Leveled:
			m = randomBlocks(t, rng, dtype.IQ4NL, outs, 5*64)
		case key.scales == dtype.F16:
			m = randomBlocks(t, rng, map[int]dtype.Format{4: dtype.Q4_0, 8: dtype.Q8_0}[key.bits], outs, 5*64)
		}
		sameProduct(t, b, oracle, m, rows, backend.Product{})
	}
}
