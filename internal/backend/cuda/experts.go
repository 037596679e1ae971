package cuda

import (
	"unsafe"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
)

// mixture is a mixture of experts while it is queued. kernels/experts.cu defines slots and
// jobs; their number is known on the device only, so memory is for the maximum.
type mixture struct {
	b               *Backend
	e               *backend.Experts
	dst, x, router  backend.Tensor
	s               projections
	choices         int       // rows*TopK
	rows            int       // of slots, at most
	alone           int       // rows of the shared expert among them: all or none
	turned          []input   // x, transformed for experts
	row             quantized // the only row, shared by all jobs; or none
	most            int       // rows of a job: about twice the mean of an expert, since the kernel computes them all
	jobs            int       // at most
	chosen, weights driver.Ptr
	slots           driver.Ptr
	list, count     driver.Ptr // of jobs
	choice, places  []byte     // parameters of the kernels that choose
}

// maxExperts is how many experts the kernel that lists jobs has threads for.
const maxExperts = 1024

// Experts adds the answer of the experts to dst.
func (b *Backend) Experts(dst, x, router backend.Tensor, e *backend.Experts) {
	backend.CheckExperts(dst, x, router, e)
	atMost(maxExperts, e.Router.Rows())
	atMost(maxRows, x.Rows*(e.TopK+1))
	if x.Rows == 0 {
		return
	}
	b.begin()
	m := mixture{b: b, e: e, dst: dst, x: x, router: router, choices: x.Rows * e.TopK, most: maxRelay}
	experts := e.Router.Rows()
	for m.most > strip && m.most*experts >= 2*m.choices {
		m.most /= 2
	}
	hit := min(m.choices, experts)
	m.rows = (m.choices + hit*(strip-1) + strip - 1) &^ (strip - 1)
	m.jobs = hit + m.choices/m.most
	if m.shares() {
		m.alone = x.Rows
		m.rows += (m.alone + strip - 1) &^ (strip - 1)
		m.jobs += (m.alone + m.most - 1) / m.most
	}
	if gate, up := b.weight(e.Gate), b.weight(e.Up); x.Rows == 1 && gate.laid() && up.laid() && gate.rounding() == up.rounding() && gate.turn == up.turn {
		var known []input
		m.row = b.prepare(input{x: b.at(x), rows: x.Stride}, 1, x.Cols, gate, &known).quantized
	}
	m.s = m.project()
	find(b, expertRules, &m).run(b, &m)
}

// answerAll chooses experts, computes their answers by products, and adds them up.
func (b *Backend) answerAll(m *mixture) {
	e, x, dst := m.e, m.x, m.dst
	m.rank()
	answers := m.answers()
	answer, place := driver.Ptr(0), 0
	switch {
	case m.alone > 0:
		place = m.choices
	case e.SharedGate != nil:
		answer = m.shared(&m.s)
	}
	b.launch("experts.combine", pieces(x.Rows, x.Cols), b.at(dst), dst.Stride, answers, m.weights, m.slots, e.TopK, x.Cols, answer, place, b.at(m.s.weight), m.s.weight.Stride)
}

// shares reports whether the shared expert is like the others, so that it can be one of their jobs.
func (m *mixture) shares() bool {
	e := m.e
	if e.SharedGate == nil {
		return false
	}
	for _, pair := range [][2]backend.Weight{{e.Gate, e.SharedGate}, {e.Up, e.SharedUp}, {e.Down, e.SharedDown}, {e.Gate, e.Up}} {
		a, b := m.b.weight(pair[0]), m.b.weight(pair[1])
		if !a.laid() || !b.laid() || a.Rows() != b.Rows() || a.Cols() != b.Cols() || a.Layout != b.Layout || a.turn != b.turn {
			return false
		}
	}
	return true
}

// work is a tensor of the running operation.
func (b *Backend) work(rows, cols int) backend.Tensor {
	return b.Over(b.scratch(4*rows*cols), rows, cols)
}

// projections are the products with the rows themselves: the router's, and those of a shared expert that is
// not a job.
type projections struct{ logits, weight, gate, up backend.Tensor }

// project multiplies with the router, and with the shared expert's own matrices.
func (m *mixture) project() (s projections) {
	b, e, n := m.b, m.e, m.x.Rows
	s.logits = b.work(n, e.Router.Rows())
	var products []backend.Product
	if routed := (backend.Product{Dst: s.logits, W: e.Router}); m.router.Mem != nil {
		b.products(m.router, nil, routed)
	} else {
		products = append(products, routed)
	}
	if e.SharedRouter != nil {
		s.weight = b.work(n, 1)
		products = append(products, backend.Product{Dst: s.weight, W: e.SharedRouter})
	}
	if e.SharedGate != nil && m.alone == 0 {
		s.gate, s.up = b.work(n, e.SharedGate.Rows()), b.work(n, e.SharedGate.Rows())
		products = append(products, backend.Product{Dst: s.gate, W: e.SharedGate}, backend.Product{Dst: s.up, W: e.SharedUp})
	}
	var known []input
	if m.row.group > 0 {
		known = append(known, input{x: b.at(m.x), rows: m.x.Stride, quantized: m.row})
	}
	if len(products) > 0 {
		b.products(m.x, known, products...)
	}
	return s
}

// fewRows is how many rows have their experts chosen by the block that lists the jobs.
const fewRows = 16

// rank has the experts chosen by their logits, and slots and jobs made of the choices.
func (m *mixture) rank() {
	b, e, logits := m.b, m.e, m.s.logits
	m.chosen, m.slots = b.scratch(4*m.choices), b.scratch(4*(m.choices+m.alone))
	m.list, m.count = b.scratch(int(unsafe.Sizeof(jobParam{}))*m.jobs), b.scratch(4)
	m.weights = b.scratch(4 * m.choices)
	m.choice = raw(choiceParam{
		logits: b.at(logits), bias: b.at(e.Bias), factors: b.at(e.PerExpert), chosen: m.chosen, weights: m.weights, logitsStride: i32(logits.Stride), experts: i32(logits.Cols),
		topK: i32(e.TopK), sigmoid: b32(e.Sigmoid), groups: i32(e.Groups), topGroups: i32(e.TopGroups), normalize: b32(e.Normalize), scale: e.Scale,
	})
	m.places = raw(placesParam{
		chosen: m.chosen, slots: m.slots, jobs: m.list, jobCount: m.count, choices: i32(m.choices), most: i32(m.most), shared: i32(m.alone),
	})
	find(b, choiceRules, m).run(b, m)
}

// choiceRoom is the maximum shared memory for the choices of few rows: a block has more, but also static memory of
// the kernel.
const choiceRoom = 100 << 10

// choiceSpace is the shared memory of a choice: spaceOf of kernels/experts.cu.
func (m *mixture) choiceSpace() int {
	return 4 * (2*(m.s.logits.Cols+max(m.e.Groups, 1)) + m.e.TopK)
}

// choiceThreads is a thread for each expert.
func (m *mixture) choiceThreads() int { return (m.s.logits.Cols + 31) &^ 31 }

// choiceBytes is the shared memory of a block whose warps choose.
func (m *mixture) choiceBytes() int { return m.choiceThreads() / 32 * m.choiceSpace() }

func (b *Backend) chooseOne(m *mixture) {
	b.launch("experts.choose_one", grid{x: 1, threads: 32, shared: m.choiceSpace()}, m.choice, m.places)
}

func (b *Backend) chooseFew(m *mixture) {
	b.launch("experts.choose_assign", grid{x: 1, threads: m.choiceThreads(), shared: m.choiceBytes()}, m.choice, m.places, m.x.Rows)
}

func (b *Backend) chooseMany(m *mixture) {
	b.launch("experts.choose", grid{x: m.x.Rows, threads: 32, shared: m.choiceSpace()}, m.choice)
	b.launch("experts.assign", grid{x: 1, threads: m.choiceThreads()}, m.places)
}

// answers computes the chosen experts and returns their answers by slot.
func (m *mixture) answers() driver.Ptr {
	b, e := m.b, m.e
	gate, up, down := m.weights3()
	wide := gate.Rows()
	in := m.gather(gate, input{})
	g, u := b.scratch(4*m.rows*wide), b.scratch(4*m.rows*wide)
	both := []product{m.product(gate, e.SharedGate, in, g), m.product(up, e.SharedUp, m.gather(up, in), u)}
	for i := range both {
		both[i].same = m.row.group > 0
	}
	if joins(both[:1], &both[1]) && gate.Layout == up.Layout {
		b.multiply(both...)
	} else {
		b.multiply(both[0])
		b.multiply(both[1])
	}
	middle := input{x: g, rows: wide}
	if down.Integer() && down.turn == nil {
		middle.quantized = b.space(m.rows, wide, down.rounding())
	}
	slots := backend.Tensor{Rows: m.choices + m.alone, Cols: wide}
	b.launch(middle.kernel("rowwise.swiglu"), groupsOf(slots, &middle.quantized), g, wide, g, wide, u, wide, wide, middle.columns(), e.Activation == backend.GELUTanh, m.slots, raw(middle.param()))
	if down.turn != nil {
		middle = b.transform(middle, slots.Rows, m.rows, m.slots, down)[0]
	}
	answers := b.scratch(4 * m.rows * m.x.Cols)
	b.multiply(m.product(down, e.SharedDown, middle, answers))
	return answers
}

// few reports whether there are kernels for the experts of one row: one that gates, and one that adds up.
func (m *mixture) few() bool {
	gate, up, down := m.product(m.b.weight(m.e.Gate), m.e.SharedGate, input{}, 0), m.product(m.b.weight(m.e.Up), m.e.SharedUp, input{}, 0), m.b.weight(m.e.Down)
	row := m.rowInput()
	return m.row.group > 0 && down.turn == nil && m.e.TopK <= maxPicks && (m.alone > 0 || m.e.SharedGate == nil) && gate.w.forms().few != "" && down.forms().few == gate.w.forms().few && row.fits() && pairs([]product{gate, up}) &&
		m.b.allows(gate.w.forms().few+gateKernel, row.beside(gate.w.Block))
}

// picks reports whether those kernels choose by themselves, as for most models. Otherwise a kernel
// before them does.
func (m *mixture) picks() bool {
	e := m.e
	return e.Router.Rows() <= maxPicked && !e.Sigmoid && e.Bias.Mem == nil && e.PerExpert.Mem == nil && e.Groups <= 1
}

// Limits of the kernels for one row: experts that a row chooses, experts in all, warps with an expert each.
const maxPicks, maxPicked, maxFewWarps = 32, 256, 16

// rowInput is the one row there is.
func (m *mixture) rowInput() *rowInput { return &rowInput{cols: m.x.Cols, codes: m.row} }

// answerListed is answerOne for experts that a kernel before it chooses.
func (b *Backend) answerListed(m *mixture) {
	m.rank()
	b.answerOne(m)
}

// answerOne is answers and their sum for one row.
func (b *Backend) answerOne(m *mixture) {
	e, s, dst := m.e, &m.s, m.dst
	gate, up, down := m.weights3()
	wide := gate.Rows()
	jobs, pick := m.choices+m.alone, pickParam{}
	if m.list == 0 {
		pick = pickParam{logits: b.at(s.logits), experts: i32(s.logits.Cols), topK: i32(e.TopK), normalize: b32(e.Normalize), scale: e.Scale}
	}
	middle := input{x: b.scratch(4 * m.rows * wide), rows: wide}
	b.gate(m.product(gate, e.SharedGate, input{}, 0), m.product(up, e.SharedUp, input{}, 0), e.Activation, middle.x, m.rowInput(), quantized{}, jobs, pick)
	p := m.product(down, e.SharedDown, middle, b.at(dst))
	name, warps := down.forms().few+".answer_4_64", min(jobs, maxFewWarps)
	shared := func() int { return warps*2*fewGroups*down.Block + 64*jobs }
	for warps > 1 && !b.allows(name, shared()) {
		warps--
	}
	b.launchAs(name, p.sizes(), grid{x: down.Layout.Tiles, threads: 32 * warps, shared: shared()},
		p.param(), parts([]product{p}), raw(answerParam{
			weights: m.weights, router: b.at(s.weight), dst: b.at(dst), choices: i32(m.choices), shared: i32(m.alone), pick: pick,
		}))
}

// weights3 is the three stacks of experts.
func (m *mixture) weights3() (gate, up, down *weight) {
	return m.b.weight(m.e.Gate), m.b.weight(m.e.Up), m.b.weight(m.e.Down)
}

// gather copies the rows of the choices to their slots, in the form of w; have is the form of
// another weight.
func (m *mixture) gather(w *weight, have input) input {
	b := m.b
	if have.turn != w.turn {
		have = input{quantized: quantized{turn: w.turn}}
	}
	if !w.Integer() {
		if have.x == 0 {
			have.x, have.rows = b.scratch(4*m.rows*w.Cols()), w.Cols()
			x := m.transformed(w)
			b.launch("experts.gatherSlots", pieces(m.choices, w.Cols()), have.x, x.x, x.rows, w.Cols(), m.slots, m.e.TopK)
		}
		return have
	}
	if m.row.group > 0 {
		have.quantized = m.row
	}
	if have.rounding != w.rounding() {
		have.quantized = m.b.space(m.rows, w.Cols(), w.rounding())
		have.turn = w.turn
		m.b.quantizeInto(have.quantized, m.transformed(w), m.slots, m.e.TopK, m.choices, m.choices+m.alone, w.Cols())
	}
	return have
}

// transformed is the rows, transformed for w: once for all experts of a row.
func (m *mixture) transformed(w *weight) input {
	x := input{x: m.b.at(m.x), rows: m.x.Stride}
	if w.turn == nil {
		return x
	}
	for _, in := range m.turned {
		if in.turn == w.turn {
			return in
		}
	}
	m.turned = append(m.turned, m.b.turned(x, m.x.Rows, w))
	return m.turned[len(m.turned)-1]
}

// product is the jobs of a stack, and of the shared expert's matrix if it is one of them.
func (m *mixture) product(w *weight, other backend.Weight, in input, dst driver.Ptr) product {
	p := product{
		w: w, in: in, dst: dst, stride: w.Rows(), rows: min(m.most, m.x.Rows),
		tiles: w.Layout.Tiles * m.jobs, jobs: m.list, jobCount: m.count,
	}
	if m.alone > 0 {
		p.other = m.b.weight(other)
	}
	return p
}

// shared computes a shared expert that is not a job, for all rows.
func (m *mixture) shared(s *projections) driver.Ptr {
	out := m.b.work(m.x.Rows, m.x.Cols)
	m.b.glu(s.gate, s.gate, s.up, m.e.Activation)
	m.b.products(s.gate, nil, backend.Product{Dst: out, W: m.e.SharedDown})
	return m.b.at(out)
}
