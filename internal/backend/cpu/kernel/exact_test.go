package kernel

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/exactmath"
)

// bitsOf collects the bits of results.
type bitsOf struct {
	rng  *rand.Rand
	data []byte
}

func (b *bitsOf) add(x ...float32) {
	for _, v := range x {
		if v != v {
			v = float32(math.NaN()) // payloads are the processor's business
		}
		b.data = binary.LittleEndian.AppendUint32(b.data, math.Float32bits(v))
	}
}

func (b *bitsOf) sum() uint64 {
	h := fnv.New64a()
	_, _ = h.Write(b.data) // never fails
	return h.Sum64()
}

// numbers are made of integers: the standard library's random floats go through logarithms
// that differ between processors.
func (b *bitsOf) numbers(n int, scale float32) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(int32(b.rng.Uint32())>>8) * (scale / (1 << 23))
	}
	return x
}

func (b *bitsOf) tensor(rows, cols int) Rows {
	return Rows{Data: b.numbers(rows*cols, 2), N: rows, Cols: cols, Stride: cols}
}

// matrix has random codes, or numbers if it is plain, and mild scales.
func (b *bitsOf) matrix(m dtype.Matrix) dtype.Matrix {
	fill := func(t dtype.Type, n int, scale float32) []byte {
		out := make([]byte, n*t.Size())
		if t.Size() == 1 {
			for i := range out {
				out[i] = byte(118 + b.rng.IntN(8))
			}
			return out
		}
		dtype.FromF32(out, t, b.numbers(n, scale))
		return out
	}
	m.Global = 0.75
	if m.Format == dtype.Plain {
		m.Data = fill(m.Type, m.Rows*m.Cols, 1)
		return m
	}
	m.Data = make([]byte, m.Rows*m.RowBytes())
	for i := range m.Data {
		m.Data[i] = byte(b.rng.Uint32()) & 0x77 // no NaN among E4M3
	}
	m.Scales = fill(m.ScaleType, m.Rows*m.Groups(), 0.1)
	if m.Format == dtype.Affine {
		m.Biases = fill(m.ScaleType, m.Rows*m.Groups(), 0.5)
	}
	return m
}

// TestBitsAreTheSameEverywhere compares every instruction set of every architecture, portable
// Go above all, with recorded bits: it finds a compiler that fuses operations where the source
// does not say so, and any other rounding. A change of a definition records its bits again;
// answers of former versions are not reproduced then.
func TestBitsAreTheSameEverywhere(t *testing.T) {
	for _, set := range runnable() {
		for _, k := range recorded {
			b := &bitsOf{rng: rand.New(rand.NewPCG(41, 1))}
			k.run(t, b, &set)
			if got := b.sum(); got != k.want {
				t.Errorf("isa=%s %s: bits have hash %#016x, want %#016x", set.Name, k.name, got, k.want)
			}
		}
	}
}

// recorded are the operations' bits. Stored results of other bits must not be used, so their
// digest is part of backend.Arithmetic.
var recorded = []struct {
	name string
	run  func(tb testing.TB, b *bitsOf, set *Set)
	want uint64
}{
	{"elementary", elementaryBits, 0xfe20847ef6ce2635},
	{"rows", rowBits, 0xcc021d5076776125},
	{"attention", pageBits, 0x3b6ccc4aee9d7305},
	{"attention of 8 bits", codedPageBits, 0x1cc67a12f91a037f},
	{"delta", deltaBits, 0xbf4daf4ab3dde437},
	{"products", productBits, 0x08a17fe43b2202ea},
	{"blocks", blockBits(blockFormats[:10]), 0xd3bf4b6f37b04a7b},
	{"blocks of GGUF's other kinds", blockBits(blockFormats[10:18]), 0x9fa447b5e35e17f0},
	{"grids", blockBits(gridFormats), 0x5eafb182cc2da372},
	{"tower", towerBits, 0x8efd74b430f74e69},
	{"rotations", inputBits, 0xc1754b15fdb01707},
	{"zero points", pointBits, 0x1f461463a14aff35},
	{"caps", capBits, 0x6b0c2e1b51c7f57e},
	{"convolutions of blocks", tapBits, 0x19dbdc6a5b0c87f0},
	{"pages of 4 bits", packedBits, 0x2f8afd52057eac37},
}

// TestArithmeticNamesItsOperations fails when bits were recorded again and the arithmetic still
// has its former name: caches on disk would serve what former versions computed.
func TestArithmeticNamesItsOperations(t *testing.T) {
	h := fnv.New64a()
	for _, k := range recorded {
		_, _ = fmt.Fprintf(h, "%s %016x\n", k.name, k.want) // never fails
	}
	if got := h.Sum64(); got != backend.OperationBits {
		t.Errorf("the recorded bits are not those of arithmetic %s, so what it is called must change: write ArithmeticVersion = %d and OperationBits = %#016x in internal/backend/arithmetic.go",
			backend.Arithmetic(), backend.ArithmeticVersion+1, got)
	}
}

func elementaryBits(_ testing.TB, b *bitsOf, _ *Set) {
	for _, x := range b.numbers(20_000, 100) {
		sin, cos := exactmath.Sincos32(100 * x)
		b.add(exactmath.Exp32(x), exactmath.Sigmoid32(x), exactmath.SiLU32(x), exactmath.Softplus32(x), sin, cos, exactmath.RSqrt32(exactmath.Abs32(x)))
	}
}

func tapBits(_ testing.TB, b *bitsOf, _ *Set) {
	for _, group := range []int{1, 3, 16} {
		n := 40 * group
		y := b.numbers(n, 2)
		for range 3 {
			AddTap(y[5:], b.numbers(n, 1)[5:], b.numbers(40, 1), b.numbers(n, 2)[5:], 5, group)
		}
		b.add(y...)
	}
}

func capBits(_ testing.TB, b *bitsOf, _ *Set) {
	for _, x := range b.numbers(2000, 200) {
		b.add(exactmath.Cap32(x, 30), exactmath.Cap32(x, 0.7))
	}
}

func rowBits(_ testing.TB, b *bitsOf, set *Set) {
	v := &set.Vector
	for n := 1; n < 300; n += 7 {
		x, y, z := b.numbers(n, 6), b.numbers(n, 3), b.numbers(n, 1)
		b.add(v.Dot(x, y))
		for _, f := range []func(){
			func() { v.Add(z, x) },
			func() { v.AddScaled(z, x, 0.3) },
			func() { v.Norm(z, x, y, 1e-6) },
			func() { v.WideNorm(z, x, y, 1e-6) },
			func() { v.SwiGLU(z, x, y) },
			func() { v.SwiGLU(z, x, z) },
			func() { v.GateSigmoid(z, y, 1.7) },
			func() { v.Decays(z, x, -0.7, 0.2) },
			func() { v.Sigmoids(z, y) },
			func() {
				both := slices.Concat(z, z) // a query and a key
				v.Delta.Keys(both, 0, n, 0.4, make([]float32, 1))
				copy(z, both)
			},
			func() { v.Delta.Convolve(z, 0, n, 1, []Tap{{&x[0], &y[0]}, {&y[0], &y[0]}, {&x[0], &x[0]}}, 0) },
		} {
			f()
			b.add(z...)
		}
		pairs := b.numbers(2*n, 2)
		v.Rotate(pairs, x, y)
		b.add(pairs...)
		top, sum := v.Softmax(x)
		b.add(top, sum)
		b.add(x...)
	}
}

func pageBits(_ testing.TB, b *bitsOf, set *Set) {
	const queries = 3
	for _, d := range []int{16, 64, 256} {
		count := 1 + b.rng.IntN(PageTokens)
		q, keys := b.numbers(queries*d, 1), b.numbers(count*d, 1)
		halves := make([]uint16, count*d)
		set.Vector.Narrow(halves, keys)
		p := make([]float32, queries*PageTokens)
		out := make([]float32, queries*d)
		set.Vector.Page.Scores32(p, q, keys, nil, d, count, 0.1)
		b.add(p...)
		set.Vector.Page.Scores16(p, q, halves, nil, d, count, 0.1)
		b.add(p...)
		set.Vector.Page.Weigh32(out, p, keys, nil, d, count)
		b.add(out...)
		set.Vector.Page.Weigh16(out, p, halves, nil, d, count)
		b.add(out...)
		all, now := SoftmaxSum{0.3, 2}, SoftmaxSum{0.7, 3}
		set.Vector.Page.Merge(out, q, &all, &now)
		b.add(out...)
		b.add(all.Top, all.Weight)
	}
}

func packedBits(_ testing.TB, b *bitsOf, set *Set) {
	for _, width := range []int{16, 200, 256} {
		keys, values := newPackedTrial(set, width, b.rng).unpack(&set.Vector.Coded)
		for i, c := range keys {
			b.add(float32(c), float32(values[i]))
		}
	}
}

func codedPageBits(_ testing.TB, b *bitsOf, set *Set) {
	for _, d := range []int{16, 64, 200, 256} {
		for range 3 {
			x := newCodedTrial(set, d, d, 1+b.rng.IntN(Lanes), b.rng, func(n int) []float32 { return b.numbers(n, 2) })
			x.run(&set.Vector.Coded)
			for i := range x.page.Scores { // lanes from Width on are copies, which kernels need not compute
				if l := i % Lanes; l >= x.page.Width {
					x.page.Scores[i] = x.page.Scores[i-x.page.Width]
				}
			}
			b.add(x.page.Scores...) // weights, and zeros where there are none
			b.add(x.page.Now.Top[:]...)
			b.add(x.page.Now.Weight[:]...)
			b.add(x.page.Now.Scale[:]...)
			b.add(x.out...)
		}
	}
}

func towerBits(_ testing.TB, b *bitsOf, set *Set) {
	v := &set.Vector
	for n := 1; n < 300; n += 23 {
		x, gain, bias, z := b.numbers(n, 20), b.numbers(n, 3), b.numbers(n, 1), make([]float32, n)
		for _, f := range []func(){
			func() { v.LayerNorm(z, x, gain, bias, 1e-6) },
			func() { v.GELU(z, x) },
			func() { v.GELUTanh(z, x) },
		} {
			f()
			b.add(z...)
		}
	}
	for _, dim := range []int{12, 64, 72} {
		sums, columns := MixSums{}, (dim+MixTile-1)/MixTile*MixTile
		out, queries := make([]float32, columns*MixQueries), b.numbers(dim*MixQueries, 1)
		for _, count := range []int{MixKeys, 33} {
			rows := (count + MixTile - 1) / MixTile * MixTile
			keys, values, scores := b.numbers(rows*dim, 1), b.numbers(count*columns, 1), make([]float32, rows*MixQueries)
			v.Mix.Product(scores, queries, keys, keys, dim, 1, dim, nil)
			v.Mix.Weights(scores[:count*MixQueries], &sums)
			v.Mix.Product(out, scores, values, values, count, columns, 1, &sums.Scale)
		}
		v.Mix.Divide(out, &sums.Weight)
		b.add(out...)
	}
}

func deltaBits(_ testing.TB, b *bitsOf, set *Set) {
	for range 20 {
		keys, cols := 1+b.rng.IntN(130), lanes*(1+b.rng.IntN(3))
		state, k, q, v := b.numbers(keys*cols, 1), b.numbers(keys, 0.5), b.numbers(keys, 0.5), b.numbers(cols, 1)
		out, delta := make([]float32, cols), make([]float32, cols)
		set.Vector.Delta.Read(out, delta, state, cols, 0, q, k, v, 0.9, 0.6, 0.3)
		b.add(out...)
		b.add(delta...)
		set.Vector.Delta.Update(state, cols, state, cols, 0, k, delta, 0.9)
		b.add(state...)
	}
}

func productBits(tb testing.TB, b *bitsOf, set *Set) {
	var list []dtype.Matrix
	for _, t := range []dtype.Type{dtype.BF16, dtype.F16, dtype.F32} {
		list = append(list, dtype.Matrix{Type: t, Cols: 131})
		for _, bits := range []int{2, 3, 4, 5, 6, 8} {
			list = append(list, dtype.Matrix{Format: dtype.Affine, Bits: bits, Group: 64, ScaleType: t, Cols: 256})
		}
	}
	list = append(list,
		dtype.Matrix{Format: dtype.MXFP4, Group: 32, ScaleType: dtype.F8E8M0, Cols: 128},
		dtype.Matrix{Format: dtype.NVFP4, Group: 16, ScaleType: dtype.F8E4M3, Cols: 128},
		dtype.Matrix{Format: dtype.MXFP8, Group: 32, ScaleType: dtype.F8E8M0, Cols: 128},
		dtype.Matrix{Format: dtype.FP8, Group: 48, ScaleType: dtype.F32, Cols: 131},
	)
	var s Scratch
	for i, m := range list {
		m.Rows = 37
		m = b.matrix(m)
		x := b.tensor(1+i%9, m.Cols)
		for _, c := range []bool{floats, integers} {
			w := packed(tb, c, heap, m)
			rows := x.N
			var a *Activations
			if w.integer {
				a = quantized(set, x, w)
				rows = a.OutRows()
			}
			out := make([]float32, w.tiles*rows*Tile)
			if a != nil {
				set.Integer(out, w, 0, 0, w.tiles, a, &s)
			} else {
				set.Float(out, w, 0, 0, w.tiles, x, &s)
			}
			for t := range w.tiles { // rows of padding are not compared
				b.add(out[t*rows*Tile:][:x.N*Tile]...)
			}
		}
	}
}
