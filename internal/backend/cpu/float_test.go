package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// runnable lists the instruction sets that this machine can run.
func runnable() []isa {
	var list []isa
	for _, set := range isas() {
		if set.missing == "" {
			list = append(list, set)
		}
	}
	return list
}

// sameFloat reports whether a and b have the same bits; a NaN is as good as another.
func sameFloat(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

// packed is m in blocks, its data in memory of alloc.
func packed(tb testing.TB, c backend.Compute, alloc func(int) []byte, stack ...dtype.Matrix) *weight {
	tb.Helper()
	w, err := newWeight(c, stack)
	if err != nil {
		tb.Fatal(err)
	}
	w.data = alloc(w.count * w.tiles * w.groups * w.block)
	(&packOp{w: w, src: stack}).part(0, 0, w.count*w.tiles)
	return w
}

func heap(n int) []byte { return make([]byte, n) }

// oddFloat is a number of any size, now and then a special one.
func oddFloat(rng *rand.Rand, special bool) float32 {
	if special {
		switch rng.IntN(40) {
		case 0:
			return float32(math.Copysign(0, -1))
		case 1:
			return math.Float32frombits(rng.Uint32() & 0x807fffff) // subnormal
		case 2:
			return float32(math.Ldexp(rng.NormFloat64(), -100))
		case 3:
			return math.Float32frombits(rng.Uint32())
		}
	}
	return float32(rng.NormFloat64())
}

// oddTensor has rows further apart than they are long.
func oddTensor(rng *rand.Rand, rows, cols int, special bool) backend.Tensor {
	stride, offset := cols+rng.IntN(5), rng.IntN(3)
	m := &memory{f32: make([]float32, offset+rows*stride)}
	for i := range m.f32 {
		m.f32[i] = oddFloat(rng, special)
	}
	return backend.Tensor{Type: dtype.F32, Rows: rows, Cols: cols, Stride: stride, Offset: offset, Mem: m}
}

// oddMatrix is a matrix of a random format with random bits in it.
func oddMatrix(rng *rand.Rand, rows int, special bool) dtype.Matrix {
	pick := func(list ...int) int { return list[rng.IntN(len(list))] }
	m := dtype.Matrix{Rows: rows, Format: dtype.Format(rng.IntN(6)), Global: 1}
	types := []dtype.Type{dtype.BF16, dtype.F16, dtype.F32}
	switch m.Format {
	case dtype.Plain:
		m.Type, m.Cols = types[rng.IntN(3)], 1+rng.IntN(700)
	case dtype.Affine:
		m.Bits, m.Group, m.ScaleType = pick(2, 3, 4, 5, 6, 8), pick(32, 64, 96, 128), types[rng.IntN(3)]
		m.Cols = m.Group * (1 + rng.IntN(6))
	case dtype.NVFP4:
		m.Group, m.ScaleType, m.Cols = 16, dtype.F8E4M3, 16*(1+rng.IntN(20))
		if rng.IntN(2) == 0 {
			m.Global = 0.37
		}
	case dtype.MXFP4, dtype.MXFP8:
		m.Group, m.ScaleType, m.Cols = 32, dtype.F8E8M0, 32*(1+rng.IntN(10))
	default:
		m.Group, m.ScaleType, m.Cols = 1+rng.IntN(140), dtype.F32, 1+rng.IntN(500)
	}
	numbers := func(t dtype.Type, n int) []byte {
		b := make([]byte, n*t.Size())
		switch {
		case t.Size() == 1 && t == dtype.F8E8M0:
			for i := range b {
				b[i] = byte(127 + rng.IntN(9) - 4)
			}
		case t.Size() == 1:
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
		default:
			x := make([]float32, n)
			for i := range x {
				x[i] = oddFloat(rng, special)
			}
			dtype.FromF32(b, t, x)
		}
		return b
	}
	if m.Format == dtype.Plain {
		m.Data = numbers(m.Type, rows*m.Cols)
		return m
	}
	m.Data = make([]byte, rows*m.RowBytes())
	mask := byte(0xff)
	if rng.IntN(2) == 0 {
		mask = 0xfe // no NaN among E4M3
	}
	for i := range m.Data {
		m.Data[i] = byte(rng.Uint32()) & mask
	}
	m.Scales = numbers(m.ScaleType, rows*m.Groups())
	if m.Format == dtype.Affine {
		m.Biases = numbers(m.ScaleType, rows*m.Groups())
	}
	return m
}

func describe(w *weight) string {
	return fmt.Sprintf("%v %v bits=%d group=%d %d×%d", w.format, w.elem, w.bits, w.group, w.rows, w.cols)
}

// TestFloatProductEqualsGeneric holds the kernels of every instruction set against portable
// Go, bit for bit, with numbers of all sizes.
func TestFloatProductEqualsGeneric(t *testing.T) {
	count := 1500
	if testing.Short() {
		count = 300
	}
	rng := rand.New(rand.NewPCG(31, 1))
	var want, got scratch
	for i := range count {
		special := i%3 == 0
		m := oddMatrix(rng, 1+rng.IntN(90), special)
		rows := 1 + i%17
		if rows == 17 {
			rows = 17 + rng.IntN(30)
		}
		w := packed(t, backend.Float32, heap, m, m)
		x := oddTensor(rng, rows, m.Cols, special)
		from := rng.IntN(w.tiles)
		to := from + 1 + rng.IntN(w.tiles-from)
		size := (to - from) * rows * tile
		want.out = grow(want.out, size)
		floatTiles(want.out, w, 1, from, to, x, &want)
		for _, set := range runnable() {
			got.out = grow(got.out, size)
			for j := range got.out {
				got.out[j] = float32(math.NaN())
			}
			set.product.float(got.out, w, 1, from, to, x, &got)
			for j, y := range got.out {
				if !sameFloat(y, want.out[j]) {
					t.Fatalf("isa=%s %s rows=%d tiles=[%d,%d): result %d is %g, want %g",
						set.name, describe(w), rows, from, to, j, y, want.out[j])
				}
			}
		}
	}
}

// TestFloatProductIsRowExact checks that a row's result does not depend on its neighbors.
func TestFloatProductIsRowExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 2))
	var s scratch
	for _, set := range runnable() {
		for i := range 150 {
			m := oddMatrix(rng, 1+rng.IntN(60), false)
			w := packed(t, backend.Float32, heap, m)
			rows := 2 + rng.IntN(20)
			if i%2 == 0 {
				rows = 2 + i%16
			}
			x := oddTensor(rng, rows, m.Cols, false)
			all, one := make([]float32, w.tiles*rows*tile), make([]float32, w.tiles*tile)
			set.product.float(all, w, 0, 0, w.tiles, x, &s)
			for r := range rows {
				set.product.float(one, w, 0, 0, w.tiles, x.RowRange(r, r+1), &s)
				for j, y := range one {
					if z := all[(j/tile*rows+r)*tile+j%tile]; !sameFloat(y, z) {
						t.Fatalf("isa=%s %s: output %d of row %d is %g alone and %g among %d", set.name, describe(w), j, r, y, z, rows)
					}
				}
			}
		}
	}
}

// TestFloatProductAllocatesNothing counts the allocations of a second call.
func TestFloatProductAllocatesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 4))
	for _, set := range runnable() {
		for range 20 {
			m := oddMatrix(rng, 40, false)
			w := packed(t, backend.Float32, heap, m)
			x := oddTensor(rng, 1+rng.IntN(12), m.Cols, false)
			out := make([]float32, w.tiles*x.Rows*tile)
			s := &scratch{}
			if n := testing.AllocsPerRun(20, func() { set.product.float(out, w, 0, 0, w.tiles, x, s) }); n != 0 {
				t.Fatalf("isa=%s %s: %v allocations", set.name, describe(w), n)
			}
		}
	}
}

// TestRowFloatsEqualsBlocks reads single rows and compares them with decoded blocks.
func TestRowFloatsEqualsBlocks(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 5))
	for range 300 {
		m := oddMatrix(rng, 1+rng.IntN(40), true)
		w := packed(t, backend.Int8, heap, m, m)
		block, ints := make([]float32, w.group*tile), make([]int16, w.group*tile)
		got := make([]float32, w.cols)
		for r := range w.rows {
			w.rowFloats(got, 1, r)
			for g := range w.groups {
				w.floats(block, ints, w.at(1, r/tile, g), w.width(g))
				for k := range w.width(g) {
					if x, y := got[g*w.group+k], block[k*tile+r%tile]; !sameFloat(x, y) {
						t.Fatalf("%s: row %d column %d is %g, want %g", describe(w), r, g*w.group+k, x, y)
					}
				}
			}
		}
	}
}
