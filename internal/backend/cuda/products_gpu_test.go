//go:build cuda

package cuda

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// BenchmarkFeedForward is norm, gate and projections of the dense layers of 2B, 9B and 27B, by format.
func BenchmarkFeedForward(b *testing.B) {
	dev := open(b, Options{})
	integers := func(f dtype.Format, bits, group int, scale dtype.Type) func(rows, cols int) dtype.Matrix {
		return func(rows, cols int) dtype.Matrix {
			m := dtype.Matrix{Rows: rows, Cols: cols, Format: f, Bits: bits, Group: group, ScaleType: scale, Global: 0.3}
			fillMatrix(&m, false)
			return m
		}
	}
	blocks := func(f dtype.Format) func(rows, cols int) dtype.Matrix {
		return func(rows, cols int) dtype.Matrix {
			m := dtype.NewBlocks(f, rows, cols)
			fillMatrix(&m, false)
			return m
		}
	}
	for _, size := range []struct {
		name       string
		cols, wide int
	}{{"2b", 2048, 6144}, {"9b", 4096, 12_288}, {"27b", 5120, 17_408}} {
		for _, format := range []struct {
			name   string
			matrix func(rows, cols int) dtype.Matrix
		}{
			{"affine4", integers(dtype.Affine, 4, 64, dtype.BF16)},
			{"Q4_0", blocks(dtype.Q4_0)},
			{"IQ4_NL", blocks(dtype.IQ4NL)},
			{"nvfp4", integers(dtype.NVFP4, 0, 16, dtype.F8E4M3)},
			{"mxfp4", integers(dtype.MXFP4, 0, 32, dtype.F8E8M0)},
			{"affine8", integers(dtype.Affine, 8, 64, dtype.BF16)},
			{"Q8_0", blocks(dtype.Q8_0)},
		} {
			b.Run(size.name+"/"+format.name, func(b *testing.B) {
				var all [][3]backend.Weight
				bytes := int64(0)
				up, down := format.matrix(size.wide, size.cols), format.matrix(size.cols, size.wide)
				for range layers {
					var layer [3]backend.Weight
					for i, m := range []dtype.Matrix{up, up, down} {
						w, err := dev.Load(backend.Int8, m)
						if err != nil {
							b.Fatal(err)
						}
						defer dev.Unload(w)
						layer[i] = w
						bytes += w.(*weight).Bytes()
					}
					all = append(all, layer)
				}
				for _, rows := range []int{1, 2, 4, 8, 16, 32, 512} {
					b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
						x := &bench{tb: b, b: dev, rng: rand.New(rand.NewPCG(1, 1))}
						defer x.free()
						in, h, gain := x.random(rows, size.cols, 1), x.random(rows, size.cols, 1), x.random(1, size.cols, 1)
						gate, up, one := x.random(rows, size.wide, 1), x.random(rows, size.wide, 1), x.random(1, 1, 1)
						replay(b, dev, backend.Pass{Of: x, Batch: []backend.Seq{{N: rows}}}, one, func() {
							for _, w := range all {
								dev.RMSNorm(h, in, gain, 1e-6)
								dev.MatMul(h, backend.Product{Dst: gate, W: w[0]}, backend.Product{Dst: up, W: w[1]})
								dev.GLU(gate, gate, up, backend.SiLU)
								dev.MatMul(gate, backend.Product{Dst: in, W: w[2]})
							}
						})
						b.ReportMetric(float64(bytes)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
					})
				}
			})
		}
	}
}

// BenchmarkDeltaInputs is norm and products before the recurrence of the layers of 2B, 9B and 27B, whose rates of decay and of
// learning are plain numbers in many files: in the format of the others, as float32 by the kernels for few outputs, and by those
// for many.
func BenchmarkDeltaInputs(b *testing.B) {
	dev := open(b, Options{})
	shared := dev.info.Shared
	for _, size := range []struct {
		name              string
		cols, wide, heads int
	}{{"2b", 2048, 8192, 16}, {"9b", 4096, 12_288, 32}, {"27b", 5120, 16_384, 48}} {
		x := &bench{tb: b, b: dev, rng: rand.New(rand.NewPCG(1, 1))}
		matrix := func(outs, bits int) dtype.Matrix {
			return randomMatrix(b, x.rng, outs, size.cols, bits, 64, dtype.BF16)
		}
		wide, same, plain := matrix(size.wide, 4), matrix(size.heads, 4), matrix(size.heads, 0)
		var all [][5]backend.Weight
		for range layers {
			var layer [5]backend.Weight
			for i, m := range []dtype.Matrix{wide, same, same, plain, plain} {
				w, err := dev.Load(backend.Int8, m)
				if err != nil {
					b.Fatal(err)
				}
				layer[i] = w
			}
			all = append(all, layer)
		}
		for _, rows := range []int{1, 2, 4, 8, 32} {
			for _, kind := range []string{"none", "same", "narrow", "many"} {
				b.Run(fmt.Sprintf("%s/rows=%d/%s", size.name, rows, kind), func(b *testing.B) {
					x := &bench{tb: b, b: dev, rng: rand.New(rand.NewPCG(1, 1))}
					defer x.free()
					defer func() { dev.info.Shared = shared }()
					in, h, gain := x.random(rows, size.cols, 1), x.random(rows, size.cols, 1), x.random(1, size.cols, 1)
					wide, alpha, beta, one := x.random(rows, size.wide, 1), x.random(rows, size.heads, 1), x.random(rows, size.heads, 1), x.random(1, 1, 1)
					if kind == "many" {
						dev.info.Shared = 48 << 10
					}
					replay(b, dev, backend.Pass{Of: x, Batch: []backend.Seq{{N: rows}}}, one, func() {
						for _, w := range all {
							dev.RMSNorm(h, in, gain, 1e-6)
							list := []backend.Product{{Dst: wide, W: w[0]}, {Dst: alpha, W: w[1]}, {Dst: beta, W: w[2]}}
							switch kind {
							case "none":
								list = list[:1]
							case "narrow", "many":
								list[1].W, list[2].W = w[3], w[4]
							}
							dev.MatMul(h, list...)
						}
					})
				})
			}
		}
		for _, layer := range all {
			for _, w := range layer {
				dev.Unload(w)
			}
		}
	}
}
