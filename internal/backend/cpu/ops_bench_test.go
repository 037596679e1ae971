package cpu

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/exactmath"
)

// Shapes of the 2B and 4B members of the family.

// attention is a layer of the 2B shape with one sequence at position pos, whose rows may be a block.
func attention(b testing.TB, be *Backend, kind dtype.Type, rows, pos int, block bool) func() {
	b.Helper()
	const heads, kvHeads, dim = 8, 2, 256
	rng := rand.New(rand.NewPCG(2, 2))
	freqs := make([]float32, 32)
	for i := range freqs {
		freqs[i] = 1 / float32(i+1)
	}
	a := &backend.Attention{Heads: heads, KVHeads: kvHeads, HeadDim: dim, Gate: true, Eps: 1e-6, Freqs: freqs, Block: block}
	a.QNorm, a.KNorm = randomTensor(b, be, rng, 1, dim), randomTensor(b, be, rng, 1, dim)
	q, k := randomTensor(b, be, rng, rows, 2*heads*dim), randomTensor(b, be, rng, rows, kvHeads*dim)
	v, dst := randomTensor(b, be, rng, rows, kvHeads*dim), randomTensor(b, be, rng, rows, heads*dim)
	sample := make([]float32, 4093)
	for i := range sample {
		sample[i] = float32(rng.NormFloat64())
	}
	at := backend.Place{Type: kind}
	op := attendOp{b: be, a: a, at: at, q: q, k: k, v: v, dst: dst}
	op.shape()
	seq := backend.Seq{N: rows, Pos: pos}
	for i := 0; i*backend.PageTokens < pos+rows; i++ {
		p, err := be.Alloc(dtype.I8, 1, a.PageBytes(kind))
		if err != nil {
			b.Fatal(err)
		}
		buf := &attendBuffers{}
		for j := range kvHeads * backend.PageTokens {
			h, slot := j/backend.PageTokens, j%backend.PageTokens
			op.store(buf, op.rows(p, 0, h), slot, sample[(7*i+13*j)%(len(sample)-dim):][:dim], dim)
			op.store(buf, op.rows(p, 1, h), slot, sample[(7*i+17*j)%(len(sample)-dim):][:dim], 0)
		}
		seq.Pages = append(seq.Pages, p)
	}
	batch := []backend.Seq{seq}
	return func() { be.Attend(dst, a, at, q, k, v, batch) }
}

// BenchmarkAttend counts the bytes of keys and values that a call must read.
func BenchmarkAttend(b *testing.B) {
	for _, isa := range runnable() {
		for _, c := range [][2]int{{1, 100}, {1, 16000}, {4, 16000}, {512, 0}, {512, 16000}} {
			if isa == generic && c[0]*c[1] > 1000 {
				continue
			}
			for _, kind := range []dtype.Type{dtype.F16, dtype.I8, dtype.I4} {
				b.Run(fmt.Sprintf("m=%d/pos=%d/type=%v/isa=%s", c[0], c[1], kind, isa), func(b *testing.B) {
					run := attention(b, openTest(b, Options{ISA: isa}), kind, c[0], c[1], false)
					b.SetBytes(int64(c[0]+c[1]) * int64((&backend.Attention{KVHeads: 2, HeadDim: 256}).PageBytes(kind)/backend.PageTokens))
					for b.Loop() {
						run()
					}
				})
			}
		}
	}
}

// BenchmarkDraftBlock compares attention of a block with that of as many rows of a text, alternating, and
// times the convolution of a block of the 27B drafter's width.
func BenchmarkDraftBlock(b *testing.B) {
	for _, isa := range runnable() {
		if isa == generic {
			continue
		}
		be := openTest(b, Options{ISA: isa})
		for _, rows := range []int{8, 16} {
			for _, kind := range []dtype.Type{dtype.F16, dtype.I8, dtype.I4} {
				b.Run(fmt.Sprintf("attend/m=%d/type=%v/isa=%s", rows, kind, isa), func(b *testing.B) {
					run := [2]func(){attention(b, be, kind, rows, 4000, false), attention(b, be, kind, rows, 4000, true)}
					var took [2]time.Duration
					for b.Loop() {
						for i := range run {
							start := time.Now()
							run[i]()
							took[i] += time.Since(start)
						}
					}
					b.ReportMetric(float64(took[1].Nanoseconds())/float64(b.N), "ns/block")
					b.ReportMetric(float64(took[1])/float64(took[0]), "of-text")
				})
			}
			b.Run(fmt.Sprintf("convolve/m=%d/isa=%s", rows, isa), func(b *testing.B) {
				run := convolution(b, be, rows, 5120)
				for b.Loop() {
					run()
				}
			})
		}
	}
}

// convolution is one of two taps in groups of 16 channels.
func convolution(b testing.TB, be *Backend, rows, cols int) func() {
	b.Helper()
	rng := rand.New(rand.NewPCG(4, 4))
	c := &backend.Convolution{Base: randomTensor(b, be, rng, 2, cols), Delta: randomTensor(b, be, rng, rows, 2*cols/16)}
	x, dst, batch := randomTensor(b, be, rng, rows, cols), randomTensor(b, be, rng, rows, cols), []backend.Seq{{N: rows}}
	return func() { be.Convolve(dst, x, c, batch) }
}

// deltaNet is a layer of the 4B shape with as many states as copies, used in turn.
func deltaNet(b testing.TB, be *Backend, rows, drafts, copies int) func() {
	b.Helper()
	rng := rand.New(rand.NewPCG(3, 3))
	d := &backend.DeltaNet{KeyHeads: 16, ValueHeads: 32, KeyDim: 128, ValueDim: 128, Kernel: 4, Eps: 1e-6}
	n := d.Channels()
	d.Conv, d.Norm = randomTensor(b, be, rng, 4, n), randomTensor(b, be, rng, 1, 128)
	d.DecayBias, d.DecayRate = randomTensor(b, be, rng, 1, 32), randomTensor(b, be, rng, 1, 32)
	for i, x := range row(d.DecayRate, 0) {
		row(d.DecayRate, 0)[i] = -exactmath.Abs32(x)
	}
	in := backend.DeltaInput{
		QKV: randomTensor(b, be, rng, rows, n), Z: randomTensor(b, be, rng, rows, 4096),
		B: randomTensor(b, be, rng, rows, 32), A: randomTensor(b, be, rng, rows, 32),
	}
	dst := randomTensor(b, be, rng, rows, 4096)
	seq := backend.Seq{N: rows, Drafts: drafts, Accepted: drafts}
	for range copies {
		seq.Delta = append(seq.Delta, backend.Recurrent{
			State: randomTensor(b, be, rng, 32*128, 128), Tail: randomTensor(b, be, rng, 3+drafts, n),
			Keys: randomTensor(b, be, rng, drafts, 16*128), Deltas: randomTensor(b, be, rng, drafts, 4096), Decays: randomTensor(b, be, rng, drafts, 32),
		})
		decays := seq.Delta[len(seq.Delta)-1].Decays.Mem.(*memory).f32
		kernel.Generic.Vector.Sigmoids(decays, decays)
	}
	batch := []backend.Seq{seq}
	layer := 0
	return func() {
		be.DeltaNet(dst, d, backend.Place{Delta: layer}, in, batch)
		layer = (layer + 1) % copies
	}
}

// BenchmarkDeltaNet counts the bytes of state that a call reads and writes.
func BenchmarkDeltaNet(b *testing.B) {
	for _, isa := range runnable() {
		for _, c := range [][3]int{{1, 0, 1}, {1, 0, 24}, {4, 3, 24}, {512, 0, 1}} {
			if isa == generic && c[0] > 1 {
				continue
			}
			b.Run(fmt.Sprintf("m=%d/drafts=%d/layers=%d/isa=%s", c[0], c[1], c[2], isa), func(b *testing.B) {
				run := deltaNet(b, openTest(b, Options{ISA: isa}), c[0], c[1], c[2])
				b.SetBytes(2 * 32 * 128 * 128 * 4)
				for b.Loop() {
					run()
				}
			})
		}
	}
}

// mixture is a block of the 35B-A3B shape with fewer experts to choose from.
func mixture(b testing.TB, be *Backend) *backend.Experts {
	b.Helper()
	const width, inner, experts = 2048, 512, 32
	rng := rand.New(rand.NewPCG(4, 4))
	load := func(rows, cols, count int) backend.Weight {
		m := randomCodes(rng, rows, cols, dtype.Affine, 64, 4, dtype.F32)
		m.Bits, m.Biases = 4, m.Scales
		stack := make([]dtype.Matrix, count)
		for i := range stack {
			stack[i] = m
		}
		w, err := be.Load(backend.Int8, stack...)
		if err != nil {
			b.Fatal(err)
		}
		return w
	}
	return &backend.Experts{
		TopK: 8, Normalize: true, Router: load(experts, width, 1), SharedRouter: load(1, width, 1),
		Gate: load(inner, width, experts), Up: load(inner, width, experts), Down: load(width, inner, experts),
		SharedGate: load(inner, width, 1), SharedUp: load(inner, width, 1), SharedDown: load(width, inner, 1),
	}
}

// BenchmarkExperts counts the bytes of the experts that were chosen.
func BenchmarkExperts(b *testing.B) {
	rng := rand.New(rand.NewPCG(5, 5))
	for _, isa := range runnable() {
		be := openTest(b, Options{ISA: isa})
		e := mixture(b, be)
		for _, m := range []int{1, 4} {
			if isa == generic && m > 1 {
				continue
			}
			b.Run(fmt.Sprintf("m=%d/isa=%s", m, isa), func(b *testing.B) {
				x, dst := randomTensor(b, be, rng, m, e.Router.Cols()), randomTensor(b, be, rng, m, e.Router.Cols())
				be.Experts(dst, x, backend.Tensor{}, e)
				b.SetBytes(int64(len(be.experts.jobs)) * 3 * e.SharedGate.Bytes())
				for b.Loop() {
					be.Experts(dst, x, backend.Tensor{}, e)
				}
			})
		}
	}
}
