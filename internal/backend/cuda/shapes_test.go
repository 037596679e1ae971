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

// The kernels for the widths of real models are not met by the shapes of the conformance suite: these tests
// compare them with the CPU on as little as shows every path.

// bench is a device while it computes one case. The same calls give the same numbers on every one.
type bench struct {
	tb   testing.TB
	b    backend.Backend
	rng  *rand.Rand
	gone []backend.Tensor

	launches map[string]int // of the last pass, on a GPU
}

// alike has the CPU and b compute the same, and compares.
func alike(t *testing.T, b *Backend, run func(x *bench) [][]float32) {
	t.Helper()
	var results [2][][]float32
	for i, dev := range []backend.Backend{backendtest.CPU(t, backend.Options{Threads: 1}), b} {
		x := &bench{tb: t, b: dev, rng: rand.New(rand.NewPCG(3, 4))}
		results[i] = run(x)
		for _, m := range x.gone {
			dev.Free(m)
		}
	}
	for i, want := range results[0] {
		got := results[1][i]
		if len(got) != len(want) {
			t.Fatalf("result %d has %d numbers, want %d", i, len(got), len(want))
		}
		for j, w := range want {
			if g := got[j]; math.Float32bits(g) != math.Float32bits(w) && (g == g || w == w) {
				t.Fatalf("result %d: number %d of %d is %v, want %v", i, j, len(want), g, w)
			}
		}
	}
}

func (x *bench) alloc(kind dtype.Type, rows, cols int) backend.Tensor {
	x.tb.Helper()
	t, err := x.b.Alloc(kind, rows, cols)
	if err != nil {
		x.tb.Fatal(err)
	}
	x.gone = append(x.gone, t)
	return t
}

// random is a tensor of random numbers around zero, times scale.
func (x *bench) random(rows, cols int, scale float32) backend.Tensor {
	x.tb.Helper()
	t, data := x.alloc(dtype.F32, rows, cols), make([]float32, rows*cols)
	for i := range data {
		data[i] = float32(x.rng.NormFloat64()) * scale
	}
	if err := x.b.Write(t, data); err != nil {
		x.tb.Fatal(err)
	}
	return t
}

func (x *bench) read(t backend.Tensor) []float32 {
	x.tb.Helper()
	data, err := x.b.Host(t)
	if err != nil {
		x.tb.Fatal(err)
	}
	return append([]float32(nil), data...)
}

// loadAs is n random matrices of a format on the device: Affine and ZeroPoint of 4 bits, Plain of float32.
func (x *bench) loadAs(f dtype.Format, n, rows, cols int) backend.Weight {
	x.tb.Helper()
	var list []dtype.Matrix
	for i := range n {
		var m dtype.Matrix
		switch f {
		case dtype.Affine:
			m = randomMatrix(x.tb, x.rng, rows, cols, 4, 64, dtype.BF16)
		case dtype.ZeroPoint:
			m = randomPoints(x.tb, x.rng, rows, cols, 4, 64, dtype.BF16, true)
		case dtype.Plain:
			m = randomMatrix(x.tb, x.rng, rows, cols, 0, 0, dtype.F32)
		default:
			m = randomBlocks(x.tb, x.rng, f, rows, cols)
		}
		if i > 0 {
			m.Global *= 0.1 + x.rng.Float32() // matrices of a stack have factors of their own
		}
		list = append(list, m)
	}
	w, err := x.b.Load(backend.Int8, list...)
	if err != nil {
		x.tb.Fatal(err)
	}
	return w
}

// TestDeltaNetOfRealWidth has 128 keys: more tokens than kernels have together, drafts, and what was accepted
// of them replayed, in calls of two sequences, many rows and few.
func TestDeltaNetOfRealWidth(t *testing.T) {
	const drafts = 32
	for _, c := range []struct {
		keyHeads, heads, values, rows int
		tiled                         bool
	}{{1, 2, 32, 37, false}, {1, 1, 128, 35, false}, {1, 1, 128, 11, false}, {1, 3, 128, 19, false}, {2, 4, 32, 37, true}, {2, 4, 128, 13, true}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			b, drafted := open(t, Options{}), min(c.rows-2, drafts)
			var last *bench
			alike(t, b, func(x *bench) [][]float32 {
				last = x
				d := &backend.DeltaNet{KeyHeads: c.keyHeads, ValueHeads: c.heads, Tiled: c.tiled, KeyDim: 128, ValueDim: c.values, Kernel: 4, Eps: 1e-6, SigmoidGate: c.heads == 1}
				values := d.ValueHeads * d.ValueDim
				d.Conv, d.Norm = x.random(4, d.Channels(), 1), x.random(1, d.ValueDim, 1)
				d.DecayRate, d.DecayBias = x.random(1, d.ValueHeads, -0.1), x.random(1, d.ValueHeads, 1)
				state := func() []backend.Recurrent {
					return []backend.Recurrent{{
						State: x.random(d.ValueHeads*d.KeyDim, d.ValueDim, 0.1), Tail: x.random(3+drafts, d.Channels(), 1),
						Keys: x.random(drafts, d.KeyHeads*d.KeyDim, 1), Deltas: x.random(drafts, values, 1), Decays: x.random(drafts, d.ValueHeads, 1),
					}}
				}
				a, b := state(), state()
				w := x.load(8, values, 4, 32)
				var results [][]float32
				for _, call := range [][2]backend.Seq{
					{{N: c.rows, Drafts: drafted, Delta: a}, {First: c.rows, N: 1, Delta: b}},
					{{N: 2, Drafts: 1, Accepted: drafted, Delta: a}, {First: 2, N: 3, Drafts: 3, Delta: b}},
					{{N: 8, Accepted: 1, Delta: a}, {First: 8, N: 1, Accepted: 2, Delta: b}},
				} {
					rows := call[0].N + call[1].N
					in := backend.DeltaInput{QKV: x.random(rows, d.Channels(), 1), Z: x.random(rows, values, 1), B: x.random(rows, d.ValueHeads, 1), A: x.random(rows, d.ValueHeads, 1)}
					dst, y := x.random(rows, values, 1), x.random(rows, 8, 1)
					p := backend.Pass{Batch: call[:]}
					x.pass(p, false, func() {
						x.b.DeltaNet(dst, d, backend.Place{}, in, p.Batch)
						x.b.MatMul(dst, backend.Product{Dst: y, W: w})
					})
					results = append(results, x.read(dst), x.read(y))
					for _, s := range [][]backend.Recurrent{a, b} {
						for _, m := range []backend.Tensor{s[0].State, s[0].Tail, s[0].Keys, s[0].Deltas, s[0].Decays} {
							results = append(results, x.read(m))
						}
					}
				}
				return results
			})
			if few, n := c.values == 128, last.launches["delta_few"]; few != (n > 0) || last.launches["quantize"] > 0 {
				t.Errorf("launches %v", last.launches)
			}
		})
	}
}

// TestDeltaNetOfOneRow has one row in every call, of one of two sequences: a draft, and others with drafts before them
// that were accepted or not.
func TestDeltaNetOfOneRow(t *testing.T) {
	const drafts = 2
	for _, c := range []struct {
		heads int
		tiled bool
	}{{1, false}, {2, false}, {2, true}} {
		alike(t, open(t, Options{}), func(x *bench) [][]float32 {
			d := &backend.DeltaNet{KeyHeads: 2, ValueHeads: 2 * c.heads, Tiled: c.tiled, KeyDim: 128, ValueDim: 128, Kernel: 4, Eps: 1e-6, SigmoidGate: c.heads == 1}
			values := d.ValueHeads * d.ValueDim
			d.Conv, d.Norm = x.random(4, d.Channels(), 1), x.random(1, d.ValueDim, 1)
			d.DecayRate, d.DecayBias = x.random(1, d.ValueHeads, -0.1), x.random(1, d.ValueHeads, 1)
			var of [2][]backend.Recurrent
			for i := range of {
				for range 2 { // layers
					of[i] = append(of[i], backend.Recurrent{
						State: x.random(d.ValueHeads*d.KeyDim, d.ValueDim, 0.1), Tail: x.random(3+drafts, d.Channels(), 1),
						Keys: x.random(drafts, 2*d.KeyDim, 1), Deltas: x.random(drafts, values, 1), Decays: x.random(drafts, d.ValueHeads, 1),
					})
				}
			}
			w := x.load(8, values, 4, 64)
			in := backend.DeltaInput{QKV: x.random(1, d.Channels(), 1), Z: x.random(1, values, 1), B: x.random(1, d.ValueHeads, 1), A: x.random(1, d.ValueHeads, 1)}
			dst, y := x.random(1, values, 1), x.random(1, 8, 1)
			var results [][]float32
			for _, call := range [][2]backend.Seq{
				{{N: 1, Drafts: 1, Delta: of[0]}, {First: 1, Delta: of[1]}},
				{{Delta: of[0]}, {N: 1, Drafts: 1, Accepted: 2, Delta: of[1]}},
				{{N: 1, Accepted: 1, Delta: of[0]}, {First: 1, Delta: of[1]}},
				{{Delta: of[0]}, {N: 1, Delta: of[1]}},
			} {
				p := backend.Pass{Batch: call[:]}
				x.pass(p, false, func() {
					x.b.DeltaNet(dst, d, backend.Place{Delta: 1}, in, p.Batch)
					x.b.MatMul(dst, backend.Product{Dst: y, W: w})
				})
				results = append(results, x.read(dst), x.read(y))
				for _, s := range of {
					for _, m := range []backend.Tensor{s[1].State, s[1].Tail, s[1].Keys, s[1].Deltas, s[1].Decays} {
						results = append(results, x.read(m))
					}
				}
			}
			return results
		})
	}
}

// attendText feeds a layer of attention a text in calls of some rows each, after a context that is only
// appended. Another sequence has a few rows of every call, and is otherwise empty.
func attendText(x *bench, a *backend.Attention, kind dtype.Type, context int, calls ...int) [][]float32 {
	total := context
	for _, n := range calls {
		total += n
	}
	a.QNorm, a.KNorm = x.random(1, a.HeadDim, 1), x.random(1, a.HeadDim, 1)
	var pages [2][]backend.Tensor
	for i := range pages {
		for range (total + backend.PageTokens - 1) / backend.PageTokens {
			pages[i] = append(pages[i], x.alloc(dtype.I8, 1, a.PageBytes(kind)))
		}
	}
	if context > 0 {
		k, v := x.random(context, a.KVHeads*a.HeadDim, 1), x.random(context, a.KVHeads*a.Values(), 1)
		none := backend.Tensor{Cols: a.Heads * a.Values()}
		x.b.Attend(none, a, backend.Place{Type: kind}, backend.Tensor{Cols: a.Queries()}, k, v, []backend.Seq{{N: context, Pages: pages[0]}})
	}
	var results [][]float32
	at := context
	for _, n := range calls {
		few := min(n, 3)
		batch := []backend.Seq{{N: n, Pos: at, Pages: pages[0]}, {First: n, N: few, Pos: at, Pages: pages[1]}}
		rows := n + few
		q, k, v := x.random(rows, a.Queries(), 1), x.random(rows, a.KVHeads*a.HeadDim, 1), x.random(rows, a.KVHeads*a.Values(), 1)
		dst := x.random(rows, a.Heads*a.Values(), 1)
		x.b.Attend(dst, a, backend.Place{Type: kind}, q, k, v, batch)
		results = append(results, x.read(dst))
		at += n
	}
	return results
}

// TestAttentionOfRealWidth has prompts, and decoding across the border of a page, with pages computed
// apart and, where there is no room for that, one after another.
func TestAttentionOfRealWidth(t *testing.T) {
	const room = 1 << 20
	for _, c := range []struct {
		kind        dtype.Type
		width, room int
	}{
		{dtype.I8, 256, room},
		{dtype.I8, 256, 1},
		{dtype.I4, 256, room},
		{dtype.I4, 256, 1},
		{dtype.F16, 256, room},
		{dtype.F16, 256, 1},
		{dtype.I8, 512, room},
		{dtype.I8, 304, 1},
		{dtype.I4, 512, 1},
		{dtype.I4, 304, room},
	} {
		b := open(t, Options{})
		b.attention.splitBytes = c.room
		alike(t, b, func(x *bench) [][]float32 {
			a := &backend.Attention{Heads: 6, KVHeads: 1, HeadDim: c.width, Gate: true, Eps: 1e-6, Freqs: []float32{1, 0.3, 0.01}}
			return attendText(x, a, c.kind, 7, 53, 5, 1)
		})
	}
}

// TestAttentionOfFewRows has decoding over several pages with two, four and eight queries of a head in a
// piece of work, pieces of several pages, a window, blocks, and pages that are taken one after another.
func TestAttentionOfFewRows(t *testing.T) {
	for _, c := range []struct {
		kind             dtype.Type
		processors, room int
		window           int
		block            bool
	}{
		{dtype.F16, 8, 1 << 20, 0, false},
		{dtype.F16, 4, 1 << 20, 0, false},
		{dtype.F32, 1, 1 << 20, 100, false},
		{dtype.F16, 1, 1, 70, false},
		{dtype.F16, 8, 1 << 20, 0, true},
		{dtype.F16, 4, 1 << 20, 70, true},
		{dtype.F32, 1, 1, 0, true},
		{dtype.I8, 4, 1 << 20, 0, true},
		{dtype.I4, 1, 1, 70, false},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			b := open(t, Options{})
			b.attention.splitBytes, b.info.Multiprocessors = c.room, c.processors
			alike(t, b, func(x *bench) [][]float32 {
				a := &backend.Attention{Heads: 5, KVHeads: 1, HeadDim: 32, Window: c.window, Block: c.block, Eps: 1e-6, Freqs: []float32{1, 0.3, 0.01}}
				return attendText(x, a, c.kind, 188, 3, 2, 11)
			})
		})
	}
}
