package cpu

import (
	"cmp"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/exactmath"
)

// attendOp is an attention layer. It runs over the pool up to four times: rotations, unless
// another layer has just computed them, and norms and appending, a part being a row; then
// attention itself, a part being a span of pages; and if a group was cut by spans, putting
// it together, a part being one of its queries.
type attendOp struct {
	b            *Backend
	vector       *kernel.Vector
	set          *kernel.Set
	a            *backend.Attention
	at           backend.Place
	key, tail    int    // numbers of a key in its rows of a page, and in a latent row's second ones
	value        int    // numbers of a value
	head         int    // numbers from one head's query to the next
	parts        [2]int // bytes of a head's keys in a page, and of the next part
	coded        bool   // pages are of 8 bits, or of 4
	scale        float32
	dst, q, k, v backend.Tensor
	batch        []backend.Seq
	owner        []int32 // sequence of each row
	rotations    rotations
	queries      []float32           // [kv heads, rows, heads of each, key]: normed and rotated
	tails        []float32           // [kv heads, rows, heads of each, tail]: likewise
	sums         []kernel.SoftmaxSum // [kv heads, rows, heads of each]
	groups       []attendGroup
	most         int // queries of a group
	spans        []attendSpan
	cut          []int32         // groups that more than one span has pages of
	buffers      []attendBuffers // one per thread
	phase        attendPhase
}

type attendPhase uint8

const (
	rotating attendPhase = iota
	preparing
	attending
	joining
)

// attendGroup is a few rows of one sequence and one of its heads of keys and values, which
// all of the rows' queries read together.
type attendGroup struct {
	seq, row, rows, kv int
	skip               int // pages of the sequence that no row sees
	first, pages       int // its pages after those, counted through all groups
	merged             int // pages whose sum is in the output
	prompt             bool
}

// groupQueries bounds the queries of a group: all of them fit into the first cache beside
// a page of keys.
const groupQueries = 16

// attendBuffers are the working memory of one thread.
type attendBuffers struct {
	key    []float32           // [key]
	tail   []float32           // [tail]
	scores []float32           // [queries and some, PageTokens]: rows may begin later, and kernels write on
	more   []float32           // likewise, of tails
	page   []float32           // [queries, value]
	now    []kernel.SoftmaxSum // [queries]
	coded  codedBuffers
	prompt promptBuffers
}

// attendSpan is a range of pages, counted through all groups. If it begins in the middle of
// a group, its part of that group is the rest, which waits for the pages before it.
type attendSpan struct {
	from, to int
	group    int                 // of page from
	rest     int                 // pages of the rest
	sums     []kernel.SoftmaxSum // [rest, queries]
	data     []float32           // [rest, queries, value]
	// Likewise of pages of 8 bits, and the sums of the first pages of a group that goes on in
	// the next span.
	lanes []kernel.LaneSums // [rest, blocks]
	codes []int32           // [rest, blocks, columns, lanes]
	head  codedSums
}

// Attend is attention.
func (b *Backend) Attend(dst backend.Tensor, a *backend.Attention, at backend.Place, q, k, v backend.Tensor, batch []backend.Seq) {
	backend.CheckAttend(dst, a, q, k, v)
	op := &b.attend
	op.b, op.a, op.at, op.batch = b, a, at, batch
	op.dst, op.q, op.k, op.v = dst, q, k, v
	op.shape()
	rows := max(q.Rows, k.Rows)
	op.owner = owners(op.owner, batch, rows)
	op.queries = kernel.Grow(op.queries, (q.Rows*a.Heads+kernel.PromptStrip)*op.key) // which may be read on
	op.tails = kernel.Grow(op.tails, (q.Rows*a.Heads+kernel.PromptStrip)*op.tail)
	op.sums = kernel.Grow(op.sums, q.Rows*a.Heads)
	op.buffers = kernel.Grow(op.buffers, b.pool.size())
	if op.rotations.stale(op) {
		op.run(rotating, rows, 8)
	}
	op.run(preparing, rows, 1)
	if q.Rows == 0 {
		return
	}
	op.cutSpans(op.layOut())
	op.run(attending, len(op.spans), 1)
	if len(op.cut) > 0 {
		op.run(joining, len(op.cut)*op.joins(), 1)
	}
}

// shape finds the widths of everything.
func (op *attendOp) shape() {
	a, b := op.a, op.b
	op.key, op.tail, op.value = a.HeadDim, 0, a.Values()
	second := op.value // of a page's rows behind the keys
	if a.Latent > 0 {
		op.key, op.tail = a.Latent, a.HeadDim-a.Latent
		second = op.tail
	}
	op.head = a.Queries() / a.Heads
	op.coded = backend.CodedPages(op.at.Type)
	op.parts = [2]int{backend.KeyBytes(op.at.Type, 1, op.key), backend.ValueBytes(op.at.Type, 1, second)}
	if a.Latent > 0 {
		op.parts = [2]int{backend.LatentBytes(op.at.Type, op.key), backend.LatentBytes(op.at.Type, second)}
	}
	op.scale = a.ScoreScale()
	op.set = b.isa
	op.vector = b.isa.Vector.ForWidth(op.key | op.tail | op.value) // a multiple of lanes only if all of them are
}

func (op *attendOp) run(phase attendPhase, parts, grain int) {
	op.phase = phase
	op.b.pool.run(op, parts, grain)
}

// owners lists the sequence of each row.
func owners(dst []int32, batch []backend.Seq, rows int) []int32 {
	dst = kernel.Grow(dst, rows)
	n := 0
	for i, s := range batch {
		for r := range s.N {
			dst[s.First+r] = int32(i)
		}
		n += s.N
	}
	if n != rows {
		panic("cpu: rows that belong to no sequence")
	}
	return dst
}

// layOut lays out the groups and returns the number of their pages. They are even if there are many and none is much of
// the work.
func (op *attendOp) layOut() (pages int, even bool) {
	if pages, ok := op.groupPrompt(); ok {
		return pages, true
	}
	queries := groupQueries
	if op.coded && op.q.Rows*op.a.Heads >= codedQueries*chunksPerThread*op.b.pool.size() {
		queries = codedQueries
	}
	pages, longest := op.group(max(1, queries/op.share()))
	return pages, longest*chunksPerThread*op.b.pool.size() <= pages
}

// group is layOut with groups of up to height rows, equally many in those of a sequence. It also returns the pages of the
// group with the most.
func (op *attendOp) group(height int) (pages, longest int) {
	op.groups, op.most = op.groups[:0], height*op.share()
	for i := range op.batch {
		s := &op.batch[i]
		parts := above(s.N, height)
		for part := range parts {
			r := part * s.N / parts
			n := (part+1)*s.N/parts - r
			skip := op.firstPage(s, r)
			_, to := op.a.Sees(s, r+n-1)
			own := (to+backend.PageTokens-1)/backend.PageTokens - skip
			longest = max(longest, own)
			for kv := range op.a.KVHeads {
				op.groups = append(op.groups, attendGroup{seq: i, row: s.First + r, rows: n, kv: kv, skip: skip, first: pages, pages: own})
				pages += own
			}
		}
	}
	return pages, longest
}

// cutSpans cuts the pages into spans. If the groups are even, each is a span. Otherwise every
// thread has a span of equal length: few spans, since cut groups have to be merged again. The result depends on neither.
func (op *attendOp) cutSpans(pages int, even bool) {
	threads := op.b.pool.size()
	n := len(op.groups)
	if !even {
		const least = 4 // pages of one query that are worth a thread
		n = max(1, min(threads, pages, pages*op.share()/least))
	}
	if n > cap(op.spans) {
		op.spans = append(op.spans[:cap(op.spans)], make([]attendSpan, n-cap(op.spans))...)
	}
	op.spans, op.cut = op.spans[:n], op.cut[:0]
	g := 0
	for i := range op.spans {
		s := &op.spans[i]
		s.from, s.to, s.rest = i*pages/n, (i+1)*pages/n, 0
		if even {
			s.from, s.to = op.groups[i].first, op.groups[i].first+op.groups[i].pages
		}
		for op.groups[g].first+op.groups[g].pages <= s.from {
			g++
		}
		if s.group = g; s.from > op.groups[g].first && (len(op.cut) == 0 || int(op.cut[len(op.cut)-1]) != g) {
			op.cut = append(op.cut, int32(g))
		}
	}
}

// share is the number of query heads that have the same keys and values.
func (op *attendOp) share() int { return op.a.Heads / op.a.KVHeads }

// joins is in how many parts a group that spans cut is put together.
func (op *attendOp) joins() int {
	if op.coded {
		return codedSlices
	}
	return op.most
}

func (op *attendOp) part(worker, from, to int) {
	for i := from; i < to; i++ {
		switch op.phase {
		case rotating:
			op.rotations.fill(i)
		case preparing:
			op.prepareRow(worker, i)
		case attending:
			op.attend(&op.buffers[worker], &op.spans[i])
		default:
			op.join(&op.buffers[worker], int(op.cut[i/op.joins()]), i%op.joins())
		}
	}
}

// prepareRow prepares row r's queries, and appends its keys and values.
func (op *attendOp) prepareRow(worker, r int) {
	a := op.a
	cos, sin := op.rotations.row(r)
	d, share := a.HeadDim, op.share()
	if op.q.Rows > 0 {
		q := row(op.q, r)
		for h := range a.Heads {
			i := (h/share*op.q.Rows+r)*share + h%share
			op.prepare(op.queries[i*op.key:][:op.key], op.tails[i*op.tail:][:op.tail], q[h*op.head:][:d], &a.QNorm, cos, sin)
		}
	}
	if op.k.Rows > 0 {
		op.append(&op.buffers[worker], r, cos, sin)
	}
}

// append writes row r's keys and values into the sequence's page.
func (op *attendOp) append(buf *attendBuffers, r int, cos, sin []float32) {
	a, seq := op.a, &op.batch[op.owner[r]]
	pos, d := seq.Pos+r-seq.First, a.HeadDim
	buf.key, buf.tail = kernel.Grow(buf.key, op.key), kernel.Grow(buf.tail, op.tail)
	k, slot := row(op.k, r), pos%backend.PageTokens
	released, list := seq.Table(&op.at)
	page := list[pos/backend.PageTokens-released]
	for h := range a.KVHeads {
		op.prepare(buf.key, buf.tail, k[h*d:][:d], &a.KNorm, cos, sin)
		op.store(buf, op.rows(page, 0, h), slot, buf.key, op.key)
		if a.Latent == 0 {
			op.store(buf, op.rows(page, 1, h), slot, row(op.v, r)[h*op.value:][:op.value], 0)
		} else if op.tail > 0 {
			op.store(buf, op.rows(page, 1, h), slot, buf.tail, op.tail)
		}
	}
}

// prepare normalizes and rotates a query or a key x. dst is its part for the keys of
// a page; tail is the rest, which for latent rows is the rotated part.
func (op *attendOp) prepare(dst, tail, x []float32, gain *backend.Tensor, cos, sin []float32) {
	n := len(dst)
	if gain.Mem != nil {
		op.vector.Norm(dst, x[:n], row(*gain, 0), op.a.Eps)
	} else {
		copy(dst, x)
	}
	if op.a.Latent > 0 {
		copy(tail, x[n:])
		dst = tail
	}
	if op.a.Interleaved {
		kernel.RotateNeighbors(dst, cos, sin)
	} else {
		op.vector.Rotate(dst, cos, sin)
	}
}

// rows are head h's part of a page: its keys (part 0), or its values or the tails of latent
// rows (part 1).
func (op *attendOp) rows(page backend.Tensor, part, h int) pageRows {
	n := op.parts[part]
	at := page.Offset + op.at.Page + part*op.a.KVHeads*op.parts[0] + h*n
	return page.Mem.(*memory).i8[at : at+n]
}

// store writes x to position i of the rows of a head: a key of key numbers, or if key is 0 a
// value.
func (op *attendOp) store(buf *attendBuffers, rows pageRows, i int, x []float32, key int) {
	d := len(x)
	switch op.at.Type {
	case dtype.F32:
		copy(rows.floats()[i*d:][:d], x)
	case dtype.F16:
		op.vector.Narrow(rows.halves()[i*d:][:d], x)
	case dtype.I4:
		op.storePacked(&buf.coded, rows, i, x, key)
	default:
		if key == 0 {
			n := op.columns() * backend.PageTokens
			op.set.PutValue(rows[:n], rows[n:].floats(), i, x, &buf.coded.codes)
			return
		}
		keys, scales, groups, _ := op.codedKeys(rows, key)
		op.set.PutKey(keys[i*groups*backend.CodedGroup:], scales, i, x, &buf.coded.padded, &buf.coded.codes)
	}
}

// rotations are the cosines and sines of some positions. Layers of a model use the
// same ones, one after another, so the last ones are kept.
type rotations struct {
	freqs    []float32
	turn     float32
	sections []uint8
	pos      [][3]int32
	table    []float32 // [rows, 2, len(freqs)]
}

// stale reports whether the table is not the one that op needs, and if so resizes it.
func (t *rotations) stale(op *attendOp) bool {
	turn := cmp.Or(op.a.Turn, 1)
	same := slices.Equal(t.freqs, op.a.Freqs) && t.turn == turn && slices.Equal(t.sections, op.a.Sections) && len(t.pos) == len(op.owner)
	t.freqs, t.turn = append(t.freqs[:0], op.a.Freqs...), turn
	t.sections = append(t.sections[:0], op.a.Sections...)
	t.pos = kernel.Grow(t.pos, len(op.owner))
	for r, o := range op.owner {
		s := &op.batch[o]
		at := int32(s.Pos + r - s.First)
		pos := [3]int32{at, at, at}
		if s.Positions != nil {
			pos = s.Positions[r-s.First]
		}
		same = same && t.pos[r] == pos
		t.pos[r] = pos
	}
	t.table = kernel.Grow(t.table, len(t.pos)*2*len(t.freqs))
	return !same
}

// fill computes row r.
func (t *rotations) fill(r int) {
	cos, sin := t.row(r)
	for i, f := range t.freqs {
		pos := t.pos[r][0]
		if len(t.sections) > 0 {
			pos = t.pos[r][t.sections[i]]
		}
		s, c := exactmath.Sincos32(float32(pos) * f)
		sin[i], cos[i] = s*t.turn, c*t.turn
	}
}

func (t *rotations) row(r int) (cos, sin []float32) {
	n := len(t.freqs)
	return t.table[2*r*n:][:n], t.table[(2*r+1)*n:][:n]
}
