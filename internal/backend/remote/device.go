package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Options say how a node is reached. Dial is required.
type Options struct {
	// Name is the node's for messages, as its user calls it.
	Name string
	// Dial opens a connection on which both ends know who the other is. It is called twice for each session.
	Dial func(ctx context.Context) (net.Conn, error)
	// Wait is how long to wait for a node that is not there, or serves another leader, when its connection ends, and
	// OpenWait when the device is opened. 0: not at all. An error of Dial with a method Permanent ends waiting at once.
	Wait, OpenWait time.Duration
	// Weights finds the weights that a node has lost and does not find itself; nil: a node that has none of its own cannot
	// continue when its process has ended.
	Weights Weights
	Version string       // of the program, for messages
	Log     *slog.Logger // nil: the default one
	// Silence is how long the node may give no sign of life; 0: five seconds.
	Silence time.Duration
}

// Device is the device of a node. See backend.Backend for the contract of its methods.
type Device struct {
	ops
	ctx  context.Context
	o    Options
	link *link
	lost error // the device is lost

	out    coder // frames that are not sent
	in     coder // the frame that is read
	number uint64
	budget int64
	used   atomic.Int64

	memory  map[uint64]*memory
	weights []*weight // as they were loaded
	passes  passes
	sizes   map[form]int64

	prepared atomic.Int64 // by the node
	host     []float32    // of Host
	best     []backend.Best
}

// drawing is a Device of a node whose device draws.
type drawing struct {
	*Device
	drawOps
}

var (
	_ backend.Backend   = (*Device)(nil)
	_ backend.Drawer    = drawing{}
	_ backend.Copier    = (*Device)(nil)
	_ backend.Meter     = (*Device)(nil)
	_ backend.Rehearser = (*Device)(nil)
	_ backend.Sizer     = (*Device)(nil)
	_ backend.Streamer  = (*Device)(nil)
	_ backend.Restorer  = (*Device)(nil)
)

// memory is memory of the node.
type memory struct {
	handle
	own *Device
	// wrote is what the host has written, as long as nothing else has: it is written again on a node that has lost it.
	wrote []float32
	dirty bool // something else has written
	freed bool
}

func (m *memory) Bytes() int64 { return m.bytes }

// remember keeps what the host writes.
func (m *memory) remember(t backend.Tensor, src []float32) {
	if m.dirty {
		return
	}
	if m.wrote == nil {
		m.wrote = make([]float32, numbers(&m.t))
	}
	for r := range t.Rows {
		copy(m.wrote[t.Offset+r*t.Stride:][:t.Cols], src[r*t.Cols:])
	}
}

func (m *memory) change() { m.dirty, m.wrote = true, nil }

// lostNode is the error for a node that did not come back.
type lostNode struct{ error }

func (e lostNode) Unwrap() error { return e.error }

// DeviceLost is the mark of backend.Lost.
func (lostNode) DeviceLost() bool { return true }

// errShut is the error of a device after Close.
var errShut = errors.New("remote: the device is closed")

// Open returns the device of a node. When ctx is done the device is lost: it waits for nothing anymore.
func Open(ctx context.Context, o Options) (backend.Backend, error) {
	o.Silence, o.Log = cmp.Or(o.Silence, silence), cmp.Or(o.Log, slog.Default())
	d := &Device{ctx: ctx, o: o, memory: map[uint64]*memory{}, sizes: map[form]int64{}}
	d.out.dev, d.passes.ops.dev = d, d
	d.ops.do = d.do
	d.passes.clear()
	if err := d.connect(o.OpenWait, func() error { return nil }); err != nil {
		return nil, err
	}
	if d.link.hello.draws {
		return drawing{d, drawOps{d.ops}}, nil
	}
	return d, nil
}

// connect makes a link, for as long as wait, and calls then with it.
func (d *Device) connect(wait time.Duration, then func() error) error {
	until, pause := time.Now().Add(wait), 20*time.Millisecond
	for attempt := 0; ; attempt++ {
		l, err := connect(d.ctx, &d.o)
		if err == nil {
			d.link, d.budget = l, int64(l.hello.budget)
			d.out.buf = d.out.buf[:0]
			if err = then(); err == nil {
				return nil
			}
			l.fail(err)
		}
		var no *refusal
		var permanent interface{ Permanent() }
		if errors.As(err, &no) && !no.again || errors.As(err, &permanent) || d.ctx.Err() != nil || !time.Now().Before(until) {
			return fmt.Errorf("node %s: %w", d.o.Name, err)
		}
		if attempt == 0 {
			d.o.Log.Warn("waiting for a node", "node", d.o.Name, "wait", wait, "error", err)
		}
		select {
		case <-d.ctx.Done():
		case <-time.After(min(pause, time.Until(until))):
			pause = min(2*pause, time.Second)
		}
	}
}

// broken is the error of a device whose memory is gone, until Restore.
func (d *Device) broken() error {
	if d.lost != nil {
		return d.lost
	}
	if cause := d.link.ended(); cause != nil {
		return fmt.Errorf("node %s is gone: %w", d.o.Name, cause)
	}
	return nil
}

// wrong ends the link to a node that does not keep to the protocol.
func (d *Device) wrong() error {
	d.link.fail(errFrame)
	return d.broken()
}

// Restore implements backend.Restorer.
func (d *Device) Restore() (lost bool, err error) {
	if d.lost != nil {
		return true, d.lost
	}
	cause := d.link.ended()
	if cause == nil {
		return false, nil
	}
	d.link.beating.Wait()
	d.o.Log.Warn("a node is gone", "node", d.o.Name, "error", cause)
	if err := d.connect(d.o.Wait, d.again); err != nil {
		d.lost = lostNode{fmt.Errorf("%w; it was lost because: %w", err, cause)}
		return true, d.lost
	}
	d.o.Log.Info("a node is back, and its weights are loaded again", "node", d.o.Name, "weights", len(d.weights))
	return true, nil
}

// WhenLost implements backend.Restorer.
func (d *Device) WhenLost(ctx context.Context, f func()) {
	stop := context.AfterFunc(d.link.ctx, f)
	context.AfterFunc(ctx, func() { stop() })
}

// again makes everything again on a node that has nothing.
func (d *Device) again() error {
	d.passes.clear()
	if used := d.used.Load(); used > d.budget {
		return &refusal{text: fmt.Sprintf("it gives %d bytes, and %d are in use", d.budget, used)}
	}
	for _, m := range d.memory {
		m.users = 0
		d.makeMemory(m)
		if m.wrote != nil {
			if err := d.write(m.t, bytesOf(m.wrote)); err != nil {
				return err
			}
		}
	}
	for _, w := range d.weights {
		w.users = 0
		before := w.cost()
		if err := d.load(w, func(i int) (*dtype.Matrix, error) { return d.find(w, i) }); err != nil {
			return err
		}
		d.used.Add(w.cost() - before)
	}
	// What was queued has worked if this does.
	return d.ask(d.out.begin(frameSync, 0), nil)
}

// find is a matrix of a weight that the node has lost.
func (d *Device) find(w *weight, i int) (*dtype.Matrix, error) {
	m, err := w.forms[i].matrix()
	if err != nil {
		return nil, err
	}
	x, ok, err := findIn(d.o.Weights, w.digests[i], &m)
	if ok {
		err = x.Validate()
	} else if err == nil {
		err = fmt.Errorf("it has lost a weight of %d×%d that it keeps no copy of: give it the model's files or a cache, or restart both", m.Rows, m.Cols)
	}
	if err != nil {
		return nil, &refusal{text: err.Error()}
	}
	return &x, nil
}

// Name implements backend.Backend, as all that follows.
func (d *Device) Name() string {
	return fmt.Sprintf("%s on node %s", printable(d.link.hello.name), d.o.Name)
}

// FreeMemory is the rest of the node's budget: no question to the node.
func (d *Device) FreeMemory() int64 { return d.budget - d.used.Load() }

// Usage implements backend.Meter.
func (d *Device) Usage() []backend.Usage {
	used := d.used.Load()
	return []backend.Usage{{
		Device: d.Name(), Memory: max(d.budget, used), Free: max(d.budget-used, 0), Used: used,
		Recordings: int(d.passes.kept.Load()), Recorded: d.passes.recorded.Load(), Replayed: d.passes.replayed.Load(),
	}}
}

// next is a number that was not used.
func (d *Device) next() uint64 {
	d.number++
	return d.number
}

// Alloc waits for nothing: the number is chosen here, and the node has granted the memory at the start.
func (d *Device) Alloc(t dtype.Type, rows, cols int) (backend.Tensor, error) {
	if d.lost != nil {
		return backend.Tensor{}, d.lost
	}
	if rows < 0 || cols < 0 || cols > 0 && rows > maxSize/4/cols || rows > maxDim && cols == 0 {
		return backend.Tensor{}, fmt.Errorf("remote: cannot allocate a tensor of %d×%d", rows, cols)
	}
	if !memoryType(t) {
		return backend.Tensor{}, fmt.Errorf("remote: tensors of type %v are not supported", t)
	}
	m := &memory{own: d, handle: handle{number: d.next(), bytes: int64(rows) * int64(cols) * int64(t.Size())}}
	if free := d.FreeMemory(); m.cost() > free || len(d.memory) >= maxHandles/2 {
		return backend.Tensor{}, fmt.Errorf("node %s: %.1f MB are needed, %.1f of the %.1f MB that it gives are free", d.o.Name,
			float64(m.bytes)/1e6, float64(free)/1e6, float64(d.budget)/1e6)
	}
	m.t = backend.Tensor{Type: t, Rows: rows, Cols: cols, Stride: cols, Mem: m}
	d.memory[m.number] = m
	d.used.Add(m.cost())
	d.makeMemory(m)
	return m.t, nil
}

func (d *Device) makeMemory(m *memory) {
	at := d.out.begin(frameAlloc, m.number)
	d.out.dtype(&m.t.Type)
	d.out.size(&m.t.Rows)
	d.out.size(&m.t.Cols)
	d.queued(at)
}

// Free waits for nothing.
func (d *Device) Free(t backend.Tensor) {
	if m, ok := t.Mem.(*memory); ok && m.own == d && !m.freed {
		m.freed, m.wrote = true, nil
		delete(d.memory, m.number)
		d.release(&m.handle)
	}
}

// release frees memory or a weight, after what names it.
func (d *Device) release(h *handle) {
	d.passes.forget(d, h)
	d.used.Add(-h.cost())
	d.queued(d.out.begin(frameFree, h.number))
}

// memoryOf checks that memory is this device's, and there.
func (d *Device) memoryOf(t backend.Tensor) *memory {
	m, ok := t.Mem.(*memory)
	if !ok || m.own != d || m.freed {
		panic("remote: tensor of another device, or that was freed")
	}
	return m
}

// queued completes a frame that is not answered. Frames are sent together.
func (d *Device) queued(at int) {
	if d.out.finish(at, 0); len(d.out.buf) > 64<<10 {
		d.flush()
	}
}

// queuedWith completes a frame that ends with data.
func (d *Device) queuedWith(at int, data []byte) {
	if len(data) <= 16<<10 {
		d.out.buf = append(d.out.buf, data...)
		d.queued(at)
		return
	}
	d.out.finish(at, len(data))
	d.flush()
	d.send(data)
}

// flush sends what is queued.
func (d *Device) flush() {
	if len(d.out.buf) > 0 {
		d.send(d.out.buf)
	}
	d.out.buf = d.out.buf[:0]
}

// send sends bytes. A failure is that of the next call that waits.
func (d *Device) send(data []byte) {
	if d.broken() != nil {
		return
	}
	if _, err := d.link.work.Write(data); err != nil {
		d.link.fail(fmt.Errorf("the connection has ended: %w", err))
	}
}

// ask queues a question, whose frame begins at a place, and waits for its answer, in parts that part reads. part is not
// called after an error.
func (d *Device) ask(at int, part func(c *coder)) error {
	d.out.finish(at, 0)
	d.flush()
	if err := d.broken(); err != nil {
		return err
	}
	err := d.answer(part)
	if err != nil {
		for key := range d.passes.recordings { // the node may lack some
			d.drop(key)
		}
	}
	return err
}

func (d *Device) answer(part func(c *coder)) error {
	for {
		kind, _, body, err := d.link.in.next()
		if err != nil {
			d.link.fail(fmt.Errorf("the connection has ended: %w", err))
			return d.broken()
		}
		d.in = coder{buf: body, reading: true}
		c := &d.in
		if kind == framePart && part != nil {
			if part(c); c.err != nil || len(c.buf) > 0 {
				return d.wrong()
			}
			continue
		}
		prepared, ends, text := 0, false, ""
		if c.size(&prepared); kind == frameFail {
			c.bool(&ends)
			c.text(&text)
		}
		switch {
		case c.err != nil || kind != frameDone && kind != frameFail:
			return d.wrong()
		case kind == frameDone:
			d.prepared.Store(int64(prepared))
			return nil
		}
		err = fmt.Errorf("node %s: %s", d.o.Name, printable(text))
		if ends {
			d.link.fail(err)
			return d.broken()
		}
		return err
	}
}

// Write waits for nothing.
func (d *Device) Write(dst backend.Tensor, src []float32) error {
	m := d.memoryOf(dst)
	if dst.Type != dtype.F32 || len(src) != dst.Rows*dst.Cols {
		return fmt.Errorf("remote: write of %d numbers into %d×%d of %v", len(src), dst.Rows, dst.Cols, dst.Type)
	}
	m.remember(dst, src)
	return d.write(dst, bytesOf(src))
}

// WriteBytes waits for nothing. What it writes is state, which is not kept here, but for rows of numbers that another device
// had: state is one row.
func (d *Device) WriteBytes(dst backend.Tensor, src []byte) error {
	m := d.memoryOf(dst)
	if want := dst.Rows * dst.Cols * dst.Type.Size(); len(src) != want {
		return fmt.Errorf("remote: write of %d bytes into a tensor of %d", len(src), want)
	}
	if dst.Type == dtype.F32 && dst.Rows > 1 {
		own := make([]float32, dst.Rows*dst.Cols)
		copy(bytesOf(own), src)
		m.remember(dst, own)
	} else {
		m.change()
	}
	return d.write(dst, src)
}

// write sends bytes of memory.
func (d *Device) write(dst backend.Tensor, src []byte) error {
	if d.lost != nil {
		return d.lost
	}
	return pieces(dst, func(t backend.Tensor, n int) error {
		at := d.out.begin(frameWrite, 0)
		d.out.tensor(&t)
		d.queuedWith(at, src[:n])
		src = src[n:]
		return nil
	})
}

// Close waits for the node to free everything, unless it is gone.
func (d *Device) Close() error {
	if errors.Is(d.lost, errShut) {
		return nil
	}
	if d.broken() == nil {
		if err := d.ask(d.out.begin(frameClose, 0), nil); err != nil && d.ctx.Err() == nil {
			d.o.Log.Warn("a node did not answer to the end of its session", "node", d.o.Name, "error", err)
		}
	}
	d.link.fail(errShut)
	d.link.beating.Wait()
	d.lost = lostNode{errShut}
	return nil
}
