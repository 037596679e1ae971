package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/foretoken/foretoken/internal/dtype"
)

// runnable lists the instruction sets that this machine can run.
func runnable() []Set {
	var list []Set
	for _, set := range Sets() {
		if set.Missing == "" {
			list = append(list, set)
		}
	}
	return list
}

// accelerated is a list of them without portable code, which need not be compared with itself, unless it is all there is.
func accelerated(list []Set) []Set {
	if len(list) == 1 {
		return list
	}
	return slices.DeleteFunc(list, func(s Set) bool { return s.Name == Generic.Name })
}

// distinct lists those of them whose parts differ: sets share most of their kernels, and the same one
// need not be tested twice. A part is functions, which are compared by what they refer to.
func distinct[T any](part func(set Set) T) []Set {
	var list []Set
	seen := map[string]bool{}
	for _, set := range runnable() {
		x := part(set)
		key := words(&x)
		if !seen[key] {
			list = append(list, set)
		}
		seen[key] = true
	}
	return list
}

// words is the memory of x.
func words[T any](x *T) string {
	return string(unsafe.Slice((*byte)(unsafe.Pointer(x)), unsafe.Sizeof(*x)))
}

func floatPart(set Set) func([]float32, *Weight, int, int, int, Rows, *Scratch) { return set.Float }

// sameFloat reports whether a and b have the same bits; a NaN is as good as another.
func sameFloat(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

// What products of a packed weight are.
const integers, floats = true, false

// slice are rows [from, to).
func (x Rows) slice(from, to int) Rows {
	x.Data, x.N = x.Data[from*x.Stride:], to-from
	return x
}

// packed is m in blocks, its data in memory of alloc.
func packed(tb testing.TB, integer bool, alloc func(int) []byte, stack ...dtype.Matrix) *Weight {
	tb.Helper()
	w, err := NewWeight(integer, stack)
	if err != nil {
		tb.Fatal(err)
	}
	w.Data = alloc(w.Size())
	w.Pack(stack, 0, w.count*w.tiles)
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

// oddRows are rows further apart than they are long.
func oddRows(rng *rand.Rand, rows, cols int, special bool) Rows {
	stride, offset := cols+rng.IntN(5), rng.IntN(3)
	data := make([]float32, offset+rows*stride)
	for i := range data {
		data[i] = oddFloat(rng, special)
	}
	return Rows{Data: data[offset:], N: rows, Cols: cols, Stride: stride}
}

// oddMatrix is a matrix of a random format with random bits in it.
func oddMatrix(rng *rand.Rand, rows int, special bool) dtype.Matrix {
	pick := func(list ...int) int { return list[rng.IntN(len(list))] }
	m := dtype.Matrix{Rows: rows, Format: dtype.Format(rng.IntN(int(dtype.ZeroPoint) + 1)), Global: 1}
	types := []dtype.Type{dtype.BF16, dtype.F16, dtype.F32}
	switch m.Format {
	case dtype.Plain:
		m.Type, m.Cols = types[rng.IntN(3)], 1+rng.IntN(700)
	case dtype.Affine, dtype.ZeroPoint:
		m.Bits, m.Group, m.ScaleType = pick(2, 3, 4, 5, 6, 8), pick(32, 64, 96, 128, 160), types[rng.IntN(3)]
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
	if m.Format == dtype.ZeroPoint && rng.IntN(2) == 0 {
		m.Zeros = randomZeros(m.Bits, rows*m.Groups(), rng)
	}
	return m
}

func describe(w *Weight) string {
	return fmt.Sprintf("%v %v bits=%d group=%d zeros=%d %d×%d", w.format, w.elem, w.bits, w.group, w.zeros, w.rows, w.cols)
}

// TestFloatProductEqualsGeneric compares the kernels of every instruction set with portable
// Go, bit for bit, with numbers of all sizes.
func TestFloatProductEqualsGeneric(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 1))
	var s Scratch
	var want, got []float32
	for i := range cases(2400) {
		special := i%3 == 0
		m := oddMatrix(rng, 1+rng.IntN(90), special)
		rows := 1 + i%17
		if rows == 17 {
			rows = 17 + rng.IntN(30)
		}
		w := packed(t, floats, heap, m, m)
		x := oddRows(rng, rows, m.Cols, special)
		from := rng.IntN(w.tiles)
		to := from + 1 + rng.IntN(w.tiles-from)
		size := (to - from) * rows * Tile
		want = Grow(want, size)
		floatTiles(want, w, 1, from, to, x, &s)
		for _, set := range accelerated(distinct(floatPart)) {
			got = Grow(got, size)
			for j := range got {
				got[j] = float32(math.NaN())
			}
			set.Float(got, w, 1, from, to, x, &s)
			for j, y := range got {
				if !sameFloat(y, want[j]) {
					t.Fatalf("isa=%s %s rows=%d tiles=[%d,%d): result %d is %g, want %g",
						set.Name, describe(w), rows, from, to, j, y, want[j])
				}
			}
		}
	}
}

// TestFloatProductIsRowExact checks that a row's result does not depend on its neighbors.
func TestFloatProductIsRowExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 2))
	var s Scratch
	for _, set := range accelerated(distinct(floatPart)) {
		for i := range 150 {
			m := oddMatrix(rng, 1+rng.IntN(60), false)
			w := packed(t, floats, heap, m)
			rows := 2 + rng.IntN(20)
			if i%2 == 0 {
				rows = 2 + i%16
			}
			x := oddRows(rng, rows, m.Cols, false)
			all, one := make([]float32, w.tiles*rows*Tile), make([]float32, w.tiles*Tile)
			set.Float(all, w, 0, 0, w.tiles, x, &s)
			for r := range rows {
				set.Float(one, w, 0, 0, w.tiles, x.slice(r, r+1), &s)
				for j, y := range one {
					if z := all[(j/Tile*rows+r)*Tile+j%Tile]; !sameFloat(y, z) {
						t.Fatalf("isa=%s %s: output %d of row %d is %g alone and %g with %d", set.Name, describe(w), j, r, y, z, rows)
					}
				}
			}
		}
	}
}

// TestFloatProductAllocatesNothing counts the allocations of a second call.
func TestFloatProductAllocatesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 4))
	for _, set := range distinct(floatPart) {
		for range 20 {
			m := oddMatrix(rng, 40, false)
			w := packed(t, floats, heap, m)
			x := oddRows(rng, 1+rng.IntN(12), m.Cols, false)
			out := make([]float32, w.tiles*x.N*Tile)
			s := &Scratch{}
			if n := testing.AllocsPerRun(20, func() { set.Float(out, w, 0, 0, w.tiles, x, s) }); n != 0 {
				t.Fatalf("isa=%s %s: %v allocations", set.Name, describe(w), n)
			}
		}
	}
}

// TestRowFloatsEqualsBlocks reads single rows and compares them with decoded blocks.
func TestRowFloatsEqualsBlocks(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 5))
	for range 300 {
		m := oddMatrix(rng, 1+rng.IntN(40), true)
		w := packed(t, integers, heap, m, m)
		block, ints := make([]float32, w.group*Tile), make([]int16, w.group*Tile)
		got := make([]float32, w.cols)
		for r := range w.rows {
			w.RowFloats(got, 1, r)
			for g := range w.groups {
				w.floats(block, ints, 1, r/Tile, g)
				for k := range w.width(g) {
					if x, y := got[g*w.group+k], block[k*Tile+r%Tile]; !sameFloat(x, y) {
						t.Fatalf("%s: row %d column %d is %g, want %g", describe(w), r, g*w.group+k, x, y)
					}
				}
			}
		}
	}
}
