package remote

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// What the leader keeps of passes: the node has as much.
const (
	keptOperations = maxOperations / 2
	keptTables     = maxTables / 4
)

// shape is equal for passes that share a recording.
type shape struct {
	of          any
	rows, wants int
	ids, only   bool
}

// sent is a recording that the node has.
type sent struct {
	number     uint64
	operations int
	used       int64
	uses       map[any]struct{} // memory and weights
}

// handed is the state of a sequence as the node knows it: pages are added as the sequence grows.
type handed struct {
	number uint64
	pages  []backend.Tensor
	delta  []backend.Recurrent
	used   int64
	keys   []backend.Memory // that it is found by
}

// passes is the recordings and sequences that the node knows.
type passes struct {
	kept, recorded, replayed atomic.Int64

	recordings map[shape]*sent
	operations int
	clock      int64
	now        *sent // is being recorded; nil: none is
	ops        coder // its operations

	tables  map[backend.Memory]*handed // by memory that only one sequence writes
	all     []*handed
	numbers []uint64 // of the tables of a pass
}

// clear forgets everything, as a new session has.
func (p *passes) clear() {
	p.recordings, p.tables, p.all, p.operations = map[shape]*sent{}, map[backend.Memory]*handed{}, nil, 0
	p.kept.Store(0)
}

// note is called with memory and weights that operations name.
func (p *passes) note(x any) {
	if p.now != nil {
		p.now.uses[x] = struct{}{}
	}
}

// Prepared implements backend.Preparer: passes whose operations had to cross, and those that the node has prepared.
func (d *Device) Prepared() int64 { return d.passes.recorded.Load() + d.prepared.Load() }

// Pass implements backend.Backend.
func (d *Device) Pass(p backend.Pass, queue func()) {
	s := &d.passes
	if s.now != nil {
		panic("remote: a pass within a pass")
	}
	if d.lost != nil || d.link.ended() != nil {
		return
	}
	s.clock++
	s.numbers = s.numbers[:0]
	for i := range p.Batch {
		s.numbers = append(s.numbers, d.table(&p.Batch[i]))
	}
	key := shape{p.Of, p.Rows(), len(p.Want), p.IDs != nil, p.Only != nil}
	if r := s.recordings[key]; r != nil {
		r.used = s.clock
		s.replayed.Add(1)
		at := d.out.begin(framePass, r.number)
		d.lists(&p)
		d.queued(at)
		d.flush()
		return
	}
	r := d.record(queue)
	at := d.out.begin(frameRecord, r.number)
	d.lists(&p)
	d.out.size(&r.operations)
	d.out.buf = append(d.out.buf, s.ops.buf...)
	d.queued(at)
	d.flush()
	s.recorded.Add(1)
	d.keep(key, r)
}

// record writes the operations that are queued.
func (d *Device) record(queue func()) *sent {
	s := &d.passes
	r := &sent{number: d.next(), used: s.clock, uses: map[any]struct{}{}}
	s.ops.buf, s.ops.dev, s.now = s.ops.buf[:0], d, r
	defer func() { s.now = nil }()
	queue()
	return r
}

// keep keeps a recording, in place of those that were not used for longest.
func (d *Device) keep(key shape, r *sent) {
	s := &d.passes
	for s.operations+r.operations > keptOperations && len(s.recordings) > 0 {
		var oldest shape
		found := false
		for k, x := range s.recordings {
			if !found || x.used < s.recordings[oldest].used {
				oldest, found = k, true
			}
		}
		d.drop(oldest)
	}
	s.recordings[key] = r
	s.operations += r.operations
	s.kept.Store(int64(len(s.recordings)))
}

func (d *Device) drop(key shape) {
	s := &d.passes
	r := s.recordings[key]
	delete(s.recordings, key)
	s.operations -= r.operations
	s.kept.Store(int64(len(s.recordings)))
	d.queued(d.out.begin(frameForget, r.number))
}

// forget drops what names memory or a weight that is freed.
func (s *passes) forget(d *Device, x any) {
	for key, r := range s.recordings {
		if _, ok := r.uses[x]; ok {
			d.drop(key)
		}
	}
	if m, ok := x.(*memory); ok && m.named {
		for _, t := range slices.Clone(s.all) {
			if t.has(m) {
				d.dropTable(t)
			}
		}
	}
}

// forgetAll drops all recordings.
func (s *passes) forgetAll(d *Device) {
	for key := range s.recordings {
		d.drop(key)
	}
}

// lists writes the lists of a pass.
func (d *Device) lists(p *backend.Pass) {
	c := &d.out
	c.ints(&p.IDs)
	c.ints(&p.Want)
	c.ints(&p.Only)
	n := len(p.Batch)
	c.size(&n)
	for i := range p.Batch {
		c.u64(&d.passes.numbers[i])
		c.rows(&p.Batch[i])
	}
}

// has reports whether a sequence has memory.
func (t *handed) has(m *memory) bool {
	is := func(x backend.Tensor) bool { return x.Mem == m }
	return slices.ContainsFunc(t.pages, is) || slices.ContainsFunc(t.delta, func(r backend.Recurrent) bool {
		return is(r.State) || is(r.Tail) || is(r.Keys) || is(r.Deltas) || is(r.Decays)
	})
}

// table is the number of a sequence's state on the node, which is told what is new of it. 0: there is no state.
func (d *Device) table(s *backend.Seq) uint64 {
	if len(s.Pages) == 0 && len(s.Delta) == 0 {
		return 0
	}
	x := &d.passes
	// Only this sequence writes to its recurrent memory and to the page of its next position.
	var keys [2]backend.Memory
	if len(s.Delta) > 0 {
		keys[0] = s.Delta[0].State.Mem
	} else {
		keys[0] = s.Pages[min(s.Pos/backend.PageTokens, len(s.Pages)-1)].Mem
		keys[1] = s.Pages[min(max(s.Pos-1, 0)/backend.PageTokens, len(s.Pages)-1)].Mem
	}
	for i, key := range keys {
		if t := x.tables[key]; key != nil && t != nil && t.used < x.clock {
			if n := len(t.pages); n <= len(s.Pages) && slices.Equal(t.pages, s.Pages[:n]) && slices.Equal(t.delta, s.Delta) {
				if t.used = x.clock; n < len(s.Pages) {
					d.hand(t, s.Pages[n:], nil)
				}
				if i > 0 {
					d.find(t, keys[0])
				}
				return t.number
			}
			d.dropTable(t)
		}
	}
	if len(x.all) >= keptTables {
		d.dropTable(slices.MinFunc(x.all, func(a, b *handed) int { return int(a.used - b.used) }))
	}
	t := &handed{number: d.next(), used: x.clock}
	x.all = append(x.all, t)
	d.find(t, keys[0])
	d.hand(t, s.Pages, s.Delta)
	return t.number
}

// find has a table found by memory.
func (d *Device) find(t *handed, key backend.Memory) {
	t.keys = append(t.keys, key)
	d.passes.tables[key] = t
}

// hand tells the node of more state of a sequence.
func (d *Device) hand(t *handed, pages []backend.Tensor, delta []backend.Recurrent) {
	name := func(x backend.Tensor) {
		if x.Mem != nil {
			m := d.tensor(x)
			m.named = true
			m.change()
		}
	}
	for i := range pages {
		name(pages[i])
	}
	for i := range delta {
		for _, x := range recurrentTensors(&delta[i]) {
			name(*x)
		}
	}
	at := d.out.begin(frameTable, t.number)
	list(&d.out, &pages, d.out.tensor)
	list(&d.out, &delta, d.out.recurrent)
	d.queued(at)
	t.pages, t.delta = append(t.pages, pages...), append(t.delta, delta...)
}

func (d *Device) dropTable(t *handed) {
	x := &d.passes
	x.all = slices.DeleteFunc(x.all, func(y *handed) bool { return y == t })
	for _, key := range t.keys {
		if x.tables[key] == t {
			delete(x.tables, key)
		}
	}
	d.queued(d.out.begin(frameDrop, t.number))
}

// do queues an operation, of the pass that is recorded or alone.
func (d *Device) do(op operation) {
	o := &d.op // operations outside of passes come often
	*o = op
	o.check(nil)
	c, inPass := &d.out, d.passes.now != nil
	at := 0
	if inPass {
		c = &d.passes.ops
		d.passes.now.operations++
	} else {
		at = c.begin(frameDo, 0)
	}
	o.fields(c, inPass)
	o.written(func(t *backend.Tensor) {
		if m, ok := t.Mem.(*memory); ok {
			m.change()
		}
	})
	if inPass {
		return
	}
	for i := range o.batch {
		for _, x := range o.batch[i].Pages {
			d.tensor(x).change()
		}
		for j := range o.batch[i].Delta {
			for _, x := range recurrentTensors(&o.batch[i].Delta[j]) {
				if m, ok := x.Mem.(*memory); ok {
					m.change()
				}
			}
		}
	}
	d.queued(at)
}

// Rehearse implements backend.Rehearser. A node whose device prepares nothing learns the operations of passes.
func (d *Device) Rehearse(f func() error) error {
	d.queued(d.out.begin(frameRehearse, 0))
	err := f()
	return errors.Join(err, d.ask(d.out.begin(frameRehearsed, 0), nil))
}

// WeightBytes implements backend.Sizer.
func (d *Device) WeightBytes(m *dtype.Matrix) int64 {
	h := headOf(m)
	if n, ok := d.sizes[h]; ok {
		return n
	}
	var n uint64
	at := d.out.begin(frameSize, 0)
	d.out.matrix(h)
	if err := d.ask(at, func(c *coder) { c.u64(&n) }); err != nil || n > maxSize {
		return hostBytes(m)
	}
	d.sizes[h] = int64(n)
	return int64(n)
}

// stream is memory of the node to be read.
type stream struct {
	d      *Device
	number uint64
	bytes  int
}

// NewStream implements backend.Streamer.
func (d *Device) NewStream(bytes int) (backend.Stream, error) {
	s := &stream{d, d.next(), bytes}
	at := d.out.begin(frameStream, s.number)
	d.out.size(&bytes)
	if err := d.ask(at, nil); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *stream) Bytes() int { return s.bytes }
func (s *stream) Close()     { s.d.queued(s.d.out.begin(frameStreamFree, s.number)) }

// Read reads everything on the node.
func (s *stream) Read() time.Duration {
	var n uint64
	if err := s.d.ask(s.d.out.begin(frameStreamRead, s.number), func(c *coder) { c.u64(&n) }); err != nil {
		return 0
	}
	return time.Duration(n)
}
