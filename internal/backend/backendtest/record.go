package backendtest

import (
	"sync/atomic"
	"unsafe"

	"github.com/foretoken/foretoken/internal/backend"
)

// recording is the operations of a pass. They are computed again for other passes of its shape,
// with the lists of those: a network that lets anything else differ does not get its own bits.
type recording struct {
	ops     []func(p *backend.Pass)
	uses    map[any]bool // memory and weights
	useless bool         // an operation has failed
}

// maxRecordings is how many are kept: all are given up with the next.
const maxRecordings = 64

var replays atomic.Int64

// Replays is how many passes of opaque devices were replayed in this process.
func Replays() int64 { return replays.Load() }

// Pass implements backend.Backend.
func (o *Opaque) Pass(p backend.Pass, queue func()) {
	if o.recording != nil {
		panic("backendtest: a pass within a pass")
	}
	key := p.Shape()
	if r := o.recordings[key]; r != nil {
		for _, op := range r.ops {
			if o.begin() {
				op(&p)
			}
		}
		replays.Add(1)
		o.replayed.Add(1)
		return
	}
	r := &recording{uses: map[any]bool{}}
	o.recording, o.lists = r, p
	defer func() { o.recording, o.lists = nil, backend.Pass{} }()
	queue()
	if r.useless {
		return
	}
	if len(o.recordings) >= maxRecordings {
		clear(o.recordings)
	}
	o.recordings[key] = r
	o.recorded.Add(1)
	o.kept.Store(int64(len(o.recordings)))
}

// op computes an operation and, within a pass, records it.
func (o *Opaque) op(do func(p *backend.Pass)) {
	if !o.begin() {
		if o.recording != nil {
			o.recording.useless = true
		}
		return
	}
	if o.recording != nil {
		o.recording.ops = append(o.recording.ops, do)
	}
	do(&o.lists)
}

// listed checks that a list is the pass's, if there is a pass, and returns where to find it: in
// the pass that is computed, or in list itself.
func listed[T any](o *Opaque, list []T, of func(p *backend.Pass) []T) func(p *backend.Pass) []T {
	if o.recording == nil {
		return func(*backend.Pass) []T { return list }
	}
	if own := of(&o.lists); len(list) != len(own) || unsafe.SliceData(list) != unsafe.SliceData(own) {
		panic("backendtest: an operation with a list that is not the pass's")
	}
	return of
}

// batch is the sequences of a pass, for the other device. Their memory is not the recording's.
func (o *Opaque) batch(seqs []backend.Seq) []backend.Seq {
	r := o.recording
	o.recording = nil
	defer func() { o.recording = r }()
	return revealed(o, seqs)
}

// noted is called with the memory and weights that operations use.
func (o *Opaque) noted(x any) {
	if o.recording != nil {
		o.recording.uses[x] = true
	}
}

// forget gives up what was recorded with memory or a weight that is given back.
func (o *Opaque) forget(x any) {
	for key, r := range o.recordings {
		if r.uses[x] {
			delete(o.recordings, key)
		}
	}
	o.kept.Store(int64(len(o.recordings)))
}
