package remote

import (
	"maps"
	"slices"
	"sync/atomic"

	"github.com/foretoken/foretoken/internal/backend"
)

// Limits of recordings and of states of sequences: the node allows at least twice as many.
const (
	keptRecorded = maxRecorded / 2
	keptTables   = maxTables / 4
)

// sent is a recording of the node.
type sent struct {
	number     uint64
	operations int
	bytes      int   // of the limit
	used       int64 // time of its last pass
	uses       uses
}

// table is the state of a sequence as the node has it.
type table struct {
	number uint64
	seq    backend.Seq // its pages and recurrent layers
	used   int64
	key    any // memory by which it is found
	uses   uses
}

// fields lists the state, which passes change.
func (t *table) fields(c *coder) {
	c.uses = t.uses
	list(c, &t.seq.Pages, (*coder).page)
	list(c, &t.seq.Windows, func(c *coder, w *backend.Window) {
		c.size(&w.First)
		list(c, &w.Pages, (*coder).page)
	})
	list(c, &t.seq.Delta, (*coder).recurrent)
	c.uses = nil
}

// entries is how much of the limit of a node a table takes.
func (t *table) entries() int {
	n := 1 + len(t.seq.Windows) + len(t.seq.Delta)
	for range t.seq.AllPages {
		n++
	}
	return n
}

// is reports whether a sequence has the state.
func (t *table) is(s *backend.Seq) bool {
	return slices.Equal(t.seq.Pages, s.Pages) && slices.Equal(t.seq.Delta, s.Delta) &&
		slices.EqualFunc(t.seq.Windows, s.Windows, func(a, b backend.Window) bool { return a.First == b.First && slices.Equal(a.Pages, b.Pages) })
}

// passes is the recordings and the states of sequences that the node has.
type passes struct {
	kept, recorded, replayed atomic.Int64

	recordings map[backend.Shape]*sent
	bytes      int   // of all recordings
	clock      int64 // passes so far
	tables     map[any]*table

	ops   coder    // operations that are written
	whole int      // bytes of complete ones
	now   *sent    // is being recorded; nil: none is
	batch []uint64 // numbers of the tables of a pass
}

// clear forgets everything, as a new session does.
func (p *passes) clear() {
	p.recordings, p.tables, p.bytes = map[backend.Shape]*sent{}, map[any]*table{}, 0
	p.kept.Store(0)
}

// Prepared implements backend.Preparer: passes whose operations had to cross, and those that the node has prepared.
func (d *Device) Prepared() int64 { return d.passes.recorded.Load() + d.prepared.Load() }

// Pass implements backend.Backend.
func (d *Device) Pass(p backend.Pass, queue func()) {
	s := &d.passes
	if s.now != nil {
		panic("remote: a pass within a pass")
	}
	if d.broken() != nil {
		return
	}
	d.tables(p.Batch)
	key := p.Shape()
	if r := s.recordings[key]; r != nil {
		r.used = s.clock
		s.replayed.Add(1)
		at := d.out.begin(framePass, r.number)
		d.lists(&p)
		d.queued(at)
		d.flush()
		return
	}
	r := d.record(&p, queue)
	d.sendRecord(r, &p)
	d.flush()
	s.recorded.Add(1)
	for s.bytes+r.bytes > keptRecorded && len(s.recordings) > 0 {
		d.drop(s.oldest())
	}
	s.recordings[key] = r
	s.bytes += r.bytes
	s.kept.Store(int64(len(s.recordings)))
}

// record writes the operations that are queued.
func (d *Device) record(p *backend.Pass, queue func()) *sent {
	s := &d.passes
	r := &sent{number: d.next(), used: s.clock, uses: uses{}}
	s.begin(p)
	s.now, s.ops.uses = r, r.uses
	recorded := false
	defer func() {
		if s.now, s.ops.uses = nil, nil; !recorded { // operands were refused
			r.uses.release()
		}
	}()
	queue()
	s.ops.needs.check(p)
	r.bytes, recorded = s.ops.needs.cost(s.whole), true
	return r
}

// begin prepares for operations with the lists of a pass.
func (s *passes) begin(p *backend.Pass) {
	s.ops.buf, s.whole, s.ops.needs, s.ops.pass = s.ops.buf[:0], 0, newNeeds(), *p
}

// sendRecord sends the operations of a recording, or of none that is kept.
func (d *Device) sendRecord(r *sent, p *backend.Pass) {
	at := d.out.begin(frameRecord, r.number)
	d.lists(p)
	d.out.size(&r.operations)
	d.out.buf = append(d.out.buf, d.passes.ops.buf...)
	d.queued(at)
}

// do queues an operation: of the pass that is recorded, or alone.
func (d *Device) do(name string, lists backend.Pass, operands func(c *coder) run) {
	s := &d.passes
	if s.now != nil {
		s.add(s.now, name, operands)
		return
	}
	if d.broken() != nil {
		return
	}
	var r sent
	s.begin(&lists)
	s.add(&r, name, operands)
	s.ops.needs.check(&lists)
	d.tables(lists.Batch)
	d.sendRecord(&r, &lists)
}

// add checks and writes an operation.
func (s *passes) add(r *sent, name string, operands func(c *coder) run) {
	s.ops.buf = s.ops.buf[:s.whole] // without the beginning of one that was refused
	s.ops.text(&name)
	operands(&s.ops)
	s.whole = len(s.ops.buf)
	r.operations++
}

func (s *passes) oldest() backend.Shape {
	return slices.MinFunc(slices.Collect(maps.Keys(s.recordings)), func(a, b backend.Shape) int { return int(s.recordings[a].used - s.recordings[b].used) })
}

// drop forgets a recording, here and on the node.
func (d *Device) drop(key backend.Shape) {
	s := &d.passes
	r := s.recordings[key]
	delete(s.recordings, key)
	r.uses.release()
	s.bytes -= r.bytes
	s.kept.Store(int64(len(s.recordings)))
	d.queued(d.out.begin(frameForget, r.number))
}

// forget drops what names memory or a weight.
func (s *passes) forget(d *Device, h *handle) {
	if h.users == 0 {
		return
	}
	for key, r := range s.recordings {
		if _, ok := r.uses[h]; ok {
			d.drop(key)
		}
	}
	for _, t := range s.tables {
		if _, ok := t.uses[h]; ok {
			d.dropTable(t)
		}
	}
}

// lists writes the lists of a pass, whose tables the node has.
func (d *Device) lists(p *backend.Pass) {
	c := &d.out
	c.ints(&p.IDs)
	c.ints(&p.Want)
	c.ints(&p.Only)
	n := len(p.Batch)
	c.size(&n)
	for i := range p.Batch {
		c.u64(&d.passes.batch[i])
		c.rows(&p.Batch[i])
	}
}

// tables finds the numbers of the states of sequences.
func (d *Device) tables(batch []backend.Seq) {
	s := &d.passes
	s.clock++
	s.batch = s.batch[:0]
	for i := range batch {
		s.batch = append(s.batch, d.table(&batch[i]))
	}
}

// table is the number of a sequence's state on the node, which is told it again when it has changed. 0: there is no state.
func (d *Device) table(s *backend.Seq) uint64 {
	x := &d.passes
	// Only this sequence writes to its recurrent memory and to the page of its next position.
	var keys [2]backend.Memory
	if len(s.Delta) > 0 {
		keys[0] = s.Delta[0].State.Mem
	} else {
		keys[0], keys[1] = pageOf(s, s.Pos), pageOf(s, s.Pos-1)
	}
	if keys[0] == nil {
		return 0
	}
	for _, key := range keys {
		t := x.tables[key]
		if key == nil || t == nil || t.used == x.clock {
			continue
		}
		if t.is(s) {
			t.used = x.clock
			return t.number
		}
		d.dropTable(t)
	}
	if len(x.tables) >= keptTables {
		d.dropTable(slices.MinFunc(slices.Collect(maps.Values(x.tables)), func(a, b *table) int { return int(a.used - b.used) }))
	}
	t := &table{number: d.next(), used: x.clock, key: keys[0], uses: uses{}}
	t.seq.Pages, t.seq.Delta = slices.Clone(s.Pages), slices.Clone(s.Delta)
	for _, w := range s.Windows {
		t.seq.Windows = append(t.seq.Windows, backend.Window{First: w.First, Pages: slices.Clone(w.Pages)})
	}
	if x.tables[t.key] != nil { // of another sequence of the pass
		t.key = t
	}
	x.tables[t.key] = t
	at := d.out.begin(frameTable, t.number)
	t.fields(&d.out)
	d.queued(at)
	return t.number
}

// pageOf is the page of a position in the first table that has pages, or the nearest that there is.
func pageOf(s *backend.Seq, pos int) backend.Memory {
	for i := range 1 + len(s.Windows) {
		if first, pages := s.Table(&backend.Place{Window: i}); len(pages) > 0 {
			return pages[min(max(pos/backend.PageTokens-first, 0), len(pages)-1)].Mem
		}
	}
	return nil
}

func (d *Device) dropTable(t *table) {
	delete(d.passes.tables, t.key)
	t.uses.release()
	d.queued(d.out.begin(frameDrop, t.number))
}
