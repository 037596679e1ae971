//go:build vulkan

package vulkan

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

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

// variants are tiles to time: dots of them by integer dot products, then those by cooperative matrices.
var variants = []tile{
	{4, 8, 1, 1, 1},
	{4, 8, 1, 1, 2},
	{2, 8, 1, 1, 1},
	{2, 4, 1, 1, 1},
	{1, 4, 1, 1, 1},
	{2, 2, 2, 4, 1},
	{2, 2, 2, 4, 2},
	{4, 2, 1, 4, 1},
	{2, 4, 4, 2, 2},
	{1, 2, 4, 2, 2},
	{1, 2, 4, 2, 1},
	{1, 1, 2, 2, 2},
	{1, 1, 2, 2, 1},
}

const dots = 5

// BenchmarkTiles prints microseconds of products of Qwen3.5 9B by variants.
func BenchmarkTiles(t *testing.B) {
	b := open(t)
	depth := b.matrix
	first := map[tile]int64{}
	for _, shape := range [][2]int{{12288, 4096}, {4096, 12288}, {4096, 4096}, {1024, 4096}, {32, 4096}} {
		m := dtype.Matrix{Rows: shape[0], Cols: shape[1], Type: dtype.BF16, Data: make([]byte, 2*shape[0]*shape[1])}
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range m.Rows * m.Cols {
			binary.LittleEndian.PutUint16(m.Data[2*i:], uint16(0x3c00+rng.IntN(512)+rng.IntN(2)<<15))
		}
		q, err := dtype.Quantize(&m, 4, 64, dtype.BF16)
		if err != nil {
			t.Fatal(err)
		}
		own, err := b.Load(backend.Int8, q)
		if err != nil {
			t.Fatal(err)
		}
		w := b.weight(own)
		x, _ := b.Alloc(dtype.F32, 512, shape[1])
		dst, _ := b.Alloc(dtype.F32, 512, shape[0])
		list := make([]float32, 512*shape[1])
		for i := range list {
			list[i] = float32(rng.NormFloat64())
		}
		_ = b.Write(x, list)
		var right []float32
		for i, v := range variants {
			if b.matrix = 0; i >= dots {
				if b.matrix = depth; depth == 0 {
					break
				}
			}
			dotTiles, matrixTiles = []tile{v}, []tile{v}
			line := fmt.Sprintf("%5dx%-5d %v", shape[0], shape[1], v)
			for _, n := range []int{16, 32, 64, 128, 512} {
				high := v.high * v.down
				if 16*high >= 2*n && n > 16 {
					line += fmt.Sprintf(" %7s", "-")
					continue
				}
				b.begin()
				var known []rows
				in := b.prepare(x.RowRange(0, n), w, &known)
				multiply := func() {
					b.multiply(in, w, 0, &backend.Product{Dst: dst.RowRange(0, n), W: own}, 0, w.l.Tiles, routed{})
				}
				if err := b.wait(); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				multiply()
				if err := b.wait(); err != nil {
					line += " " + err.Error()
					break
				}
				if _, ok := first[v]; !ok {
					first[v] = time.Since(start).Milliseconds()
					line += fmt.Sprintf(" (%d ms)", first[v])
				}
				times, s := 10, 0.0
				for range 2 { // the first raises the clock of the device
					start = time.Now()
					for range times {
						multiply()
					}
					if err := b.wait(); err != nil {
						t.Fatal(err)
					}
					s = time.Since(start).Seconds() / float64(times)
					times = max(10, int(0.02/s))
				}
				line += fmt.Sprintf(" %7.1f", s*1e6)
				if n == 512 {
					line += fmt.Sprintf(" µs %6.1f TOPS", 2*float64(n)*float64(shape[0])*float64(shape[1])/s/1e12)
					host, err := b.Host(dst.RowRange(496, 512))
					if err != nil {
						t.Fatal(err)
					}
					got := slices.Clone(host)
					if right == nil {
						right = got
					} else {
						wrong := 0
						for i := range got {
							if got[i] != right[i] {
								wrong++
							}
						}
						if wrong > 0 {
							line += fmt.Sprintf(" WRONG %d", wrong)
						}
					}
				}
			}
			fmt.Println(line)
		}
		b.Free(x)
		b.Free(dst)
		b.Unload(own)
	}
}

// TestMatricesAreExact prints which sums of cooperative matrices are wrong, as rows of outputs.
func TestMatricesAreExact(t *testing.T) {
	b := open(t)
	t.Logf("cooperative matrices of %d columns; 0: none", b.info.Matrix)
	what, wrong, err := b.probeMatrix()
	if err != nil {
		t.Fatal(err)
	}
	if t.Logf("sums of a thread are at %v", b.places); what == "" {
		return
	}
	rows := bytes.Repeat([]byte("................\n"), 16)
	for _, i := range wrong {
		rows[i/16*17+i%16] = 'x'
	}
	t.Errorf("%s:\n%s", what, rows)
}
