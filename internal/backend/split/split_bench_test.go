package split

import (
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/dtype"
)

// idle is a device that has memory and computes nothing.
type idle struct{ backend.Backend }

func (*idle) MatMul(backend.Tensor, ...backend.Product)                       {}
func (*idle) Embed(backend.Tensor, backend.Weight, []int32, float32)          {}
func (*idle) RMSNorm(_, _, _ backend.Tensor, _ float32)                       {}
func (i *idle) Load(backend.Compute, ...dtype.Matrix) (backend.Weight, error) { return nil, nil }

// square is a weight without numbers.
type square int

func (n square) Rows() int  { return int(n) }
func (n square) Cols() int  { return int(n) }
func (square) Count() int   { return 1 }
func (square) Bytes() int64 { return 0 }

// BenchmarkPass is what a pass costs beside its operations: 512 of them on rows of 5120 numbers, with
// a number of borders between, on two devices or four.
func BenchmarkPass(b *testing.B) {
	for _, c := range []struct {
		name             string
		devices, borders int
	}{{"borders=0", 2, 0}, {"borders=1", 2, 1}, {"borders=2", 2, 2}, {"borders=128", 2, 128}, {"devices=4/borders=128", 4, 128}} {
		b.Run(c.name, func(b *testing.B) {
			cpu := backendtest.Open(b, backend.Options{Threads: 1})
			var list []backend.Backend
			for range c.devices {
				list = append(list, &idle{cpu})
			}
			x, err := New(func(backend.Part) int { return 0 }, list...)
			if err != nil {
				b.Fatal(err)
			}
			d := x.(*Device)
			w := make([]backend.Weight, c.devices)
			for s := range w {
				w[s] = &weight{d, s, square(5120)}
			}
			h, err := d.Alloc(dtype.F32, 1, 5120)
			if err != nil {
				b.Fatal(err)
			}
			const ops = 512
			p := backend.Pass{Of: d, IDs: []int32{1}, Batch: []backend.Seq{{N: 1}}}
			b.ReportAllocs()
			for b.Loop() {
				d.Pass(p, func() {
					d.Embed(h, w[0], p.IDs, 0)
					for i := range ops {
						d.MatMul(h, backend.Product{Dst: h, W: w[i*(c.borders+1)/ops%c.devices], Add: true})
					}
				})
			}
		})
	}
}
