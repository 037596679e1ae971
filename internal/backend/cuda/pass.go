package cuda

import (
	"errors"
	"slices"
	"sync/atomic"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
	"github.com/foretoken/foretoken/internal/backend/gpu"
)

// passes is the passes that were recorded.
type passes struct {
	gpu.Passes[*recording]
	recording *recording   // of the pass that is queued; nil: none is
	prepared  atomic.Int64 // passes that were recorded, or made a graph of
	warned    bool         // that there is a pass without a graph
	ahead     bool         // they are prepared for and not computed
}

// recording is the operations of a pass.
type recording struct {
	gpu.Record
	ops     []operation
	graph   driver.Graph // made when the shape comes a second time
	single  bool         // it has no graph: its operations are queued one by one
	retired []driver.Ptr
	last    [2]codable // the last operation, and the one before it, if they are such
}

// Operations implements gpu.Recording.
func (r *recording) Operations() int { return len(r.ops) }

// Close implements gpu.Recording.
func (r *recording) Close() error {
	if r.graph == nil {
		return nil
	}
	return r.graph.Close()
}

// operation is a queued operation: a launch, or a copy or memset if it has no function.
type operation struct {
	launch   driver.Launch
	to, from driver.Ptr // a copy has from
	bytes    int64
	value    byte
	what     string // it does, for people
	of       any    // its meaning for later operations: see fuse.go
}

// maxOperations is how many operations all recordings that are kept have together: sixty and more
// passes of a large model, or thousands of the short ones between two layers whose experts are
// computed elsewhere.
const maxOperations = 50_000

// queue queues an operation on the stream or, within a pass, behind earlier ones.
func (b *Backend) queue(op operation) {
	if b.err != nil {
		return
	}
	r := b.passes.recording
	if r == nil {
		b.fail(b.submit(op))
		return
	}
	op.launch.Params = append([]byte(nil), op.launch.Params...)
	if n := len(r.ops); n > 0 && b.info.Compute[0] >= 9 {
		op.launch.Dependent = op.launch.Function != nil && r.ops[n-1].launch.Function != nil
	}
	r.ops = append(r.ops, op)
}

func (b *Backend) submit(op operation) error {
	switch {
	case op.launch.Function != nil:
		return b.stream.Launch(op.launch)
	case op.from != 0:
		return b.stream.Copy(op.to, op.from, op.bytes)
	}
	return b.stream.Set(op.to, op.value, op.bytes)
}

// codable is an operation that can write its rows as integers too, which saves reading them again.
type codable struct {
	end   int // how many operations there were with it; it is the last one if there are no more
	t     backend.Tensor
	at    driver.Ptr
	unit  int               // columns that it has together, which groups must divide; 0: any groups will do
	again func(q quantized) // queues it with codes
}

// codable notes that the last operation, whose result is t at an address, can write codes.
func (p *passes) codable(t backend.Tensor, at driver.Ptr, unit int, again func(q quantized)) {
	if r := p.recording; r != nil {
		r.last = [2]codable{{len(r.ops), t, at, unit, again}, r.last[0]}
	}
}

// coded makes the previous operation, or the one before it if both can, write its rows as integers, if they are those rows. It
// reports whether one does.
func (b *Backend) coded(q quantized, x driver.Ptr, stride, rows, cols int) bool {
	r := b.passes.recording
	if r == nil || b.err != nil || len(r.ops) == 0 {
		return false
	}
	for i, l := range r.last {
		if l.end != len(r.ops)-i {
			return false
		}
		if l.again == nil || l.at != x || l.t.Stride != stride || l.t.Rows != rows || l.t.Cols != cols || q.group > maxCoded && (!q.super || l.unit > 0) ||
			l.unit > 0 && (l.unit%q.group != 0 || q.group%32 != 0) {
			continue
		}
		r.last[i].again = nil
		at := l.end - 1
		after := slices.Clone(r.ops[l.end:])
		r.ops = r.ops[:at]
		l.again(q)
		r.ops = append(r.ops, after...)
		return true
	}
	return false
}

// maxCoded is the largest group of columns that a warp rounds.
const maxCoded = 128

// Pass queues the operations of a call of a network, or replays those of one of its shape.
func (b *Backend) Pass(p backend.Pass, queue func()) {
	if b.passes.recording != nil {
		panic("cuda: a pass within a pass")
	}
	key := gpu.ShapeOf(&p)
	key.Long = long(p.Batch)
	if b.err != nil {
		return
	}
	if err := b.uploadCall(&p); err != nil {
		b.fail(err)
		return
	}
	if r := b.passes.Known[key]; r != nil {
		b.replay(r)
		return
	}
	b.passes.Last = nil
	b.passes.prepared.Add(1)
	r := &recording{}
	r.Lists = p
	b.passes.recording = r
	defer func() { b.passes.recording = nil }()
	queue()
	b.passes.recording = nil
	r.Lists = backend.Pass{}
	for i := range r.ops {
		r.ops[i].of = nil
	}
	if b.err == nil && !b.passes.ahead {
		b.fail(b.submitAll(r))
	}
	for _, at := range r.retired {
		b.fail(b.memory.Free(at))
	}
	if b.err != nil || r.Useless || b.opts.Plain {
		return
	}
	b.fail(b.passes.Keep(key, r))
	if b.passes.ahead {
		b.fail(b.capture(r))
	}
}

// Rehearse implements backend.Rehearser.
func (b *Backend) Rehearse(f func() error) error {
	if b.opts.Plain {
		return nil
	}
	b.passes.ahead = true
	defer func() { b.passes.ahead = false }()
	return errors.Join(f(), b.wait())
}

// Prepared implements backend.Preparer.
func (b *Backend) Prepared() int64 { return b.passes.prepared.Load() }

// replay queues the operations of a recording: as a graph, which is made the first time.
func (b *Backend) replay(r *recording) {
	if r.graph == nil && !r.single {
		b.passes.prepared.Add(1)
		b.fail(b.capture(r))
	}
	if b.err != nil || b.passes.ahead {
		return
	}
	b.passes.Replayed++
	b.passes.Use(r)
	if r.graph != nil {
		b.fail(r.graph.Launch())
		return
	}
	b.fail(b.submitAll(r))
}

// submitAll queues the operations of a recording.
func (b *Backend) submitAll(r *recording) error {
	for _, op := range r.ops {
		if err := b.submit(op); err != nil {
			return err
		}
	}
	return nil
}

// capture makes the graph of a recording. If a driver cannot, for lack of memory or another recoverable reason,
// it is tried once: without a graph the pass is only slower.
func (b *Backend) capture(r *recording) error {
	graph, err := b.stream.Capture(func() error { return b.submitAll(r) })
	if err == nil {
		r.graph = graph
		return nil
	}
	if backend.Lost(err) {
		return err
	}
	r.single = true
	if !b.passes.warned {
		b.passes.warned = true
		b.opts.Log.Warn("cuda: the driver cannot build a graph of a pass: kernels are launched one by one, which is slower but gives the same bits", "error", err, "kernels", len(r.ops))
	}
	return nil
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
