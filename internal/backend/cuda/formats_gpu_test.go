//go:build cuda

package cuda

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// repeated is n random bytes, of which all megabytes are alike: they take long to make.
func repeated(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range min(n, 1<<20) {
		b[i] = byte(rng.Uint32())
	}
	for at := 1 << 20; at < n; at += 1 << 20 {
		copy(b[at:], b[:1<<20])
	}
	return b
}

// kinds are the formats of BenchmarkFormats: superblocks and GGUF's other blocks, small floats, and integers without biases, which
// have zero points or, by a minus, none.
var kinds = []struct {
	format      dtype.Format
	bits, group int
	scale       dtype.Type
}{
	{dtype.Affine, 4, 64, dtype.BF16},
	{dtype.Affine, 4, 128, dtype.BF16},
	{dtype.Affine, 8, 64, dtype.BF16},
	{dtype.ZeroPoint, 4, 128, dtype.BF16},
	{dtype.ZeroPoint, 4, 64, dtype.F16},
	{dtype.ZeroPoint, 4, 32, dtype.BF16},
	{dtype.ZeroPoint, -4, 128, dtype.BF16},
	{dtype.ZeroPoint, -4, 32, dtype.BF16},
	{dtype.ZeroPoint, -4, 32, dtype.F16},
	{dtype.ZeroPoint, 8, 128, dtype.BF16},
	{dtype.ZeroPoint, -8, 128, dtype.F32},
	{format: dtype.Q4_0},
	{format: dtype.Q4K},
	{format: dtype.Q5K},
	{format: dtype.Q6K},
	{format: dtype.IQ4XS},
	{format: dtype.Q3K},
	{format: dtype.Q2K},
	{format: dtype.TQ2},
	{format: dtype.Q1_0},
	{format: dtype.Q2_0},
	{format: dtype.IQ3S},
	{format: dtype.IQ3XXS},
	{format: dtype.IQ2S},
	{format: dtype.IQ2XS},
	{format: dtype.IQ2XXS},
	{format: dtype.IQ1S},
	{format: dtype.IQ1M},
	{dtype.MXFP4, 4, 32, dtype.F8E8M0},
	{dtype.NVFP4, 4, 16, dtype.F8E4M3},
}

// BenchmarkFormats is products with a layer's up projection, by format. It reports bytes of the device's memory in a second,
// and bits of a weight there.
func BenchmarkFormats(b *testing.B) {
	dev := open(b, Options{})
	for _, size := range []struct {
		name       string
		outs, cols int
	}{{"2b", 6144, 2048}, {"9b", 12288, 4096}, {"27b", 17408, 5120}} {
		for _, k := range kinds {
			name := k.format.String()
			if !k.format.Blocks() {
				name = fmt.Sprintf("%s_%d_%d_%v", k.format, k.bits, k.group, k.scale)
			}
			b.Run(size.name+"/"+name, func(b *testing.B) {
				m := dtype.Matrix{Rows: size.outs, Cols: size.cols, Format: k.format, Bits: max(k.bits, -k.bits), Group: k.group, ScaleType: k.scale, Global: 1}
				if k.format.Blocks() {
					m = dtype.NewBlocks(k.format, size.outs, size.cols)
				}
				fillMatrix(&m, k.bits > 0)
				benchmarkProducts(b, dev, &m)
			})
		}
	}
}

// fillMatrix gives m such bytes, and scales that are not subnormal.
func fillMatrix(m *dtype.Matrix, zeros bool) {
	rng := rand.New(rand.NewPCG(1, 1))
	m.Data = repeated(rng, m.Rows*m.RowBytes())
	if m.Format.Blocks() {
		_, size := m.Format.BlockSize()
		for at := 0; at < len(m.Data); at += size {
			m.Format.PutHalves(m.Data[at:], func() uint16 { return 0x1012 })
		}
		return
	}
	m.Scales = make([]byte, m.Rows*m.ScaleRowBytes())
	for i := range m.Scales {
		m.Scales[i] = 0x3c
	}
	switch {
	case m.Format == dtype.Affine:
		m.Biases = m.Scales
	case m.Format == dtype.ZeroPoint && zeros:
		m.Zeros = make([]byte, m.Rows*m.Groups())
		for i := range m.Zeros {
			m.Zeros[i] = byte(i % 16)
		}
	}
}

// benchmarkProducts multiplies with as many layers as no cache has space for.
func benchmarkProducts(b *testing.B, dev *Backend, m *dtype.Matrix) {
	b.Helper()
	var list []backend.Weight
	for range layers {
		w, err := dev.Load(backend.Int8, *m)
		if err != nil {
			b.Fatal(err)
		}
		list = append(list, w)
		defer dev.Unload(w)
	}
	for _, rows := range []int{1, 4, 8, 16, 32, 512} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			x := &bench{tb: b, b: dev, rng: rand.New(rand.NewPCG(1, 1))}
			defer x.free()
			in, out, one := x.random(rows, m.Cols, 1), x.random(rows, m.Rows, 1), x.random(1, 1, 1)
			replay(b, dev, backend.Pass{Of: in.Mem, Batch: []backend.Seq{{N: rows}}}, one, func() {
				for _, w := range list {
					dev.MatMul(in, backend.Product{Dst: out, W: w})
				}
			})
			took := b.Elapsed().Seconds() / float64(b.N) / layers
			b.ReportMetric(float64(list[0].Bytes())/took/1e9, "GB/s")
			b.ReportMetric(8*float64(list[0].Bytes())/float64(m.Rows)/float64(m.Cols), "bits")
			b.ReportMetric(2*float64(rows)*float64(m.Rows)*float64(m.Cols)/took/1e12, "Tflop/s")
		})
	}
}
