package cpu

import (
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/exactmath"
)

// expertsOp is a mixture-of-experts block. Every row has a slot for each expert it chose
// and one for the shared expert, if there is one, sorted by expert, so that an expert's rows lie together
// and its weights are read once for all of them. The phases go over all experts at once.
type expertsOp struct {
	b              *Backend
	e              *backend.Experts
	dst, x         backend.Tensor
	logits, shared backend.Tensor // [rows, experts], [rows, 1]
	chosen         []int32        // [rows, TopK]: experts by rank
	weights        []float32      // [rows, TopK]
	slots          []int32        // [rows, TopK]: slot of each choice
	count          []int32        // [experts]: rows that chose it
	rows           []int32        // [slots]: row of each slot
	owner          []int32        // [slots]: job of each slot
	jobs           []expertJob    // experts that were chosen, the shared one last
	turned         []floatRows    // [rows, width]: x as transformed for experts' inputs
	in             backend.Tensor // [slots, width]: input of weights that are not quantized
	gate, up       backend.Tensor // [slots, widest expert]
	answer         backend.Tensor // [slots, width]
	phase          expertsPhase
}

type expertsPhase uint8

const (
	choosing     expertsPhase = iota // a part is a row
	transforming                     // likewise
	gathering                        // a part is a slot
	widening                         // a part is a tile of gate and up of a job
	requantizing                     // a part is a slot
	narrowing                        // a part is a tile of down of a job
	combining                        // a part is a row
)

// expertJob is one expert and its slots.
type expertJob struct {
	gate, up, down   *kernel.Weight
	matrix           int // of the stacks
	first, rows      int // slots
	tiles, downTiles int // parts before its own
	in, middle       matmulOp
}

// Experts adds the answer of the experts to dst. Each row adds its experts in the order of
// their rank, and the shared expert last.
func (b *Backend) Experts(dst, x, router backend.Tensor, e *backend.Experts) {
	op := &b.experts
	backend.CheckExperts(dst, x, router, e)
	op.b, op.e, op.dst, op.x = b, e, dst, x
	n := x.Rows
	if n == 0 {
		return
	}
	op.route(x, router)
	op.chosen = kernel.Grow(op.chosen, n*e.TopK)
	op.weights = kernel.Grow(op.weights, n*e.TopK)
	op.run(choosing, n, 8)
	slots := op.sort()
	op.in = b.workspace(op.in, slots, x.Cols)
	op.answer = b.workspace(op.answer, slots, x.Cols)
	wide := e.Gate.Rows()
	if e.SharedGate != nil {
		wide = max(wide, e.SharedGate.Rows())
	}
	op.gate, op.up = b.workspace(op.gate, slots, wide), b.workspace(op.up, slots, wide)
	tiles, downTiles := 0, 0
	for i := range op.jobs {
		j := &op.jobs[i]
		j.tiles, j.downTiles = tiles, downTiles
		tiles, downTiles = tiles+j.gate.Tiles(), downTiles+j.down.Tiles()
		j.in.prepare(b, op.in.RowRange(j.first, j.first+j.rows), j.matrix, j.gate, j.up)
		j.middle.prepare(b, op.gate.RowRange(j.first, j.first+j.rows).ColRange(0, j.gate.Rows()), j.matrix, j.down)
	}
	if op.transforms(); len(op.turned) > 0 {
		op.run(transforming, n, max(1, transformAlone/x.Cols))
	}
	op.run(gathering, slots, max(1, quantizeAlone/x.Cols))
	op.run(widening, tiles, 1)
	op.run(requantizing, slots, max(1, quantizeAlone/wide))
	op.run(narrowing, downTiles, 1)
	op.run(combining, n, 2)
}

// route multiplies with the routers. That of the shared expert has x as its input.
func (op *expertsOp) route(x, router backend.Tensor) {
	b, e, n := op.b, op.e, op.x.Rows
	op.logits = b.workspace(op.logits, n, e.Router.Rows())
	products := [2]backend.Product{{Dst: op.logits, W: e.Router}}
	list := products[:1]
	if e.SharedRouter != nil {
		op.shared = b.workspace(op.shared, n, 1)
		products[1] = backend.Product{Dst: op.shared, W: e.SharedRouter}
		list = products[:]
	}
	if router.Mem != nil {
		b.MatMul(router, list[0])
		list = list[1:]
	}
	if len(list) > 0 {
		b.MatMul(x, list...)
	}
}

func (op *expertsOp) run(phase expertsPhase, parts, grain int) {
	op.phase = phase
	op.b.pool.run(op, parts, grain)
}

// sort assigns a slot to every choice, lists the jobs, and returns the number of slots.
func (op *expertsOp) sort() int {
	e, n := op.e, op.x.Rows
	slots := n * e.TopK
	if e.SharedGate != nil {
		slots += n
	}
	op.slots = kernel.Grow(op.slots, n*e.TopK)
	op.rows, op.owner = kernel.Grow(op.rows, slots), kernel.Grow(op.owner, slots)
	op.count = kernel.Grow(op.count, e.Router.Rows())
	clear(op.count)
	for _, c := range op.chosen {
		op.count[c]++
	}
	op.jobs = op.jobs[:0]
	at := 0
	for i, c := range op.count {
		if c > 0 {
			op.job(i, at, int(c), e.Gate, e.Up, e.Down)
		}
		op.count[i] = int32(at) // from here on: the expert's next slot
		at += int(c)
	}
	for i, c := range op.chosen {
		slot := op.count[c]
		op.slots[i], op.rows[slot] = slot, int32(i/e.TopK)
		op.count[c]++
	}
	if e.SharedGate != nil {
		op.job(0, at, n, e.SharedGate, e.SharedUp, e.SharedDown)
		for r := range n {
			op.rows[at+r] = int32(r)
		}
	}
	return slots
}

// job adds the job of matrix n of the stacks, with rows slots from first on.
func (op *expertsOp) job(n, first, rows int, gate, up, down backend.Weight) {
	i := len(op.jobs)
	if i < cap(op.jobs) {
		op.jobs = op.jobs[:i+1] // reuse its memory
	} else {
		op.jobs = append(op.jobs, expertJob{})
	}
	j := &op.jobs[i]
	j.gate, j.up, j.down = gate.(*kernel.Weight), up.(*kernel.Weight), down.(*kernel.Weight)
	j.matrix, j.first, j.rows = n, first, rows
	for s := first; s < first+rows; s++ {
		op.owner[s] = int32(i)
	}
}

func (op *expertsOp) part(worker, from, to int) {
	switch op.phase {
	case widening, narrowing:
		op.products(worker, from, to)
		return
	case transforming:
		for _, t := range op.turned {
			op.b.isa.TransformRows(rowsOf(t.x.RowRange(from, to)).Data, rowsOf(op.x.RowRange(from, to)), t.input, &op.b.workers[worker].kernel)
		}
		return
	}
	for i := from; i < to; i++ {
		switch op.phase {
		case choosing:
			k := op.e.TopK
			op.choose(&op.b.workers[worker], op.chosen[i*k:][:k], op.weights[i*k:][:k], row(op.logits, i))
		case gathering:
			j := &op.jobs[op.owner[i]]
			x := row(op.x, int(op.rows[i]))
			j.in.set(i-j.first, func(in *kernel.Input) []float32 { return op.transformed(in, int(op.rows[i])) })
			if !j.gate.Integer() || !j.up.Integer() {
				copy(row(op.in, i), x)
			}
		case requantizing:
			j := &op.jobs[op.owner[i]]
			x := row(op.gate, i)[:j.gate.Rows()]
			j.middle.set(i-j.first, func(in *kernel.Input) []float32 { return op.b.transform(worker, in, x) })
		default:
			op.combine(worker, i)
		}
	}
}

// transforms lists the transformations of the experts' inputs: each is applied to a row once, for all
// experts that have it.
func (op *expertsOp) transforms() {
	op.turned = op.turned[:0]
	for _, w := range []backend.Weight{op.e.Gate, op.e.Up, op.e.SharedGate, op.e.SharedUp} {
		if w == nil {
			continue
		}
		in := w.(*kernel.Weight).Input
		if in == nil || slices.ContainsFunc(op.turned, func(t floatRows) bool { return t.input == in }) {
			continue
		}
		n := len(op.turned)
		op.turned = extend(op.turned)
		op.turned[n] = floatRows{in, op.b.workspace(op.turned[n].x, op.x.Rows, op.x.Cols)}
	}
}

// transformed is row r of x as in has it.
func (op *expertsOp) transformed(in *kernel.Input, r int) []float32 {
	for _, t := range op.turned {
		if t.input == in {
			return row(t.x, r)
		}
	}
	return row(op.x, r)
}

// products computes parts [from, to) of all jobs' tiles.
func (op *expertsOp) products(worker, from, to int) {
	for i := range op.jobs {
		j := &op.jobs[i]
		if op.phase == narrowing {
			a, b := max(from-j.downTiles, 0), min(to-j.downTiles, j.down.Tiles())
			if a < b {
				j.middle.tiles(worker, backend.Product{Dst: op.answer.RowRange(j.first, j.first+j.rows), W: j.down}, j.down, a, b)
			}
			continue
		}
		if a, b := max(from-j.tiles, 0), min(to-j.tiles, j.gate.Tiles()); a < b {
			op.widen(worker, j, a, b)
		}
	}
}

// widen computes tiles [from, to) of f(gate x)*up x.
func (op *expertsOp) widen(worker int, j *expertJob, from, to int) {
	gate := op.gate.RowRange(j.first, j.first+j.rows).ColRange(0, j.gate.Rows())
	up := op.up.RowRange(j.first, j.first+j.rows).ColRange(0, j.up.Rows())
	j.in.tiles(worker, backend.Product{Dst: gate, W: j.gate}, j.gate, from, to)
	j.in.tiles(worker, backend.Product{Dst: up, W: j.up}, j.up, from, to)
	a, b := from*tile, min(to*tile, j.gate.Rows())
	for r := range j.rows {
		g := row(gate, r)[a:b]
		if op.e.Activation == backend.GELUTanh {
			op.b.geglu(worker, g, g, row(up, r)[a:b])
		} else {
			op.b.isa.Vector.SwiGLU(g, g, row(up, r)[a:b])
		}
	}
}

// combine adds the answers for row r to dst.
func (op *expertsOp) combine(worker, r int) {
	vector, k, s := &op.b.isa.Vector, op.e.TopK, &op.b.workers[worker]
	dst := row(op.dst, r)
	s.sum = kernel.Grow(s.sum, len(dst))
	clear(s.sum)
	for j := range k {
		vector.AddScaled(s.sum, row(op.answer, int(op.slots[r*k+j])), op.weights[r*k+j])
	}
	if op.e.SharedGate != nil {
		weight := float32(1)
		if op.e.SharedRouter != nil {
			weight = exactmath.Sigmoid32(row(op.shared, r)[0])
		}
		vector.AddScaled(s.sum, row(op.answer, op.x.Rows*k+r), weight)
	}
	vector.Add(dst, s.sum)
}

// prepare makes op ready for products of x with matrix n of the weights. The rows of x are yet
// to come, see set.
func (op *matmulOp) prepare(b *Backend, x backend.Tensor, n int, weights ...*kernel.Weight) {
	op.b, op.x, op.matrix, op.acts, op.floats = b, x, n, op.acts[:0], op.floats[:0]
	for _, w := range weights {
		op.lay(w)
	}
}

// workspace returns a tensor of that shape, reusing t's memory where it is large enough.
func (b *Backend) workspace(t backend.Tensor, rows, cols int) backend.Tensor {
	if m, ok := t.Mem.(*memory); ok && len(m.f32) >= rows*cols {
		return backend.Tensor{Type: dtype.F32, Rows: rows, Cols: cols, Stride: cols, Mem: m}
	}
	return backend.Tensor{Type: dtype.F32, Rows: rows, Cols: cols, Stride: cols, Mem: &memory{f32: make([]float32, rows*cols)}}
}
