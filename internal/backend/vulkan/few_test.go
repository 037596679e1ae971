//go:build vulkan

package vulkan

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/vulkan/driver"
	"github.com/foretoken/foretoken/internal/dtype"
)

// BenchmarkFew times products of few rows with matrices of Qwen3.5 9B by variants of their kernel: outputs of a thread, and groups of a
// thread in a chunk. Every launch waits for the one before, and multiplies with another copy of the matrix, so that no cache has it.
// The first times are of kernels that do almost nothing.
func BenchmarkFew(b *testing.B) {
	dev, err := Open(Options{}, levels())
	if err != nil {
		b.Fatal(err)
	}
	defer dev.Close() //nolint:errcheck // the process ends
	took := func(b *testing.B, n int, launch func(c driver.Commands, i int)) time.Duration {
		b.Helper()
		var times []time.Duration
		for began := time.Now(); time.Since(began) < 30*time.Millisecond; { // the device is fast after some work
			var err error
			if times, err = dev.timed(2, func(c driver.Commands, clock driver.Clock) {
				c.Fence()
				c.Mark(clock, 0)
				for i := range n {
					launch(c, i)
				}
				c.Fence()
				c.Mark(clock, 1)
			}); err != nil {
				b.Fatal(err)
			}
		}
		return times[1] / time.Duration(n)
	}
	fill, err := dev.kernel("fill")
	if err != nil {
		b.Fatal(err)
	}
	some := dev.scratch(1 << 20)
	for _, groups := range []int{1, 256} {
		for _, fence := range []bool{true, false} {
			b.Run(fmt.Sprintf("fill/groups=%d/fence=%t", groups, fence), func(b *testing.B) {
				args := packed(nil, some, 0, 64*groups, float32(0))
				b.ReportMetric(float64(took(b, 500, func(c driver.Commands, _ int) {
					if fence {
						c.Fence()
					}
					c.Launch(fill, [3]int{groups, 1, 1}, args)
				}).Nanoseconds())/1e3, "µs")
			})
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, shape := range [][2]int{{4096, 4096}, {4096, 12288}, {24576, 4096}, {248320, 4096}} {
		m := dtype.Matrix{Rows: shape[0], Cols: shape[1], Format: dtype.Affine, Bits: 4, Group: 64, ScaleType: dtype.BF16}
		m.Data, m.Scales = make([]byte, m.Rows*m.RowBytes()), make([]byte, m.Rows*m.ScaleRowBytes())
		m.Biases = make([]byte, len(m.Scales))
		for i := 0; i < len(m.Data); i++ {
			m.Data[i] = byte(i * 7)
		}
		for i := 0; i < len(m.Scales); i += 2 {
			m.Scales[i+1], m.Biases[i+1] = 0x3c, 0xbc
		}
		loaded, err := dev.Load(backend.Int8, m)
		if err != nil {
			b.Fatal(err)
		}
		w := dev.weight(loaded)
		l := &w.l
		bytes := l.Tiles * l.TileSize
		copies := max(1, 800<<20/bytes)
		head, err := dev.memory.Alloc(int64(copies * bytes))
		if err != nil {
			b.Fatal(err)
		}
		for i := range copies {
			dev.copyBytes(head+driver.Ptr(i*bytes), w.head+headBytes, int64(bytes))
		}
		x, err := dev.Alloc(dtype.F32, 8, shape[1])
		if err != nil {
			b.Fatal(err)
		}
		dst, err := dev.Alloc(dtype.F32, 8, shape[0])
		if err != nil {
			b.Fatal(err)
		}
		list := make([]float32, 8*shape[1])
		for i := range list {
			list[i] = float32(rng.NormFloat64())
		}
		if err := dev.Write(x, list); err != nil {
			b.Fatal(err)
		}
		dev.begin()
		known := []rows{}
		in := dev.prepare(x, w, &known)
		if err := dev.wait(); err != nil {
			b.Fatal(err)
		}
		for _, n := range []int{1, 2, 4, 8} {
			for _, own := range []int{1, 2, 4} {
				for _, each := range []int{1, 2, 4} {
					if own*each*n > 8 {
						continue
					}
					b.Run(fmt.Sprintf("%dx%d/rows=%d/own=%d/each=%d", shape[0], shape[1], n, own, each), func(b *testing.B) {
						k, err := dev.kernel(fmt.Sprintf("product_few:%d,4,64,0,0,%d,%d", n, own, each))
						if err != nil {
							b.Fatal(err)
						}
						t := took(b, copies, func(c driver.Commands, i int) {
							c.Fence()
							c.Launch(k, [3]int{l.Tiles, 1, 1}, packed(nil, head+driver.Ptr(i*bytes), driver.Ptr(0), in.codes, in.tails, dev.at(dst), driver.Ptr(0), driver.Ptr(0),
								driver.Ptr(0), driver.Ptr(0), l.TileSize, l.Groups, w.Rows(), l.Block, l.Zeros, in.tailRows, in.coded, dst.Stride, n, false, l.First, l.Zero))
						})
						b.ReportMetric(float64(t.Nanoseconds())/1e3, "µs")
						b.ReportMetric(float64(bytes)/float64(t.Nanoseconds()), "GB/s")
					})
				}
			}
		}
		if err := dev.memory.Free(head); err != nil {
			b.Fatal(err)
		}
		dev.Free(x)
		dev.Free(dst)
		dev.Unload(w)
	}
}
