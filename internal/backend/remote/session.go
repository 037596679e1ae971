package remote

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/rescue"
)

// Limits of what a leader may have on a node, beside the budget of memory.
const (
	handleBytes   = 256     // that memory counts with at least
	maxHandles    = 1 << 20 // pieces of memory, and likewise weights
	maxTables     = 4096    // of sequences
	maxEntries    = 1 << 21 // of all tables
	maxOperations = 100_000 // of all recordings
	maxStack      = 1 << 16 // matrices of a weight
)

// handle is memory or a weight of the device.
type handle struct {
	t     backend.Tensor // all of the memory
	w     backend.Weight
	bytes int64
	named bool // by recordings or tables
	freed bool
}

// table is the state of a sequence.
type table struct {
	pages   []backend.Tensor
	delta   []backend.Recurrent
	of      map[*handle]struct{}
	checked int64 // frees of the session when all of it was there
}

// recording is the operations of a pass.
type recording struct {
	ops   []operation
	needs needs
	only  bool
	uses  map[*handle]struct{}
	queue func()
}

// session is a leader's use of a device. One goroutine serves it, but for its pulse.
type session struct {
	b    backend.Backend
	id   [16]byte
	peer string
	conn net.Conn
	in   frames
	out  *bufio.Writer
	name string // of the device

	weightsOf Weights
	budget    int64
	used      atomic.Int64
	passes    atomic.Int64
	found     atomic.Int64 // bytes of weights that were here
	received  atomic.Int64 // bytes of weights that were sent
	watch     *time.Timer
	mu        sync.Mutex // protects closed: usage may be asked for by the pulse
	closed    bool
	since     time.Time

	memory, weights map[uint64]*handle
	tables          map[uint64]*table
	recordings      map[uint64]*recording
	streams         map[uint64]backend.Stream
	operations      int // of recordings
	entries         int // of tables
	frees           int64

	err     error // of what is not answered
	ahead   bool  // passes are prepared and not computed
	loading *loading
	reply   coder
	read    coder
	pass    backend.Pass
	ids     []int32
	want    []int32
	only    []int32
	batch   []backend.Seq
	bytes   []byte
	asks    []backend.Ask
	op      operation
}

// fatal is an error that ends a session: what the leader holds is not what it believes.
type fatal struct{ error }

// ends reports whether an error ends a session.
func ends(err error) bool {
	var f fatal
	return errors.As(err, &f) || backend.Lost(err)
}

func fatalf(format string, args ...any) error { return fatal{fmt.Errorf(format, args...)} }

// errClosed ends a session that the leader closes.
var errClosed = errors.New("closed by the leader")

// serve answers frames until the connection ends.
func (x *session) serve() error {
	for {
		kind, number, body, err := x.in.next()
		if err != nil {
			return err
		}
		if err := x.frame(kind, number, body); err != nil {
			return err
		}
		if x.out.Buffered() > 0 && kind >= frameRead {
			if err := x.out.Flush(); err != nil {
				return err
			}
		}
	}
}

// frame does what a frame asks for. An error ends the session, and is told.
func (x *session) frame(kind uint8, number uint64, body []byte) error {
	x.read = coder{buf: body, reading: true, at: x}
	c := &x.read
	err := x.try(kind, number, c)
	if c.err != nil {
		err = fatal{c.err}
	}
	if err == nil {
		return nil
	}
	var over rehearsed
	switch {
	case errors.Is(err, errClosed) || errors.As(err, &over):
		return err
	case ends(err):
		x.fail(number, err, true)
		_ = x.out.Flush() // the connection ends
		return err
	}
	x.keep(err)
	return nil
}

// try is frame, and a panic is its error.
func (x *session) try(kind uint8, number uint64, c *coder) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = rescue.New(p)
		}
	}()
	if kind >= frameRead {
		return x.answer(kind, number, c)
	}
	return x.queue(kind, number, c)
}

// keep keeps the first error until it is reported.
func (x *session) keep(err error) {
	if x.err == nil {
		x.err = err
	}
}

// queue does what is not answered.
func (x *session) queue(kind uint8, number uint64, c *coder) error {
	switch kind {
	case frameAlloc:
		return x.alloc(number, c)
	case frameFree:
		return x.free(x.memory, number)
	case frameUnload:
		return x.free(x.weights, number)
	case frameWrite:
		var t backend.Tensor
		c.tensor(&t)
		return x.b.WriteBytes(t, c.take(len(c.buf)))
	case frameDo:
		return x.do(c)
	case frameTable:
		return x.table(number, c)
	case frameDrop:
		x.drop(number)
		return nil
	case frameRecord:
		return x.record(number, c)
	case framePass:
		p := x.lists(c)
		r := x.recordings[number]
		if c.err != nil || r == nil {
			return errors.Join(c.err, fmt.Errorf("remote: a pass without a recording"))
		}
		return x.compute(r, p)
	case frameForget:
		x.forget(number)
		return nil
	case frameData:
		return x.data(number, c)
	case frameStreamFree:
		if s := x.streams[number]; s != nil {
			x.used.Add(-int64(s.Bytes()))
			delete(x.streams, number)
			s.Close()
		}
		return nil
	case frameRehearse:
		return x.rehearse()
	}
	return fatalf("%w: kind %d", errFrame, kind)
}

// charge counts memory. It reports false if the budget has not so much.
func (x *session) charge(bytes int64) bool {
	if bytes < 0 || bytes > x.budget-x.used.Load() {
		return false
	}
	x.used.Add(bytes)
	return true
}

func (x *session) alloc(number uint64, c *coder) error {
	var t backend.Tensor
	c.kind(&t.Type)
	c.size(&t.Rows)
	c.size(&t.Cols)
	size := max(t.Type.Size(), 1)
	if c.err != nil || t.Rows > maxSize/size/max(t.Cols, 1) || t.Cols == 0 && t.Rows > maxDim {
		return fatalf("%w: memory of %d×%d", errFrame, t.Rows, t.Cols)
	}
	bytes := max(int64(t.Rows)*int64(t.Cols)*int64(size), handleBytes)
	if number == 0 || x.memory[number] != nil || len(x.memory) >= maxHandles || !x.charge(bytes) {
		return fatalf("memory %d of %d bytes, with %d of %d bytes in %d pieces in use", number, bytes, x.used.Load(), x.budget, len(x.memory))
	}
	m, err := x.b.Alloc(t.Type, t.Rows, t.Cols)
	if err != nil {
		return fatal{err}
	}
	x.memory[number] = &handle{t: m, bytes: bytes}
	return nil
}

func (x *session) free(list map[uint64]*handle, number uint64) error {
	h := list[number]
	if h == nil {
		return fatalf("%w: number %d to free", errFrame, number)
	}
	delete(list, number)
	if h.freed = true; h.named {
		x.frees++
		for n, r := range x.recordings {
			if _, ok := r.uses[h]; ok {
				x.forget(n)
			}
		}
	}
	x.used.Add(-h.bytes)
	if h.w != nil {
		x.b.Unload(h.w)
	} else {
		x.b.Free(h.t)
	}
	return nil
}

// resolve makes a view of memory with a number one of the device's memory, which it does not leave.
func (x *session) resolve(c *coder, t *backend.Tensor, number uint64) {
	if number == 0 {
		if *t != (backend.Tensor{}) {
			c.fail()
		}
		return
	}
	h := x.memory[number]
	if h == nil {
		c.fail()
		*t = backend.Tensor{}
		return
	}
	all := numbers(&h.t)
	inside := t.Type == h.t.Type
	if t.Rows == 0 || t.Cols == 0 { // nothing is read there
		inside = inside && t.Rows <= maxDim && t.Cols <= maxDim && t.Stride <= maxSize
		t.Offset = 0
	} else if inside = inside && t.Cols <= all && t.Offset <= all && (t.Rows == 1 || t.Stride >= t.Cols && t.Rows-1 <= all/t.Stride); inside {
		inside = t.Offset+numbers(t) <= all
	}
	if !inside {
		c.fail()
		*t = backend.Tensor{}
		return
	}
	t.Mem, t.Offset = h.t.Mem, t.Offset+h.t.Offset
	c.note(h)
}

// weightOf is the weight with a number, nil for 0.
func (x *session) weightOf(c *coder, number uint64) backend.Weight {
	if number == 0 {
		return nil
	}
	h := x.weights[number]
	if h == nil {
		c.fail()
		return nil
	}
	c.note(h)
	return h.w
}

func (c *coder) note(h *handle) {
	if c.uses != nil {
		h.named = true
		c.uses[h] = struct{}{}
	}
}

// do computes an operation outside of a pass.
func (x *session) do(c *coder) error {
	o := &x.op
	*o = operation{}
	if o.fields(c, false); c.err != nil {
		return c.err
	}
	p := backend.Pass{IDs: o.list, Want: o.list, Batch: o.batch}
	n := newNeeds()
	o.check(nil)
	n.add(o)
	n.check(&p)
	o.run(x.b, nil)
	return nil
}

// table adds to the state of a sequence: pages, and at its first time recurrent layers.
func (x *session) table(number uint64, c *coder) error {
	t := x.tables[number]
	first := t == nil
	if first {
		if number == 0 || len(x.tables) >= maxTables {
			return fatalf("more than %d sequences", maxTables)
		}
		t = &table{of: map[*handle]struct{}{}}
		x.tables[number] = t
	}
	var pages []backend.Tensor
	var delta []backend.Recurrent
	c.uses = t.of
	list(c, &pages, c.tensor)
	list(c, &delta, c.recurrent)
	if !first && delta != nil {
		c.fail()
	}
	t.pages, t.delta = append(t.pages, pages...), append(t.delta, delta...)
	if x.entries += len(pages) + len(delta); x.entries > maxEntries {
		return fatalf("sequences with more than %d pages", maxEntries)
	}
	return nil
}

// drop forgets the state of a sequence.
func (x *session) drop(number uint64) {
	if t := x.tables[number]; t != nil {
		x.entries -= len(t.pages) + len(t.delta)
		delete(x.tables, number)
	}
}

// lists reads the lists of a pass, valid until the next.
func (x *session) lists(c *coder) *backend.Pass {
	x.pass = backend.Pass{}
	p := &x.pass
	c.ints(&x.ids)
	p.IDs = x.ids
	c.ints(&x.want)
	p.Want = x.want
	c.ints(&x.only)
	p.Only = x.only
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
		s.Pages, s.Delta = x.state(c, number)
	}
	if c.err == nil {
		p.Batch = x.batch[:n]
	}
	return p
}

// state is a table, all of whose memory is there.
func (x *session) state(c *coder, number uint64) ([]backend.Tensor, []backend.Recurrent) {
	if number == 0 {
		return nil, nil
	}
	t := x.tables[number]
	if t == nil {
		c.fail()
		return nil, nil
	}
	if t.checked != x.frees {
		for h := range t.of {
			if h.freed {
				c.fail()
				return nil, nil
			}
		}
		t.checked = x.frees
	}
	return t.pages, t.delta
}

// record reads the operations of a pass, and computes it.
func (x *session) record(number uint64, c *coder) error {
	p := x.lists(c)
	if number == 0 || x.recordings[number] != nil {
		return fatalf("%w: recording %d", errFrame, number)
	}
	r := &recording{uses: map[*handle]struct{}{}, needs: newNeeds(), only: p.Only != nil}
	c.uses = r.uses
	list(c, &r.ops, func(o *operation) { o.fields(c, true) })
	if c.err != nil {
		return c.err
	}
	if x.operations+len(r.ops) > maxOperations {
		return fatalf("recordings of more than %d operations", maxOperations)
	}
	for i := range r.ops {
		r.ops[i].check(p)
		r.needs.add(&r.ops[i])
	}
	r.queue = func() {
		for i := range r.ops {
			r.ops[i].run(x.b, &x.pass)
		}
	}
	x.operations += len(r.ops)
	x.recordings[number] = r
	computed := false
	defer func() {
		if !computed { // it has panicked
			x.forget(number)
		}
	}()
	err := x.compute(r, p)
	computed = err == nil
	return err
}

// compute computes a pass.
func (x *session) compute(r *recording, p *backend.Pass) error {
	if r.only != (p.Only != nil) {
		refuse("a pass with and without blocks")
	}
	r.needs.check(p)
	x.passes.Add(1)
	if x.ahead {
		if _, ok := x.b.(backend.Rehearser); !ok {
			return nil
		}
	}
	p.Of = r
	x.b.Pass(*p, r.queue)
	return nil
}

func (x *session) forget(number uint64) {
	if r := x.recordings[number]; r != nil {
		x.operations -= len(r.ops)
		delete(x.recordings, number)
	}
}
