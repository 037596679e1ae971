package conformance

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// windowCases are layers whose pages are in a second window.
var windowCases = []attendCase{
	{4, 2, 32, dtype.F16},
	{8, 2, 64, dtype.I8},
	{6, 2, 24, dtype.F32},
}

// released checks that attention with a window has the same bits once the pages behind it are released, alone and in a batch whose
// sequences have released different numbers of pages.
func (c *checker) released() {
	c.on("Attend")
	for _, k := range some(c, windowCases, 3) {
		for _, window := range some(c, []int{65, 1, 100}, 3) {
			c.holds(fmt.Sprintf("window of %d, pages of %v, released ones", window, k.kind), func(r *rig) (got, want []float32) {
				return k.released(r, window, func(_ backend.Pass, queue func()) { queue() })
			})
		}
	}
}

// windowed is a sequence of the second window, whose first pages are released before position pos.
func (s *attended) windowed(pos int) backend.Seq {
	first := max(0, pos+1-s.layer.Window) / backend.PageTokens
	return backend.Seq{Pos: pos, Windows: []backend.Window{
		{First: pos / backend.PageTokens, Pages: s.spare},
		{First: first, Pages: s.pages[first:]},
	}}
}

// released feeds rows to sequences that keep all pages and, in two passes, to others that release pages.
func (c *attendCase) released(r *rig, window int, pass func(p backend.Pass, queue func())) (got, want []float32) {
	const n = 4 // rows of a sequence in a pass
	layer, at := c.layer(r), c.place(attendLayer)
	layer.Window, at.Window = window, 2
	befores := []int{190, 3, 131} // the first releases a page between the passes
	var texts []*projections
	var list []*attended
	for _, before := range befores {
		end := before + 2*n
		t, a, b := c.text(r, end), c.sequence(r, layer, end), c.sequence(r, layer, end)
		b.spare = c.pages(r, 2*backend.PageTokens) // of the other window
		texts, list = append(texts, t), append(list, b)
		a.append(t, attendLayer, 0, before)
		for _, piece := range [][2]int{{0, before - 2}, {before - 2, before}} {
			x, s := t.of(r, piece[0], piece[1]), b.windowed(piece[0])
			s.N = piece[1] - piece[0]
			r.b.Attend(b.none, layer, at, x[0].RowRange(0, 0), x[1], x[2], []backend.Seq{s})
		}
		want = append(append(want, a.feed(t, before, before+n)...), a.feed(t, before+n, end)...)
	}
	var x [3]backend.Tensor
	for i, w := range texts[0].width {
		x[i] = r.random(n*len(list), w)
	}
	dst := r.random(x[0].Rows, c.heads*c.dim)
	var passes [2][]float32
	for p := range passes {
		var seqs []backend.Seq
		var all [3][]float32
		for i, b := range list {
			from := befores[i] + p*n
			s := b.windowed(from)
			s.First, s.N = i*n, n
			seqs = append(seqs, s)
			for j, w := range texts[i].width {
				all[j] = append(all[j], texts[i].rows[j][from*w:(from+n)*w]...)
			}
		}
		for j := range x {
			must(r.b.Write(x[j], all[j]))
		}
		pass(backend.Pass{Of: layer, Batch: seqs}, func() { r.b.Attend(dst, layer, at, x[0], x[1], x[2], seqs) })
		passes[p] = r.read(dst)
	}
	rows := n * c.heads * c.dim
	for i := range list {
		got = append(append(got, passes[0][i*rows:(i+1)*rows]...), passes[1][i*rows:(i+1)*rows]...)
	}
	return got, want
}
