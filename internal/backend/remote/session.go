package remote

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/rescue"
)

// Limits of what a leader may have on a node, beside the budget of memory.
const (
	handleBytes = 256      // that memory or a weight counts with at least
	maxHandles  = 1 << 21  // pieces of memory and weights
	maxTables   = 4096     // states of sequences
	maxEntries  = 1 << 21  // pages and recurrent states of all tables
	maxRecorded = 32 << 20 // bytes of recordings, as they are in frames
	recordBytes = 1 << 10  // that a recording counts with beside its operations
	maxStack    = 1 << 16  // matrices of a weight
	reuseBytes  = 32 << 10 // of a frame whose lists are reused
)

// session is a leader's use of a device. One goroutine serves it.
type session struct {
	b     backend.Backend
	id    [16]byte
	peer  string
	conn  net.Conn
	in    frames
	out   *bufio.Writer
	name  string // of the device
	since time.Time
	watch *time.Timer // ends the session of a silent leader

	weights  Weights
	budget   int64
	used     atomic.Int64
	passes   atomic.Int64
	found    atomic.Int64 // bytes of weights that were here
	received atomic.Int64 // bytes of weights that were sent

	handles    map[uint64]*handle
	tables     map[uint64]*table
	recordings map[uint64]*recording
	recorded   int // bytes of recordings
	entries    int // of tables
	loading    loading

	err   error // of what is not answered, until the next answer
	ahead bool  // passes are prepared and not computed
	read  coder
	reply coder
	pass  backend.Pass
	batch []backend.Seq // of pass
	bytes []byte
	asks  []backend.Ask
}

func (x *session) status() Status {
	return Status{
		Leader: x.peer, Since: x.since, Device: x.name, Budget: x.budget, Used: x.used.Load(), Passes: x.passes.Load(),
		Found: x.found.Load(), Received: x.received.Load(),
	}
}

// fatal is an error that ends a session: what the leader holds is not what it believes.
type fatal struct{ error }

func fatalf(format string, args ...any) error { return fatal{fmt.Errorf(format, args...)} }

// ends reports whether an error ends a session.
func ends(err error) bool {
	var f fatal
	return errors.As(err, &f) || backend.Lost(err)
}

// errClosed ends a session that the leader closes.
var errClosed = errors.New("closed by the leader")

// serve answers frames until the session ends.
func (x *session) serve() error {
	for {
		kind, number, body, err := x.in.next()
		if err == nil {
			x.read = coder{buf: body, reading: true, at: x}
			err = x.frame(kind, number)
		}
		if len(body) > reuseBytes { // an element that is reused keeps the longest list that it ever had
			x.asks, x.batch = nil, nil
		}
		if err != nil {
			return err
		}
	}
}

// frame does what a frame asks for. An error of what is not answered is that of the next answer. What frame returns ends the
// session.
func (x *session) frame(kind uint8, number uint64) (err error) {
	c, asked := &x.read, kind >= frameRead
	if asked {
		err, x.err = x.err, nil
	}
	if err == nil {
		err = rescue.Do(func() error { return x.do(kind, number, c) })
	}
	if c.err != nil {
		err = fatal{c.err}
	}
	switch {
	case err != nil && ends(err):
		x.answer(frameFail, number, err, true)
		_ = x.out.Flush() // the connection ends
		return err
	case !asked:
		if x.err == nil {
			x.err = err
		}
		return nil
	case err != nil:
		x.answer(frameFail, number, err, false)
	default:
		x.answer(frameDone, number, nil, false)
	}
	if err := x.out.Flush(); err != nil || kind != frameClose {
		return err
	}
	return errClosed
}

// answer writes the last frame of an answer.
func (x *session) answer(kind uint8, number uint64, why error, ends bool) {
	c := &x.reply
	c.buf = c.buf[:0]
	at, prepared := c.begin(kind, number), int(backend.PreparedBy(x.b))
	if c.size(&prepared); why != nil {
		text := why.Error()
		c.bool(&ends)
		c.text(&text)
	}
	c.finish(at, 0)
	_, _ = x.out.Write(c.buf) // the error comes from Flush
}

// part writes a part of an answer: fields, if there are any, and data.
func (x *session) part(number uint64, data []byte, fields func(c *coder)) error {
	c := &x.reply
	c.buf = c.buf[:0]
	at := c.begin(framePart, number)
	if fields != nil {
		fields(c)
	}
	c.finish(at, len(data))
	_, _ = x.out.Write(c.buf) // its error is that of the next
	if _, err := x.out.Write(data); err != nil {
		return fatal{err}
	}
	return nil
}

// do does what a frame asks for, but the end of an answer.
func (x *session) do(kind uint8, number uint64, c *coder) error {
	switch kind {
	case frameAlloc:
		return x.alloc(number, c)
	case frameFree:
		return x.free(number)
	case frameWrite:
		var t backend.Tensor
		if c.tensor(&t); c.err != nil {
			return c.err
		}
		return x.b.WriteBytes(t, c.take(len(c.buf)))
	case frameTable:
		return x.table(number, c)
	case frameDrop:
		if t := x.tables[number]; t != nil {
			x.entries -= t.entries()
			t.uses.release()
			delete(x.tables, number)
		}
	case frameRecord:
		return x.record(number, c)
	case framePass:
		r, p := x.recordings[number], x.readLists(c)
		if r == nil {
			return errors.New("remote: a pass without a recording")
		}
		return x.compute(r, p)
	case frameForget:
		x.forget(number)
	case frameData:
		return x.data(number, c)
	case frameRehearse:
		x.ahead = true
	case frameRead:
		return x.readTensor(number, c)
	case frameTop:
		return x.top(number, c)
	case frameLoad:
		return x.load(number, c)
	case frameBuild:
		return x.build(number)
	case frameSize:
		return x.size(number, c)
	case frameStream:
		return x.stream(number, c)
	case frameRehearsed:
		x.ahead = false
	case frameSync, frameClose:
	default:
		return fatalf("%w: kind %d", errFrame, kind)
	}
	return nil
}

// full is the error for bytes that the budget does not have.
func (x *session) full(bytes int64) error {
	return fmt.Errorf("%d bytes are needed, %d of the %d that a leader may use here are free", bytes, x.budget-x.used.Load(), x.budget)
}

// hold keeps memory or a weight by its number.
func (x *session) hold(h *handle) error {
	if h.number == 0 || x.handles[h.number] != nil || len(x.handles) >= maxHandles {
		return fatalf("%w: memory or weight %d", errFrame, h.number)
	}
	if h.cost() > x.budget-x.used.Load() {
		return x.full(h.cost())
	}
	x.used.Add(h.cost())
	x.handles[h.number] = h
	return nil
}

func (x *session) alloc(number uint64, c *coder) error {
	var t backend.Tensor
	c.dtype(&t.Type)
	c.size(&t.Rows)
	c.size(&t.Cols)
	if c.err != nil || !memoryType(t.Type) || t.Rows > maxSize/4/max(t.Cols, 1) || t.Cols == 0 && t.Rows > maxDim {
		return fatalf("%w: memory of %d×%d", errFrame, t.Rows, t.Cols)
	}
	h := &handle{number: number, bytes: int64(t.Rows) * int64(t.Cols) * int64(t.Type.Size())}
	if err := x.hold(h); err != nil {
		return fatal{err}
	}
	var err error
	if h.t, err = x.b.Alloc(t.Type, t.Rows, t.Cols); err != nil {
		return fatal{err}
	}
	return nil
}

func (x *session) free(number uint64) error {
	h := x.handles[number]
	if h == nil || h.users > 0 {
		return fatalf("%w: number %d to free", errFrame, number)
	}
	delete(x.handles, number)
	x.used.Add(-h.cost())
	if h.w != nil {
		x.b.Unload(h.w)
	} else {
		x.b.Free(h.t)
	}
	return nil
}

// resolve makes a view of memory with a number one of the device's memory, which it does not leave.
func (x *session) resolve(c *coder, t *backend.Tensor, number uint64) {
	view := *t
	*t = backend.Tensor{}
	if number == 0 && view == *t {
		return
	}
	h := x.handles[number]
	if h == nil || h.t.Mem == nil || view.Type != h.t.Type {
		c.fail()
		return
	}
	all, inside := numbers(&h.t), view.Rows <= maxDim && view.Cols <= maxDim
	if view.Rows == 0 || view.Cols == 0 { // nothing is read there
		view.Offset = 0
	} else {
		inside = view.Cols <= all && view.Offset <= all && (view.Rows == 1 || view.Stride >= view.Cols && view.Rows-1 <= all/view.Stride) &&
			view.Offset+numbers(&view) <= all
	}
	if !inside {
		c.fail()
		return
	}
	view.Mem, view.Offset = h.t.Mem, view.Offset+h.t.Offset
	c.uses.add(h)
	*t = view
}

// weightOf is the weight with a number, nil for 0.
func (x *session) weightOf(c *coder, number uint64) backend.Weight {
	if number == 0 {
		return nil
	}
	h := x.handles[number]
	if h == nil || h.w == nil {
		c.fail()
		return nil
	}
	c.uses.add(h)
	return h.w
}

func (x *session) readTensor(number uint64, c *coder) error {
	var t backend.Tensor
	if c.tensor(&t); c.err != nil {
		return c.err
	}
	return pieces(t, func(t backend.Tensor, n int) error {
		if len(x.bytes) < n {
			x.bytes = make([]byte, n)
		}
		if err := x.b.ReadBytes(x.bytes[:n], t); err != nil {
			return err
		}
		return x.part(number, x.bytes[:n], nil)
	})
}

func (x *session) top(number uint64, c *coder) error {
	var src backend.Tensor
	c.reads(&src)
	if list(c, &x.asks, (*coder).ask); c.err != nil {
		return c.err
	}
	checkAsks(src, x.asks)
	best, err := x.b.Top(src, x.asks)
	for i := range best {
		if err == nil {
			err = x.part(number, nil, func(c *coder) { c.best(&best[i]) })
		}
	}
	return err
}

// weightBytes is about how many bytes of the device a matrix takes.
func (x *session) weightBytes(m *dtype.Matrix) int64 {
	if s, ok := x.b.(backend.Sizer); ok {
		return s.WeightBytes(m)
	}
	return hostBytes(m)
}

// size answers how much memory a matrix takes.
func (x *session) size(number uint64, c *coder) error {
	m, err := form(c.take(len(c.buf))).matrix()
	if err != nil {
		return err
	}
	n := x.weightBytes(&m)
	return x.part(number, nil, func(c *coder) { c.i64(&n) })
}

// stream answers how long memory of a size takes to be read.
func (x *session) stream(number uint64, c *coder) error {
	n := 0
	c.size(&n)
	s, ok := x.b.(backend.Streamer)
	if !ok {
		return fmt.Errorf("the memory of %s cannot be measured", x.b.Name())
	}
	if int64(n) > x.budget-x.used.Load() {
		return x.full(int64(n))
	}
	m, err := s.NewStream(n)
	if err != nil {
		return err
	}
	defer m.Close()
	m.Read()
	took := int64(m.Read())
	return x.part(number, nil, func(c *coder) { c.i64(&took) })
}
