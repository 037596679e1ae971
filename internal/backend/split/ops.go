package split

import (
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
)

// op is an operation.
type op struct {
	at      int              // the device of its weights or its state, or anywhere
	in, out []backend.Tensor // inputs and outputs; zero Tensors are skipped
	state   bool             // it has the state of sequences
	run     func(r *run)
}

// run is a device and the lists of the pass, if there is one, for an operation.
type run struct {
	d    *Device
	s    int
	b    backend.Backend
	pass *backend.Pass // nil: the lists are those of the operation
}

// do computes an operation, or puts it into the plan of a pass.
func (d *Device) do(o op) {
	if d.plan != nil {
		d.plan.ops = append(d.plan.ops, o)
		return
	}
	defer d.yield()
	for _, t := range o.in {
		d.mine(t)
	}
	for _, t := range o.out {
		d.mine(t)
	}
	s := o.at
	if s == anywhere {
		from := o.in
		if len(from) == 0 {
			from = o.out
		}
		s = d.fresher(d.last, from...)
	}
	for _, t := range o.in {
		if err := d.bring(s, t); err != nil {
			d.fail(err)
			return
		}
	}
	for _, t := range o.out {
		if err := d.give(s, t); err != nil {
			d.fail(err)
			return
		}
	}
	o.run(&run{d: d, s: s, b: d.queue(s)})
	for _, t := range o.out {
		d.wrote(s, t)
	}
	d.last = s
}

// give makes a view of a device's copy ready to be written.
func (d *Device) give(s int, t backend.Tensor) error {
	m := d.memory(t)
	if _, exact := m.rect(t); !exact { // numbers between its rows must not become stale
		return d.bring(s, t)
	}
	return m.reserve(s)
}

// t is the device's tensor for t.
func (r *run) t(t backend.Tensor) backend.Tensor { return r.d.on(r.s, t) }

// w is the device's weight for w, or nil.
func (r *run) w(w backend.Weight) backend.Weight {
	if w == nil {
		return nil
	}
	return r.d.weight(w).Weight
}

// some are the tensors of a list without zero Tensors.
func some(list ...backend.Tensor) []backend.Tensor {
	return slices.DeleteFunc(list, func(t backend.Tensor) bool { return t.Mem == nil })
}

// Fill implements backend.Backend, as all that follows.
func (d *Device) Fill(dst backend.Tensor, x float32) {
	if m := d.memory(dst); m.cut != nil {
		defer d.yield() // after a panic
		d.mine(dst)
		err := d.each(m.cut.cols, func(s int) error {
			return d.runs(dst, dst.Cols*dst.Type.Size(), func(on int, t backend.Tensor, _, _ int) error {
				if on == s {
					d.queue(s).Fill(t, x)
				}
				return nil
			})
		})
		if err != nil {
			panic(err)
		}
		return
	}
	d.do(op{at: anywhere, out: some(dst), run: func(r *run) { r.b.Fill(r.t(dst), x) }})
}

func (d *Device) Copy(dst, src backend.Tensor) {
	backend.CheckCopy(dst, src)
	if d.memory(dst).cut != nil {
		d.copyState(dst, src)
		return
	}
	d.do(op{at: anywhere, in: some(src), out: some(dst), run: func(r *run) { r.b.Copy(r.t(dst), r.t(src)) }})
}

func (d *Device) Embed(dst backend.Tensor, table backend.Weight, ids []int32, factor float32) {
	backend.CheckEmbed(dst, table, ids)
	d.do(op{at: d.weight(table).on, out: some(dst), run: func(r *run) {
		list := ids
		if r.pass != nil {
			list = r.pass.IDs
		}
		r.b.Embed(r.t(dst), r.w(table), list, factor)
	}})
}

func (d *Device) Gather(dst, x backend.Tensor, rows []int32) {
	backend.CheckGather(dst, x, rows)
	d.do(op{at: anywhere, in: some(x), out: some(dst), run: func(r *run) {
		list := rows
		if r.pass != nil {
			list = r.pass.Want
		}
		r.b.Gather(r.t(dst), r.t(x), list)
	}})
}

// MatMul is a product on each device that has some of the weights.
func (d *Device) MatMul(x backend.Tensor, products ...backend.Product) {
	for i := range products {
		backend.CheckProduct(x, &products[i])
	}
	for s := range d.dev {
		var own []backend.Product
		for i := range products {
			if d.weight(products[i].W).on == s {
				own = append(own, products[i])
			}
		}
		if len(own) > 0 {
			d.products(s, x, own)
		}
	}
}

func (d *Device) products(s int, x backend.Tensor, list []backend.Product) {
	o := op{at: s, in: some(x)}
	for _, p := range list {
		o.out = append(o.out, p.Dst)
		if p.Bias.Mem != nil {
			o.in = append(o.in, p.Bias)
		}
		if p.Add || p.Only != nil || p.Each { // other columns are unchanged
			o.in = append(o.in, p.Dst)
		}
	}
	own := make([]backend.Product, len(list))
	o.run = func(r *run) {
		for i, p := range list {
			p.Dst, p.W, p.Bias = r.t(p.Dst), r.w(p.W), r.t(p.Bias)
			if r.pass != nil && p.Only != nil {
				p.Only = r.pass.Only
			}
			own[i] = p
		}
		r.b.MatMul(r.t(x), own...)
	}
	d.do(o)
}

func (d *Device) RMSNorm(dst, x, gain backend.Tensor, eps float32) {
	backend.CheckRMSNorm(dst, x, gain)
	d.do(op{at: d.held(gain), in: some(x, gain), out: some(dst), run: func(r *run) {
		r.b.RMSNorm(r.t(dst), r.t(x), r.t(gain), eps)
	}})
}

func (d *Device) NormAdd(dst, x, gain backend.Tensor, eps, scale float32) {
	backend.CheckNormAdd(dst, x, gain)
	d.do(op{at: d.held(gain), in: some(x, gain, dst), out: some(dst), run: func(r *run) {
		r.b.NormAdd(r.t(dst), r.t(x), r.t(gain), eps, scale)
	}})
}

func (d *Device) LayerNorm(dst, x, gain, bias backend.Tensor, eps float32) {
	backend.CheckLayerNorm(dst, x, gain, bias)
	d.do(op{at: d.held(gain), in: some(x, gain, bias), out: some(dst), run: func(r *run) {
		r.b.LayerNorm(r.t(dst), r.t(x), r.t(gain), r.t(bias), eps)
	}})
}

// held is the device of a vector that was loaded. Vectors with several copies were not.
func (d *Device) held(t backend.Tensor) int {
	m := d.memory(t)
	for s, c := range m.copies {
		if c.Mem != nil && s != m.home {
			return anywhere
		}
	}
	return m.home
}

func (d *Device) GLU(dst, gate, up backend.Tensor, f backend.Activation) {
	backend.CheckGLU(dst, gate, up, f)
	d.do(op{at: anywhere, in: some(gate, up), out: some(dst), run: func(r *run) { r.b.GLU(r.t(dst), r.t(gate), r.t(up), f) }})
}

func (d *Device) Cap(x backend.Tensor, c float32) {
	backend.CheckCap(x, c)
	d.do(op{at: anywhere, in: some(x), out: some(x), run: func(r *run) { r.b.Cap(r.t(x), c) }})
}

func (d *Device) GELU(dst, x backend.Tensor, tanh bool) {
	backend.CheckGELU(dst, x)
	d.do(op{at: anywhere, in: some(x), out: some(dst), run: func(r *run) { r.b.GELU(r.t(dst), r.t(x), tanh) }})
}

func (d *Device) Convolve(dst, x backend.Tensor, c *backend.Convolution, batch []backend.Seq) {
	backend.CheckConvolve(dst, x, c)
	read := some(x, c.Base, c.Delta)
	if c.Add {
		read = append(read, dst)
	}
	d.do(op{at: d.held(c.Base), in: read, out: some(dst), run: func(r *run) {
		own := &backend.Convolution{Base: r.t(c.Base), Delta: r.t(c.Delta), Add: c.Add}
		if r.pass != nil {
			r.b.Convolve(r.t(dst), r.t(x), own, r.pass.Batch)
			return
		}
		list := make([]backend.Seq, len(batch)) // without state, which may be elsewhere
		for i := range batch {
			list[i].First, list[i].N = batch[i].First, batch[i].N
		}
		r.b.Convolve(r.t(dst), r.t(x), own, list)
	}})
}

func (d *Device) Rotate(x, cos, sin backend.Tensor, heads int) {
	backend.CheckRotate(x, cos, sin, heads)
	d.do(op{at: anywhere, in: some(x, cos, sin), out: some(x), run: func(r *run) {
		r.b.Rotate(r.t(x), r.t(cos), r.t(sin), heads)
	}})
}

func (d *Device) Mix(dst, q, k, v backend.Tensor, heads int, scale float32) {
	backend.CheckMix(dst, q, k, v, heads)
	d.do(op{at: anywhere, in: some(q, k, v), out: some(dst), run: func(r *run) {
		r.b.Mix(r.t(dst), r.t(q), r.t(k), r.t(v), heads, scale)
	}})
}

func (d *Device) Experts(dst, x, router backend.Tensor, e *backend.Experts) {
	backend.CheckExperts(dst, x, router, e)
	at := d.weight(e.Gate).on
	for _, w := range []backend.Weight{e.Router, e.Up, e.Down, e.SharedRouter, e.SharedGate, e.SharedUp, e.SharedDown} {
		if w != nil && d.weight(w).on != at {
			panic("split: experts of one layer on several devices")
		}
	}
	own := &backend.Experts{}
	d.do(op{at: at, in: some(x, dst, router, e.Bias, e.PerExpert), out: some(dst), run: func(r *run) {
		*own = *e
		for _, w := range []*backend.Weight{
			&own.Router, &own.Gate, &own.Up, &own.Down, &own.SharedRouter, &own.SharedGate, &own.SharedUp, &own.SharedDown,
		} {
			*w = r.w(*w)
		}
		own.Bias, own.PerExpert = r.t(e.Bias), r.t(e.PerExpert)
		r.b.Experts(r.t(dst), r.t(x), r.t(router), own)
	}})
}

func (d *Device) Attend(dst backend.Tensor, a *backend.Attention, at backend.Place, q, k, v backend.Tensor, batch []backend.Seq) {
	backend.CheckAttend(dst, a, q, k, v)
	s, at := d.pagesAt(at, batch)
	own := &backend.Attention{}
	d.stateful(batch, op{at: s, in: some(q, k, v, a.QNorm, a.KNorm), out: some(dst)}, func(r *run, seqs []backend.Seq) {
		*own = *a
		own.QNorm, own.KNorm = r.t(a.QNorm), r.t(a.KNorm)
		r.b.Attend(r.t(dst), own, at, r.t(q), r.t(k), r.t(v), seqs)
	})
}

func (d *Device) DeltaNet(dst backend.Tensor, n *backend.DeltaNet, at backend.Place, in backend.DeltaInput, batch []backend.Seq) {
	backend.CheckDeltaNet(dst, n, &in)
	s, at := d.deltaAt(at, batch)
	own := &backend.DeltaNet{}
	read := some(in.QKV, in.Z, in.B, in.A, n.Conv, n.DecayRate, n.DecayBias, n.Norm)
	d.stateful(batch, op{at: s, in: read, out: some(dst)}, func(r *run, seqs []backend.Seq) {
		*own = *n
		own.Conv, own.DecayRate, own.DecayBias, own.Norm = r.t(n.Conv), r.t(n.DecayRate), r.t(n.DecayBias), r.t(n.Norm)
		x := backend.DeltaInput{QKV: r.t(in.QKV), Z: r.t(in.Z), B: r.t(in.B), A: r.t(in.A)}
		r.b.DeltaNet(r.t(dst), own, at, x, seqs)
	})
}

// stateful computes an operation with the state of sequences.
func (d *Device) stateful(batch []backend.Seq, o op, call func(r *run, seqs []backend.Seq)) {
	o.state = true
	o.run = func(r *run) {
		if r.pass != nil {
			call(r, r.pass.Batch)
			return
		}
		d.afterState(batch)
		if err := d.claim(r.s, batch); err != nil {
			d.fail(err)
			return
		}
		var list sequences
		call(r, list.on(d, r.s, batch))
	}
	d.do(o)
}
