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

// repeatedMatrix is a matrix of such bytes and of scales that are not subnormal.
func repeatedMatrix(b *testing.B, f dtype.Format, outs, cols int) dtype.Matrix {
	b.Helper()
	rng := rand.New(rand.NewPCG(1, 1))
	if f == dtype.Affine {
		m, err := dtype.NewAffine(outs, cols, 4, 64, dtype.BF16)
		if err != nil {
			b.Fatal(err)
		}
		m.Data = repeated(rng, len(m.Data))
		for i := 1; i < len(m.Scales); i += 2 {
			m.Scales[i], m.Biases[i] = 0x3c, 0xbd
		}
		return m
	}
	m := dtype.NewBlocks(f, outs, cols)
	m.Data = repeated(rng, outs*m.RowBytes())
	_, size := f.BlockSize()
	places := map[dtype.Format][]int{dtype.Q4K: {1, 3}, dtype.Q5K: {1, 3}, dtype.Q6K: {209}, dtype.IQ4XS: {1}}[f]
	for at := 0; at < len(m.Data); at += size {
		for _, p := range places {
			m.Data[at+p] = 0x10
		}
	}
	return m
}

// BenchmarkSuperProducts is products with a layer's up projection: 4 bits in groups of 64, and superblocks.
func BenchmarkSuperProducts(b *testing.B) {
	dev := open(b, Options{})
	for _, shape := range [][2]int{{6144, 2048}, {12288, 4096}, {17408, 5120}} {
		outs, cols := shape[0], shape[1]
		for _, f := range append([]dtype.Format{dtype.Affine}, superFormats...) {
			b.Run(fmt.Sprintf("%v/%dx%d", f, outs, cols), func(b *testing.B) {
				m := repeatedMatrix(b, f, outs, cols)
				var list []backend.Weight
				for range layers {
					w, err := dev.Load(backend.Int8, m)
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
						in, out, one := x.random(rows, cols, 1), x.random(rows, outs, 1), x.random(1, 1, 1)
						replay(b, dev, backend.Pass{Of: in.Mem, Batch: []backend.Seq{{N: rows}}}, one, func() {
							for _, w := range list {
								dev.MatMul(in, backend.Product{Dst: out, W: w})
							}
						})
						took := b.Elapsed().Seconds() / float64(b.N) / layers
						b.ReportMetric(float64(list[0].Bytes())/took/1e9, "GB/s")
						b.ReportMetric(2*float64(rows)*float64(outs)*float64(cols)/took/1e12, "Tflop/s")
					})
				}
			})
		}
	}
}
