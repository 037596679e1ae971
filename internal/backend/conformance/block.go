package conformance

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// blockCase is a call of attention inside blocks: the block of each sequence, behind its context.
type blockCase struct {
	attendCase
	window int
	seqs   [][2]int // positions of the context, rows of the block
}

func (k *blockCase) String() string {
	return fmt.Sprintf("%d heads of %d, %d of keys, pages of %v, window %d, contexts and blocks %v", k.heads, k.dim, k.kvHeads, k.kind, k.window, k.seqs)
}

// blockCases have blocks across the border of a page, windows that end in the context, in the block
// and on borders of pages, and random ones. A brief run takes every third of the first.
func (c *checker) blockCases() []blockCase {
	usual, few := [][2]int{{60, 8}, {0, 5}, {130, 16}}, [][2]int{{62, 4}, {127, 1}}
	list := some(c, []blockCase{
		{attendCase{8, 2, 128, dtype.F16}, 0, usual},
		{attendCase{6, 2, 24, dtype.F32}, 70, usual},
		{attendCase{4, 2, 16, dtype.F32}, 3, usual},
		{attendCase{8, 2, 64, dtype.I8}, 64, usual},
		{attendCase{8, 2, 32, dtype.F16}, 67, usual},
		{attendCase{3, 3, 7, dtype.I8}, 0, few},
		{attendCase{20, 1, 48, dtype.F16}, 5, few},
		{attendCase{8, 2, 64, dtype.I8}, 0, usual},
		{attendCase{2, 1, 32, dtype.F16}, 1, usual},
		{attendCase{4, 1, 32, dtype.F32}, 0, few},
	}, 3)
	rng := rand.New(newSource())
	for range len(list) / 2 {
		k := blockCase{attendCase: attendCase{kvHeads: 1 + rng.IntN(3), dim: []int{8, 13, 32, 64}[rng.IntN(4)], kind: []dtype.Type{dtype.F16, dtype.F32, dtype.I8}[rng.IntN(3)]}}
		k.heads = k.kvHeads * (1 + rng.IntN(5))
		if rng.IntN(3) > 0 {
			k.window = 1 + rng.IntN(100)
		}
		for range 1 + rng.IntN(4) {
			k.seqs = append(k.seqs, [2]int{rng.IntN(200), 1 + rng.IntN(16)})
		}
		list = append(list, k)
	}
	return list
}

// blocks is the layer of a case.
func (k *blockCase) blocks(r *rig) *backend.Attention {
	a := k.layer(r)
	a.Block, a.Rows, a.Window = true, 8, k.window
	return a
}

// attendBlock checks attention inside blocks: against the oracle; against causal rows that see the
// same positions; in any batch; and that a block leaves nothing to the calls after it.
func (c *checker) attendBlock() {
	c.on("Attend")
	for _, k := range c.blockCases() {
		c.like("blocks, "+k.String(), func(r *rig) [][]float32 {
			dst, pages := k.together(r, k.blocks(r), k.texts(r))
			return append(pages, dst)
		})
		c.holds("blocks and causal rows, "+k.String(), func(r *rig) (got, want []float32) {
			a := k.blocks(r)
			a.Freqs = nil // or keys would be rotated as the queries are
			texts := k.texts(r)
			all, _ := k.together(r, a, texts)
			width := k.heads * k.dim
			for i, n := range k.seqs {
				rows := c.blockRows(n[1])
				for _, row := range rows {
					got = append(got, all[row*width:][:width]...)
				}
				want = append(want, k.causal(r, a, texts[i], n[0], n[1], rows)...)
				all = all[n[1]*width:]
			}
			return got, want
		})
		c.holds("blocks alone and in a batch, "+k.String(), func(r *rig) (got, want []float32) {
			a, texts := k.blocks(r), k.texts(r)
			got, _ = k.together(r, a, texts)
			for i, n := range k.seqs {
				one := blockCase{k.attendCase, k.window, [][2]int{n}}
				dst, _ := one.together(r, a, texts[i:i+1])
				want = append(want, dst...)
			}
			return got, want
		})
	}
	for _, kind := range []dtype.Type{dtype.F16, dtype.I8} {
		k := blockCase{attendCase: attendCase{4, 2, 32, kind}, window: 80}
		c.holds(fmt.Sprintf("after a block, pages of %v", kind), func(r *rig) (got, want []float32) { return k.again(r) })
	}
}

// texts are the contexts and blocks of all sequences.
func (k *blockCase) texts(r *rig) []*projections {
	var list []*projections
	for _, n := range k.seqs {
		list = append(list, k.text(r, n[0]+n[1]))
	}
	return list
}

// together computes the blocks of all sequences in one call. It returns the rows, and the bytes of
// the pages.
func (k *blockCase) together(r *rig, a *backend.Attention, texts []*projections) (rows []float32, pages [][]float32) {
	var all [3][]float32
	var batch []backend.Seq
	var list []*attended
	first := 0
	for i, n := range k.seqs {
		s := k.sequence(r, a, n[0]+n[1])
		s.append(texts[i], attendLayer, 0, n[0])
		for j, w := range texts[i].width {
			all[j] = append(all[j], texts[i].rows[j][n[0]*w:]...)
		}
		batch = append(batch, backend.Seq{First: first, N: n[1], Pos: n[0], Pages: s.pages})
		list, first = append(list, s), first+n[1]
	}
	x, dst := (&projections{texts[0].width, all}).of(r, 0, first), r.random(first, k.heads*k.dim)
	r.b.Attend(dst, a, k.place(attendLayer), x[0], x[1], x[2], batch)
	for _, s := range list {
		pages = append(pages, s.stored())
	}
	return r.read(dst), pages
}

// blockRows are the rows of a block of n that are compared with causal ones: the first, one in the middle and the last in a brief
// run, otherwise all.
func (c *checker) blockRows(n int) []int {
	if c.brief {
		return slices.Compact([]int{0, n / 2, n - 1})
	}
	rows := make([]int, n)
	for i := range rows {
		rows[i] = i
	}
	return rows
}

// causal computes some rows of a block of n one by one, each as a causal row: it is put behind the last row that
// it sees, in a window that begins where its own does.
func (k *blockCase) causal(r *rig, a *backend.Attention, t *projections, pos, n int, rows []int) (all []float32) {
	s := k.sequence(r, a, pos+n)
	s.append(t, attendLayer, 0, pos+n)
	for _, i := range rows {
		from, to := 0, pos+n
		if k.window > 0 {
			from, to = max(0, pos+i-k.window+1), min(to, pos+i+k.window)
		}
		one := *a
		one.Block, one.Rows, one.Window = false, 0, to-from
		q, last, dst := t.of(r, pos+i, pos+i+1), t.of(r, to-1, to), r.random(1, k.heads*k.dim)
		r.b.Attend(dst, &one, k.place(attendLayer), q[0], last[1], last[2], []backend.Seq{{N: 1, Pos: to - 1, Pages: s.pages}})
		all = append(all, r.read(dst)...)
	}
	return all
}

// again computes a block, some rows of context in its place, and another block behind them; and the
// same without the first block.
func (k *blockCase) again(r *rig) (after, without []float32) {
	a := k.blocks(r)
	t := k.text(r, 80)
	other := t.then(58, k.text(r, 80))
	for _, first := range []bool{true, false} {
		s := k.sequence(r, a, 80)
		s.append(t, attendLayer, 0, 58)
		if first {
			s.feed(other, 58, 74)
		}
		s.append(t, attendLayer, 58, 61)
		after, without = without, s.feed(t, 61, 69)
	}
	return after, without
}

// convolve checks convolutions: against the oracle and the definition, and each sequence alone.
func (c *checker) convolve() {
	c.on("Convolve")
	for _, k := range []struct{ taps, cols, groups int }{{2, 64, 4}, {2, 1040, 65}, {3, 21, 3}, {1, 30, 30}, {5, 2100, 1}} {
		blocks := []int{8, 1, 5}
		for _, add := range []bool{false, true} {
			what := fmt.Sprintf("%d taps of %d columns in %d groups, adding %v", k.taps, k.cols, k.groups, add)
			run := func(r *rig) (dst, x backend.Tensor, v *backend.Convolution, batch []backend.Seq) {
				rows := 0
				for _, n := range blocks {
					batch = append(batch, backend.Seq{First: rows, N: n, Pos: 70})
					rows += n
				}
				v = &backend.Convolution{Base: r.random(k.taps, k.cols), Delta: r.random(rows, k.taps*k.groups), Add: add}
				return r.random(rows, k.cols), r.random(rows, k.cols), v, batch
			}
			c.like(what, func(r *rig) [][]float32 {
				dst, x, v, batch := run(r)
				r.b.Convolve(dst, x, v, batch)
				return [][]float32{r.read(dst), r.read(x)}
			})
			c.holds(what+", by definition", func(r *rig) (got, want []float32) {
				dst, x, v, batch := run(r)
				want = convolved(r.read(dst), r.read(x), r.read(v.Base), r.read(v.Delta), k.cols, k.groups, add, batch)
				r.b.Convolve(dst, x, v, batch)
				return r.read(dst), want
			})
			c.holds(what+", each sequence alone", func(r *rig) (got, want []float32) {
				dst, x, v, batch := run(r)
				one := r.tensor(dst.Rows, dst.Cols, slices.Clone(r.read(dst)))
				r.b.Convolve(dst, x, v, batch)
				for _, s := range batch {
					own := *v
					own.Delta = v.Delta.RowRange(s.First, s.First+s.N)
					r.b.Convolve(one.RowRange(s.First, s.First+s.N), x.RowRange(s.First, s.First+s.N), &own, []backend.Seq{{N: s.N}})
				}
				return r.read(dst), r.read(one)
			})
		}
	}
}

// convolved is the definition of a convolution.
func convolved(dst, x, base, delta []float32, cols, groups int, add bool, batch []backend.Seq) []float32 {
	y := make([]float32, len(dst))
	taps := len(base) / cols
	for _, s := range batch {
		for j := range s.N {
			row := s.First + j
			for c := range cols {
				sum := float32(0)
				if add {
					sum = dst[row*cols+c]
				}
				for t := 0; t < taps && t <= j; t++ {
					w := base[t*cols+c] + delta[(row*taps+t)*groups+c/(cols/groups)]
					sum += float32(w * x[(row-t)*cols+c])
				}
				y[row*cols+c] = sum
			}
		}
	}
	return y
}
