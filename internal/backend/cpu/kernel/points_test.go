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
