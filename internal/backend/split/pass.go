package split

import (
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
)

// plan is the computation of all passes of a shape.
type plan struct {
	ops      []op
	flows    []*flow
	segments []*segment
	seqs     [2]sequences
	state    [2]bool // sides that compute with the state of sequences
}

// shape is equal for passes that share a plan.
type shape struct {
	of          any
	rows, wants int
	ids, only   bool
}

// maxPlans is the maximum number of plans: the next drops all.
const maxPlans = 64

// segment is operations of one device, and the transfers from the other before them.
type segment struct {
	side  side
	moves []move
	ops   []op
	pass  backend.Pass // the one that is computed
}

// move is numbers that are brought to a segment's side.
type move struct {
	m *memory
	a rect
}

// flow is the use of a piece of memory by a pass, regardless of its former state.
type flow struct {
	m       *memory
	needs   [2]region // read by a side before anything was written there
	written region
	stale   [2]region // as of memory, by the writes of the pass so far
}

// read is the part that must be copied to a side before it reads a rectangle.
func (f *flow) read(s side, a rect) region {
	old := f.stale[s].and(a)
	f.stale[s] = f.stale[s].less(a)
	for _, x := range a.minus(f.written) {
		f.needs[s] = f.needs[s].plus(x)
	}
	return old
}

func (f *flow) write(s side, a rect) {
	f.written = f.written.plus(a)
	f.stale[s] = f.stale[s].less(a)
	f.stale[s.other()] = f.stale[s.other()].plus(a)
}

// Pass implements backend.Backend.
func (d *Device) Pass(p backend.Pass, queue func()) {
	if d.plan != nil {
		panic("split: a pass within a pass")
	}
	key := shape{p.Of, p.Rows(), len(p.Want), p.IDs != nil, p.Only != nil}
	x := d.plans[key]
	if x == nil {
		x = d.collect(queue)
		if err := d.arrange(x); err != nil {
			d.fail(err)
			return
		}
		if len(d.plans) >= maxPlans {
			clear(d.plans)
		}
		d.plans[key] = x
	}
	if err := d.execute(x, p); err != nil {
		d.fail(err)
	}
}

// collect is the operations that are queued.
func (d *Device) collect(queue func()) *plan {
	x := &plan{}
	d.plan = x
	defer func() { d.plan = nil }()
	queue()
	return x
}

// arrange decides where operations run and which data is transferred between them.
func (d *Device) arrange(x *plan) error {
	flows := map[*memory]*flow{}
	at := device
	if i := slices.IndexFunc(x.ops, func(o op) bool { return o.at != either }); i >= 0 {
		at = x.ops[i].at
	}
	of := func(t backend.Tensor) (*flow, rect, bool) {
		m := d.memory(t)
		f := flows[m]
		if f == nil {
			f = &flow{m: m}
			flows[m] = f
			x.flows = append(x.flows, f)
		}
		a, exact := m.rect(t)
		return f, a, exact
	}
	for _, o := range x.ops {
		if o.at != either {
			at = o.at
		} else if in := o.in; len(in) > 0 {
			var stale [2]int
			for _, t := range in {
				f, a, _ := of(t)
				stale[device] += f.stale[device].within(a)
				stale[host] += f.stale[host].within(a)
			}
			if stale[at] > stale[at.other()] {
				at = at.other()
			}
		}
		x.state[at] = x.state[at] || o.state
		n := len(x.segments)
		if n == 0 || x.segments[n-1].side != at {
			x.segments = append(x.segments, &segment{side: at})
			n++
		}
		g := x.segments[n-1]
		// Inputs of a segment that existed when it began can be copied before it.
		read := func(t backend.Tensor) {
			f, a, _ := of(t)
			for _, piece := range f.read(at, a) {
				g.moves = append(g.moves, move{f.m, piece})
			}
		}
		for _, t := range o.in {
			read(t)
		}
		for _, t := range o.out {
			if _, _, exact := of(t); !exact {
				read(t)
			}
		}
		for _, t := range slices.Concat(o.in, o.out) {
			if err := d.memory(t).reserve(at); err != nil {
				return err
			}
		}
		for _, t := range o.out {
			f, a, _ := of(t)
			f.write(at, a)
		}
		g.ops = append(g.ops, o)
	}
	x.ops = nil
	return nil
}

// execute computes a pass by its plan.
func (d *Device) execute(x *plan, p backend.Pass) error {
	var err error
	note := func(e error) {
		if err == nil {
			err = e
		}
	}
	for _, f := range x.flows {
		for s := range f.needs {
			for _, a := range f.needs[s] {
				note(d.bringRect(side(s), f.m, a))
			}
		}
	}
	for s, used := range x.state {
		if used {
			if x.state[1-s] && d.undivided(p.Batch) {
				panic("split: both devices compute with undivided state")
			}
			note(d.claim(side(s), p.Batch))
		}
	}
	var batch [2][]backend.Seq
	for s := range batch {
		batch[s] = x.seqs[s].on(d, side(s), p.Batch)
	}
	for _, g := range x.segments {
		for _, m := range g.moves {
			note(d.move(g.side, m.m, m.a))
		}
		g.pass = p
		g.pass.Of, g.pass.Batch = g, batch[g.side]
		d.dev[g.side].Pass(g.pass, func() { d.compute(g) })
		d.last = g.side
	}
	for _, f := range x.flows {
		for s := range f.stale {
			for _, a := range f.written {
				f.m.stale[s] = f.m.stale[s].less(a)
			}
			for _, a := range f.stale[s] {
				f.m.stale[s] = f.m.stale[s].plus(a)
			}
		}
	}
	return err
}

// compute has a device compute a segment.
func (d *Device) compute(g *segment) {
	r := run{d: d, s: g.side, b: d.dev[g.side], pass: &g.pass}
	for i := range g.ops {
		g.ops[i].run(&r)
	}
}

// forget drops plans with freed memory.
func (d *Device) forget(m *memory) {
	for key, x := range d.plans {
		if slices.ContainsFunc(x.flows, func(f *flow) bool { return f.m == m }) {
			delete(d.plans, key)
		}
	}
}
