//go:build cuda

package cuda

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/state"
)

// blockBench is a block drafter of a published shape with generated weights of 4 bits, and an output matrix
// of a draft vocabulary.
type blockBench struct {
	*bench
	b                                 *Backend
	width, wide                       int
	a                                 *backend.Attention
	q, k, v, o, gate, up, down, kinds []backend.Weight // of each layer
	fuse, out                         backend.Weight
	gain, base                        backend.Tensor
}

const (
	draftLayers, draftTaps = 5, 5
	draftVocabulary        = 32_768
)

func newBlockBench(b *testing.B, dev *Backend, width, wide int) *blockBench {
	b.Helper()
	d := &blockBench{bench: &bench{tb: b, b: dev, rng: rand.New(rand.NewPCG(1, 1))}, b: dev, width: width, wide: wide}
	d.a = &backend.Attention{Heads: 32, KVHeads: 8, HeadDim: 128, Eps: 1e-6, Freqs: make([]float32, 64), Block: true}
	d.a.QNorm, d.a.KNorm = d.random(1, 128, 1), d.random(1, 128, 1)
	d.gain, d.base = d.random(1, width, 1), d.random(2, width, 1)
	load := func(rows, cols int) backend.Weight {
		m := dtype.Matrix{Rows: rows, Cols: cols, Format: dtype.Affine, Bits: 4, Group: 64, ScaleType: dtype.BF16}
		fillMatrix(&m, false)
		w, err := dev.Load(backend.Int8, m)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { dev.Unload(w) })
		return w
	}
	for range draftLayers {
		d.q, d.k, d.v, d.o = append(d.q, load(4096, width)), append(d.k, load(1024, width)), append(d.v, load(1024, width)), append(d.o, load(width, 4096))
		d.gate, d.up, d.down = append(d.gate, load(wide, width)), append(d.up, load(wide, width)), append(d.down, load(width, wide))
		d.kinds = append(d.kinds, load(2*2*width/16, width))
	}
	d.fuse, d.out = load(width, draftTaps*width), load(draftVocabulary, width)
	return d
}

// place is where layer i lies in a page.
func (d *blockBench) place(i int) backend.Place {
	return backend.Place{Type: dtype.F16, Page: i * d.a.PageBytes(dtype.F16)}
}

// BenchmarkDraftBlock is one pass over a block of the published drafters of 9B and 27B, plain and with
// DFlash2's convolutions, behind a context; and appending rows to that context.
func BenchmarkDraftBlock(b *testing.B) {
	dev := open(b, Options{})
	for _, size := range []struct {
		name        string
		width, wide int
	}{{"9b", 4096, 12_288}, {"27b", 5120, 17_408}} {
		b.Run(size.name, func(b *testing.B) {
			b.Run("target", func(b *testing.B) { targetPass(b, dev, size.name) })
			d := newBlockBench(b, dev, size.width, size.wide)
			defer d.free()
			for _, c := range [][2]int{{1024, 0}, {16_384, 0}, {16_384, 2048}} { // context, window
				d.a.Window = c[1]
				s := backend.Seq{Pos: c[0]}
				for range (c[0] + 16 + 63) / 64 {
					s.Pages = append(s.Pages, d.alloc(dtype.I8, 1, draftLayers*d.a.PageBytes(dtype.F16)))
				}
				for _, rows := range []int{8, 16} {
					for _, convolved := range []bool{false, true} {
						b.Run(fmt.Sprintf("context=%d/window=%d/rows=%d/convolved=%v", c[0], c[1], rows, convolved), func(b *testing.B) { d.block(b, s, rows, convolved) })
					}
				}
				b.Run(fmt.Sprintf("context=%d/append=4", c[0]), func(b *testing.B) { d.append(b, s, 4) })
			}
		})
	}
}

// block measures a pass over a block.
func (d *blockBench) block(b *testing.B, s backend.Seq, rows int, convolved bool) {
	s.N, d.a.Rows = rows, rows
	p := backend.Pass{Of: new(int), Batch: []backend.Seq{s}}
	dev, one := d.b, d.random(1, 1, 1)
	x, h, mixed, o := d.random(rows, d.width, 1), d.random(rows, d.width, 1), d.random(rows, d.width, 1), d.random(rows, d.width, 1)
	q, k, v, y := d.random(rows, 4096, 1), d.random(rows, 1024, 1), d.random(rows, 1024, 1), d.random(rows, 4096, 1)
	gate, up, logits := d.random(rows, d.wide, 1), d.random(rows, d.wide, 1), d.random(rows, draftVocabulary, 1)
	half := 2 * d.width / 16
	kinds := d.random(rows, 2*half, 1)
	// sublayer is f between two convolutions, or f alone.
	sublayer := func(i int, f func(in backend.Tensor, out backend.Product)) {
		dev.RMSNorm(h, x, d.gain, 1e-6)
		if !convolved {
			f(h, backend.Product{Dst: x, Add: true})
			return
		}
		dev.MatMul(h, backend.Product{Dst: kinds, W: d.kinds[i]})
		dev.Convolve(mixed, h, &backend.Convolution{Base: d.base, Delta: kinds.ColRange(0, half)}, p.Batch)
		f(mixed, backend.Product{Dst: o})
		dev.Convolve(x, o, &backend.Convolution{Base: d.base, Delta: kinds.ColRange(half, 2*half), Add: true}, p.Batch)
	}
	replay(b, dev, p, one, func() {
		for i := range draftLayers {
			sublayer(i, func(in backend.Tensor, out backend.Product) {
				dev.MatMul(in, backend.Product{Dst: q, W: d.q[i]}, backend.Product{Dst: k, W: d.k[i]}, backend.Product{Dst: v, W: d.v[i]})
				dev.Attend(y, d.a, d.place(i), q, k, v, p.Batch)
				out.W = d.o[i]
				dev.MatMul(y, out)
			})
			sublayer(i, func(in backend.Tensor, out backend.Product) {
				dev.MatMul(in, backend.Product{Dst: gate, W: d.gate[i]}, backend.Product{Dst: up, W: d.up[i]})
				dev.GLU(gate, gate, up, backend.SiLU)
				out.W = d.down[i]
				dev.MatMul(gate, out)
			})
		}
		dev.RMSNorm(h, x, d.gain, 1e-6)
		dev.MatMul(h, backend.Product{Dst: logits, W: d.out})
	})
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N), "µs/pass")
	if !testing.Verbose() {
		return
	}
	costs, err := dev.Profile(20)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range costs {
		b.Logf("%6.1f µs in %2d of %s", c.Seconds*1e6, c.Count, c.Kernel)
	}
}

// targetPass measures a pass of the model that the drafter drafts for, over one token.
func targetPass(b *testing.B, dev *Backend, shape string) {
	m, err := model.Generate(shape, weights.BitsForm(4), dev, model.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close() //nolint:errcheck // what it does not free the device does
	s, err := state.NewPool(dev, 1<<32).Open(m.Layout())
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	run := func(n int) {
		out, err := m.Forward([]model.Span{{State: s, Tokens: make([]int32, n), Want: 1}})
		if err == nil {
			_, err = dev.Top(out.Logits, []backend.Ask{{Cols: out.Logits.Cols, K: 1}})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	for _, n := range []int{512, 1, 1, 1} {
		run(n)
	}
	for b.Loop() {
		run(1)
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N), "µs/pass")
}

// append measures a pass that appends rows to the context.
func (d *blockBench) append(b *testing.B, s backend.Seq, rows int) {
	s.Pos, s.N = s.Pos-rows, rows
	p := backend.Pass{Of: new(int), Batch: []backend.Seq{s}}
	dev, one := d.b, d.random(1, 1, 1)
	taps, c := d.random(rows, draftTaps*d.width, 1), d.random(rows, d.width, 1)
	k, v := d.random(rows, 1024, 1), d.random(rows, 1024, 1)
	replay(b, dev, p, one, func() {
		dev.MatMul(taps, backend.Product{Dst: c, W: d.fuse})
		dev.RMSNorm(c, c, d.gain, 1e-6)
		for i := range draftLayers {
			dev.MatMul(c, backend.Product{Dst: k, W: d.k[i]}, backend.Product{Dst: v, W: d.v[i]})
			dev.Attend(backend.Tensor{Cols: 4096}, d.a, d.place(i), backend.Tensor{Cols: 4096}, k, v, p.Batch)
		}
	})
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N), "µs/pass")
}
