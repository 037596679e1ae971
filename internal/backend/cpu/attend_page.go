package cpu

import (
	"unsafe"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
	"github.com/foretoken/foretoken/internal/dtype"
)

// attend computes a span.
func (op *attendOp) attend(buf *attendBuffers, span *attendSpan) {
	buf.scores = kernel.Grow(buf.scores, op.maxQueries()*backend.PageTokens)
	for i := span.group; i < len(op.groups) && op.groups[i].first < span.to; i++ {
		g := &op.groups[i]
		first, last := max(span.from-g.first, 0), min(span.to-g.first, g.pages)
		if first > 0 {
			op.keep(buf, span, g, first, last)
			continue
		}
		n, d := g.rows*op.share(), op.a.HeadDim
		buf.page, buf.now = kernel.Grow(buf.page, n*d), kernel.Grow(buf.now, n)
		for p := range last {
			op.page(buf, g, p, buf.page, buf.now)
			for j := range n {
				op.merge(g, p, j, buf.page[j*d:][:d], &buf.now[j])
			}
		}
		g.merged = last
		for j := 0; j < n && last == g.pages; j++ {
			op.finish(g, j)
		}
	}
}

// keep computes pages [first, last) of a group without merging them.
func (op *attendOp) keep(buf *attendBuffers, span *attendSpan, g *attendGroup, first, last int) {
	n, d := g.rows*op.share(), op.a.HeadDim
	span.rest = last - first
	span.sums = kernel.Grow(span.sums, span.rest*n)
	span.data = kernel.Grow(span.data, span.rest*n*d)
	for i := range span.rest {
		op.page(buf, g, first+i, span.data[i*n*d:][:n*d], span.sums[i*n:][:n])
	}
}

// count is how many positions of page p row i of a group may see.
func (op *attendOp) count(g *attendGroup, p, i int) int {
	s := &op.batch[g.seq]
	n := s.Pos + g.row - s.First + i + 1
	return max(0, min(backend.PageTokens, n-p*backend.PageTokens))
}

// page computes one page's own softmax sums, [queries, dim], for the queries of a group.
// Rows that see equally many positions are taken together.
func (op *attendOp) page(buf *attendBuffers, g *attendGroup, p int, sums []float32, now []kernel.SoftmaxSum) {
	d, share := op.a.HeadDim, op.share()
	queries := op.queries[(g.kv*op.q.Rows+g.row)*share*d:]
	for i := 0; i < g.rows; {
		count, n := op.count(g, p, i), 1
		for i+n < g.rows && op.count(g, p, i+n) == count {
			n++
		}
		if count > 0 {
			from, to := i*share, (i+n)*share
			op.block(buf, g, p, count, queries[from*d:to*d], sums[from*d:to*d], now[from:to])
		}
		i += n
	}
}

// block is page for queries that all see the page's first count positions.
func (op *attendOp) block(buf *attendBuffers, g *attendGroup, p, count int, queries, sums []float32, now []kernel.SoftmaxSum) {
	d, k := op.a.HeadDim, &op.vector.Page
	pages := op.batch[g.seq].Pages
	page, after := pages[p], pages[min(p+1, g.pages-1)] // what is read next is its keys
	scores := buf.scores[:len(now)*backend.PageTokens]
	key, value, next := op.rows(page, 0, g.kv), op.rows(page, 1, g.kv), op.rows(after, 0, g.kv)
	switch op.at.Type {
	case dtype.F32:
		values := value.floats()
		k.Scores32(scores, queries, key.floats(), values, d, count, op.scale)
		op.softmax(scores, count, now)
		k.Weigh32(sums, scores, values, next.floats(), d, count)
	case dtype.F16:
		values := value.halves()
		k.Scores16(scores, queries, key.halves(), values, d, count, op.scale)
		op.softmax(scores, count, now)
		k.Weigh16(sums, scores, values, next.halves(), d, count)
	default:
		keys, keyScales := key.codes()
		values, valueScales := value.codes()
		next, _ := next.codes()
		k.Scores8(scores, queries, keys, values, d, count, op.scale)
		k.Scale(scores, keyScales)
		op.softmax(scores, count, now)
		k.Scale(scores, valueScales)
		k.Weigh8(sums, scores, values, next, d, count)
	}
}

// softmax turns the scores of each query into weights.
func (op *attendOp) softmax(scores []float32, count int, now []kernel.SoftmaxSum) {
	for j := range now {
		now[j].Top, now[j].Weight = op.vector.Softmax(scores[j*backend.PageTokens:][:count])
	}
}

// pageRows are PageTokens rows of a page, as backend.PageBytes lays them out. They begin at a
// multiple of PageTokens bytes, so any type of number is aligned.
type pageRows []int8

// floats are rows of float32.
func (r pageRows) floats() []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(r))), len(r)/4)
}

// halves are rows of half precision.
func (r pageRows) halves() []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(r))), len(r)/2)
}

// codes are rows of 8 bits: codes, and a scale for each row.
func (r pageRows) codes() (codes []int8, scales []float32) {
	n := len(r) - backend.PageTokens*dtype.F32.Size()
	return r[:n:n], r[n:].floats()
}

// merge adds page p's sum of query j of a group to its output, unless the query's row comes
// before the page.
func (op *attendOp) merge(g *attendGroup, p, j int, sum []float32, now *kernel.SoftmaxSum) {
	if op.count(g, p, j/op.share()) == 0 {
		return
	}
	out, _, all := op.output(g, j)
	if p == 0 {
		copy(out, sum)
		*all = *now
		return
	}
	op.vector.Page.Merge(out, sum, all, now)
}

// finish divides the output of query j of a group by its weight, and applies its gate.
func (op *attendOp) finish(g *attendGroup, j int) {
	out, gate, all := op.output(g, j)
	op.vector.GateSigmoid(out, gate, all.Weight)
}

// output is where query j of a group has its output, its gate and its sum.
func (op *attendOp) output(g *attendGroup, j int) (out, gate []float32, all *kernel.SoftmaxSum) {
	d, share := op.a.HeadDim, op.share()
	r, h := g.row+j/share, g.kv*share+j%share
	out = row(op.dst, r)[h*d:][:d]
	gate = row(op.q, r)[(2*h+1)*d:][:d]
	return out, gate, &op.sums[(g.kv*op.q.Rows+r)*share+j%share]
}

// join merges the rests of query j of a group, which follow one another in the spans.
func (op *attendOp) join(group, j int) {
	g, d := &op.groups[group], op.a.HeadDim
	n := g.rows * op.share()
	if j >= n {
		return
	}
	p := g.merged
	for i := range op.spans {
		s := &op.spans[i]
		if s.group != group || s.rest == 0 {
			continue
		}
		for k := range s.rest {
			op.merge(g, p, j, s.data[(k*n+j)*d:][:d], &s.sums[k*n+j])
			p++
		}
	}
	op.finish(g, j)
}
