package cpu

import (
	"github.com/foretoken/foretoken/backend"
	"github.com/foretoken/foretoken/dtype"
)

// attendOp is an attention layer. It runs twice over the pool: first norms, rotation and
// appending, a part being a row; then attention itself, a part being a row's head.
type attendOp struct {
	b            *Backend
	a            *backend.Attention
	layer        int
	dst, q, k, v backend.Tensor
	batch        []backend.Seq
	owner        []int32   // sequence of each row
	queries      []float32 // [rows, heads, dim]: normed and rotated
	appended     bool      // which of the two runs
}

// Attend is gated attention.
func (b *Backend) Attend(dst backend.Tensor, a *backend.Attention, layer int, q, k, v backend.Tensor, batch []backend.Seq) {
	op := &b.attend
	op.b, op.a, op.layer, op.batch = b, a, layer, batch
	op.dst, op.q, op.k, op.v = dst, q, k, v
	op.owner = owners(op.owner, batch, q.Rows)
	op.queries = grow(op.queries, q.Rows*a.Heads*a.HeadDim)
	op.appended = false
	b.pool.run(op, q.Rows, 1)
	op.appended = true
	b.pool.run(op, q.Rows*a.Heads, 1)
}

// owners lists the sequence of each row.
func owners(dst []int32, batch []backend.Seq, rows int) []int32 {
	dst = grow(dst, rows)
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

func (op *attendOp) part(worker, from, to int) {
	for i := from; i < to; i++ {
		if op.appended {
			op.head(worker, i/op.a.Heads, i%op.a.Heads)
		} else {
			op.append(worker, i)
		}
	}
}

// append prepares row r's queries, and writes its keys and values into the sequence's page.
func (op *attendOp) append(worker, r int) {
	a, seq := op.a, &op.batch[op.owner[r]]
	pos := seq.Pos + r - seq.First
	s := &op.b.workers[worker]
	half := len(a.Freqs)
	s.floats = grow(s.floats, 2*half+a.HeadDim)
	cos, sin, key := s.floats[:half], s.floats[half:2*half], s.floats[2*half:]
	for i, f := range a.Freqs {
		sin[i], cos[i] = sincos(float32(pos) * f)
	}
	q, d := row(op.q, r), a.HeadDim
	for h := range a.Heads {
		dst := op.queries[(r*a.Heads+h)*d:][:d]
		rmsNorm(dst, q[2*h*d:][:d], row(a.QNorm, 0), a.Eps)
		rotate(dst, cos, sin)
	}
	k, v := row(op.k, r), row(op.v, r)
	page := seq.Pages[pos/backend.PageTokens]
	for h := range a.KVHeads {
		rmsNorm(key, k[h*d:][:d], row(a.KNorm, 0), a.Eps)
		rotate(key, cos, sin)
		store(page, op.slot(0, h)+pos%backend.PageTokens, key)
		store(page, op.slot(1, h)+pos%backend.PageTokens, v[h*d:][:d])
	}
}

// slot is the row of a page where head h's keys (kind 0) or values (kind 1) begin.
func (op *attendOp) slot(kind, h int) int {
	return ((op.layer*2+kind)*op.a.KVHeads + h) * backend.PageTokens
}

// head computes one head of one row.
func (op *attendOp) head(worker, r, h int) {
	a, seq := op.a, &op.batch[op.owner[r]]
	d, n := a.HeadDim, seq.Pos+r-seq.First+1
	kv := h / (a.Heads / a.KVHeads)
	s := &op.b.workers[worker]
	s.floats = grow(s.floats, backend.PageTokens+3*d)
	query := op.queries[(r*a.Heads+h)*d:][:d]
	out := row(op.dst, r)[h*d:][:d]
	var sum softmaxSum
	for p := 0; p*backend.PageTokens < n; p++ {
		count := min(backend.PageTokens, n-p*backend.PageTokens)
		keys := pageRows{seq.Pages[p], op.slot(0, kv)}
		values := pageRows{seq.Pages[p], op.slot(1, kv)}
		sum.add(out, query, keys, values, count, s.floats)
	}
	gate := row(op.q, r)[2*h*d+d:][:d]
	for i := range out {
		out[i] = float32(out[i]/sum.weight) * sigmoid(gate[i])
	}
}

// pageRows are consecutive rows of a page.
type pageRows struct {
	page  backend.Tensor
	first int
}

// load is row i as float32; buf is used if a conversion is needed.
func (p pageRows) load(i int, buf []float32) []float32 {
	if p.page.Type == dtype.F32 {
		return row(p.page, p.first+i)
	}
	at := p.page.Offset + (p.first+i)*p.page.Stride
	for j, x := range p.page.Mem.(*memory).f16[at : at+p.page.Cols] {
		buf[j] = dtype.FromF16(x)
	}
	return buf
}

// store writes x as row r of a page.
func store(page backend.Tensor, r int, x []float32) {
	if page.Type == dtype.F32 {
		copy(row(page, r), x)
		return
	}
	at := page.Offset + r*page.Stride
	dst := page.Mem.(*memory).f16[at : at+page.Cols]
	for i, v := range x {
		dst[i] = dtype.ToF16(v)
	}
}
