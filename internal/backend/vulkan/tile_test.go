//go:build vulkan

package vulkan

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/dtype"
)

// tileCase is a matrix for products of many rows.
type tileCase struct {
	name   string
	matrix dtype.Matrix
}

// tileCases are formats with every kind of codes, groups shorter and longer than a stage of the kernel, and scales that are nearly
// subnormal. scale is that of the numbers.
func tileCases(tb testing.TB, rows, cols int) []tileCase {
	tb.Helper()
	rng := rand.New(rand.NewPCG(3, 4))
	list := func(n int, scale float32) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = scale * float32(rng.NormFloat64())
		}
		return x
	}
	var cases []tileCase
	affine := func(bits, group int, t dtype.Type, scale float32) {
		m := dtype.Matrix{Rows: rows, Cols: cols, Type: dtype.F32, Data: make([]byte, 4*rows*cols)}
		dtype.FromF32(m.Data, dtype.F32, list(rows*cols, scale))
		q, err := dtype.Quantize(&m, bits, group, t)
		if err != nil {
			tb.Fatal(err)
		}
		cases = append(cases, tileCase{fmt.Sprintf("%d bits in groups of %d, scale %g", bits, group, scale), q})
	}
	affine(4, 64, dtype.BF16, 1)
	affine(4, 64, dtype.F32, 1e-37)
	affine(8, 128, dtype.F16, 1)
	affine(5, 32, dtype.BF16, 1)
	m := dtype.Matrix{Rows: rows, Cols: cols, Format: dtype.ZeroPoint, Bits: 6, Group: 16, ScaleType: dtype.F16}
	m.Data, m.Scales, m.Zeros = make([]byte, rows*m.RowBytes()), make([]byte, rows*m.ScaleRowBytes()), make([]byte, rows*m.Groups())
	for i := range m.Data {
		m.Data[i] = byte(rng.Uint32())
	}
	for i := range m.Zeros {
		m.Zeros[i] = byte(rng.IntN(64))
	}
	dtype.FromF32(m.Scales, dtype.F16, list(rows*m.Groups(), 1))
	cases = append(cases, tileCase{"zero points", m})
	for _, f := range []dtype.Format{dtype.Q8_0, dtype.IQ4NL} {
		m := dtype.NewBlocks(f, rows, cols)
		m.Data = make([]byte, rows*m.RowBytes())
		for i := range m.Data {
			m.Data[i] = byte(rng.Uint32())
		}
		_, size := f.BlockSize()
		for at := 0; at < len(m.Data); at += size {
			f.PutHalves(m.Data[at:], func() uint16 { return dtype.ToF16(float32(rng.NormFloat64())) })
		}
		cases = append(cases, tileCase{f.String(), m})
	}
	return cases
}

// compareTiles compares products of many rows with those of the CPU.
func compareTiles(t *testing.T, b *Backend, cases []tileCase, rows []int) {
	t.Helper()
	cpu := backendtest.CPU(t, backend.Options{Threads: 1})
	for _, c := range cases {
		own, err := b.Load(backend.Int8, c.matrix)
		if err != nil {
			t.Fatal(err)
		}
		other, err := cpu.Load(backend.Int8, c.matrix)
		if err != nil {
			t.Fatal(err)
		}
		for _, rows := range rows {
			got, err := productOf(b, own, rows, nil)
			if err != nil {
				t.Fatal(err)
			}
			want, err := productOf(cpu, other, rows, nil)
			if err != nil {
				t.Fatal(err)
			}
			if i := dtype.Differ(got, want); i >= 0 {
				t.Errorf("%s, %d rows: output %d of row %d is %x, want %x", c.name, rows, i%300, i/300, got[4*i:4*i+4], want[4*i:4*i+4])
			}
		}
		b.Unload(own)
	}
}

// TestTilesHaveTheBitsOfTheCPU compares products of many rows by every kernel for them.
func TestTilesHaveTheBitsOfTheCPU(t *testing.T) {
	b, cases := open(t), tileCases(t, 300, 384)
	compareTiles(t, b, cases, []int{9, 131})
	b.tried = 1
	compareTiles(t, b, cases[:1], []int{130})
}

// TestMatricesByDotProducts compares the kernel for cooperative matrices, which are replaced by dot products.
func TestMatricesByDotProducts(t *testing.T) {
	b := open(t)
	b.modules["product_matrix"], b.matrix, b.places = b.modules["product_matrix_emulated"], 32, [3]int{1, 128, 8}
	smallMatrices(t)
	cases := tileCases(t, 300, 384)
	compareTiles(t, b, []tileCase{cases[0], cases[2]}, []int{131}) // without sums of codes and with them
}

// smallMatrices has tiles that fit into the shared memory of lavapipe.
func smallMatrices(t *testing.T) {
	own := matrixTiles
	matrixTiles = []tile{{1, 1, 2, 2, 2}}
	t.Cleanup(func() { matrixTiles = own })
}

// TestMatricesAreExact says what is wrong with the cooperative matrices of the machine's device.
func TestMatricesAreExact(t *testing.T) {
	b := open(t)
	t.Logf("cooperative matrices of %d columns, sums of a thread are at %v; 0: none", b.matrix, b.places)
	if what, err := b.probeMatrix(); err != nil || what != "" {
		t.Errorf("%s: %v", what, err)
	}
}
