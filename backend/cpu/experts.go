package cpu

import (
	"github.com/foretoken/foretoken/backend"
	"github.com/foretoken/foretoken/dtype"
)

// expertsOp is the room a mixture-of-experts block computes in.
type expertsOp struct {
	logits, shared      backend.Tensor // [rows, experts], [rows, 1]
	x, gate, up, answer backend.Tensor // rows of one expert after another
	chosen              []int32        // [rows, TopK]: experts by rank
	weights             []float32      // [rows, TopK]
	place               []int32        // [rows, TopK]: row of answer
	rows                []int32        // rows of x that one expert has
}

// Experts adds the answer of the experts to dst. Every expert's weights are read once for
// all rows it was chosen for; each row then adds its experts in the order of their rank.
func (b *Backend) Experts(dst, x backend.Tensor, e *backend.Experts) {
	op := &b.experts
	n := x.Rows
	op.logits = b.room(op.logits, n, e.Router.Rows())
	op.shared = b.room(op.shared, n, 1)
	b.MatMul(x, backend.Product{Dst: op.logits, W: e.Router}, backend.Product{Dst: op.shared, W: e.SharedRouter})
	op.chosen = grow(op.chosen, n*e.TopK)
	op.weights = grow(op.weights, n*e.TopK)
	op.place = grow(op.place, n*e.TopK)
	for r := range n {
		chooseExperts(op.chosen[r*e.TopK:][:e.TopK], op.weights[r*e.TopK:][:e.TopK], row(op.logits, r), e.Normalise)
	}
	wide := max(e.Gate.Rows(), e.SharedGate.Rows())
	op.x = b.room(op.x, n, x.Cols)
	op.gate = b.room(op.gate, n, wide)
	op.up = b.room(op.up, n, wide)
	op.answer = b.room(op.answer, n*(e.TopK+1), x.Cols)

	done := 0
	for i := range e.Router.Rows() {
		done += op.expert(b, x, e, i, done)
	}
	b.mlp(op.answer.RowRange(done, done+n), x, op.gate, op.up, 0, e.SharedGate, e.SharedUp, e.SharedDown)
	for r := range n {
		op.combine(row(dst, r), r, e.TopK, done)
	}
}

// expert computes expert i for the rows that chose it, into answer from row at on, and
// returns their number.
func (op *expertsOp) expert(b *Backend, x backend.Tensor, e *backend.Experts, i, at int) int {
	op.rows = op.rows[:0]
	for j, c := range op.chosen {
		if int(c) == i {
			op.place[j] = int32(at + len(op.rows))
			op.rows = append(op.rows, int32(j/e.TopK))
		}
	}
	n := len(op.rows)
	if n > 0 {
		in := op.x.RowRange(0, n)
		b.Gather(in, x, op.rows)
		b.mlp(op.answer.RowRange(at, at+n), in, op.gate, op.up, i, e.Gate, e.Up, e.Down)
	}
	return n
}

// mlp is down(silu(gate x)*up x) with matrix n of each stack.
func (b *Backend) mlp(dst, x, gate, up backend.Tensor, n int, wg, wu, wd backend.Weight) {
	g := gate.RowRange(0, x.Rows).ColRange(0, wg.Rows())
	u := up.RowRange(0, x.Rows).ColRange(0, wu.Rows())
	b.product(x, n, []backend.Product{{Dst: g, W: wg}, {Dst: u, W: wu}})
	b.SwiGLU(g, g, u)
	b.product(g, n, []backend.Product{{Dst: dst, W: wd}})
}

// combine adds the answers for row r to dst; the shared expert's begin at row shared.
func (op *expertsOp) combine(dst []float32, r, topK, shared int) {
	out := row(op.x, 0)[:len(dst)]
	clear(out)
	for j := range topK {
		addScaled(out, row(op.answer, int(op.place[r*topK+j])), op.weights[r*topK+j])
	}
	addScaled(out, row(op.answer, shared+r), sigmoid(row(op.shared, r)[0]))
	for i := range dst {
		dst[i] += out[i]
	}
}

// room returns a tensor of that shape, reusing t's memory where it is large enough.
func (b *Backend) room(t backend.Tensor, rows, cols int) backend.Tensor {
	if m, ok := t.Mem.(*memory); ok && len(m.f32) >= rows*cols {
		return backend.Tensor{Type: dtype.F32, Rows: rows, Cols: cols, Stride: cols, Mem: m}
	}
	return backend.Tensor{Type: dtype.F32, Rows: rows, Cols: cols, Stride: cols, Mem: &memory{f32: make([]float32, rows*cols)}}
}
