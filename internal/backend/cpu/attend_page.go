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
	key, value := op.slot(0, g.kv), op.slot(1, g.kv)
	switch page.Type {
	case dtype.F32:
		values := pageRows(page, value)
		k.Scores32(scores, queries, pageRows(page, key), values, d, count, op.scale)
		op.softmax(scores, count, now)
		k.Weigh32(sums, scores, values, pageRows(after, key), d, count)
	case dtype.F16:
		values := pageHalves(page, value)
		k.Scores16(scores, queries, pageHalves(page, key), values, d, count, op.scale)
		op.softmax(scores, count, now)
		k.Weigh16(sums, scores, values, pageHalves(after, key), d, count)
	default:
		keys, keyScales := pageCodes(page, key)
		values, valueScales := pageCodes(page, value)
		next, _ := pageCodes(after, key)
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

// pageRows are the rows of a page from row r on, PageTokens of them.
func pageRows(page backend.Tensor, r int) []float32 {
	at, n := pagePlace(page, r)
	return page.Mem.(*memory).f32[at : at+n]
}

// pageHalves is pageRows for a page of half precision.
func pageHalves(page backend.Tensor, r int) []uint16 {
	at, n := pagePlace(page, r)
	return page.Mem.(*memory).f16[at : at+n]
}

// pageCodes is pageRows for a page of 8 bits: codes, and a scale for each row.
func pageCodes(page backend.Tensor, r int) (codes []int8, scales []float32) {
	at, n := pagePlace(page, r)
	x := page.Mem.(*memory).i8[at : at+n]
	n -= backend.PageTokens * dtype.F32.Size()
	return x[:n], unsafe.Slice((*float32)(unsafe.Pointer(&x[n])), backend.PageTokens)
}

func pagePlace(page backend.Tensor, r int) (at, n int) {
	if page.Stride != page.Cols {
		panic("cpu: page with gaps between its rows")
	}
	return page.Offset + r*page.Stride, backend.PageTokens * page.Cols
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
