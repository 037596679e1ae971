package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/dtype"
)

// tableFormats are those whose codes are looked up.
var tableFormats = []dtype.Format{dtype.NVFP4, dtype.MXFP4, dtype.IQ4NL, dtype.NVFP4Blocks, dtype.MXFP4Blocks}

// randomMicroscaled is a matrix of random codes and scales around one.
func randomMicroscaled(tb testing.TB, rng *rand.Rand, f dtype.Format, rows, cols int) dtype.Matrix {
	tb.Helper()
	m := dtype.Matrix{Rows: rows, Cols: cols, Format: f, Group: 32, ScaleType: dtype.F8E8M0}
	least, most := 110, 140
	if f == dtype.NVFP4 { // subnormals and the largest number included
		m.Group, m.ScaleType, m.Global, least, most = 16, dtype.F8E4M3, 0.3, 0, 0x7f
	}
	m.Data, m.Scales = make([]byte, rows*cols/2), make([]byte, rows*cols/m.Group)
	for i := range m.Data {
		m.Data[i] = byte(rng.Uint32())
	}
	for i := range m.Scales {
		m.Scales[i] = byte(least + rng.IntN(most-least))
	}
	if err := m.Validate(); err != nil {
		tb.Fatal(err)
	}
	return m
}

// TestTablesEqualCPU multiplies with codes that are looked up: numbers of rows around the sizes of strips, columns that are
// no whole chunk and no whole block, outputs that are no whole tile, more tiles than teams.
func TestTablesEqualCPU(t *testing.T) {
	b, oracle := open(t, Options{}), backendtest.Open(t, backend.Options{Threads: 1})
	rng := rand.New(rand.NewPCG(1, 2))
	for _, f := range tableFormats {
		for _, rows := range []int{1, 2, 3, 4, 5, 8, 9, 17, 33, 130} {
			if f >= dtype.MXFP4Blocks && rows != 1 && rows != 9 { // as others on the device
				continue
			}
			outs, cols := 40, 320
			switch {
			case rows < 3:
				outs, cols = 16*70, 576
			case rows < 6: // as many chunks as a team has warps, and one more
				cols = 36 * 64
			case rows == 8: // slower, and right
				cols = 288
			}
			if f == dtype.NVFP4Blocks {
				cols = cols / 64 * 64
			}
			m := randomBlocks(t, rng, f, outs, cols)
			sameProduct(t, b, oracle, m, rows, productOf(rows))
		}
	}
	if m := randomBlocks(t, rng, dtype.NVFP4, 40, 192); true {
		for _, m.Global = range []float32{1, 1e-42, -3e-5, 0, 600, float32(math.Inf(1))} {
			sameProduct(t, b, oracle, m, 3, productOf(3))
		}
		m.Global = 1
		for _, m.Scales[7] = range []byte{0x80, 0x93, 0x7f} { // slower, and right
			sameProduct(t, b, oracle, m, 3, productOf(3))
		}
	}
}

// Codes that are looked up lie in the memory of the file, but for a factor of each tile and two bytes of a scale of
// mxfp4.
func TestTablesTakeWhatTheFileHas(t *testing.T) {
	b := open(t, Options{})
	for _, f := range tableFormats {
		w, err := b.Load(backend.Int8, randomBlocks(t, rand.New(rand.NewPCG(1, 2)), f, 32, 256))
		if err != nil {
			t.Fatal(err)
		}
		want := int64(32 * 256 * 4.5 / 8)
		if f == dtype.NVFP4 || f == dtype.NVFP4Blocks {
			want += 2 * tableFactor
		}
		if got := w.(*weight).Bytes(); got != want {
			t.Errorf("%v: %d bytes, want %d", f, got, want)
		}
	}
}

// Experts have factors of their own.
func TestTablesOfExperts(t *testing.T) {
	for _, f := range tableFormats[:3] {
		for _, rows := range []int{2, 9} {
			t.Run(fmt.Sprintf("%v, %d rows", f, rows), func(t *testing.T) {
				alike(t, open(t, Options{}), func(x *bench) [][]float32 {
					e := &backend.Experts{
						Router: x.loadAs(f, 1, 5, 128), Gate: x.loadAs(f, 5, 64, 128), Up: x.loadAs(f, 5, 64, 128), Down: x.loadAs(f, 5, 128, 64), TopK: 2, Normalize: true,
						SharedGate: x.loadAs(f, 1, 64, 128), SharedUp: x.loadAs(f, 1, 64, 128), SharedDown: x.loadAs(f, 1, 128, 64),
					}
					in, dst := x.random(rows, 128, 1), x.random(rows, 128, 1)
					x.b.Experts(dst, in, backend.Tensor{}, e)
					return [][]float32{x.read(dst)}
				})
			})
		}
	}
}
