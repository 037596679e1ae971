package vulkan

import (
	"cmp"
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/vulkan/driver"
)

// maxExperts is EXPERTS of kernels/experts.glsl.
const maxExperts = 1024

// routed is the jobs of a mixture's products: see kernels/experts.glsl. The zero value is a product with one matrix.
type routed struct {
	jobs, sources driver.Ptr
	most          int // jobs
}

// Experts adds the answer of the experts to dst. The number of jobs is known on the device only, so memory is for the most.
func (b *Backend) Experts(dst, x, router backend.Tensor, e *backend.Experts) {
	backend.CheckExperts(dst, x, router, e)
	b.begin()
	n, experts := x.Rows, e.Router.Rows()
	choices := n * e.TopK
	r := routed{most: min(choices, experts) + choices/strip}
	if n == 0 {
		return
	}
	if experts > maxExperts || r.most > maxRows || n > maxRows {
		b.missing(fmt.Sprintf("%d experts of which %d rows choose %d (at most %d, and %d rows)", experts, n, e.TopK, maxExperts, maxRows))
		return
	}
	var known []rows // x as the weights need it
	from, own := x, &known
	if router.Mem != nil {
		from, own = router, new([]rows)
	}
	logits := b.work(n, experts)
	b.product(from, b.weight(e.Router), &backend.Product{Dst: logits, W: e.Router}, own)
	chosen, weights, slots := b.scratch(4*choices), b.scratch(4*choices), b.scratch(4*choices)
	b.launch("choose", [3]int{n, 1, 1}, b.at(logits), b.at(e.Bias), b.at(e.PerExpert), weights, chosen,
		logits.Stride, experts, e.TopK, e.Sigmoid, e.Groups, e.TopGroups, e.Normalize, cmp.Or(e.Scale, 1))
	r.jobs, r.sources = b.scratch(16+16*r.most), b.scratch(4*choices)
	b.launch("assign", [3]int{1, 1, 1}, chosen, slots, r.sources, r.jobs, choices, experts, e.TopK)

	answers := b.gated(x, choices, &r, e.Activation, [3]backend.Weight{e.Gate, e.Up, e.Down}, &known)
	var shared, weight backend.Tensor
	if e.SharedGate != nil {
		shared = b.gated(x, n, nil, e.Activation, [3]backend.Weight{e.SharedGate, e.SharedUp, e.SharedDown}, &known)
	}
	if e.SharedRouter != nil {
		weight = b.work(n, 1)
		b.product(x, b.weight(e.SharedRouter), &backend.Product{Dst: weight, W: e.SharedRouter}, &known)
	}
	b.launch("combine", columns(n, x.Cols), b.at(dst), b.at(answers), weights, b.at(shared), b.at(weight), slots, dst.Stride, x.Cols, e.TopK)
}

// gated is down(f(gate x)*up x), for n rows: of x or, by jobs, of slots. known is the existing forms of x.
func (b *Backend) gated(x backend.Tensor, n int, r *routed, f backend.Activation, w [3]backend.Weight, known *[]rows) backend.Tensor {
	gate, up, out := b.work(n, w[0].Rows()), b.work(n, w[0].Rows()), b.work(n, x.Cols)
	multiply := func(x, dst backend.Tensor, w backend.Weight, known *[]rows, sources driver.Ptr) {
		p, own := &backend.Product{Dst: dst, W: w}, b.weight(w)
		if r == nil {
			b.product(x, own, p, known)
			return
		}
		b.multiply(b.prepare(x, own, known), own, 0, p, 0, own.l.Tiles, routed{r.jobs, sources, r.most})
	}
	sources := driver.Ptr(0)
	if r != nil {
		sources = r.sources
	}
	b.prepare(x, b.weight(w[1]), known)
	b.prepare(x, b.weight(w[0]), known)
	b.beside(true, func() {
		multiply(x, gate, w[0], known, sources)
		multiply(x, up, w[1], known, sources)
	})
	b.glu(gate, gate, up, f)
	multiply(gate, out, w[2], new([]rows), 0)
	return out
}

// work is a tensor of the running operation.
func (b *Backend) work(rows, cols int) backend.Tensor {
	return b.Over(b.scratch(4*rows*cols), rows, cols)
}
