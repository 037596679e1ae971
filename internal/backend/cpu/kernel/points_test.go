package kernel

import (
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/exactmath"
)

// pointedCases are matrices with zero points: every width, groups that are kept and that are cut, every
// type of scales, with stored zero points and without.
func pointedCases() []integerCase {
	var list []integerCase
	for i, bits := range []int{2, 3, 4, 5, 6, 8} {
		for j, group := range []int{16, 64, 96, 128, 160, 512} {
			for _, zeros := range []bool{false, true} {
				scale := []dtype.Type{dtype.BF16, dtype.F16, dtype.F32}[(i+j)%3]
				list = append(list, integerCase{format: dtype.ZeroPoint, bits: bits, group: group, scale: scale, zeros: zeros, rows: 19, cols: 2 * group, m: 3})
			}
		}
	}
	return list
}

// TestZeroPointRowsEqualTheMatrix: what is decoded from blocks is what the matrix stands for, bit for bit.
func TestZeroPointRowsEqualTheMatrix(t *testing.T) {
	r := rand.New(rand.NewPCG(61, 1))
	for _, c := range pointedCases() {
		m := randomWeights(c, r)
		w := packed(t, integers, heap, m, m)
		want, got := make([]float32, c.cols), make([]float32, c.cols)
		for n := range c.rows {
			m.Row(want, n)
			w.RowFloats(got, 1, n)
			for k := range want {
				if !sameFloat(got[k], want[k]) {
					t.Fatalf("%v: row %d, column %d is %g, want %g", c, n, k, got[k], want[k])
				}
			}
		}
	}
}

// TestZeroPointProductsKeepTheLaw multiplies codes less their zero points as docs/quantization.md says.
func TestZeroPointProductsKeepTheLaw(t *testing.T) {
	r := rand.New(rand.NewPCG(61, 2))
	for _, c := range pointedCases() {
		m := randomWeights(c, r)
		w := packed(t, integers, heap, m)
		x := randomInput(c.m, c.cols, r)
		got := integerProduct(&Generic, w, 0, w.tiles, x, &Scratch{})
		codes, a := make([]uint8, c.cols), make([]int8, w.group)
		for n := range c.rows {
			dtype.Unpack(codes, c.bits, m.Data[n*m.RowBytes():])
			for i := range c.m {
				acc := float32(0)
				for g := 0; g < c.cols; g += w.group {
					at, z := n*m.Groups()+g/c.group, int32(1)<<(c.bits-1)
					if c.zeros {
						z = int32(m.Zeros[at])
					}
					sa, _, _ := quantizeGroup(a, x.at(i)[g:][:w.group])
					sum := int32(0)
					for k, q := range a {
						sum += (int32(codes[g+k]) - z) * int32(q)
					}
					scale := getFloat(m.Scales[at*c.scale.Size():], c.scale)
					acc = exactmath.FMA32(float32(sum)*sa, scale, acc)
				}
				if y := got[(n/Tile*c.m+i)*Tile+n%Tile]; !sameFloat(y, acc) {
					t.Fatalf("%v: output %d of row %d is %g, want %g", c, n, i, y, acc)
				}
			}
		}
	}
}

// TestZeroPointsAreBytes: blocks have no more than codes, scales and a byte for each stored zero point.
func TestZeroPointsAreBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(61, 3))
	for _, zeros := range []bool{false, true} {
		c := integerCase{format: dtype.ZeroPoint, bits: 4, group: 32, scale: dtype.BF16, zeros: zeros, rows: 64, cols: 256}
		m := randomWeights(c, r)
		if got, want := packed(t, integers, heap, m).Bytes(), m.Bytes(); got != want {
			t.Errorf("%v: %d bytes of the file became %d", c, want, got)
		}
	}
}

// TestStackOfZeroPointsIsOfOneKind: a stack has zero points in all of its matrices or in none.
func TestStackOfZeroPointsIsOfOneKind(t *testing.T) {
	r := rand.New(rand.NewPCG(61, 4))
	c := integerCase{format: dtype.ZeroPoint, bits: 4, group: 32, scale: dtype.BF16, rows: 16, cols: 64}
	without := randomWeights(c, r)
	c.zeros = true
	if _, err := NewWeight(integers, []dtype.Matrix{without, randomWeights(c, r)}); err == nil {
		t.Error("a stack with zero points in one of two matrices is accepted")
	}
}

// TestZeroPointsOfExtremesEqualTheirTwin: codes, zero points and activations of the greatest magnitudes
// overflow nothing on the way to their sum.
func TestZeroPointsOfExtremesEqualTheirTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(61, 5))
	list := accelerated(runnable())
	for i, c := range pointedCases() {
		m := randomWeights(c, r)
		for j := range m.Data {
			m.Data[j] = byte(-(i / 2 % 2))
		}
		for j := range m.Zeros {
			m.Zeros[j] = byte(i/4%2) * (1<<c.bits - 1)
		}
		w := packed(t, integers, heap, m)
		for _, rows := range []int{1, 3, 4, 8, 17, 50} {
			x := Rows{Data: make([]float32, rows*c.cols), N: rows, Cols: c.cols, Stride: c.cols}
			for j := range x.Data {
				x.Data[j] = float32(1 - 2*(j/c.cols%2))
			}
			want := integerProduct(&Generic, w, 0, w.tiles, x, &Scratch{})
			for n := range list {
				for j, got := range integerProduct(&list[n], w, 0, w.tiles, x, &Scratch{}) {
					if !sameFloat(got, want[j]) {
						t.Fatalf("isa=%s/%v: rows=%d: number %d is %g, want %g", list[n].Name, c, rows, j, got, want[j])
					}
				}
			}
		}
	}
}

// pointBits are products with zero points.
func pointBits(tb testing.TB, b *bitsOf, set *Set) {
	var s Scratch
	for i, c := range pointedCases() {
		m := b.matrix(dtype.Matrix{Rows: c.rows, Cols: c.cols, Format: c.format, Bits: c.bits, Group: c.group, ScaleType: c.scale})
		if c.zeros {
			m.Zeros = randomZeros(c.bits, c.rows*m.Groups(), b.rng)
		}
		x := b.tensor(1+i%19, c.cols)
		w := packed(tb, integers, heap, m)
		b.add(integerProduct(set, w, 0, w.tiles, x, &s)...)
		w = packed(tb, floats, heap, m)
		out := make([]float32, w.tiles*x.N*Tile)
		set.Float(out, w, 0, 0, w.tiles, x, &s)
		b.add(out...)
	}
}
