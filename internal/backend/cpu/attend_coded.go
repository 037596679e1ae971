package cpu

import (
	"math"
	"unsafe"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
)

// Attention over pages of 8 bits, or of 4, takes the queries of a group in blocks, one query per lane:
// the data of a block is [rows, lanes]. A page is read for all blocks of a group
// before the next one is.

// codedQueries bounds the queries of a group if there are many: while a page passes, which is
// 33 KB at the usual width, their sums stay in the L2 cache. Few queries are groups of
// groupQueries, because the partial sums of cut groups are kept, page by page.
const codedQueries = 64

// codedBuffers are the working memory of one thread.
type codedBuffers struct {
	page    kernel.CodedPage
	merge   kernel.CodedMerge
	masks   [backend.PageTokens]uint16
	queries []byte      // [blocks, groups of key and tail]
	sums    []int32     // of a page and a block
	keys    pageRows    // of the page
	tails   pageRows    // second parts of its rows, if they are latent
	values  []int8      // first parts by column
	padded  []float32   // of a row
	codes   []byte      // likewise
	packed  []byte      // a row of 4 bits before it is packed
	parts   [2]pageRows // of a page of 4 bits, unpacked
	whole   codedSums   // of a group that no span cuts
}

// codedSums are the merged sums of a group.
type codedSums struct {
	out []float32         // [blocks, columns, lanes]
	all []kernel.LaneSums // [blocks]
}

// reset sets them to those of no page.
func (s *codedSums) reset(blocks, numbers int) {
	s.out, s.all = kernel.Grow(s.out, numbers), kernel.Grow(s.all, blocks)
	clear(s.out)
	clear(s.all)
	for i := range s.all {
		for l := range s.all[i].Top {
			s.all[i].Top[l] = float32(math.Inf(-1))
		}
	}
}

// codedBlock is a part of a group: lanes queries from query first on, whose sums have
// rows of width numbers. If lanes is smaller, the rest of a row is unused.
type codedBlock struct{ first, lanes, width int }

// blocks is the number of blocks of a group, blockOf is one of them.
func (op *attendOp) blocks(g *attendGroup) int {
	return (g.rows*op.share() + kernel.Lanes - 1) / kernel.Lanes
}

func (op *attendOp) blockOf(g *attendGroup, i int) codedBlock {
	first := i * kernel.Lanes
	n := min(kernel.Lanes, g.rows*op.share()-first)
	width := 4
	for width < n {
		width *= 2
	}
	return codedBlock{first, n, width}
}

// columns is the columns of a value with their padding; sumsOf is the number of numbers of a page's
// sums in all blocks of a group; those of block i begin at i*columns*Lanes.
func (op *attendOp) columns() int { return (op.value + 15) &^ 15 }

func (op *attendOp) sumsOf(g *attendGroup) int {
	last := op.blocks(g) - 1
	return (last*kernel.Lanes + op.blockOf(g, last).width) * op.columns()
}

// attendCoded computes a span. If it has the first pages of a group but not the last, their
// sums stay in it; if it has later ones, they wait in it for those before.
func (op *attendOp) attendCoded(buf *codedBuffers, span *attendSpan) {
	buf.page.Prepare()
	for i := span.group; i < len(op.groups) && op.groups[i].first < span.to; i++ {
		g := &op.groups[i]
		first, last := max(span.from-g.first, 0), min(span.to-g.first, g.pages)
		op.layQueries(buf, g)
		if first > 0 {
			op.keepCoded(buf, span, g, first, last)
			continue
		}
		sums := &buf.whole
		if last < g.pages {
			sums = &span.head
		}
		n, columns := op.blocks(g), op.columns()
		sums.reset(n, op.sumsOf(g))
		buf.sums = kernel.Grow(buf.sums, columns*kernel.Lanes)
		for p := range last {
			op.openPage(buf, g, g.skip+p)
			for j := range n {
				b := op.blockOf(g, j)
				sees := op.lanesOf(buf, g, g.skip+p, b)
				if sees == 0 {
					continue
				}
				op.codedPage(buf, j, n, b, buf.sums[:columns*b.width])
				out := sums.out[j*columns*kernel.Lanes:][:columns*b.width]
				buf.merge = kernel.CodedMerge{All: &sums.all[j], Now: &buf.page.Now, Out: out, Sums: buf.page.Sums, Sees: sees}
				k := &op.set.Vector.Coded
				if k.WeighMerge != nil && b.width == kernel.Lanes {
					k.WeighMerge(&buf.page, &buf.merge)
					continue
				}
				k.Weigh(&buf.page)
				k.Merge(&buf.merge)
			}
		}
		for j := 0; j < n && last == g.pages; j++ {
			b := op.blockOf(g, j)
			op.finishCoded(g, b, &sums.all[j], sums.out[j*columns*kernel.Lanes:][:columns*b.width], 0)
		}
	}
}

// keepCoded computes pages [first, last) of a group without merging them.
func (op *attendOp) keepCoded(buf *codedBuffers, span *attendSpan, g *attendGroup, first, last int) {
	n, size, columns := op.blocks(g), op.sumsOf(g), op.columns()
	span.rest = last - first
	span.lanes = kernel.Grow(span.lanes, span.rest*n)
	span.codes = kernel.Grow(span.codes, span.rest*size)
	for i := range span.rest {
		op.openPage(buf, g, g.skip+first+i)
		for j := range n {
			b := op.blockOf(g, j)
			if op.lanesOf(buf, g, g.skip+first+i, b) == 0 {
				continue
			}
			op.codedPage(buf, j, n, b, span.codes[i*size+j*columns*kernel.Lanes:][:columns*b.width])
			op.set.Vector.Coded.Weigh(&buf.page)
			span.lanes[i*n+j] = buf.page.Now
		}
	}
}

// layQueries quantizes the queries of a group.
func (op *attendOp) layQueries(buf *codedBuffers, g *attendGroup) {
	key, tail := kernel.QueryBytes(op.key), kernel.QueryBytes(op.tail)
	n := g.rows * op.share()
	buf.queries = kernel.Grow(buf.queries, op.blocks(g)*(key+tail))
	last := buf.queries[(op.blocks(g)-1)*(key+tail):]
	clear(last)
	first := (g.kv*op.q.Rows + g.row) * op.share()
	for j := range n {
		dst := buf.queries[j/kernel.Lanes*(key+tail):]
		op.set.PutQuery(dst[:key], j%kernel.Lanes, op.queries[(first+j)*op.key:][:op.key], op.scale, &buf.padded)
		if op.tail > 0 {
			op.set.PutQuery(dst[key:][:tail], j%kernel.Lanes, op.tails[(first+j)*op.tail:][:op.tail], op.scale, &buf.padded)
		}
	}
	kernel.Repeat(last, op.blockOf(g, op.blocks(g)-1).width)
}

// openPage finds a group's head in page p.
func (op *attendOp) openPage(buf *codedBuffers, g *attendGroup, p int) {
	x := &buf.page
	page, after := op.pages(g, p)
	buf.keys = op.codedRows(buf, page, 0, g.kv)
	x.Next = op.rows(after, 0, g.kv)
	x.Dims = op.columns()
	n := x.Dims * backend.PageTokens
	if second := op.codedRows(buf, page, 1, g.kv); op.a.Latent == 0 {
		x.Values, x.ValueScales = second[:n], second[n:].floats()
	} else {
		buf.tails, buf.values = second, kernel.Grow(buf.values, n)
		x.Values = buf.values
		var codes []byte
		codes, x.ValueScales, _, _ = op.codedKeys(buf.keys, op.key)
		kernel.Transpose(x.Values, codes, op.value)
	}
}

// codedKeys are rows of keys in the layout of kernels.
func (op *attendOp) codedKeys(rows pageRows, width int) (keys []byte, scales []float32, groups, step int) {
	groups = kernel.CodedGroups(width)
	n := backend.PageTokens * groups * backend.CodedGroup
	if op.a.Latent == 0 {
		step = backend.PageTokens
	}
	return rows[:n].bytes(), rows[n:].floats(), groups, step
}

// everyLane is the masks of a page that all lanes see.
var everyLane = func() *[backend.PageTokens]uint16 {
	var m [backend.PageTokens]uint16
	for i := range m {
		m[i] = 1<<kernel.Lanes - 1
	}
	return &m
}()

// lanesOf finds which positions of page p the lanes of a block see, with lanes that repeat a query
// like it, and returns the lanes that see any.
func (op *attendOp) lanesOf(buf *codedBuffers, g *attendGroup, p int, b codedBlock) (sees uint16) {
	share := op.share()
	_, least := op.sees(g, p, b.first/share)
	latest, _ := op.sees(g, p, (b.first+b.lanes-1)/share)
	if buf != nil {
		buf.page.Masks = everyLane
	}
	if least == backend.PageTokens && latest == 0 {
		return 1<<kernel.Lanes - 1
	}
	every := uint16(1) // the first lane and those that repeat it
	for w := b.width; w < kernel.Lanes; w *= 2 {
		every |= every << w
	}
	var turns [backend.PageTokens + 1]uint16 // lanes that begin or cease to see
	for l := range b.lanes {
		if from, to := op.sees(g, p, (b.first+l)/share); from < to {
			turns[from] ^= every << l
			turns[to] ^= every << l
			sees |= every << l
		}
	}
	if buf != nil {
		now := uint16(0)
		for i := range buf.masks {
			now ^= turns[i]
			buf.masks[i] = now
		}
		buf.page.Masks = &buf.masks
	}
	return sees
}

// codedPage computes the weights of block i of some over the page, whose sums will go to sums.
func (op *attendOp) codedPage(buf *codedBuffers, i, blocks int, b codedBlock, sums []int32) {
	k, x := &op.set.Vector.Coded, &buf.page
	key, tail := kernel.QueryBytes(op.key), kernel.QueryBytes(op.tail)
	queries := buf.queries[i*(key+tail):][:key+tail]
	x.Queries, x.Width, x.Sums, x.More = queries[:key], b.width, sums, 0
	if x.Ahead, x.SkipValues, x.SkipNext = 1024, 0, 0; blocks >= 4 { // each brings a quarter
		x.Ahead, x.SkipValues, x.SkipNext = 256, i%4*kernel.CodedGroups(op.key)*1024, i%4*x.Dims*16
	}
	x.Keys, x.KeyScales, x.Groups, x.ScaleStep = op.codedKeys(buf.keys, op.key)
	k.Scores(x)
	if op.tail > 0 {
		x.Keys, x.KeyScales, x.Groups, x.ScaleStep = op.codedKeys(buf.tails, op.tail)
		x.Queries, x.More = queries[key:], 1
		k.Scores(x)
	}
	k.Softmax(x)
}

// finishCoded writes the columns of a block's outputs from column from on: its sums divided by
// their weights, and gated.
func (op *attendOp) finishCoded(g *attendGroup, b codedBlock, all *kernel.LaneSums, sums []float32, from int) {
	n := min(len(sums)/b.width, op.value-from)
	for l := range b.lanes {
		r, h := op.place(g, b.first+l)
		out := row(op.dst, r)[h*op.value+from:][:n]
		for i := range out {
			out[i] = sums[i*b.width+l]
		}
		op.divide(out, r, h, from, all.Weight[l])
	}
}

// codedSlices is into how many parts, of columns by sixteens, a group that spans cut is put
// together.
const codedSlices = 16

// joinCoded merges some columns of the rests of a group, which follow one another in the spans.
func (op *attendOp) joinCoded(buf *codedBuffers, group, slice int) {
	g, columns := &op.groups[group], op.columns()
	n, size := op.blocks(g), op.sumsOf(g)
	from, to := columns/16*slice/codedSlices*16, columns/16*(slice+1)/codedSlices*16
	if from == to {
		return
	}
	for j := range n {
		b := op.blockOf(g, j)
		var out []float32
		var all kernel.LaneSums
		p := g.skip
		for i := range op.spans {
			s := &op.spans[i]
			at := (j*kernel.Lanes)*columns + from*b.width
			switch {
			case s.from <= g.first && g.first < s.to:
				out, all = s.head.out[at:][:(to-from)*b.width], s.head.all[j]
				p += s.to - g.first
			case s.group == group && s.rest > 0:
				for k := range s.rest {
					if sees := op.lanesOf(nil, g, p, b); sees != 0 {
						buf.merge = kernel.CodedMerge{All: &all, Now: &s.lanes[k*n+j], Out: out, Sums: s.codes[k*size+at:][:len(out)], Sees: sees}
						op.set.Vector.Coded.Merge(&buf.merge)
					}
					p++
				}
			}
		}
		op.finishCoded(g, b, &all, out, from)
	}
}

// bytes are rows of codes with 128 added.
func (r pageRows) bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(r))), len(r))
}
