package vulkan

import (
	"errors"
	"math"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/gpu"
	"github.com/foretoken/foretoken/internal/backend/vulkan/driver"
)

// passes is the passes that were recorded.
type passes struct {
	gpu.Passes[*recording]
	recording *recording // of the pass that is queued; nil: none is
}

// recording is the command buffers of a pass, which are submitted again for another pass of its shape.
type recording struct {
	gpu.Record
	b       *Backend
	buffers []*buffer
	open    *buffer // the last of them, while it is recorded
	ops     []operation
	held    bool // the last operation is not recorded yet
	most    int  // of a command buffer
	kept    []driver.Ptr
	retired []driver.Ptr // memory that the operations use and later ones do not
	turns   []rotation
}

// maxOperations is how many operations all recordings that are kept have together.
const maxOperations = 50_000

// Operations implements gpu.Recording.
func (r *recording) Operations() int { return len(r.ops) }

// Close implements gpu.Recording. The command buffers are used again when their last submission has ended.
func (r *recording) Close() (err error) {
	q := &r.b.queue
	q.idle = append(q.idle, r.buffers...)
	r.buffers = nil
	for _, at := range r.kept {
		err = errors.Join(err, r.b.memory.Free(at))
	}
	r.kept = nil
	return err
}

// operation is a kernel or a copy.
type operation struct {
	name   string        // of the kernel
	kernel driver.Kernel // nil: a copy
	groups [3]int
	args   []byte

	to, from driver.Ptr
	bytes    int64
	beside   bool   // it does not wait for the one before
	shape    [2]int // of a product: its outputs and columns

	made  rows // of a kernel that can quantize what it writes; otherwise nothing
	codes func(group int) string
}

// record adds an operation to a command buffer.
func (o *operation) record(c driver.Commands) {
	if o.kernel == nil {
		c.Copy(o.to, o.from, o.bytes)
		return
	}
	c.Launch(o.kernel, o.groups, o.args)
}

// spoils has every kernel find shared memory that is not a number, until end is called.
func (b *Backend) spoils() (end func()) {
	groups := 2048 // fill the shared memory of a large GPU
	if b.info.Kind == driver.Processor {
		groups = 16
	}
	k, err := b.kernel("spoil")
	b.fail(err)
	b.spoil = operation{kernel: k, groups: [3]int{groups, 1, 1}, args: packed(nil, driver.Ptr(0), math.MaxInt32, 0)}
	return func() { b.spoil.kernel = nil }
}

// record adds an operation to a command buffer.
func (b *Backend) record(c driver.Commands, o *operation) {
	if b.spoil.kernel != nil {
		b.spoil.record(c)
		c.Fence()
	}
	o.record(c)
}

// queueUp queues an operation: in the pass that is recorded, or by itself.
func (b *Backend) queueUp(o operation) {
	if b.err != nil {
		return
	}
	o.beside, o.made, o.codes, o.shape = b.together && b.begun, b.made, b.codes, b.shape
	b.begun = true
	r := b.passes.recording
	if r == nil {
		c, err := b.queue.commands(o.beside)
		if err != nil {
			b.fail(err)
			return
		}
		b.record(c, &o)
		return
	}
	b.recordHeld()
	o.args = slices.Clone(o.args)
	if r.ops = append(r.ops, o); o.made.rows > 0 {
		r.held = true
		return
	}
	b.recordLast()
}

// recordHeld records the operation that waits to be told whether its result is needed in codes.
func (b *Backend) recordHeld() {
	if r := b.passes.recording; r.held {
		r.held = false
		b.recordLast()
	}
}

// recordLast brings the last operation of the pass into a command buffer.
func (b *Backend) recordLast() {
	r := b.passes.recording
	if r.open != nil && r.open.count >= r.most {
		if err := r.submit(); err != nil {
			b.fail(err)
			return
		}
	}
	if r.open == nil {
		f, err := b.queue.begin()
		if err != nil {
			b.fail(err)
			return
		}
		r.open, r.buffers = f, append(r.buffers, f)
	}
	r.open.count++
	o := &r.ops[len(r.ops)-1]
	if !o.beside {
		r.open.c.Fence()
	}
	b.record(r.open.c, o)
}

// launchMaking launches a kernel that has a variant, which codes names, that also quantizes the rows that it writes, by groups of columns.
// A pass holds it back until the next operation: see takeCodes. codes may name none for a group.
func (b *Backend) launchMaking(made backend.Tensor, codes func(group int) string, name string, groups [3]int, args ...any) {
	b.made, b.codes = rows{at: b.at(made), rows: made.Rows, cols: made.Cols, stride: made.Stride}, codes
	b.launch(name, groups, args...)
	b.made, b.codes = rows{}, nil
}

// takeCodes has the operation before quantize the rows that it writes, if they are in, and reports whether it does.
func (b *Backend) takeCodes(in *rows, group int) bool {
	r := b.passes.recording
	if r == nil || !r.held || b.err != nil {
		return false
	}
	o := &r.ops[len(r.ops)-1]
	if o.made != (rows{at: in.at, rows: in.rows, cols: in.cols, stride: in.stride, turn: in.turn}) {
		return false
	}
	name := o.codes(group)
	if name == "" {
		return false
	}
	k, err := b.kernel(name)
	if err != nil {
		b.fail(err)
		return true
	}
	if name == "glu_codes" { // a workgroup has a group of columns
		o.groups[0] = (in.cols + group - 1) / group
	}
	o.name, o.kernel, o.args = name, k, packed(o.args, in.codes, in.tails, in.coded, group, in.tailRows)
	b.recordHeld()
	return true
}

// beside queues operations of a pass, that do not wait for one another if none uses what another one writes.
func (b *Backend) beside(apart bool, queue func()) {
	b.together, b.begun = apart && b.passes.recording != nil, false
	queue()
	b.together = false
}

// submit ends the open command buffer and submits it, behind the uploads that it needs.
func (r *recording) submit() error {
	f, q := r.open, &r.b.queue
	if f == nil {
		return nil
	}
	r.open = nil
	if err := errors.Join(q.flush(), f.c.End()); err != nil {
		return err
	}
	return q.submit(f)
}

// keep is memory of the running operation with the contents of data, which stays as long as the pass is kept.
func (b *Backend) keep(data []byte) driver.Ptr {
	r := b.passes.recording
	if r == nil {
		at := b.scratch(len(data))
		if b.err == nil {
			b.fail(b.send(at, data))
		}
		return at
	}
	at, err := b.memory.Alloc(int64(len(data)))
	if err != nil {
		b.fail(err)
		return 0
	}
	r.kept = append(r.kept, at)
	b.fail(b.send(at, data))
	return at
}

// Few rows are computed fast, so that command buffers of their passes are long. Those of many rows end so that a driver does not
// take a prompt for a program that hangs.
const (
	mostRows       = 2048 // operations times rows
	mostOperations = 64   // whatever the rows
)

// shape is what passes of few rows share besides gpu.Shape.
type shape struct {
	of    any
	pages int
}

// Pass queues the operations of a call of a network, or submits those of one of its shape again.
func (b *Backend) Pass(p backend.Pass, queue func()) {
	if b.passes.recording != nil {
		panic("vulkan: a pass within a pass")
	}
	if b.err != nil {
		return
	}
	if err := b.uploadCall(&p); err != nil {
		b.fail(err)
		return
	}
	key := gpu.ShapeOf(&p)
	if p.Rows() <= strip {
		key.Of = shape{key.Of, pagesOf(p.Batch)}
	}
	if r := b.passes.Known[key]; r != nil {
		b.fail(b.replay(r, p.Batch))
		return
	}
	r := &recording{b: b, most: max(mostOperations, mostRows/max(1, p.Rows()))}
	r.Lists = p
	b.passes.recording = r
	defer func() { b.passes.recording = nil }()
	queue()
	b.recordHeld()
	b.fail(r.submit())
	b.passes.recording = nil
	r.Lists = backend.Pass{}
	for _, at := range r.retired {
		b.fail(b.memory.Free(at))
	}
	if b.err != nil || r.Useless {
		b.fail(r.Close())
		return
	}
	b.fail(b.passes.Keep(key, r))
}

// replay submits the operations of a recording, with the lists that have been uploaded and the rotations of other positions.
func (b *Backend) replay(r *recording, batch []backend.Seq) error {
	b.passes.Replayed++
	b.passes.Use(r)
	for i := range r.turns {
		t := &r.turns[i]
		if err := b.send(t.at, t.table(batch)); err != nil {
			return err
		}
	}
	err := b.queue.flush()
	for _, f := range r.buffers {
		err = errors.Join(err, b.queue.submit(f))
	}
	return err
}

// note is called with the memory and weights that operations use.
func (p *passes) note(x any) {
	if p.recording != nil {
		p.recording.Note(x)
	}
}

// clearPasses gives up everything that was recorded, and what is being recorded will not be kept.
func (b *Backend) clearPasses() {
	if r := b.passes.recording; r != nil {
		r.Useless = true
	}
	b.fail(b.passes.Clear())
}

// retire frees memory that operations of the running pass may still use, and drops recorded passes if these use it.
func (b *Backend) retire(at driver.Ptr) {
	if r := b.passes.recording; r != nil {
		b.clearPasses()
		r.retired = append(r.retired, at)
		return
	}
	b.fail(b.memory.Free(at))
}
