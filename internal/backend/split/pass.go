package split

import (
	"cmp"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
)

// plan is the computation of all passes of a shape.
type plan struct {
	ops      []op
	flows    []*flow
	segments []*segment
	seqs     []sequences     // by device
	batch    [][]backend.Seq // of seqs, while a pass is computed
	state    []bool          // devices that compute with the state of sequences
	uses     map[*memory]*flow

	// Of a launched pass.
	packed             bool
	ids, wants, blocks []int32
}

// maxPlans is the maximum number of plans: the next drops all.
const maxPlans = 64

// segment is operations of one device, and the transfers to it before them.
type segment struct {
	on    int
	moves []move
	ops   []op
	pass  backend.Pass // the one that is computed

	in, out []*parcel // of a launched pass, in place of moves: to the device before it, and from it after it
}

// flow is the use of a piece of memory by a pass, regardless of its former state.
type flow struct {
	m       *memory
	area    rect     // around all that is used
	needs   []region // read by a device before anything was written there
	written region
	stale   []region // as of memory, by the writes of the pass so far
}

// read adds to a list what must be copied to a device before it reads a rectangle.
func (f *flow) read(list []move, s int, a rect) []move {
	old := f.stale[s].and(a)
	f.stale[s] = f.stale[s].less(a)
	for _, x := range a.minus(f.written) {
		f.needs[s] = f.needs[s].plus(x)
	}
	for _, x := range old {
		list = moves(list, f.m, f.stale, s, x)
	}
	return list
}

func (f *flow) write(on int, a rect) {
	f.written = f.written.plus(a)
	for s := range f.stale {
		if s == on {
			f.stale[s] = f.stale[s].less(a)
		} else {
			f.stale[s] = f.stale[s].plus(a)
		}
	}
}

// Pass implements backend.Backend.
func (d *Device) Pass(p backend.Pass, queue func()) {
	if d.plan != nil {
		panic("split: a pass within a pass")
	}
	defer d.yield()
	key := p.Shape()
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
	err := d.ready(x, p.Batch)
	switch {
	case err == nil && d.launched != nil && !d.undivided(p.Batch):
		d.launch(x, p)
	default:
		err = cmp.Or(err, d.execute(x, p))
	}
	if err != nil {
		d.fail(err)
	}
}

// collect is the operations that are queued.
func (d *Device) collect(queue func()) *plan {
	n := len(d.dev)
	x := &plan{seqs: make([]sequences, n), batch: make([][]backend.Seq, n), state: make([]bool, n)}
	d.plan = x
	defer func() { d.plan = nil }()
	queue()
	return x
}

// arrange decides where operations run and which data is transferred between them.
func (d *Device) arrange(x *plan) error {
	x.uses = map[*memory]*flow{}
	at := 0
	if i := slices.IndexFunc(x.ops, func(o op) bool { return o.at != anywhere }); i >= 0 {
		at = x.ops[i].at
	}
	of := func(t backend.Tensor) (*flow, rect, bool) {
		m := d.memory(t)
		f := x.uses[m]
		if f == nil {
			f = &flow{m: m, needs: make([]region, len(d.dev)), stale: make([]region, len(d.dev))}
			x.uses[m] = f
			x.flows = append(x.flows, f)
		}
		a, exact := m.rect(t)
		f.area = f.area.around(a)
		return f, a, exact
	}
	for _, o := range x.ops {
		if o.at != anywhere {
			at = o.at
		} else {
			clear(d.count)
			for _, t := range o.in {
				f, a, _ := of(t)
				for s := range d.count {
					d.count[s] += f.stale[s].within(a)
				}
			}
			at = least(d.count, at)
		}
		x.state[at] = x.state[at] || o.state
		n := len(x.segments)
		if n == 0 || x.segments[n-1].on != at {
			x.segments = append(x.segments, &segment{on: at})
			n++
		}
		g := x.segments[n-1]
		// Inputs of a segment that existed when it began can be copied before it.
		read := func(t backend.Tensor) {
			f, a, _ := of(t)
			g.moves = f.read(g.moves, at, a)
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

// ready brings what a pass reads to where it is read.
func (d *Device) ready(x *plan, batch []backend.Seq) error {
	var err error
	for _, f := range x.flows {
		for s := range f.needs {
			for _, a := range f.needs[s] {
				err = cmp.Or(err, d.bringRect(s, f.m, a))
			}
		}
	}
	claimed := false
	for s, used := range x.state {
		if used {
			if claimed && d.undivided(batch) {
				panic("split: several devices compute with undivided state")
			}
			claimed = true
			err = cmp.Or(err, d.claim(s, batch))
		}
	}
	return err
}

// execute computes a pass by its plan.
func (d *Device) execute(x *plan, p backend.Pass) error {
	var err error
	for _, t := range slices.Backward(d.flying()) {
		if x.disturbs(t.plan) {
			d.land(t)
		}
	}
	d.afterState(p.Batch)
	for _, g := range x.segments {
		x.batch[g.on] = nil
	}
	for _, g := range x.segments {
		if x.batch[g.on] == nil {
			x.batch[g.on] = x.seqs[g.on].on(d, g.on, p.Batch)
		}
		for _, v := range g.moves {
			err = cmp.Or(err, d.move(v))
		}
		g.pass = p
		g.pass.Of, g.pass.Batch = g, x.batch[g.on]
		d.queue(g.on).Pass(g.pass, func() { d.compute(g) })
		d.last = g.on
	}
	x.settle()
	return err
}

// settle notes what copies lack after the pass.
func (x *plan) settle() {
	for _, f := range x.flows {
		for s := range f.stale {
			if f.m.copies[s].Mem == nil {
				continue
			}
			for _, a := range f.written {
				f.m.stale[s] = f.m.stale[s].less(a)
			}
			for _, a := range f.stale[s] {
				f.m.stale[s] = f.m.stale[s].plus(a)
			}
		}
	}
}

// compute has a device compute a segment.
func (d *Device) compute(g *segment) {
	r := run{d: d, s: g.on, b: d.dev[g.on], pass: &g.pass}
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
