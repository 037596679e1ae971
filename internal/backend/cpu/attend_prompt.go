package cpu

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Attention over pages of floats has two forms, which give the same bits. Few queries read a page
// in its stored layout. For groups of many, it is laid out for kernel.Prompt, once for all of them; for a
// page that not all of them see whole only the scores are computed so.

// promptQueries bounds the queries of a group of the second form: they and their outputs, 256 KB
// each at the usual width, and the laid-out keys of a page stay in the L2 cache.
// Groups may be smaller, for all threads to have equally many, but the layout pays from leastPrompt on.
const (
	promptQueries = 256
	leastPrompt   = 32
)

// promptBuffers are the working memory of one thread.
type promptBuffers struct {
	queries, queryTails []float32 // of the group, as kernel.Prompt lays them out
	keys, tails, values []float32 // likewise, of the page; of values a strip
	partial             []float32 // sums of kernel.Prompt
	spare               []float32 // a row of output for padding queries
	// By query:
	rows                 []*float32 // of the output
	allTop, allWeight    []float32  // the sum of all pages so far
	nowTop, nowWeight    []float32  // that of this page
	oldFactor, newFactor []float32  // of the old sum and the page's
}

// groupPrompt lays out groups, some of them in the second form. It is not ok unless rows are whole
// vectors and there are enough groups that none has to be split: at best a chunk of the pool for each, and if groups at
// the end have many more pages than those at the beginning, more.
func (op *attendOp) groupPrompt() (pages int, ok bool) {
	if op.coded || op.key%kernel.Lanes != 0 || op.tail%kernel.Lanes != 0 || op.value%kernel.PromptStrip != 0 {
		return 0, false
	}
	threads := op.b.pool.size()
	for n := chunksPerThread; ; n += (n + 3) / 4 {
		height := min(promptQueries/op.share(), above(op.q.Rows*op.a.KVHeads, n*threads))
		if height*op.share() < leastPrompt {
			return 0, false
		}
		pages, longest := op.group(height)
		ok = false
		for i := range op.groups {
			g := &op.groups[i]
			g.prompt = g.rows*op.share() >= leastPrompt
			ok = ok || g.prompt
		}
		if ok && longest*(chunksPerThread-1)*threads <= pages {
			return pages, true
		}
		if !ok || height == 1 {
			return 0, false
		}
	}
}

// attendPrompt computes a group.
func (op *attendOp) attendPrompt(buf *attendBuffers, g *attendGroup) {
	b, n := &buf.prompt, g.rows*op.share()
	op.openPrompt(b, g)
	for p := g.skip; p < g.skip+g.pages; p++ {
		op.promptScores(buf, g, p)
		if whole, first := op.seesWhole(g, p); whole {
			op.promptPage(buf, g, p, first)
			continue
		}
		op.page(buf, g, p, buf.page, buf.now)
		for j := range n {
			_, all := op.output(g, j)
			all.Top, all.Weight = b.allTop[j], b.allWeight[j]
			op.merge(g, p, j, buf.page[j*op.value:][:op.value], &buf.now[j])
			b.allTop[j], b.allWeight[j] = all.Top, all.Weight
		}
	}
	for j := range n {
		_, all := op.output(g, j)
		all.Weight = b.allWeight[j]
		op.finish(g, j)
	}
	clear(b.rows) // the output's memory may be gone by the next call
}

// openPrompt sizes the buffers for a group and finds its output.
func (op *attendOp) openPrompt(b *promptBuffers, g *attendGroup) {
	n := above(g.rows*op.share(), kernel.PromptQueries) * kernel.PromptQueries
	strips := above(n, kernel.PromptStrip) * kernel.PromptStrip
	query := (g.kv*op.q.Rows + g.row) * op.share()
	b.queries, b.queryTails = kernel.Grow(b.queries, strips*op.key), kernel.Grow(b.queryTails, strips*op.tail)
	op.vector.Prompt.Rows32(b.queries, op.queries[query*op.key:], op.key)
	if op.tail > 0 {
		op.vector.Prompt.Rows32(b.queryTails, op.tails[query*op.tail:], op.tail)
	}
	b.keys = kernel.Grow(b.keys, backend.PageTokens*op.key)
	b.tails = kernel.Grow(b.tails, backend.PageTokens*op.tail)
	b.values = kernel.Grow(b.values, backend.PageTokens*kernel.PromptStrip)
	b.partial, b.spare = kernel.Grow(b.partial, kernel.PromptSums), kernel.Grow(b.spare, op.value)
	for _, x := range []*[]float32{&b.allTop, &b.allWeight, &b.nowTop, &b.nowWeight, &b.oldFactor, &b.newFactor} {
		*x = kernel.Grow(*x, n)
	}
	b.rows = kernel.Grow(b.rows, n)
	for j := range b.rows {
		out := b.spare
		if j < g.rows*op.share() {
			out, _ = op.output(g, j)
		}
		b.rows[j] = &out[0]
	}
}

// seesWhole reports whether all rows of a group see all of page p, and as which: the first page for
// every row, or a later one for every row.
func (op *attendOp) seesWhole(g *attendGroup, p int) (whole, first bool) {
	_, to := op.sees(g, p, 0)
	from, _ := op.sees(g, p, g.rows-1)
	s := &op.batch[g.seq]
	row := g.row - s.First
	begin, end := op.firstPage(s, row), op.firstPage(s, row+g.rows-1)
	return from == 0 && to == backend.PageTokens && (p > end || p == begin && begin == end), p == begin
}

// promptScores computes the scores of all queries of a group and all positions of page p, whether
// they are seen or not.
func (op *attendOp) promptScores(buf *attendBuffers, g *attendGroup, p int) {
	b, k := &buf.prompt, &op.vector.Prompt
	page, after := op.pages(g, p)
	next := op.rows(after, 0, g.kv)
	scores := buf.scores[:len(b.rows)*backend.PageTokens]
	op.layRows(b.keys, op.rows(page, 0, g.kv), op.key)
	k.Scores(scores, b.queries, b.keys, b.partial, next, op.key, op.scale)
	if op.tail > 0 {
		more := buf.more[:len(scores)]
		op.layRows(b.tails, op.rows(page, 1, g.kv), op.tail)
		k.Scores(more, b.queryTails, b.tails, b.partial, next, op.tail, op.scale)
		op.vector.Add(scores, more)
	}
}

// layRows lays out the keys of a page, or the tails of its latent rows.
func (op *attendOp) layRows(dst []float32, rows pageRows, d int) {
	if op.at.Type == dtype.F32 {
		op.vector.Prompt.Rows32(dst, rows.floats(), d)
	} else {
		op.vector.Prompt.Rows16(dst, rows.halves(), d)
	}
}

// promptPage adds page p, whose scores are there, to the sums of all queries of a group.
func (op *attendOp) promptPage(buf *attendBuffers, g *attendGroup, p int, first bool) {
	b, k := &buf.prompt, &op.vector.Prompt
	weights := buf.scores[:len(b.rows)*backend.PageTokens]
	var oldFactor, newFactor []float32
	if first {
		k.Softmax(weights, b.allTop, b.allWeight)
	} else {
		oldFactor, newFactor = b.oldFactor, b.newFactor
		k.Softmax(weights, b.nowTop, b.nowWeight)
		k.Factors(oldFactor, newFactor, b.allTop, b.allWeight, b.nowTop, b.nowWeight)
	}
	page, after := op.pages(g, p)
	values, next := op.rows(page, 1, g.kv), op.rows(after, 1, g.kv)
	if op.a.Latent > 0 {
		values = op.rows(page, 0, g.kv)
	}
	for column := 0; column < op.value; column += kernel.PromptStrip {
		if op.at.Type == dtype.F32 {
			k.Values32(b.values, values.floats()[column:], op.value)
		} else {
			k.Values16(b.values, values.halves()[column:], op.value)
		}
		k.Weigh(b.rows, weights, b.values, oldFactor, newFactor, next[len(next)*column/op.value:], column)
	}
}
