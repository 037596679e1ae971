package conformance

import (
	"fmt"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// attendCase is a layer of attention and the type of its pages.
type attendCase struct {
	heads, kvHeads, dim int
	kind                dtype.Type
}

// A brief run takes every third.
var attendCases = []attendCase{
	{2, 1, 32, dtype.F16},
	{6, 2, 24, dtype.F32},
	{20, 1, 48, dtype.F16},
	{4, 4, 16, dtype.F32},
	{8, 2, 64, dtype.F16},
	{3, 3, 7, dtype.I8},
	{8, 2, 64, dtype.I8},
	{6, 2, 24, dtype.I8},
}

// packedCases are those of pages of 4 bits.
var packedCases = []attendCase{
	{5, 1, 72, dtype.I4},
	{8, 2, 64, dtype.I4},
}

// Pages have two layers; the second is checked.
const attendLayers, attendLayer = 2, 1

// layer makes the layer.
func (c *attendCase) layer(r *rig) *backend.Attention {
	return &backend.Attention{
		Heads: c.heads, KVHeads: c.kvHeads, HeadDim: c.dim, Gate: true, Eps: 1e-6, Freqs: []float32{1, 0.3, 0.01},
		QNorm: r.random(1, c.dim), KNorm: r.random(1, c.dim),
	}
}

// place is where a layer lies in a page.
func (c *attendCase) place(layer int) backend.Place {
	a := backend.Attention{KVHeads: c.kvHeads, HeadDim: c.dim}
	return backend.Place{Type: c.kind, Page: layer * a.PageBytes(c.kind)}
}

// pages is empty memory for a number of positions.
func (c *attendCase) pages(r *rig, positions int) []backend.Tensor {
	var list []backend.Tensor
	for range (positions + backend.PageTokens - 1) / backend.PageTokens {
		list = append(list, r.bare(dtype.I8, 1, c.place(attendLayers).Page))
	}
	return list
}

// projections are the rows of queries, keys and values of a text.
type projections struct {
	width [3]int
	rows  [3][]float32
}

func (c *attendCase) text(r *rig, n int) *projections {
	t := &projections{width: [3]int{2 * c.heads * c.dim, c.kvHeads * c.dim, c.kvHeads * c.dim}}
	for i, w := range t.width {
		t.rows[i] = r.list(n * w)
	}
	return t
}

// of are the rows [from, to) of a text as tensors.
func (t *projections) of(r *rig, from, to int) (x [3]backend.Tensor) {
	for i, w := range t.width {
		x[i] = r.tensor(to-from, w, t.rows[i][from*w:to*w])
	}
	return x
}

// then is the first n rows of t, followed by those of other.
func (t *projections) then(n int, other *projections) *projections {
	x := &projections{width: t.width}
	for i, w := range t.width {
		x.rows[i] = slices.Concat(t.rows[i][:n*w], other.rows[i][n*w:])
	}
	return x
}

// attended is a sequence under attention.
type attended struct {
	*attendCase
	r     *rig
	layer *backend.Attention
	pages []backend.Tensor
	none  backend.Tensor   // of no rows, as wide as the output
	spare []backend.Tensor // pages of layers with another window
}

func (c *attendCase) sequence(r *rig, layer *backend.Attention, positions int) *attended {
	return &attended{attendCase: c, r: r, layer: layer, pages: c.pages(r, positions), none: r.random(1, c.heads*c.dim).RowRange(0, 0)}
}

// feed returns the output for rows [from, to) of a text, at their positions.
func (s *attended) feed(t *projections, from, to int) []float32 {
	x, dst := t.of(s.r, from, to), s.r.random(to-from, s.heads*s.dim)
	s.r.b.Attend(dst, s.layer, s.place(attendLayer), x[0], x[1], x[2], []backend.Seq{{N: to - from, Pos: from, Pages: s.pages}})
	return s.r.read(dst)
}

// append stores keys and values of rows [from, to) of a text in a layer, without queries.
func (s *attended) append(t *projections, layer, from, to int) {
	x := t.of(s.r, from, to)
	s.r.b.Attend(s.none, s.layer, s.place(layer), x[0].RowRange(0, 0), x[1], x[2], []backend.Seq{{N: to - from, Pos: from, Pages: s.pages}})
}

// stored is the bytes of all pages.
func (s *attended) stored() []float32 {
	var all []float32
	for _, p := range s.pages {
		all = append(all, s.r.numbers(p)...)
	}
	return all
}

// attend checks attention: against the oracle at the borders of pages; cut into any pieces; in
// any company; after drafts that were rejected.
func (c *checker) attend() {
	c.attendOver(some(c, attendCases, 3), attendCases[0], attendCase{8, 2, 64, dtype.I8})
}

// attendPacked checks attention over pages of 4 bits, with options and inside a block as well.
func (c *checker) attendPacked() {
	c.attendOver(some(c, packedCases, 2), packedCases[1])
	for _, o := range some(c, attendOptions(), 5) {
		c.like(fmt.Sprintf("%s, pages of %v", o.name, dtype.I4), func(r *rig) [][]float32 { return o.feed(r, dtype.I4, 90, 63) })
	}
	k := blockCase{packedCases[1], 40, [][2]int{{62, 4}, {127, 1}}}
	c.like("blocks, "+k.String(), func(r *rig) [][]float32 {
		dst, pages := k.together(r, k.blocks(r), k.texts(r))
		return append(pages, dst)
	})
}

// attendOver is attend of some layers, and of others over a long context.
func (c *checker) attendOver(cases []attendCase, long ...attendCase) {
	c.on("Attend")
	for _, k := range cases {
		what := fmt.Sprintf("%d heads of %d, %d of keys, pages of %v", k.heads, k.dim, k.kvHeads, k.kind)
		c.like(what, func(r *rig) [][]float32 {
			s := k.sequence(r, k.layer(r), 140)
			t, other := k.text(r, 140), k.text(r, 140)
			s.append(other, 0, 0, 140)
			results := [][]float32{s.feed(t, 0, 1)}
			s.append(t, attendLayer, 1, 63)
			results = append(results, s.feed(t, 63, 67), s.feed(t, 67, 68))
			s.append(t, attendLayer, 68, 125)
			return append(results, s.feed(t, 125, 140), s.stored())
		})
		c.holds(what+", rows in pieces of 1, 7 and 64", func(r *rig) (got, want []float32) {
			n := 90
			if c.brief {
				n = 72
			}
			layer, t := k.layer(r), k.text(r, n)
			whole := k.sequence(r, layer, n).feed(t, 0, n)
			for _, piece := range []int{1, 7, 64} {
				s, from := k.sequence(r, layer, n), 0
				if c.brief && piece < 64 { // the queries around the border of a page
					from = 58
					s.append(t, attendLayer, 0, from)
				}
				want = append(want, whole[from*len(whole)/n:]...)
				for ; from < n; from += piece {
					got = append(got, s.feed(t, from, min(from+piece, n))...)
				}
			}
			return got, want
		})
		c.holds(what+", after rejected drafts", func(r *rig) (got, want []float32) {
			layer, t := k.layer(r), k.text(r, 70)
			wrong := t.then(62, k.text(r, 70))
			s, plain := k.sequence(r, layer, 70), k.sequence(r, layer, 70)
			s.append(t, attendLayer, 0, 60)
			plain.append(t, attendLayer, 0, 62)
			s.feed(wrong, 60, 66) // two of them are accepted
			return s.feed(t, 62, 70), plain.feed(t, 62, 70)
		})
		c.holds(what+", alone and in a batch", func(r *rig) (got, want []float32) { return k.batch(r) })
	}
	for _, k := range long {
		n := 700
		if c.brief {
			n = 380 // six pages
		}
		c.like(fmt.Sprintf("a long context, pages of %v", k.kind), func(r *rig) [][]float32 {
			s, t := k.sequence(r, k.layer(r), n+5), k.text(r, n+5)
			s.append(t, attendLayer, 0, n)
			return [][]float32{s.feed(t, n, n+1), s.feed(t, n+1, n+5)}
		})
	}
}

// batch feeds three sequences in one call, and each alone.
func (c *attendCase) batch(r *rig) (together, alone []float32) {
	layer := c.layer(r)
	var all [3][]float32
	var seqs []backend.Seq
	first := 0
	for _, n := range [][2]int{{70, 5}, {3, 1}, {126, 5}} { // positions before, rows
		t := c.text(r, n[0]+n[1])
		a, b := c.sequence(r, layer, n[0]+n[1]), c.sequence(r, layer, n[0]+n[1])
		a.append(t, attendLayer, 0, n[0])
		b.append(t, attendLayer, 0, n[0])
		alone = append(alone, a.feed(t, n[0], n[0]+n[1])...)
		for i, w := range t.width {
			all[i] = append(all[i], t.rows[i][n[0]*w:]...)
		}
		seqs = append(seqs, backend.Seq{First: first, N: n[1], Pos: n[0], Pages: b.pages})
		first += n[1]
	}
	x, dst := (&projections{c.text(r, 0).width, all}).of(r, 0, first), r.random(first, c.heads*c.dim)
	r.b.Attend(dst, layer, c.place(attendLayer), x[0], x[1], x[2], seqs)
	return r.read(dst), alone
}
