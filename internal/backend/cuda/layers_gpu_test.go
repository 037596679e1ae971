//go:build cuda

package cuda

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// TestLongContexts compares attention with the CPU's where there are many pages: decoding, few rows
// in a ragged call, and a prompt.
func TestLongContexts(t *testing.T) {
	for _, c := range []struct {
		kind        dtype.Type
		context, kv int
		rows        []int
	}{
		{dtype.I8, 16_300, 4, []int{1, 4, 130, 512}},
		{dtype.I4, 16_300, 4, []int{1, 4, 130, 512}},
		{dtype.F16, 16_300, 2, []int{1, 4, 130}},
		{dtype.I8, 65_500, 1, []int{1, 32, 40}},
		{dtype.F16, 65_500, 1, []int{1, 8, 40}},
	} {
		t.Run(fmt.Sprintf("kind=%v/context=%d", c.kind, c.context), func(t *testing.T) {
			alike(t, open(t, Options{}), func(x *bench) [][]float32 {
				a := &backend.Attention{Heads: 4 * c.kv, KVHeads: c.kv, HeadDim: 256, Gate: true, Eps: 1e-6, Freqs: []float32{1, 0.3, 0.01}}
				return attendText(x, a, c.kind, c.context, c.rows...)
			})
		})
	}
}

// layers is how many layers a pass of a benchmark has, each with memory of its own, so that it does not
// stay in the cache.
const layers = 8

// free gives what a case has used back.
func (x *bench) free() {
	for _, t := range x.gone {
		x.b.Free(t)
	}
}

// replay measures a pass that is recorded.
func replay(b *testing.B, dev *Backend, p backend.Pass, one backend.Tensor, queue func()) {
	b.Helper()
	run := func() { dev.Pass(p, queue) }
	wait := func() {
		if _, err := dev.Host(one); err != nil {
			b.Fatal(err)
		}
	}
	for range 3 {
		run()
	}
	wait()
	for b.Loop() {
		run()
		wait()
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/layers, "µs/layer")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkDeltaNetLayer is a layer of 2B, 9B and 27B: decoding, verifying drafts with two to replay, a prompt.
func BenchmarkDeltaNetLayer(b *testing.B) {
	dev := open(b, Options{})
	for _, c := range [][3]int{
		{32, 1, 1},
		{32, 1, 4},
		{32, 1, 8},
		{32, 1, 16},
		{32, 1, 32},
		{32, 8, 1},
		{32, 8, 4},
		{32, 1, 512},
		{16, 1, 4},
		{16, 1, 32},
		{16, 1, 512},
		{48, 1, 4},
		{48, 1, 32},
		{48, 8, 4},
		{48, 1, 512},
	} {
		heads, seqs, rows := c[0], c[1], c[2]
		b.Run(fmt.Sprintf("heads=%d/seqs=%d/rows=%d", heads, seqs, rows), func(b *testing.B) {
			x := &bench{tb: b, b: dev, rng: rand.New(rand.NewPCG(1, 1))}
			defer x.free()
			d := &backend.DeltaNet{KeyHeads: 16, ValueHeads: heads, KeyDim: 128, ValueDim: 128, Kernel: 4, Eps: 1e-6}
			values, all := d.ValueHeads*d.ValueDim, seqs*rows
			d.Conv, d.Norm = x.random(4, d.Channels(), 1), x.random(1, d.ValueDim, 1)
			d.DecayRate, d.DecayBias = x.random(1, d.ValueHeads, -0.1), x.random(1, d.ValueHeads, 1)
			p := backend.Pass{Of: d}
			for i := range seqs {
				s := backend.Seq{First: i * rows, N: rows}
				if rows > 1 && rows < 100 {
					s.Drafts, s.Accepted = rows-1, 2
				}
				for range layers {
					s.Delta = append(s.Delta, backend.Recurrent{
						State: x.random(d.ValueHeads*d.KeyDim, d.ValueDim, 0.1), Tail: x.random(3+32, d.Channels(), 1),
						Keys: x.random(32, d.KeyHeads*d.KeyDim, 0.1), Deltas: x.random(32, values, 0.1), Decays: x.random(32, d.ValueHeads, 0.1),
					})
				}
				p.Batch = append(p.Batch, s)
			}
			in := backend.DeltaInput{QKV: x.random(all, d.Channels(), 1), Z: x.random(all, values, 1), B: x.random(all, d.ValueHeads, 1), A: x.random(all, d.ValueHeads, 1)}
			dst, one := x.alloc(dtype.F32, all, values), x.random(1, 1, 1)
			replay(b, dev, p, one, func() {
				for i := range layers {
					dev.DeltaNet(dst, d, backend.Place{Delta: i}, in, p.Batch)
				}
			})
		})
	}
}

// BenchmarkAttendLayer is a layer of 9B at a depth.
func BenchmarkAttendLayer(b *testing.B) {
	dev := open(b, Options{})
	for _, kind := range []dtype.Type{dtype.F16, dtype.I8, dtype.I4} {
		for _, depth := range []int{0, 1024, 16384} {
			for _, rows := range []int{1, 4, 8, 32, 512} {
				if depth == 0 && rows < 512 {
					continue
				}
				b.Run(fmt.Sprintf("kind=%v/depth=%d/rows=%d", kind, depth, rows), func(b *testing.B) {
					x := &bench{tb: b, b: dev, rng: rand.New(rand.NewPCG(1, 1))}
					defer x.free()
					a := &backend.Attention{Heads: 16, KVHeads: 4, HeadDim: 256, Gate: true, Eps: 1e-6, Freqs: make([]float32, 32)}
					a.QNorm, a.KNorm = x.random(1, 256, 1), x.random(1, 256, 1)
					s := backend.Seq{N: 512}
					for range (depth + 512 + 63) / 64 {
						s.Pages = append(s.Pages, x.alloc(dtype.I8, 1, layers*a.PageBytes(kind)))
					}
					q, k, v := x.random(512, a.Queries(), 1), x.random(512, 1024, 1), x.random(512, 1024, 1)
					dst, one := x.alloc(dtype.F32, 512, 4096), x.random(1, 1, 1)
					place := func(i int) backend.Place { return backend.Place{Type: kind, Page: i * a.PageBytes(kind)} }
					for s.Pos = 0; s.Pos < depth; s.Pos += 512 {
						for i := range layers {
							dev.Attend(dst.RowRange(0, 0), a, place(i), q.RowRange(0, 0), k, v, []backend.Seq{s})
						}
					}
					s.N, s.Pos = rows, depth
					p := backend.Pass{Of: a, Batch: []backend.Seq{s}}
					replay(b, dev, p, one, func() {
						for i := range layers {
							dev.Attend(dst.RowRange(0, rows), a, place(i), q.RowRange(0, rows), k.RowRange(0, rows), v.RowRange(0, rows), p.Batch)
						}
					})
				})
			}
		}
	}
}

// BenchmarkTopOfRows is the highest logits of a vocabulary of 248,320, and drawing from it.
func BenchmarkTopOfRows(b *testing.B) {
	dev := open(b, Options{})
	for _, rows := range []int{1, 4, 16} {
		x := &bench{tb: b, b: dev, rng: rand.New(rand.NewPCG(1, 1))}
		defer x.free()
		logits, ids := x.random(rows, 248_320, 3), x.alloc(dtype.F32, rows, 3)
		asks, draws := make([]backend.Ask, rows), make([]backend.Draw, rows)
		for i := range asks {
			asks[i].K, draws[i].Temperature, draws[i].Noise = 64, 0.7, uint64(i)
		}
		b.Run(fmt.Sprintf("top/rows=%d", rows), func(b *testing.B) {
			for b.Loop() {
				if _, err := dev.Top(logits, asks); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("draw/rows=%d", rows), func(b *testing.B) {
			for b.Loop() {
				dev.Draw(ids, logits, backend.Tensor{}, draws)
				if _, err := dev.Host(ids); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
