package gpu

import (
	"errors"

	"github.com/foretoken/foretoken/internal/backend"
)

// Shape is equal for passes that share a recording.
type Shape struct {
	Of          any
	Rows, Wants int
	IDs         bool
	Long        bool // the device's own distinction
	Only        int  // Blocks of the list's length; 0: there is none
}

// ShapeOf is the shape of a pass.
func ShapeOf(p *backend.Pass) Shape {
	s := Shape{Of: p.Of, Rows: p.Rows(), Wants: len(p.Want), IDs: p.IDs != nil}
	if p.Only != nil {
		s.Only = Blocks(len(p.Only))
	}
	return s
}

// Blocks is how many blocks a grid has for a list of n. Passes whose lists have the same number of blocks share a recording.
func Blocks(n int) int {
	size := 1
	for size < n {
		size *= 2
	}
	return size
}

// A Recording is the operations of a pass. A device's type embeds Record.
type Recording interface {
	comparable
	// Base is its Record.
	Base() *Record
	// Operations is how many it has.
	Operations() int
	// Close frees what the driver has of it.
	Close() error
}

// Record is the part of a recording that Passes need.
type Record struct {
	Lists   backend.Pass     // while it is recorded
	Useless bool             // something it uses was freed while it was recorded
	uses    map[any]struct{} // memory and weights
	used    int64            // the clock when it was used last
}

// Base implements Recording.
func (r *Record) Base() *Record { return r }

// Note is called with the memory and weights that the operations use.
func (r *Record) Note(x any) {
	if r.uses == nil {
		r.uses = map[any]struct{}{}
	}
	r.uses[x] = struct{}{}
}

// Passes are the passes of a device that were recorded and are kept.
type Passes[R Recording] struct {
	Known            map[Shape]R
	Operations, Most int   // of those, and at most
	Last             R     // the last pass, if it is one that is kept
	Clock            int64 // of uses
	Replayed         int64 // passes
	Meter
}

// Use notes that a kept recording is used now.
func (p *Passes[R]) Use(r R) {
	p.Clock++
	p.Last, r.Base().used = r, p.Clock
}

// Keep adds a recording, in place of the one that was not used for longest.
func (p *Passes[R]) Keep(key Shape, r R) (err error) {
	if p.Known == nil {
		p.Known = map[Shape]R{}
	}
	for len(p.Known) > 0 && p.Operations+r.Operations() > p.Most {
		var oldest Shape
		found := false
		for k, x := range p.Known {
			if !found || x.Base().used < p.Known[oldest].Base().used {
				oldest, found = k, true
			}
		}
		err = errors.Join(err, p.drop(oldest))
	}
	p.Operations += r.Operations()
	p.Known[key] = r
	p.Use(r)
	return err
}

func (p *Passes[R]) drop(key Shape) error {
	r := p.Known[key]
	delete(p.Known, key)
	p.Operations -= r.Operations()
	if p.Last == r {
		p.Last = *new(R)
	}
	return r.Close()
}

// Forget drops recordings with freed memory or a freed weight.
func (p *Passes[R]) Forget(x any) {
	for key, r := range p.Known {
		if _, ok := r.Base().uses[x]; ok {
			_ = p.drop(key) // the rest of a recording is freed with the device
		}
	}
}

// Clear drops everything that was recorded.
func (p *Passes[R]) Clear() error {
	var err error
	for key := range p.Known {
		err = errors.Join(err, p.drop(key))
	}
	return err
}
