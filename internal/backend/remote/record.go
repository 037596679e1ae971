package remote

import "github.com/foretoken/foretoken/internal/backend"

// recording is the operations of a pass.
type recording struct {
	ops   []run
	needs needs
	uses  uses
	queue func()
	bytes int // of the limit
}

// table takes the state of a sequence.
func (x *session) table(number uint64, c *coder) error {
	t := &table{uses: uses{}}
	if t.fields(c); c.err != nil {
		return c.err
	}
	if x.entries += t.entries(); number == 0 || x.tables[number] != nil || len(x.tables) >= maxTables || x.entries > maxEntries {
		return fatalf("%w: state %d of a sequence, or more than %d with %d pages", errFrame, number, maxTables, maxEntries)
	}
	x.tables[number] = t
	return nil
}

// readLists reads the lists of a pass, valid until the next.
func (x *session) readLists(c *coder) *backend.Pass {
	c.ints(&x.pass.IDs)
	c.ints(&x.pass.Want)
	c.ints(&x.pass.Only)
	n := 0
	if c.size(&n); n > maxTables {
		c.fail()
	}
	for i := 0; i < n && c.err == nil; i++ {
		if i == len(x.batch) {
			x.batch = append(x.batch, backend.Seq{})
		}
		s := &x.batch[i]
		var number uint64
		c.u64(&number)
		c.rows(s)
		s.Pages, s.Windows, s.Delta = nil, nil, nil
		if t := x.tables[number]; t != nil {
			s.Pages, s.Windows, s.Delta = t.seq.Pages, t.seq.Windows, t.seq.Delta
		} else if number != 0 {
			c.fail()
		}
	}
	if x.pass.Batch = nil; c.err == nil {
		x.pass.Batch = x.batch[:n]
	}
	return &x.pass
}

// record reads operations and computes them: once, or as a pass whose recording is kept.
func (x *session) record(number uint64, c *coder) error {
	p := x.readLists(c)
	r := &recording{uses: uses{}}
	kept := false
	defer func() {
		if !kept { // also after a panic
			r.uses.release()
		}
	}()
	c.uses, c.pass, c.needs = r.uses, *p, newNeeds()
	read := ops{func(_ string, _ backend.Pass, operands func(c *coder) run) { r.ops = append(r.ops, operands(c)) }}
	n := 0
	c.size(&n)
	r.bytes = len(c.buf)
	for ; n > 0 && c.err == nil; n-- {
		name := ""
		c.text(&name)
		if reader, ok := readers[name]; ok {
			reader(read)
		} else {
			c.fail()
		}
	}
	if r.needs = c.needs; c.err != nil {
		return c.err
	}
	r.queue = func() {
		for _, queue := range r.ops {
			queue(x.b, &x.pass)
		}
	}
	if number == 0 {
		r.needs.check(p)
		r.queue()
		return nil
	}
	if r.bytes = r.needs.cost(r.bytes - len(c.buf)); x.recordings[number] != nil || x.recorded+r.bytes > maxRecorded {
		return fatalf("%w: recording %d, or recordings of more than %d bytes", errFrame, number, maxRecorded)
	}
	if err := x.compute(r, p); err != nil {
		return err
	}
	kept = true
	x.recorded += r.bytes
	x.recordings[number] = r
	return nil
}

// compute computes a pass.
func (x *session) compute(r *recording, p *backend.Pass) error {
	if x.read.err != nil {
		return x.read.err
	}
	r.needs.check(p)
	x.passes.Add(1)
	p.Of = r
	if !x.ahead {
		x.b.Pass(*p, r.queue)
		return nil
	}
	if d, ok := x.b.(backend.Rehearser); ok {
		return d.Rehearse(func() error {
			x.b.Pass(*p, r.queue)
			return nil
		})
	}
	return nil
}

func (x *session) forget(number uint64) {
	if r := x.recordings[number]; r != nil {
		x.recorded -= r.bytes
		r.uses.release()
		delete(x.recordings, number)
	}
}
