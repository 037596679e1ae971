package kernel

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
)

// blockFormats are GGUF's formats.
var blockFormats = append([]dtype.Format{
	dtype.Q4_0, dtype.Q4_1, dtype.Q5_0, dtype.Q5_1, dtype.Q8_0, dtype.Q4K, dtype.Q5K, dtype.Q6K, dtype.IQ4NL, dtype.IQ4XS,
	dtype.Q2K, dtype.Q3K, dtype.TQ1, dtype.TQ2, dtype.Q1_0, dtype.Q2_0, dtype.MXFP4Blocks, dtype.NVFP4Blocks,
}, gridFormats...)

// gridFormats are those with tables.
var gridFormats = []dtype.Format{dtype.IQ1S, dtype.IQ1M, dtype.IQ2XXS, dtype.IQ2XS, dtype.IQ2S, dtype.IQ3XXS, dtype.IQ3S}

// blockCase is a shape of product with a matrix in a block format.
type blockCase struct {
	format        dtype.Format
	rows, cols, m int
	wild          bool // scales are anything, NaN and infinity too
}

func (c blockCase) String() string {
	return fmt.Sprintf("format=%v/m=%d/n=%d/k=%d/wild=%v", c.format, c.m, c.rows, c.cols, c.wild)
}

// randomBlockCase draws odd sizes.
func randomBlockCase(f dtype.Format, r *rand.Rand) blockCase {
	c := blockCase{format: f, rows: 1 + r.IntN(70), m: 1 + r.IntN(20), wild: r.IntN(3) == 0}
	columns, _ := f.BlockSize()
	if r.IntN(8) == 0 {
		c.m = 21 + r.IntN(50)
	}
	c.cols = columns * (1 + r.IntN(max(1, 1024/columns)))
	return c
}

// blockCases are every format with every number of rows that kernels tell apart, fewer in short
// mode, and random ones.
func blockCases(random int, r *rand.Rand) []blockCase {
	var list []blockCase
	counts := []int{1, 3, 8, 17, 2, 4, 5, 6, 7, 9, 33, 50}
	if testing.Short() {
		counts = counts[:4]
	}
	for _, f := range blockFormats {
		columns, _ := f.BlockSize()
		for _, m := range counts {
			list = append(list, blockCase{format: f, rows: 33, cols: 3 * columns, m: m})
		}
		for range random {
			list = append(list, randomBlockCase(f, r))
		}
	}
	return list
}

// randomBlocks has random bytes, and mild halves unless they are to be wild.
func randomBlocks(c blockCase, r *rand.Rand) dtype.Matrix {
	m := dtype.NewBlocks(c.format, c.rows, c.cols)
	m.Data = make([]byte, c.rows*m.RowBytes())
	for i := range m.Data {
		m.Data[i] = byte(r.Uint32())
	}
	if !c.wild {
		mildHalves(&m, r)
	}
	return m
}

// mildHalves draws the halves of blocks.
func mildHalves(m *dtype.Matrix, r *rand.Rand) {
	_, size := m.Format.BlockSize()
	for i := 0; i < len(m.Data); i += size {
		m.Format.PutHalves(m.Data[i:], func() uint16 { return dtype.ToF16(float32(r.NormFloat64() / 16)) })
		if m.Format == dtype.MXFP4Blocks {
			m.Data[i] = byte(118 + r.IntN(8)) // an exponent
		}
	}
}

// TestBlocksEqualTheirTwin: products with blocks have the bits of portable code in every instruction
// set, and their numbers are those of the file.
func TestBlocksEqualTheirTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(51, 1))
	list := accelerated(runnable())
	s := make([]Scratch, len(list))
	for _, c := range blockCases(cases(50), r) {
		m := randomBlocks(c, r)
		x := randomInput(c.m, c.cols, r)
		w := packed(t, integers, heap, m)
		want := integerProduct(&Generic, w, 0, w.tiles, x, &Scratch{})
		for i := range list {
			got := integerProduct(&list[i], w, 0, w.tiles, x, &s[i])
			for j := range want {
				if !sameFloat(got[j], want[j]) {
					t.Fatalf("isa=%s/%v: tile %d, row %d, lane %d is %g, want %g", list[i].Name, c, j/(c.m*Tile), j/Tile%c.m, j%Tile, got[j], want[j])
				}
			}
		}
		row, got := make([]float32, c.cols), make([]float32, c.cols)
		for n := range c.rows {
			m.Row(row, n)
			w.RowFloats(got, 0, n)
			for k := range row {
				if !sameFloat(got[k], row[k]) {
					t.Fatalf("%v: row %d, column %d is %g, want %g", c, n, k, got[k], row[k])
				}
			}
		}
	}
}

// TestSeveralTurnsEqualTheirTwin: products with enough rows and columns that AMX takes the columns in several turns have
// the bits of portable code, in pairs of tiles and the last one. The rows repeat, so that portable code has few.
func TestSeveralTurnsEqualTheirTwin(t *testing.T) {
	const n, k, m, times = 2*Tile + 1, 9 * 256, 19, 27
	r := rand.New(rand.NewPCG(55, 1))
	list := accelerated(runnable())
	weights := []dtype.Matrix{
		randomWeights(integerCase{dtype.ZeroPoint, 8, 128, dtype.BF16, true, n, k, m, 0}, r),
		randomWeights(integerCase{dtype.ZeroPoint, 4, 128, dtype.F16, true, n, k, m, 0}, r),
	}
	for _, f := range blockFormats {
		weights = append(weights, randomBlocks(blockCase{format: f, rows: n, cols: k}, r))
	}
	for _, matrix := range weights {
		w := packed(t, integers, heap, matrix)
		few := randomInput(m, k, r)
		many := Rows{Data: slices.Repeat(few.Data, times), N: times * m, Cols: k, Stride: k}
		want := integerProduct(&Generic, w, 0, w.tiles, few, &Scratch{})
		for i := range list {
			for j, got := range integerProduct(&list[i], w, 0, w.tiles, many, &Scratch{}) {
				tile, row, lane := j/(many.N*Tile), j/Tile%many.N, j%Tile
				if x := want[(tile*m+row%m)*Tile+lane]; !sameFloat(got, x) {
					t.Fatalf("isa=%s/%v: tile %d, row %d, lane %d is %g, want %g", list[i].Name, matrix.Format, tile, row, lane, got, x)
				}
			}
		}
	}
}

// TestBlocksOfExtremesEqualTheirTwin: codes, factors and activations of the greatest magnitudes overflow
// nothing on the way to their sum.
func TestBlocksOfExtremesEqualTheirTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(54, 1))
	list := accelerated(runnable())
	for _, f := range blockFormats {
		for i, fill := range []byte{0x00, 0xff, 0x0f, 0x80, 0x7f} {
			for _, m := range []int{1, 2, 3, 4, 8, 17} {
				columns, _ := f.BlockSize()
				c := blockCase{format: f, rows: 16, cols: 2 * columns, m: m}
				blocks := dtype.NewBlocks(f, c.rows, c.cols)
				blocks.Data = bytes.Repeat([]byte{fill}, c.rows*blocks.RowBytes())
				mildHalves(&blocks, r)
				x := Rows{Data: make([]float32, m*c.cols), N: m, Cols: c.cols, Stride: c.cols}
				for j := range x.Data {
					x.Data[j] = 1
					if (j/c.cols+i)%2 == 1 {
						x.Data[j] = -1
					}
				}
				p := packed(t, integers, heap, blocks)
				want := integerProduct(&Generic, p, 0, p.tiles, x, &Scratch{})
				for i := range list {
					for j, got := range integerProduct(&list[i], p, 0, p.tiles, x, &Scratch{}) {
						if !sameFloat(got, want[j]) {
							t.Fatalf("isa=%s/%v: bytes %#x: number %d is %g, want %g", list[i].Name, c, fill, j, got, want[j])
						}
					}
				}
			}
		}
	}
}

// TestBlockProductsAreThoseOfTheNumbers: portable code multiplies the numbers that the blocks stand for
// with those that the rounded activations stand for, but for the rounding of its sums.
func TestBlockProductsAreThoseOfTheNumbers(t *testing.T) {
	r := rand.New(rand.NewPCG(53, 1))
	for _, c := range blockCases(cases(10), r) {
		if c.wild {
			continue
		}
		m := randomBlocks(c, r)
		x := Rows{Data: make([]float32, c.m*c.cols), N: c.m, Cols: c.cols, Stride: c.cols}
		for i := range x.Data {
			x.Data[i] = float32(r.NormFloat64())
		}
		w := packed(t, integers, heap, m)
		got := integerProduct(&Generic, w, 0, w.tiles, x, &Scratch{})
		group := w.rounding().group
		row, codes := make([]float32, c.cols), make([]int8, group)
		for n := range c.rows {
			m.Row(row, n)
			for i := range c.m {
				sum, size := 0.0, 0.0
				for g := 0; g < c.cols; g += group {
					scale, _, _ := quantizeGroup(codes, x.at(i)[g:][:group])
					for k, q := range codes {
						p := float64(row[g+k]) * float64(q) * float64(scale)
						sum, size = sum+p, size+math.Abs(p)
					}
				}
				if y := float64(got[(n/Tile*c.m+i)*Tile+n%Tile]); math.Abs(y-sum) > 1e-6*size {
					t.Fatalf("%v: output %d of row %d is %g, want %g", c, n, i, y, sum)
				}
			}
		}
	}
}

// blockBits are products with blocks of some formats.
func blockBits(formats []dtype.Format) func(tb testing.TB, b *bitsOf, set *Set) {
	return func(tb testing.TB, b *bitsOf, set *Set) {
		var s Scratch
		for i, f := range formats {
			c := blockCase{format: f, rows: 37, cols: 1024, m: 1 + 5*i%24}
			m := randomBlocks(c, b.rng)
			x := b.tensor(c.m, c.cols)
			w := packed(tb, integers, heap, m)
			b.add(integerProduct(set, w, 0, w.tiles, x, &s)...)
		}
	}
}

// TestBlockProductsInFloats: the float32 path multiplies the numbers that the blocks stand for.
func TestBlockProductsInFloats(t *testing.T) {
	r := rand.New(rand.NewPCG(52, 1))
	list := distinct(floatPart)
	for _, c := range blockCases(cases(20), r) {
		m := randomBlocks(c, r)
		plain := dtype.Matrix{Rows: c.rows, Cols: c.cols, Type: dtype.F32, Data: make([]byte, 4*c.rows*c.cols)}
		row := make([]float32, c.cols)
		for n := range c.rows {
			m.Row(row, n)
			dtype.FromF32(plain.Data[4*n*c.cols:][:4*c.cols], dtype.F32, row)
		}
		x := randomInput(c.m, c.cols, r)
		w := packed(t, floats, heap, m)
		want, got := make([]float32, w.tiles*c.m*Tile), make([]float32, w.tiles*c.m*Tile)
		Generic.Float(want, packed(t, floats, heap, plain), 0, 0, w.tiles, x, &Scratch{})
		for _, set := range list {
			set.Float(got, w, 0, 0, w.tiles, x, &Scratch{})
			for j := range want {
				if !sameFloat(got[j], want[j]) {
					t.Fatalf("isa=%s/%v: number %d is %g, want %g", set.Name, c, j, got[j], want[j])
				}
			}
		}
	}
}

// TestBlocksAreNoLargerThanPlanned holds what is kept to the size that plans of memory count with.
func TestBlocksAreNoLargerThanPlanned(t *testing.T) {
	for _, f := range blockFormats {
		m := dtype.NewBlocks(f, 64, 1024)
		m.Data = make([]byte, m.Rows*m.RowBytes())
		for _, global := range []float32{1, 0.75} {
			m.Global = global
			if got, want := len(packed(t, integers, heap, m).Data), m.Rows*m.LoadedRowBytes(); got != want {
				t.Errorf("%v: a matrix takes %d bytes, want %d", f, got, want)
			}
		}
	}
}
