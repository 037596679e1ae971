//go:build vulkan

package vulkan

import (
	"bytes"
	"encoding/binary"
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

// TestTilesHaveTheBitsOfTheCPU compares products of many rows by every kernel for them.
func TestTilesHaveTheBitsOfTheCPU(t *testing.T) {
	b, cpu := open(t), backendtest.CPU(t, backend.Options{Threads: 1})
	for _, c := range tileCases(t, 300, 384) {
		own, err := b.Load(backend.Int8, c.matrix)
		if err != nil {
			t.Fatal(err)
		}
		other, err := cpu.Load(backend.Int8, c.matrix)
		if err != nil {
			t.Fatal(err)
		}
		for _, rows := range []int{9, 30, 64, 131} {
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

// TestMatricesAreExact prints which sums of cooperative matrices are wrong, as rows of outputs.
func TestMatricesAreExact(t *testing.T) {
	b := open(t)
	t.Logf("cooperative matrices of %d columns; 0: none", b.info.Matrix)
	wrong, err := b.probeMatrix()
	if err != nil {
		t.Fatal(err)
	}
	if wrong == nil {
		return
	}
	rows := bytes.Repeat([]byte("................\n"), 16)
	for _, i := range wrong {
		rows[i/16*17+i%16] = 'x'
	}
	t.Errorf("%d of 256 sums are wrong:\n%s", len(wrong), rows)
}

// BenchmarkTiles multiplies rows with matrices of Qwen3.5 9B, by every kernel for many rows, and reports operations in a second.
func BenchmarkTiles(b *testing.B) {
	dev, err := Open(Options{}, levels())
	if err != nil {
		b.Fatal(err)
	}
	defer dev.Close() //nolint:errcheck // the process ends
	depth := dev.matrix
	for _, shape := range [][2]int{{24576, 4096}, {12288, 4096}, {4096, 4096}, {4096, 12288}} {
		m := dtype.Matrix{Rows: shape[0], Cols: shape[1], Type: dtype.BF16, Data: make([]byte, 2*shape[0]*shape[1])}
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range m.Rows * m.Cols {
			binary.LittleEndian.PutUint16(m.Data[2*i:], uint16(0x3c00+rng.IntN(512)+rng.IntN(2)<<15))
		}
		q, err := dtype.Quantize(&m, 4, 64, dtype.BF16)
		if err != nil {
			b.Fatal(err)
		}
		w, err := dev.Load(backend.Int8, q)
		if err != nil {
			b.Fatal(err)
		}
		x, err := dev.Alloc(dtype.F32, 512, shape[1])
		if err != nil {
			b.Fatal(err)
		}
		dst, err := dev.Alloc(dtype.F32, 512, shape[0])
		if err != nil {
			b.Fatal(err)
		}
		list := make([]float32, 512*shape[1])
		for i := range list {
			list[i] = float32(rng.NormFloat64())
		}
		if err := dev.Write(x, list); err != nil {
			b.Fatal(err)
		}
		for _, matrix := range []bool{false, true} {
			if matrix && depth == 0 {
				continue
			}
			for _, n := range []int{16, 32, 64, 128, 512} {
				b.Run(fmt.Sprintf("%dx%d/matrix=%t/rows=%d", shape[0], shape[1], matrix, n), func(b *testing.B) {
					if dev.matrix = 0; matrix {
						dev.matrix = depth
					}
					multiply := func(times int) {
						dev.begin()
						own, known := dev.weight(w), []rows{}
						in := dev.prepare(x.RowRange(0, n), own, &known)
						for range times {
							dev.multiply(in, own, 0, &backend.Product{Dst: dst.RowRange(0, n), W: w}, 0, own.l.Tiles, routed{})
						}
						if err := dev.wait(); err != nil {
							b.Fatal(err)
						}
					}
					multiply(1)
					b.ResetTimer()
					multiply(b.N)
					b.ReportMetric(2*float64(b.N)*float64(n)*float64(shape[0])*float64(shape[1])/b.Elapsed().Seconds()/1e12, "TOPS")
				})
			}
		}
		dev.matrix = depth
		dev.Free(x)
		dev.Free(dst)
		dev.Unload(w)
	}
}
