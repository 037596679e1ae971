package cuda

import (
	"errors"
	"sync/atomic"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
)

// passes is the passes that were recorded.
type passes struct {
	known            map[shape]*recording
	operations, most int          // of those, and at most
	recording        *recording   // of the pass that is queued; nil: none is
	last             *recording   // the last pass, if it is one that is kept
	clock            int64        // of uses
	replayed         int64        // passes
	prepared         atomic.Int64 // passes that were recorded, or made a graph of
	warned           bool         // that there is a pass without a graph
	ahead            bool         // they are prepared for and not computed
}

// shape is equal for passes that share a recording.
type shape struct {
	of          any
	rows, wants int
	ids         bool
	long        bool // see long
	only        int  // onlyBlocks of the list's length; 0: there is none
}

// recording is the operations of a pass.
type recording struct {
	lists   backend.Pass // while it is recorded
	ops     []operation
	uses    map[any]struct{} // memory and weights
	graph   driver.Graph     // made when the shape comes a second time
	single  bool             // it has no graph: its operations are queued one by one
	used    int64
	useless bool // something it uses was freed while it was recorded
	retired []driver.Ptr
	last    codable // the last operation, if it is one
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

// onlyBlocks is how many blocks a grid is to have for a list of n: passes whose lists have the same
// share a recording, and kernels read the number of blocks from the call block.
func onlyBlocks(n int) int {
	size := 1
	for size < n {
		size *= 2
	}
	return size
}

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
		r.last = codable{len(r.ops), t, at, unit, again}
	}
}

// coded makes the previous operation write its rows as integers, if it can and they are
// those rows. It reports whether it does.
func (b *Backend) coded(q quantized, x driver.Ptr, stride, rows, cols int) bool {
	r := b.passes.recording
	if r == nil || b.err != nil || r.last.again == nil || r.last.end != len(r.ops) || len(r.ops) == 0 {
		return false
	}
	l := r.last
	if l.at != x || l.t.Stride != stride || l.t.Rows != rows || l.t.Cols != cols || q.group > maxCoded && (!q.super || l.unit > 0) || l.unit > 0 && (l.unit%q.group != 0 || q.group%32 != 0) {
		return false
	}
	r.ops, r.last = r.ops[:len(r.ops)-1], codable{}
	l.again(q)
	return true
}

// maxCoded is the largest group of columns that a warp rounds.
const maxCoded = 128

// Pass queues the operations of a call of a network, or replays those of one of its shape.
func (b *Backend) Pass(p backend.Pass, queue func()) {
	if b.passes.recording != nil {
		panic("cuda: a pass within a pass")
	}
	key := shape{of: p.Of, rows: p.Rows(), wants: len(p.Want), ids: p.IDs != nil, long: long(p.Batch)}
	if p.Only != nil {
		key.only = onlyBlocks(len(p.Only))
	}
	if b.err != nil {
		return
	}
	if err := b.uploadCall(&p); err != nil {
		b.fail(err)
		return
	}
	if r := b.passes.known[key]; r != nil {
		b.replay(r)
		return
	}
	b.passes.last = nil
	b.passes.prepared.Add(1)
	r := &recording{lists: p, uses: map[any]struct{}{}}
	b.passes.recording = r
	defer func() { b.passes.recording = nil }()
	queue()
	b.passes.recording = nil
	r.lists = backend.Pass{}
	for i := range r.ops {
		r.ops[i].of = nil
	}
	if b.err == nil && !b.passes.ahead {
		b.fail(b.submitAll(r))
	}
	for _, at := range r.retired {
		b.fail(b.memory.free(at))
	}
	if b.err != nil || r.useless || b.opts.Plain {
		return
	}
	if b.passes.keep(b, key, r); b.passes.ahead {
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
	b.passes.clock++
	b.passes.replayed++
	b.passes.last = r
	r.used = b.passes.clock
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

// keep adds a recording, in place of the one that was not used for longest.
func (p *passes) keep(b *Backend, key shape, r *recording) {
	if p.known == nil {
		p.known = map[shape]*recording{}
	}
	for len(p.known) > 0 && p.operations+len(r.ops) > p.most {
		var oldest shape
		found := false
		for k, x := range p.known {
			if !found || x.used < p.known[oldest].used {
				oldest, found = k, true
			}
		}
		b.fail(p.drop(oldest))
	}
	p.operations += len(r.ops)
	p.clock++
	r.used = p.clock
	p.known[key], p.last = r, r
}

func (p *passes) drop(key shape) error {
	r := p.known[key]
	delete(p.known, key)
	p.operations -= len(r.ops)
	if p.last == r {
		p.last = nil
	}
	if r.graph == nil {
		return nil
	}
	return r.graph.Close()
}

// note is called with the memory and weights that operations use.
func (p *passes) note(x any) {
	if p.recording != nil {
		p.recording.uses[x] = struct{}{}
	}
}

// forget drops recordings with freed memory or a freed weight.
func (p *passes) forget(x any) {
	for key, r := range p.known {
		if _, ok := r.uses[x]; ok {
			_ = p.drop(key) // the rest of a graph is freed with the device
		}
	}
}

// clear gives up everything that was recorded, and what is being recorded will not be kept.
func (p *passes) clear(b *Backend) {
	if p.recording != nil {
		p.recording.useless = true
	}
	for key := range p.known {
		b.fail(p.drop(key))
	}
}

func (p *passes) close() error {
	var err error
	for key := range p.known {
		err = errors.Join(err, p.drop(key))
	}
	return err
}
