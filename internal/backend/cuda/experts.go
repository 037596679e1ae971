package cuda

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
	"github.com/foretoken/foretoken/internal/dtype"
)

// mixture is a mixture of experts while it is queued. kernels/experts.cu says what slots and jobs
// are; how many there will be is known on the device only, so memory is for the most there can be.
type mixture struct {
	b               *Backend
	e               *backend.Experts
	x               backend.Tensor
	choices         int // rows*TopK
	rows            int // of slots, at most
	most            int // rows of a job
	jobs            int // at most
	chosen, weights driver.Ptr
	slots           driver.Ptr
	list, count     driver.Ptr // of jobs
}

// maxExperts is how many experts the kernel that lists jobs has threads for.
const maxExperts = 1024

// Experts adds the answer of the experts to dst.
func (b *Backend) Experts(dst, x backend.Tensor, e *backend.Experts) {
	checkChoice(e)
	if x.Rows == 0 {
		return
	}
	if dst.Rows != x.Rows || dst.Cols != x.Cols || x.Rows*e.TopK > maxRows {
		panic(fmt.Sprintf("cuda: %d experts of %d rows of %d numbers for %d×%d", e.TopK, x.Rows, x.Cols, dst.Rows, dst.Cols))
	}
	b.begin()
	m := mixture{b: b, e: e, x: x, choices: x.Rows * e.TopK, most: maxRelay}
	experts := e.Router.Rows()
	for m.most > strip && m.most >= 2*x.Rows {
		m.most /= 2
	}
	hit := min(m.choices, experts)
	m.rows = (m.choices + hit*(strip-1) + strip - 1) &^ (strip - 1)
	m.jobs = hit + m.choices/m.most
	router := m.choose()
	m.chosen, m.slots = b.scratch(4*m.choices), b.scratch(4*m.choices)
	m.list, m.count = b.scratch(16*m.jobs), b.scratch(4)
	m.rank(router)
	b.launch("experts.assign", grid{x: 1, threads: (experts + 31) &^ 31}, m.chosen, m.slots, m.list, m.count, m.choices, experts, m.most)
	answers := m.answers()
	shared, weight := m.shared()
	b.launch("experts.combine", pieces(x.Rows, x.Cols), b.at(dst), dst.Stride, answers, m.weights, m.slots, e.TopK, x.Cols, shared, weight)
}

// checkChoice refuses a choice that cannot be made.
func checkChoice(e *backend.Experts) {
	n, free := e.Router.Rows(), e.Router.Rows()
	wrong := e.Bias.Mem != nil && (e.Bias.Rows != 1 || e.Bias.Cols != n) || e.SharedRouter != nil && e.SharedGate == nil
	if e.Groups > 1 {
		free = n / e.Groups * e.TopGroups
		wrong = wrong || n%e.Groups != 0 || e.TopGroups > e.Groups
	}
	if wrong || e.TopK > free || n > maxExperts {
		panic(fmt.Sprintf("cuda: choice of %d from %d experts, %d of %d groups, %d biases", e.TopK, n, e.TopGroups, e.Groups, e.Bias.Cols))
	}
}

// work is a tensor of the running operation.
func (b *Backend) work(rows, cols int) backend.Tensor {
	m := &memory{owner: b, bytes: int64(4 * rows * cols)}
	m.at = b.scratch(4 * rows * cols)
	return backend.Tensor{Type: dtype.F32, Rows: rows, Cols: cols, Stride: cols, Mem: m}
}

// choose multiplies with the router.
func (m *mixture) choose() backend.Tensor {
	logits := m.b.work(m.x.Rows, m.e.Router.Rows())
	m.b.products(m.x, backend.Product{Dst: logits, W: m.e.Router})
	return logits
}

// rank has the experts chosen by their logits.
func (m *mixture) rank(logits backend.Tensor) {
	b, e := m.b, m.e
	m.weights = b.scratch(4 * m.choices)
	shared := 4 * (2*logits.Cols + 2*max(e.Groups, 1))
	b.launch("experts.choose", grid{x: m.x.Rows, threads: 32, shared: shared}, fields{
		b.at(logits), b.at(e.Bias), m.chosen, m.weights,
		logits.Stride, logits.Cols, e.TopK, e.Sigmoid, e.Groups, e.TopGroups, e.Normalize, e.Scale,
	})
}

// answers computes the chosen experts and returns their answers by slot.
func (m *mixture) answers() driver.Ptr {
	b, e := m.b, m.e
	gate, up, down := b.weight(e.Gate), b.weight(e.Up), b.weight(e.Down)
	if gate.Cols() != m.x.Cols || up.Cols() != m.x.Cols || up.Rows() != gate.Rows() || down.Cols() != gate.Rows() || down.Rows() != m.x.Cols {
		panic(fmt.Sprintf("cuda: experts of %d×%d, %d×%d and %d×%d for %d columns", gate.Rows(), gate.Cols(), up.Rows(), up.Cols(), down.Rows(), down.Cols(), m.x.Cols))
	}
	wide := gate.Rows()
	x := input{x: b.at(m.x), rows: m.x.Stride}
	in := m.gather(x, gate, input{})
	g, u := b.scratch(4*m.rows*wide), b.scratch(4*m.rows*wide)
	m.multiply(gate, in, g)
	m.multiply(up, m.gather(x, up, in), u)
	b.launch("experts.swigluSlots", pieces(m.choices, wide), g, u, wide, m.slots)
	middle := input{x: g, rows: wide}
	if down.Integer() {
		middle.quantized = m.quantize(middle, down, 0)
	}
	answers := b.scratch(4 * m.rows * m.x.Cols)
	m.multiply(down, middle, answers)
	return answers
}

// gather brings the rows of the choices to their slots, in the form that w wants; have is what
// another weight has wanted.
func (m *mixture) gather(x input, w *weight, have input) input {
	b := m.b
	if !w.Integer() {
		if have.x == 0 {
			have.x, have.rows = b.scratch(4*m.rows*w.Cols()), w.Cols()
			b.launch("experts.gatherSlots", pieces(m.choices, w.Cols()), have.x, x.x, x.rows, w.Cols(), m.slots, m.e.TopK)
		}
		return have
	}
	if have.group != w.Layout.Group {
		have.quantized = m.quantize(x, w, m.e.TopK)
	}
	return have
}

func (m *mixture) quantize(x input, w *weight, share int) quantized {
	q := m.b.space(m.rows, w.Cols(), w.Layout.Group)
	m.b.quantizeInto(q, x, m.slots, share, m.choices, w.Cols())
	return q
}

// multiply queues the jobs of a stack.
func (m *mixture) multiply(w *weight, in input, dst driver.Ptr) {
	if w.Count() < m.e.Router.Rows() {
		panic(fmt.Sprintf("cuda: a stack of %d for %d experts", w.Count(), m.e.Router.Rows()))
	}
	m.b.multiply(&product{
		w: w, in: in, dst: dst, stride: w.Rows(), rows: m.most,
		tiles: w.Layout.Tiles * m.jobs, jobs: m.list, jobCount: m.count,
	})
}

// shared computes the shared expert for all rows, and what it is weighted by; 0: there is none.
func (m *mixture) shared() (answer, weight driver.Ptr) {
	b, e, n := m.b, m.e, m.x.Rows
	if e.SharedGate == nil {
		return 0, 0
	}
	wide := e.SharedGate.Rows()
	gate, up, out := b.work(n, wide), b.work(n, wide), b.work(n, m.x.Cols)
	products := []backend.Product{{Dst: gate, W: e.SharedGate}, {Dst: up, W: e.SharedUp}}
	if e.SharedRouter != nil {
		router := b.work(n, 1)
		weight = b.at(router)
		products = append(products, backend.Product{Dst: router, W: e.SharedRouter})
	}
	b.products(m.x, products...)
	b.swiglu(gate, gate, up)
	b.products(gate, backend.Product{Dst: out, W: e.SharedDown})
	return b.at(out), weight
}
