package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
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

	silence time.Duration // for tests; 0: the constant
}

// Device is the device of a node. See backend.Backend for the contract of its methods.
type Device struct {
	ctx  context.Context
	o    Options
	link *link
	lost error // the device is lost

	out    coder // frames that are not sent
	in     coder // the frame that is read
	op     operation
	number uint64
	budget int64
	used   atomic.Int64

	memory  map[uint64]*memory
	weights map[uint64]*weight
	order   []*weight // as they were loaded
	passes  passes
	sizes   map[matrixHead]int64

	prepared atomic.Int64 // by the node
	host     []float32    // of Host
	best     []backend.Best
}

// drawing is a Device of a node whose device draws.
type drawing struct{ *Device }

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
	own    *Device
	number uint64
	bytes  int64
	t      backend.Tensor // all of it
	// wrote is what the host has written, as long as nothing else has: it is written again on a node that has lost it.
	wrote []float32
	dirty bool // an operation writes to it
	named bool // in the table of a sequence
	freed bool
}

func (m *memory) Bytes() int64 { return m.bytes }

// weight is a weight of the node.
type weight struct {
	own               *Device
	number            uint64
	compute           backend.Compute
	heads             []matrixHead
	digests           []Digest
	rows, cols, count int
	bytes             int64
}

func (w *weight) Rows() int    { return w.rows }
func (w *weight) Cols() int    { return w.cols }
func (w *weight) Count() int   { return w.count }
func (w *weight) Bytes() int64 { return w.bytes }

// gone is the error for a node whose connection has ended.
type gone struct {
	name  string
	cause error
}

func (g *gone) Error() string { return fmt.Sprintf("node %s is gone: %v", g.name, g.cause) }
func (g *gone) Unwrap() error { return g.cause }

// lostNode is the error for a node that did not come back.
type lostNode struct{ error }

func (e lostNode) Unwrap() error { return e.error }

// DeviceLost is what backend.Lost asks for.
func (lostNode) DeviceLost() bool { return true }

// Open returns the device of a node. When ctx is done the device is lost: it waits for nothing any more.
func Open(ctx context.Context, o Options) (backend.Backend, error) {
	o.silence, o.Log = cmp.Or(o.silence, silence), cmp.Or(o.Log, slog.Default())
	d := &Device{ctx: ctx, o: o, memory: map[uint64]*memory{}, weights: map[uint64]*weight{}, sizes: map[matrixHead]int64{}}
	d.out.dev = d
	d.passes.clear()
	if err := d.connect(o.OpenWait, func() error { return nil }); err != nil {
		return nil, err
	}
	if d.link.hello.draws {
		return drawing{d}, nil
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
		return &gone{d.o.Name, cause}
	}
	return nil
}

// Name implements backend.Backend, as all that follows.
func (d *Device) Name() string {
	return fmt.Sprintf("%s on node %s", printable(d.link.hello.name), d.o.Name)
}

// FreeMemory is what is left of the node's budget: no question to the node.
func (d *Device) FreeMemory() int64 { return d.budget - d.used.Load() }

// Usage implements backend.Meter, with what the node has told last.
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
	if t != dtype.F32 && t != dtype.F16 && t != dtype.I8 {
		return backend.Tensor{}, fmt.Errorf("remote: tensors of type %v are not supported", t)
	}
	bytes := int64(rows) * int64(cols) * int64(t.Size())
	if free := d.FreeMemory(); max(bytes, handleBytes) > free || len(d.memory) >= maxHandles {
		return backend.Tensor{}, fmt.Errorf("node %s: %.1f MB are needed, %.1f of the %.1f MB that it gives are free", d.o.Name,
			float64(bytes)/1e6, float64(free)/1e6, float64(d.budget)/1e6)
	}
	m := &memory{own: d, number: d.next(), bytes: bytes}
	m.t = backend.Tensor{Type: t, Rows: rows, Cols: cols, Stride: cols, Mem: m}
	d.memory[m.number] = m
	d.used.Add(max(bytes, handleBytes))
	d.makeMemory(m)
	return m.t, nil
}

func (d *Device) makeMemory(m *memory) {
	at := d.out.begin(frameAlloc, m.number)
	d.out.kind(&m.t.Type)
	d.out.size(&m.t.Rows)
	d.out.size(&m.t.Cols)
	d.queued(at)
}

// Free waits for nothing.
func (d *Device) Free(t backend.Tensor) {
	m, ok := t.Mem.(*memory)
	if !ok || m.own != d || m.freed {
		return
	}
	d.passes.forget(d, m)
	m.freed, m.wrote = true, nil
	delete(d.memory, m.number)
	d.used.Add(-max(m.bytes, handleBytes))
	d.queued(d.out.begin(frameFree, m.number))
}

// queued completes a frame that is not answered. Frames are sent together.
func (d *Device) queued(at int) {
	d.out.finish(at, 0)
	if len(d.out.buf) > 64<<10 {
		d.flush()
	}
}

// flush sends what is queued. A failure is that of the next call that waits.
func (d *Device) flush() {
	if len(d.out.buf) > 0 && d.lost == nil && d.link.ended() == nil {
		d.send(d.out.buf)
	}
	d.out.buf = d.out.buf[:0]
}

func (d *Device) send(data []byte) {
	if _, err := d.link.work.Write(data); err != nil {
		d.link.fail(fmt.Errorf("the connection has ended: %w", err))
	}
}

// ask queues a question, whose fields begin at a frame, and waits for its answer, in parts that part reads. part is not
// called after an error.
func (d *Device) ask(at int, part func(c *coder)) error {
	d.out.finish(at, 0)
	d.flush()
	if err := d.broken(); err != nil {
		return err
	}
	err := d.answer(part)
	if err != nil {
		d.passes.forgetAll(d) // the node may lack some
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
			if part(c); c.err == nil && len(c.buf) == 0 {
				continue
			}
		}
		var prepared uint64
		switch c.u64(&prepared); {
		case c.err != nil:
		case kind == frameDone:
			d.prepared.Store(int64(prepared & math.MaxInt64))
			return nil
		case kind == frameFail:
			var ends bool
			var text string
			c.bool(&ends)
			if c.text(&text); c.err != nil {
				break
			}
			err := fmt.Errorf("node %s: %s", d.o.Name, printable(text))
			if !ends {
				return err
			}
			d.link.fail(err)
			return d.broken()
		}
		d.link.fail(errFrame)
		return d.broken()
	}
}

// tensor checks that memory is this device's, and there.
func (d *Device) tensor(t backend.Tensor) *memory {
	m, ok := t.Mem.(*memory)
	if !ok || m.own != d || m.freed {
		panic("remote: tensor of another device, or that was freed")
	}
	return m
}

// Write waits for nothing.
func (d *Device) Write(dst backend.Tensor, src []float32) error {
	m := d.tensor(dst)
	if dst.Type != dtype.F32 || len(src) != dst.Rows*dst.Cols {
		return fmt.Errorf("remote: write of %d numbers into %d×%d of %v", len(src), dst.Rows, dst.Cols, dst.Type)
	}
	m.remember(dst, src)
	return d.write(dst, bytesOf(src))
}

// remember keeps what the host has written.
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

// WriteBytes waits for nothing. What it writes is state, which is not kept here, but for rows of numbers that another device
// had: state is one row.
func (d *Device) WriteBytes(dst backend.Tensor, src []byte) error {
	m := d.tensor(dst)
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

// change notes that something else than Write changes memory.
func (m *memory) change() { m.dirty, m.wrote = true, nil }

// write sends bytes of memory.
func (d *Device) write(dst backend.Tensor, src []byte) error {
	if d.lost != nil {
		return d.lost
	}
	return pieces(dst, func(t backend.Tensor, n int) error {
		at := d.out.begin(frameWrite, 0)
		d.out.tensor(&t)
		if n <= 16<<10 {
			d.out.buf = append(d.out.buf, src[:n]...)
			d.queued(at)
		} else {
			d.out.finish(at, n)
			d.flush()
			if d.link.ended() == nil {
				d.send(src[:n])
			}
		}
		src = src[n:]
		return nil
	})
}

// Close waits for the node to free everything, unless it is gone.
func (d *Device) Close() error {
	if errors.Is(d.lost, errShut) {
		return nil
	}
	if d.lost == nil && d.link.ended() == nil {
		at := d.out.begin(frameClose, 0)
		if err := d.ask(at, nil); err != nil && d.ctx.Err() == nil {
			d.o.Log.Warn("a node did not answer to the end of its session", "node", d.o.Name, "error", err)
		}
	}
	d.link.fail(errShut)
	d.link.beating.Wait()
	d.lost = lostNode{errShut}
	return nil
}

// errShut is the error of a device after Close.
var errShut = errors.New("remote: the device is closed")
