package state

import (
	"errors"
	"fmt"

	"github.com/foretoken/foretoken/backend"
	"github.com/foretoken/foretoken/dtype"
)

// ErrFull is returned when the pool's budget does not allow more memory. Closing a state
// or a snapshot makes room.
var ErrFull = errors.New("state: memory budget is used up")

// Pool is the memory of all sequences on one backend, within a budget. Memory given back
// is kept for the next sequence of the same layout. One goroutine uses a pool at a time.
type Pool struct {
	b      backend.Backend
	budget int64
	used   int64 // bytes handed out
	spare  int64 // bytes given back and kept
	pages  map[pageShape][]backend.Tensor
	deltas map[Layout][][]backend.Recurrent
}

// pageShape is what pages of different layouts may have in common.
type pageShape struct {
	t          dtype.Type
	rows, cols int
}

// NewPool returns a pool that hands out at most budget bytes.
func NewPool(b backend.Backend, budget int64) *Pool {
	return &Pool{
		b: b, budget: budget,
		pages:  map[pageShape][]backend.Tensor{},
		deltas: map[Layout][][]backend.Recurrent{},
	}
}

// Used is the number of bytes that open states and snapshots hold.
func (p *Pool) Used() int64 { return p.used }

// Budget is the most bytes the pool hands out.
func (p *Pool) Budget() int64 { return p.budget }

// Open returns an empty memory of that layout.
func (p *Pool) Open(l Layout) (*State, error) {
	s := &State{pool: p, layout: l}
	if l.DeltaLayers == 0 {
		return s, nil
	}
	d, err := p.recurrent(&l)
	if err != nil {
		return nil, err
	}
	for i := range d {
		clearTensor(p.b, d[i].State)
		clearTensor(p.b, d[i].Tail)
	}
	s.delta = d
	return s, nil
}

// take books n bytes, freeing spare memory of other shapes if that is what is missing.
func (p *Pool) take(n int64, reuse bool) error {
	if p.used+n > p.budget {
		return fmt.Errorf("%w: %d of %d bytes are in use and %d more are needed", ErrFull, p.used, p.budget, n)
	}
	if reuse {
		p.spare -= n
	} else if p.used+p.spare+n > p.budget {
		p.drop()
	}
	p.used += n
	return nil
}

// drop frees everything that was given back.
func (p *Pool) drop() {
	for _, list := range p.pages {
		for _, t := range list {
			p.b.Free(t)
		}
	}
	for _, list := range p.deltas {
		for _, d := range list {
			p.free(d)
		}
	}
	clear(p.pages)
	clear(p.deltas)
	p.spare = 0
}

// page returns a page with undefined contents.
func (p *Pool) page(l *Layout) (backend.Tensor, error) {
	shape := pageShape{l.KVType, l.pageRows(), l.HeadDim}
	list := p.pages[shape]
	if err := p.take(l.PageBytes(), len(list) > 0); err != nil {
		return backend.Tensor{}, err
	}
	if n := len(list); n > 0 {
		p.pages[shape] = list[:n-1]
		return list[n-1], nil
	}
	t, err := p.b.Alloc(shape.t, shape.rows, shape.cols)
	if err != nil {
		p.used -= l.PageBytes()
	}
	return t, err
}

func (p *Pool) putPage(l *Layout, t backend.Tensor) {
	shape := pageShape{l.KVType, l.pageRows(), l.HeadDim}
	p.pages[shape] = append(p.pages[shape], t)
	p.used -= l.PageBytes()
	p.spare += l.PageBytes()
}

// recurrent returns the recurrent memory of a sequence with undefined contents.
func (p *Pool) recurrent(l *Layout) ([]backend.Recurrent, error) {
	list := p.deltas[*l]
	if err := p.take(l.RecurrentBytes(), len(list) > 0); err != nil {
		return nil, err
	}
	if n := len(list); n > 0 {
		p.deltas[*l] = list[:n-1]
		return list[n-1], nil
	}
	d := make([]backend.Recurrent, l.DeltaLayers)
	for i := range d {
		for j, t := range tensors(&d[i]) {
			shape := l.recurrentShapes()[j]
			var err error
			if *t, err = p.b.Alloc(dtype.F32, shape[0], shape[1]); err != nil {
				p.free(d)
				p.used -= l.RecurrentBytes()
				return nil, err
			}
		}
	}
	return d, nil
}

func (p *Pool) putRecurrent(l *Layout, d []backend.Recurrent) {
	p.deltas[*l] = append(p.deltas[*l], d)
	p.used -= l.RecurrentBytes()
	p.spare += l.RecurrentBytes()
}

func (p *Pool) free(d []backend.Recurrent) {
	for i := range d {
		for _, t := range tensors(&d[i]) {
			if t.Mem != nil {
				p.b.Free(*t)
			}
		}
	}
}

// tensors are the fields of r in order.
func tensors(r *backend.Recurrent) [5]*backend.Tensor {
	return [5]*backend.Tensor{&r.State, &r.Tail, &r.Keys, &r.Deltas, &r.Decays}
}

func clearTensor(b backend.Backend, t backend.Tensor) {
	// Write fails only for a wrong length.
	_ = b.Write(t, make([]float32, t.Rows*t.Cols))
}
