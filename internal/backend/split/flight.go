package split

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Passes that are launched are computed in the background: a goroutine has the devices compute the segments of a pass, one
// after another. Segment i of a pass begins when that of the pass launched before it has ended, so the state of a sequence
// that is in several passes is right on each device. Passes that are cut differently wait for each other.
//
// Plans, memory and what its copies lack belong to the caller's goroutine, which does their part of a pass at its
// launch. The goroutine of a pass uses only the devices, its plan, and numbers of its own that cross.

// parcel is numbers that cross from a device to another within a launched pass.
type parcel struct {
	move
	floats []float32
	bytes  []byte
}

// trip is a launched pass.
type trip struct {
	d      *Device
	plan   *plan
	number uint64
	before *trip // launched before it
	at     int   // segments that are computed; the mutex of turns protects it
	ended  chan struct{}

	took     []time.Duration // by device
	prepared bool
	err      error
	panicked any
}

// flight is the passes of a Launch.
type flight []*trip

// turns gives devices to one goroutine at a time.
type turns struct {
	mu      sync.Mutex
	changed *sync.Cond
	busy    []bool
	wanted  []bool    // by the caller, which comes first
	waiting [][]*trip // by device
	queued  []bool    // by device: the caller has work there that it has not waited for
	failed  []*trip   // by device: was told of an error, maybe of that work; nil: none
}

func newTurns(n int) *turns {
	x := &turns{busy: make([]bool, n), wanted: make([]bool, n), waiting: make([][]*trip, n), queued: make([]bool, n), failed: make([]*trip, n)}
	x.changed = sync.NewCond(&x.mu)
	return x
}

// enter waits for a device for segment i of a trip, when the one before it has computed that. Trips come in the order of their launch.
func (x *turns) enter(s int, t *trip, i int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for t.before != nil && t.before.at <= i {
		x.changed.Wait()
	}
	x.waiting[s] = append(x.waiting[s], t)
	for x.busy[s] || x.wanted[s] || x.waiting[s][0] != t {
		x.changed.Wait()
	}
	x.waiting[s] = slices.Delete(x.waiting[s], 0, 1)
	x.busy[s] = true
}

// want has the caller come next on a device, or not.
func (x *turns) want(s int, wanted bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.wanted[s] = wanted
	x.changed.Broadcast()
}

// take waits for one of the devices that the caller wants.
func (x *turns) take() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	for {
		for s, wanted := range x.wanted {
			if wanted && !x.busy[s] {
				x.busy[s], x.wanted[s] = true, false
				return s
			}
		}
		x.changed.Wait()
	}
}

// leave gives a device back.
func (x *turns) leave(s int, t *trip) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.busy[s] = false
	if t != nil {
		t.at++
	}
	x.changed.Broadcast()
}

// note keeps on which devices the caller has work that it has not waited for.
func (x *turns) note(queued []bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	copy(x.queued, queued)
}

// fail notes that a device has told a trip of an error. It tells of an error once. If the caller has queued work there, that may be what
// has failed, and the caller would not learn of it.
func (x *turns) fail(s int, t *trip) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.queued[s] && x.failed[s] == nil {
		x.failed[s] = t
	}
}

// told is the error that a trip was told of instead of the caller, once.
func (x *turns) told(s int) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.failed[s]
	if x.failed[s] = nil; t == nil {
		return nil
	}
	return t.err
}

// forget drops the errors of a trip: the caller is told now.
func (x *turns) forget(t *trip) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for s := range x.failed {
		if x.failed[s] == t {
			x.failed[s] = nil
		}
	}
}

// Stages implements backend.Pipeline.
func (d *Device) Stages() int { return len(d.dev) }

// Launch implements backend.Pipeline.
func (d *Device) Launch(f func()) backend.Flight {
	if d.launched != nil {
		panic("split: a launch within a launch")
	}
	var list flight
	d.launched = &list
	defer func() { d.launched = nil }()
	f()
	return &list
}

// Ended implements backend.Flight. Passes end in the order of their launch.
func (f *flight) Ended() <-chan struct{} {
	if n := len(*f); n > 0 {
		return (*f)[n-1].ended
	}
	none := make(chan struct{})
	close(none)
	return none
}

// Wait implements backend.Flight.
func (f *flight) Wait() (sum backend.Trip, err error) {
	var took []time.Duration
	for _, t := range *f {
		t.d.land(t)
		t.d.turns.forget(t)
		if took == nil {
			took = make([]time.Duration, len(t.took))
		}
		for s, x := range t.took {
			took[s] += x
			sum.Took += x
		}
		sum.Prepared = sum.Prepared || t.prepared
		err = cmp.Or(err, t.err)
	}
	for _, t := range *f {
		if t.panicked != nil {
			panic(t.panicked)
		}
	}
	if took != nil {
		sum.Longest = slices.Max(took)
	}
	return sum, err
}

// flying are the trips that have not ended. Without any the devices are the caller's.
func (d *Device) flying() []*trip {
	d.trips = slices.DeleteFunc(d.trips, func(t *trip) bool {
		select {
		case <-t.ended:
			return true
		default:
			return false
		}
	})
	return d.trips
}

// land waits for a trip, which may need the devices that the caller has.
func (d *Device) land(t *trip) {
	d.yield()
	<-t.ended
}

// quiet waits for all trips.
func (d *Device) quiet() {
	for _, t := range d.trips {
		d.land(t)
	}
}

// after waits for the trips that use a rectangle of memory, or only for those that write to it.
func (d *Device) after(m *memory, a rect, writes bool) {
	if len(d.trips) == 0 {
		return
	}
	for i, t := range slices.Backward(d.flying()) {
		if m.flown == t.number || t.plan.meets(m, a, writes) {
			for _, t := range d.trips[:i+1] {
				d.land(t)
			}
			return
		}
	}
}

// meets reports whether a rectangle of memory is used by the plan, or written if writes is not set.
func (x *plan) meets(m *memory, a rect, writes bool) bool {
	f := x.uses[m]
	return f != nil && (writes || len(f.written) > 0) && f.area.meets(a)
}

// afterState waits for the trips with the state of sequences.
func (d *Device) afterState(batch []backend.Seq) {
	if len(d.trips) == 0 {
		return
	}
	for _, q := range batch {
		for t := range q.AllPages {
			d.mine(t)
		}
		for i := range q.Delta {
			d.mine(q.Delta[i].State)
		}
	}
}

// mine is the memory of a tensor that a call is about to use, after the trips that use it.
func (d *Device) mine(t backend.Tensor) *memory {
	m := d.memory(t)
	a, _ := m.rect(t)
	d.after(m, a, true)
	return m
}

// hold makes a device the caller's until yield.
func (d *Device) hold(s int) backend.Backend {
	if !d.holds[s] && len(d.flying()) > 0 {
		d.turns.want(s, true)
		d.holds[d.turns.take()] = true
	}
	return d.dev[s]
}

// each calls f for the devices with a number other than 0, as trips leave them. In their order, one trip could be waited for at each of them.
func (d *Device) each(numbers []int, f func(s int) error) (err error) {
	flying, wanted := len(d.flying()) > 0, 0
	for s, n := range numbers {
		switch {
		case n == 0:
		case d.holds[s] || !flying:
			err = cmp.Or(err, f(s))
		default:
			wanted++
			d.turns.want(s, true)
			defer d.turns.want(s, false) // after a panic
		}
	}
	for range wanted {
		s := d.turns.take()
		d.holds[s] = true
		err = cmp.Or(err, f(s))
		d.leave(s)
	}
	return err
}

// yield gives all devices back to the trips.
func (d *Device) yield() {
	for s, held := range d.holds {
		if held {
			d.leave(s)
		}
	}
}

func (d *Device) leave(s int) {
	d.prepared[s].Store(backend.PreparedBy(d.dev[s]))
	d.holds[s] = false
	d.turns.note(d.busy)
	d.turns.leave(s, nil)
}

// launch has a pass computed in the background.
func (d *Device) launch(x *plan, p backend.Pass) {
	last := (*trip)(nil)
	if list := d.flying(); len(list) > 0 {
		if last = list[len(list)-1]; !x.like(last.plan) {
			d.quiet()
			last = nil
		}
	}
	for _, t := range slices.Backward(d.flying()) {
		if x.disturbs(t.plan) {
			d.land(t)
		}
	}
	x.pack()
	x.ids, x.wants, x.blocks = kept(x.ids, p.IDs), kept(x.wants, p.Want), kept(x.blocks, p.Only)
	p.IDs, p.Want, p.Only = x.ids, x.wants, x.blocks
	d.number++
	t := &trip{d: d, plan: x, number: d.number, before: last, ended: make(chan struct{}), took: make([]time.Duration, len(d.dev))}
	for _, q := range p.Batch {
		for page := range q.AllPages {
			d.memory(page).flown = d.number
		}
		for i := range q.Delta {
			d.memory(q.Delta[i].State).flown = d.number
		}
	}
	for s := range x.batch {
		x.batch[s] = nil
	}
	for _, g := range x.segments {
		if x.batch[g.on] == nil {
			x.batch[g.on] = x.seqs[g.on].on(d, g.on, p.Batch)
		}
		g.pass = p
		g.pass.Of, g.pass.Batch = g, x.batch[g.on]
		d.last = g.on
		for _, v := range g.in {
			d.moved, d.crossed = d.moved+1, d.crossed+int64(v.size())
		}
	}
	x.settle()
	d.turns.note(d.busy)
	d.trips, *d.launched = append(d.trips, t), append(*d.launched, t)
	go t.fly()
}

// kept is a copy of a list in the memory of a former one, nil for nil.
func kept(to, list []int32) []int32 {
	if list == nil {
		return nil
	}
	return append(to[:0], list...)
}

// like reports whether a plan has the segments of another.
func (x *plan) like(y *plan) bool {
	return slices.EqualFunc(x.segments, y.segments, func(a, b *segment) bool { return a.on == b.on && len(a.ops) == len(b.ops) })
}

// disturbs reports whether a plan writes what another one uses, or uses what that one writes. State is not asked for:
// the segments that use it are in order.
func (x *plan) disturbs(y *plan) bool {
	return slices.ContainsFunc(x.flows, func(f *flow) bool { return y.meets(f.m, f.area, len(f.written) > 0) })
}

// pack has numbers that cross leave their device behind the last segment that has computed there.
func (x *plan) pack() {
	if x.packed {
		return
	}
	x.packed = true
	for i, g := range x.segments {
		for _, v := range g.moves {
			from := i - 1
			for x.segments[from].on != v.from {
				from--
			}
			p := &parcel{move: v}
			g.in, x.segments[from].out = append(g.in, p), append(x.segments[from].out, p)
		}
	}
}

// fly has the devices compute the segments.
func (t *trip) fly() {
	d := t.d
	defer close(t.ended)
	for i, g := range t.plan.segments {
		d.turns.enter(g.on, t, i)
		if b := d.dev[g.on]; t.err == nil && t.panicked == nil {
			start, prepared := time.Now(), backend.PreparedBy(b)
			if t.compute(b, g); t.err != nil {
				d.turns.fail(g.on, t)
			}
			t.took[g.on] += time.Since(start)
			now := backend.PreparedBy(b)
			t.prepared = t.prepared || now > prepared
			d.prepared[g.on].Store(now)
		}
		d.turns.leave(g.on, t)
	}
	t.before = nil
}

// compute has a device compute a segment, with what comes to it and leaves it, and waits.
func (t *trip) compute(b backend.Backend, g *segment) {
	defer func() {
		if p := recover(); p != nil {
			t.panicked = p
		}
	}()
	for _, v := range g.in {
		if t.err = v.arrive(b); t.err != nil {
			return
		}
	}
	b.Pass(g.pass, func() { t.d.compute(g) })
	for _, v := range g.out {
		if t.err = v.depart(b); t.err != nil {
			return
		}
	}
	if len(g.out) == 0 {
		_, t.err = b.Host(t.d.tick[g.on])
	}
}

// depart reads the numbers.
func (p *parcel) depart(b backend.Backend) error {
	src := p.view(p.from)
	if p.solid() {
		x, err := b.Host(src)
		p.floats = append(p.floats[:0], x...)
		return err
	}
	p.bytes = slices.Grow(p.bytes[:0], p.size())[:p.size()]
	return b.ReadBytes(p.bytes, src)
}

// arrive writes the numbers.
func (p *parcel) arrive(b backend.Backend) error {
	if p.solid() {
		return b.Write(p.view(p.to), p.floats)
	}
	return b.WriteBytes(p.view(p.to), p.bytes)
}

// view is the rectangle on a device.
func (v *move) view(on int) backend.Tensor {
	return v.m.copies[on].RowRange(v.a.r0, v.a.r1).ColRange(v.a.c0, v.a.c1)
}

// size is its bytes.
func (v *move) size() int { return v.a.size() * v.m.t.Size() }

// solid reports whether it is read as numbers: it has no gaps between its rows.
func (v *move) solid() bool {
	src := v.view(v.from)
	return v.m.t == dtype.F32 && (src.Rows == 1 || src.Cols == src.Stride)
}
