package cpu

import (
	"unsafe"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
	"github.com/foretoken/foretoken/internal/dtype"
)

// attend computes a span.
func (op *attendOp) attend(buf *attendBuffers, span *attendSpan) {
	if op.coded {
		op.attendCoded(&buf.coded, span)
		return
	}
	n := (op.most + kernel.PromptQueries) * backend.PageTokens
	buf.scores = kernel.Grow(buf.scores, n)
	if op.tail > 0 {
		buf.more = kernel.Grow(buf.more, n)
	}
	for i := span.group; i < len(op.groups) && op.groups[i].first < span.to; i++ {
		g := &op.groups[i]
		first, last := max(span.from-g.first, 0), min(span.to-g.first, g.pages)
		if first > 0 {
			op.keep(buf, span, g, first, last)
			continue
		}
		n, d := g.rows*op.share(), op.value
		buf.page, buf.now = kernel.Grow(buf.page, n*d), kernel.Grow(buf.now, n)
		if g.prompt {
			op.attendPrompt(buf, g)
			continue
		}
		for p := range last {
			op.page(buf, g, g.skip+p, buf.page, buf.now)
			for j := range n {
				op.merge(g, g.skip+p, j, buf.page[j*d:][:d], &buf.now[j])
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
	n, d := g.rows*op.share(), op.value
	span.rest = last - first
	span.sums = kernel.Grow(span.sums, span.rest*n)
	span.data = kernel.Grow(span.data, span.rest*n*d)
	for i := range span.rest {
		op.page(buf, g, g.skip+first+i, span.data[i*n*d:][:n*d], span.sums[i*n:][:n])
	}
}

// sees is the positions [from, to) of page p that row i of a group sees.
func (op *attendOp) sees(g *attendGroup, p, i int) (from, to int) {
	s := &op.batch[g.seq]
	from, to = op.a.Sees(s, g.row-s.First+i)
	to = max(0, min(backend.PageTokens, to-p*backend.PageTokens))
	return min(to, max(0, from-p*backend.PageTokens)), to
}

// firstPage is the first page that row i of a sequence sees.
func (op *attendOp) firstPage(s *backend.Seq, i int) int {
	from, _ := op.a.Sees(s, i)
	return from / backend.PageTokens
}

// page computes one page's own softmax sums, [queries, value], for the queries of a group.
// Rows that see the same positions are taken together.
func (op *attendOp) page(buf *attendBuffers, g *attendGroup, p int, sums []float32, now []kernel.SoftmaxSum) {
	share, d := op.share(), op.value
	first := (g.kv*op.q.Rows + g.row) * share
	for i := 0; i < g.rows; {
		x := pageBlock{g: g, p: p}
		x.from, x.to = op.sees(g, p, i)
		n := 1
		for ; i+n < g.rows; n++ {
			if from, to := op.sees(g, p, i+n); from != x.from || to != x.to {
				break
			}
		}
		if x.from < x.to {
			a, b := i*share, (i+n)*share
			x.queries = op.queries[(first+a)*op.key : (first+b)*op.key]
			x.sums, x.now = sums[a*d:b*d], now[a:b]
			x.tails = op.tails[(first+a)*op.tail : (first+b)*op.tail]
			x.scores = buf.scores
			if g.prompt {
				x.scores = buf.scores[a*backend.PageTokens:]
			}
			op.block(buf, &x)
		}
		i += n
	}
}

// pageBlock is queries of a group that all see positions [from, to) of page p, and where
// their sums go.
type pageBlock struct {
	g        *attendGroup
	p        int
	from, to int
	queries  []float32 // [queries, key]
	tails    []float32 // [queries, tail]
	scores   []float32 // [queries and one, PageTokens], of prompts there already
	sums     []float32 // [queries, value]
	now      []kernel.SoftmaxSum
}

// block is page for the queries of a block. The score of a latent row is the sum of those of
// its two parts, and its first part is the value.
func (op *attendOp) block(buf *attendBuffers, x *pageBlock) {
	page, after := op.pages(x.g, x.p)
	key, second := op.rows(page, 0, x.g.kv), op.rows(page, 1, x.g.kv)
	value, n := second, len(x.now)*backend.PageTokens
	if op.a.Latent > 0 {
		value = key
	}
	if !x.g.prompt {
		op.score(x.scores, x, x.queries, key, second, op.key)
		if op.tail > 0 {
			op.score(buf.more, x, x.tails, second, key, op.tail)
			op.vector.Add(x.scores[:n], buf.more[:n])
		}
	}
	for j := range x.now {
		x.now[j].Top, x.now[j].Weight = op.vector.Softmax(x.scores[j*backend.PageTokens:][x.from:x.to])
	}
	op.weigh(x, value, op.rows(after, 0, x.g.kv))
}

// score computes the scores of a block's queries, d numbers each, and rows of a page. dst has
// PageTokens places per query, of which [from, to) are computed: kernels get the memory from
// place from on. next is prefetched after the rows.
func (op *attendOp) score(dst []float32, x *pageBlock, queries []float32, rows, next pageRows, d int) {
	k, n, count := &op.vector.Page, len(x.now)*backend.PageTokens, x.to-x.from
	scores := dst[x.from:][:n]
	if op.at.Type == dtype.F32 {
		k.Scores32(scores, queries, rows.floats()[x.from*d:], next.floats(), d, count, op.scale)
	} else {
		k.Scores16(scores, queries, rows.halves()[x.from*d:], next.halves(), d, count, op.scale)
	}
}

// weigh sums the values of a page by their weights, which are in place of the scores.
func (op *attendOp) weigh(x *pageBlock, rows, next pageRows) {
	k, d, n, count := &op.vector.Page, op.value, len(x.now)*backend.PageTokens, x.to-x.from
	from := x.scores[x.from:][:n]
	if op.at.Type == dtype.F32 {
		k.Weigh32(x.sums, from, rows.floats()[x.from*d:], next.floats(), d, count)
	} else {
		k.Weigh16(x.sums, from, rows.halves()[x.from*d:], next.halves(), d, count)
	}
}

// pages are page p of a group and the one that is read after it.
func (op *attendOp) pages(g *attendGroup, p int) (page, after backend.Tensor) {
	released, list := op.batch[g.seq].Table(&op.at)
	return list[p-released], list[min(p+1, g.skip+g.pages-1)-released]
}

// pageRows are PageTokens rows of a page, as backend.KeyBytes and its like lay them out. They begin at a
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

// merge adds page p's sum of query j of a group to its output, unless the query's row does
// not see the page.
func (op *attendOp) merge(g *attendGroup, p, j int, sum []float32, now *kernel.SoftmaxSum) {
	i := j / op.share()
	if from, to := op.sees(g, p, i); from == to {
		return
	}
	out, all := op.output(g, j)
	s := &op.batch[g.seq]
	if p == op.firstPage(s, g.row-s.First+i) {
		copy(out, sum)
		*all = *now
		return
	}
	op.vector.Page.Merge(out, sum, all, now)
}

// finish divides the output of query j of a group by its weight, and applies its gate if it
// has one.
func (op *attendOp) finish(g *attendGroup, j int) {
	out, all := op.output(g, j)
	r, h := op.place(g, j)
	op.divide(out, r, h, 0, all.Weight)
}

// divide divides the output of head h of row r, from column from on, by its weight, and applies
// its gate if it has one.
func (op *attendOp) divide(out []float32, r, h, from int, weight float32) {
	if !op.a.Gate {
		for i := range out {
			out[i] /= weight
		}
		return
	}
	op.vector.GateSigmoid(out, row(op.q, r)[h*op.head+op.a.HeadDim+from:][:len(out)], weight)
}

// output is where query j of a group has its output and its sum.
func (op *attendOp) output(g *attendGroup, j int) (out []float32, all *kernel.SoftmaxSum) {
	share := op.share()
	r, h := op.place(g, j)
	return row(op.dst, r)[h*op.value:][:op.value], &op.sums[(g.kv*op.q.Rows+r)*share+j%share]
}

// place is the row and the head of query j of a group.
func (op *attendOp) place(g *attendGroup, j int) (r, h int) {
	share := op.share()
	return g.row + j/share, g.kv*share + j%share
}

// join merges the rests of query j of a group, which follow one another in the spans.
func (op *attendOp) join(buf *attendBuffers, group, j int) {
	if op.coded {
		op.joinCoded(&buf.coded, group, j)
		return
	}
	g, d := &op.groups[group], op.value
	n := g.rows * op.share()
	if j >= n {
		return
	}
	p := g.skip + g.merged
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
