package cpu

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
	"github.com/foretoken/foretoken/internal/dtype"
)

// attendOptions is an attention layer with some options, and the bits it gives: portable code
// defines them, and nothing may change them unnoticed.
type attendOptions struct {
	name         string
	a            backend.Attention
	qNorm, kNorm bool
	positions    bool   // rows have three positions of their own
	bits         uint64 // with pages of every kind
}

var optionKinds = [4]dtype.Type{dtype.F32, dtype.F16, dtype.I8, dtype.I4}

func attendVariants() []attendOptions {
	plain := backend.Attention{Heads: 4, KVHeads: 2, HeadDim: 16, Eps: 1e-6, Freqs: []float32{1, 0.3, 0.01}}
	with := func(change func(a *backend.Attention)) backend.Attention {
		a := plain
		change(&a)
		return a
	}
	latent := backend.Attention{Heads: 3, KVHeads: 1, HeadDim: 48, Latent: 32, Eps: 1e-6, Scale: 0.2, Freqs: []float32{1, 0.5, 0.25, 0.1, 0.05, 0.02, 0.01, 0.003}}
	latentWith := func(change func(a *backend.Attention)) backend.Attention {
		a := latent
		change(&a)
		return a
	}
	wide := func(change func(a *backend.Attention)) backend.Attention { // as kernel.Prompt wants it
		a := backend.Attention{Heads: 4, KVHeads: 1, HeadDim: 64, Eps: 1e-6, Gate: true, Freqs: latent.Freqs}
		change(&a)
		return a
	}
	return []attendOptions{
		{name: "nothing", a: with(func(a *backend.Attention) { a.Freqs = nil }), bits: 0xe67ed10d5ecdbb36},
		{name: "rotation", a: plain, bits: 0xe5cf3d11149fa542},
		{name: "norms", a: plain, qNorm: true, kNorm: true, bits: 0x3244b472e1ba5160},
		{name: "key norm", a: plain, kNorm: true, bits: 0x206123b7672479f1},
		{name: "gate", a: with(func(a *backend.Attention) { a.Gate = true }), bits: 0x79dcb56b4b71baa9},
		{name: "all of Qwen", a: with(func(a *backend.Attention) { a.Gate = true }), qNorm: true, kNorm: true, bits: 0x39b3956d49653f20},
		{name: "scale", a: with(func(a *backend.Attention) { a.Scale = 0.05 }), bits: 0xe0c0a5a16b20a90d},
		{name: "wide values", a: with(func(a *backend.Attention) { a.ValueDim = 32 }), bits: 0x7ffc10fca00231bf},
		{name: "narrow values", a: with(func(a *backend.Attention) { a.HeadDim, a.ValueDim, a.Gate = 32, 16, true }), qNorm: true, bits: 0x0fea0b9516e04f7d},
		{name: "odd widths", a: backend.Attention{Heads: 6, KVHeads: 3, HeadDim: 10, ValueDim: 7, Eps: 1e-6, Freqs: []float32{1, 0.1}, Gate: true}, kNorm: true, bits: 0x61ab2144eeefd452},
		{name: "interleaved", a: with(func(a *backend.Attention) { a.Interleaved = true }), bits: 0xecb615e2f814c375},
		{name: "turn", a: with(func(a *backend.Attention) { a.Turn = 1.25 }), bits: 0x86251836e73e9ffb},
		{name: "whole rotation", a: with(func(a *backend.Attention) { a.HeadDim = 6 }), bits: 0x6e0a0f54d4186e8e},
		{name: "sections", a: with(func(a *backend.Attention) { a.Sections = []uint8{0, 2, 1} }), positions: true, bits: 0x6b1ce29c30515a9d},
		{name: "positions", a: plain, positions: true, bits: 0x859586b2b26e026f},
		{name: "window 1", a: with(func(a *backend.Attention) { a.Window = 1 }), bits: 0xb880cd27a2f15c89},
		{name: "window 20", a: with(func(a *backend.Attention) { a.Window = 20 }), bits: 0x4cc80ecd71d3e160},
		{name: "window 64", a: with(func(a *backend.Attention) { a.Window, a.Gate = 64, true }), qNorm: true, kNorm: true, bits: 0xac4a67d96ec94ca8},
		{name: "window 100", a: with(func(a *backend.Attention) { a.Window = 100 }), bits: 0x9a2dae84652e6dbd},
		{name: "latent", a: latent, bits: 0x3c5ea78ae2502f70},
		{name: "latent norm", a: latent, kNorm: true, bits: 0x02e6b3772cecaa7a},
		{name: "latent window", a: latentWith(func(a *backend.Attention) { a.Window, a.Interleaved = 70, true }), qNorm: true, kNorm: true, bits: 0xc3e390b6e7902c13},
		{name: "latent gate", a: latentWith(func(a *backend.Attention) { a.Gate = true }), bits: 0x28a68587674568bf},
		{name: "latent turn", a: latentWith(func(a *backend.Attention) { a.Turn, a.Interleaved = 1.25, true }), kNorm: true, bits: 0xce10eb46febe699d},
		{name: "odd latent", a: latentWith(func(a *backend.Attention) { a.HeadDim, a.Latent, a.Freqs = 13, 7, a.Freqs[:2] }), kNorm: true, bits: 0x0753bf16dabd3966},
		{name: "wide", a: wide(func(*backend.Attention) {}), qNorm: true, kNorm: true, bits: 0x0d66edc77f175a60},
		{name: "wide window", a: wide(func(a *backend.Attention) { a.Window = 90 }), kNorm: true, bits: 0x3411257c24f0fc4a},
		{name: "wide latent", a: wide(func(a *backend.Attention) { a.Heads, a.HeadDim, a.Latent = 5, 80, 64 }), kNorm: true, bits: 0x0e096e98ec072d36},
		{name: "latent without rotation", a: latentWith(func(a *backend.Attention) { a.HeadDim, a.Freqs = 32, nil }), bits: 0x0229de4c25df23cd},
	}
}

// optionInput is what a layer is fed: a sequence from its beginning.
type optionInput struct {
	q, k, v, dst backend.Tensor
	seq          backend.Seq
}

const optionRows = 150 // more than two pages

// open makes the layer and its input on a backend.
func (c *attendOptions) open(t *testing.T, b *Backend, kind dtype.Type) (*backend.Attention, *optionInput) {
	t.Helper()
	rng := rand.New(rand.NewPCG(11, 11))
	a := c.a
	gain := a.HeadDim
	if a.Latent > 0 {
		gain = a.Latent
	}
	if norm := randomTensor(t, b, rng, 1, gain); c.qNorm {
		a.QNorm = norm
	}
	if norm := randomTensor(t, b, rng, 1, gain); c.kNorm {
		a.KNorm = norm
	}
	x := &optionInput{
		q: randomTensor(t, b, rng, optionRows, a.Queries()), k: randomTensor(t, b, rng, optionRows, a.KVHeads*a.HeadDim),
		dst: randomTensor(t, b, rng, optionRows, a.Heads*a.Values()),
	}
	if a.Latent == 0 {
		x.v = randomTensor(t, b, rng, optionRows, a.KVHeads*a.Values())
	}
	for range (optionRows + backend.PageTokens - 1) / backend.PageTokens {
		p, err := b.Alloc(dtype.I8, 1, optionPlace(kind).Page+a.PageBytes(kind))
		if err != nil {
			t.Fatal(err)
		}
		noise := make([]byte, p.Cols)
		for i := range noise {
			noise[i] = 0xff // what was not written is not a number
		}
		if err := b.WriteBytes(p, noise); err != nil {
			t.Fatal(err)
		}
		x.seq.Pages = append(x.seq.Pages, p)
	}
	if c.positions {
		x.seq.Positions = make([][3]int32, optionRows)
		for i := range x.seq.Positions {
			for j := range x.seq.Positions[i] {
				x.seq.Positions[i][j] = int32(rng.IntN(100))
			}
		}
	}
	return &a, x
}

// optionPlace leaves room for another layer.
func optionPlace(kind dtype.Type) backend.Place { return backend.Place{Type: kind, Page: 128} }

// rows is the part of the input from row i on.
func (x *optionInput) rows(i, n, first int) (q, k, v, dst backend.Tensor, seq backend.Seq) {
	seq = x.seq
	seq.First, seq.N, seq.Pos = first, n, i
	if seq.Positions != nil {
		seq.Positions = seq.Positions[i : i+n]
	}
	if v = x.v; v.Mem != nil {
		v = v.RowRange(i, i+n)
	}
	return x.q.RowRange(i, i+n), x.k.RowRange(i, i+n), v, x.dst.RowRange(i, i+n), seq
}

// run feeds the input, step rows at a time, and returns output and pages.
func (c *attendOptions) run(t *testing.T, b *Backend, kind dtype.Type, step int) [][]float32 {
	t.Helper()
	a, x := c.open(t, b, kind)
	for i := 0; i < optionRows; i += step {
		q, k, v, dst, seq := x.rows(i, min(step, optionRows-i), 0)
		b.Attend(dst, a, optionPlace(kind), q, k, v, []backend.Seq{seq})
	}
	all := [][]float32{bits(t, x.dst)}
	for _, p := range x.seq.Pages {
		all = append(all, bits(t, p))
	}
	return all
}

// TestAttendOptionsEqualFloat64 compares every option with attention as it is written in
// papers, in float64: of a text, and of a block.
func TestAttendOptionsEqualFloat64(t *testing.T) {
	b := openTest(t, Options{Threads: 1})
	variants := attendVariants()
	for _, c := range variants {
		c.name += ", block"
		c.a.Block = true
		variants = append(variants, c)
	}
	for _, c := range variants {
		want := attentionByDefinition(c.open(t, b, dtype.F32))
		for i, tolerance := range [3]float64{5e-6, 1e-2, 0.15} {
			got := c.run(t, b, optionKinds[i], optionRows)[0]
			worst := 0.0
			for j, y := range want {
				worst = max(worst, math.Abs(y-float64(got[j])))
				if got[j] != got[j] {
					t.Fatalf("%s, %v: number %d is not one", c.name, optionKinds[i], j)
				}
			}
			t.Logf("%s, %v: worst error %.2g", c.name, optionKinds[i], worst)
			if worst > tolerance {
				t.Errorf("%s, %v: worst error %g, tolerance %g", c.name, optionKinds[i], worst, tolerance)
			}
		}
	}
}

// attentionByDefinition computes all heads of all rows, each from the inputs themselves.
func attentionByDefinition(a *backend.Attention, x *optionInput) []float64 {
	wide := func(x []float32) []float64 {
		y := make([]float64, len(x))
		for i, v := range x {
			y[i] = float64(v)
		}
		return y
	}
	prepare := func(x []float64, gain backend.Tensor, positions [3]int32) []float64 {
		if gain.Mem != nil {
			sum := 0.0
			for _, v := range x[:gain.Cols] {
				sum += v * v
			}
			for i, g := range row(gain, 0) {
				x[i] *= float64(g) / math.Sqrt(sum/float64(gain.Cols)+float64(a.Eps))
			}
		}
		turned := x[a.Latent:]
		for i, f := range a.Freqs {
			section := 0
			if a.Sections != nil {
				section = int(a.Sections[i])
			}
			p, q := i, i+len(a.Freqs)
			if a.Interleaved {
				p, q = 2*i, 2*i+1
			}
			sin, cos := math.Sincos(float64(positions[section]) * float64(f))
			if a.Turn != 0 {
				sin, cos = sin*float64(a.Turn), cos*float64(a.Turn)
			}
			turned[p], turned[q] = turned[p]*cos-turned[q]*sin, turned[q]*cos+turned[p]*sin
		}
		return x
	}
	positions := func(r int) [3]int32 {
		if x.seq.Positions != nil {
			return x.seq.Positions[r]
		}
		return [3]int32{int32(r), int32(r), int32(r)}
	}
	scale := float64(a.Scale)
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(a.HeadDim))
	}
	d, dv := a.HeadDim, a.Values()
	stride := d
	if a.Gate {
		stride += dv
	}
	keys, values := make([][][]float64, optionRows), make([][][]float64, optionRows)
	for r := range optionRows {
		for kv := range a.KVHeads {
			keys[r] = append(keys[r], prepare(wide(row(x.k, r)[kv*d:][:d]), a.KNorm, positions(r)))
			if a.Latent > 0 {
				values[r] = append(values[r], keys[r][kv][:dv])
			} else {
				values[r] = append(values[r], wide(row(x.v, r)[kv*dv:][:dv]))
			}
		}
	}
	var out []float64
	for r := range optionRows {
		for h := range a.Heads {
			kv := h / (a.Heads / a.KVHeads)
			q := prepare(wide(row(x.q, r)[h*stride:][:d]), a.QNorm, positions(r))
			first, last := 0, r
			if a.Block {
				last = optionRows - 1
			}
			if a.Window > 0 {
				first, last = max(0, r+1-a.Window), min(last, r+a.Window-1)
			}
			sum, total := make([]float64, dv), 0.0
			for j := first; j <= last; j++ {
				score := 0.0
				for i, y := range keys[j][kv] {
					score += q[i] * y
				}
				w := math.Exp(score * scale)
				total += w
				for i, v := range values[j][kv] {
					sum[i] += w * v
				}
			}
			for i := range sum {
				sum[i] /= total
				if a.Gate {
					sum[i] /= 1 + math.Exp(-float64(row(x.q, r)[h*stride+d+i]))
				}
			}
			out = append(out, sum...)
		}
	}
	return out
}

// TestAttendOptionsAreExact checks for every option that instruction sets and threads change
// no bit, and neither do chunks and other sequences of the call; and that the bits are those
// that are recorded.
func TestAttendOptionsAreExact(t *testing.T) {
	list := everyBackend(t)
	sets, threads := list[:len(list)-2], list[len(list)-2:]
	best := sets[len(sets)-1]
	for _, c := range attendVariants() {
		var all [][]float32
		for _, kind := range optionKinds {
			what := fmt.Sprintf("%s, %v", c.name, kind)
			whole := c.run(t, list[0], kind, optionRows)
			all = append(all, whole...)
			for _, b := range sets[1:] {
				sameLists(t, what+", "+b.Name(), c.run(t, b, kind, optionRows), whole)
			}
			if kind != dtype.F32 { // which is computed as F16 is
				for _, b := range threads {
					sameLists(t, what+", "+b.Name(), c.run(t, b, kind, optionRows), whole)
				}
			}
			sameLists(t, what+", row by row", c.run(t, best, kind, 1), whole)
			sameLists(t, what+", by 37 rows", c.run(t, best, kind, 37), whole)
			c.together(t, best, kind, whole)
		}
		if got := digest(all); got != c.bits {
			t.Errorf("%s: bits %#016x, recorded are %#016x", c.name, got, c.bits)
		}
	}
}

// TestManyQueriesAreLaidOut checks that the tests above see both forms of attention over floats.
func TestManyQueriesAreLaidOut(t *testing.T) {
	for _, b := range everyBackend(t) {
		for _, c := range attendVariants() {
			if c.a.Values()%kernel.PromptStrip != 0 {
				continue
			}
			for _, step := range []int{1, optionRows} {
				c.run(t, b, dtype.F16, step)
				got := slices.ContainsFunc(b.attend.groups, func(g attendGroup) bool { return g.prompt })
				if want := step > 1 && b.pool.size() < 5; got != want { // more threads have too few groups
					t.Errorf("%s, %s, %d rows: laid out is %v", b.Name(), c.name, step, got)
				}
			}
		}
	}
}

// together feeds two sequences at different places in the same calls: both must get what one
// gets alone.
func (c *attendOptions) together(t *testing.T, b *Backend, kind dtype.Type, want [][]float32) {
	t.Helper()
	a, x := c.open(t, b, kind)
	_, y := c.open(t, b, kind)
	feed := func(i, n, j, m int) {
		xq, xk, xv, _, xs := x.rows(i, n, 0)
		yq, yk, yv, _, ys := y.rows(j, m, n)
		join := func(p, q backend.Tensor, cols int) backend.Tensor {
			z, err := b.Alloc(dtype.F32, n+m, cols)
			if err != nil {
				t.Fatal(err)
			}
			if p.Mem != nil {
				b.Copy(z.RowRange(0, n), p)
				b.Copy(z.RowRange(n, n+m), q)
			}
			return z
		}
		v := backend.Tensor{}
		if xv.Mem != nil {
			v = join(xv, yv, xv.Cols)
		}
		dst := join(backend.Tensor{}, backend.Tensor{}, x.dst.Cols)
		b.Attend(dst, a, optionPlace(kind), join(xq, yq, xq.Cols), join(xk, yk, xk.Cols), v, []backend.Seq{xs, ys})
		b.Copy(x.dst.RowRange(i, i+n), dst.RowRange(0, n))
		b.Copy(y.dst.RowRange(j, j+m), dst.RowRange(n, n+m))
	}
	q, k, v, dst, seq := x.rows(0, 90, 0)
	b.Attend(dst, a, optionPlace(kind), q, k, v, []backend.Seq{seq})
	feed(90, 3, 0, 70)
	feed(93, 57, 70, 1)
	q, k, v, dst, seq = y.rows(71, optionRows-71, 0)
	b.Attend(dst, a, optionPlace(kind), q, k, v, []backend.Seq{seq})
	for _, z := range []*optionInput{x, y} {
		got := [][]float32{bits(t, z.dst)}
		for _, p := range z.seq.Pages {
			got = append(got, bits(t, p))
		}
		sameLists(t, fmt.Sprintf("%s, %v, two sequences", c.name, kind), got, want)
	}
}

// digest is a hash of bits.
func digest(lists [][]float32) uint64 {
	h := fnv.New64a()
	for _, list := range lists {
		b := make([]byte, 4*len(list))
		dtype.FromF32(b, dtype.F32, list)
		_, _ = h.Write(b) // a hash takes everything
	}
	return h.Sum64()
}

// TestSectionsOfOnePosition checks that sections change nothing where rows have one position.
func TestSectionsOfOnePosition(t *testing.T) {
	b := openTest(t, Options{Threads: 1})
	c := attendVariants()[1]
	want := c.run(t, b, dtype.F32, optionRows)
	c.a.Sections = []uint8{2, 0, 1}
	sameLists(t, "sections", c.run(t, b, dtype.F32, optionRows), want)
}

// TestAttendOnlyAppends feeds rows without queries: pages must be those of a call with some.
func TestAttendOnlyAppends(t *testing.T) {
	b := openTest(t, Options{Threads: 2})
	for _, c := range attendVariants() {
		want := c.run(t, b, dtype.F16, optionRows)[1:]
		a, x := c.open(t, b, dtype.F16)
		q, k, v, dst, seq := x.rows(0, optionRows, 0)
		b.Attend(dst.RowRange(0, 0), a, optionPlace(dtype.F16), q.RowRange(0, 0), k, v, []backend.Seq{seq})
		var got [][]float32
		for _, p := range x.seq.Pages {
			got = append(got, bits(t, p))
		}
		sameLists(t, c.name, got, want)
	}
}

// TestAttendRefusesWrongShapes lists what only a mistake of ours can ask for.
func TestAttendRefusesWrongShapes(t *testing.T) {
	b := openTest(t, Options{Threads: 1})
	for name, change := range map[string]func(a *backend.Attention){
		"a gate that is not there":   func(a *backend.Attention) { a.Gate = true },
		"other values":               func(a *backend.Attention) { a.ValueDim = 8 },
		"latent rows of two heads":   func(a *backend.Attention) { a.Latent = 8 },
		"more rotation than numbers": func(a *backend.Attention) { a.Freqs = make([]float32, 17) },
		"too few sections":           func(a *backend.Attention) { a.Sections = []uint8{1} },
		"other keys":                 func(a *backend.Attention) { a.KVHeads = 1 },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			c := attendVariants()[1]
			a, x := c.open(t, b, dtype.F32)
			change(a)
			q, k, v, dst, seq := x.rows(0, 3, 0)
			b.Attend(dst, a, optionPlace(dtype.F32), q, k, v, []backend.Seq{seq})
		}()
	}
}
