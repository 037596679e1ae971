package split

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
)

// The state of sequences is divided between the devices, see AllocParts. Operations get that of
// all layers and their place; each device gets its own part, without gaps. Memory that
// is not divided is on the device of the operation.

// pagesAt is the device of a layer's part of the pages, and its place there.
func (d *Device) pagesAt(at backend.Place, batch []backend.Seq) (int, backend.Place) {
	for i := range batch {
		_, pages := batch[i].Table(&at)
		if len(pages) == 0 {
			continue
		}
		page := pages[0]
		m := d.memory(page)
		if m.cut == nil {
			return m.settle(), at
		}
		p := m.cut.find(page.Offset + at.Page)
		at.Page += p.at - p.from
		return p.on, at
	}
	return anywhere, at
}

// settle is the device of memory that is not divided: the first, if none has used it.
func (m *memory) settle() int { return max(m.home, 0) }

// deltaAt is the device of a layer's recurrent memory, and its place there.
func (d *Device) deltaAt(at backend.Place, batch []backend.Seq) (int, backend.Place) {
	if len(batch) == 0 {
		return anywhere, at
	}
	list := batch[0].Delta
	s, divided := d.recurrentAt(&list[at.Delta])
	if !divided {
		return s, at
	}
	n := 0
	for i := range at.Delta {
		if other, _ := d.recurrentAt(&list[i]); other == s {
			n++
		}
	}
	at.Delta = n
	return s, at
}

// recurrentAt is the device of a layer's recurrent memory.
func (d *Device) recurrentAt(x *backend.Recurrent) (s int, divided bool) {
	m := d.memory(x.State)
	if m.cut == nil {
		return m.settle(), false
	}
	return m.cut.find(x.State.Offset).on, true
}

// undivided reports whether any memory of sequences is.
func (d *Device) undivided(batch []backend.Seq) bool {
	for i := range batch {
		for t := range batch[i].AllPages {
			if d.memory(t).cut == nil {
				return true
			}
		}
		for j := range batch[i].Delta {
			if d.memory(batch[i].Delta[j].State).cut == nil {
				return true
			}
		}
	}
	return false
}

// claim brings memory of sequences that is not divided to a device, where it is about to be written.
func (d *Device) claim(s int, batch []backend.Seq) error {
	take := func(t backend.Tensor) error {
		if t.Mem == nil || d.memory(t).cut != nil {
			return nil
		}
		if err := d.bring(s, t); err != nil {
			return err
		}
		d.wrote(s, t)
		return nil
	}
	for i := range batch {
		for t := range batch[i].AllPages {
			if err := take(t); err != nil {
				return err
			}
		}
		for j := range batch[i].Delta {
			for _, t := range batch[i].Delta[j].Tensors() {
				if err := take(*t); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// sequences is memory for a batch as one of the devices is shown it.
type sequences struct {
	seqs      []backend.Seq
	positions [][3]int32
	pages     []backend.Tensor
	windows   []backend.Window
	delta     []backend.Recurrent
}

// on is the batch with the state that is on a device, valid until the next call. The caller may change its own lists.
func (x *sequences) on(d *Device, s int, batch []backend.Seq) []backend.Seq {
	x.seqs, x.positions, x.pages, x.windows, x.delta = x.seqs[:0], x.positions[:0], x.pages[:0], x.windows[:0], x.delta[:0]
	for _, q := range batch {
		windows, delta := len(x.windows), len(x.delta)
		if q.Positions != nil {
			from := len(x.positions)
			x.positions = append(x.positions, q.Positions...)
			q.Positions = x.positions[from:]
		}
		q.Pages = x.pagesOn(d, s, q.Pages)
		for _, w := range q.Windows {
			x.windows = append(x.windows, backend.Window{First: w.First, Pages: x.pagesOn(d, s, w.Pages)})
		}
		for i := range q.Delta {
			if r, ok := d.recurrentOn(s, &q.Delta[i]); ok {
				x.delta = append(x.delta, r)
			}
		}
		q.Windows, q.Delta = x.windows[windows:len(x.windows):len(x.windows)], x.delta[delta:len(x.delta):len(x.delta)]
		x.seqs = append(x.seqs, q)
	}
	return x.seqs
}

// pagesOn is the pages of a table that are on a device.
func (x *sequences) pagesOn(d *Device, s int, list []backend.Tensor) []backend.Tensor {
	from := len(x.pages)
	for _, t := range list {
		m := d.memory(t)
		switch {
		case m.copies[s].Mem == nil: // it is all on other devices
		case m.cut == nil:
			x.pages = append(x.pages, d.on(s, t))
		default:
			x.pages = append(x.pages, m.copies[s])
		}
	}
	return x.pages[from:len(x.pages):len(x.pages)]
}

// recurrentOn is a layer's recurrent memory on a device; ok is false if it is on another.
func (d *Device) recurrentOn(s int, r *backend.Recurrent) (own backend.Recurrent, ok bool) {
	own = *r
	m := d.memory(r.State)
	if m.cut == nil {
		for _, t := range own.Tensors() {
			*t = d.on(s, *t)
		}
		return own, true
	}
	p := m.cut.find(r.State.Offset)
	if p.on != s {
		return own, false
	}
	for _, t := range own.Tensors() {
		*t = m.shift(p, *t)
	}
	return own, true
}

// shift is the tensor of its device for t, which is in a piece of m.
func (m *memory) shift(p piece, t backend.Tensor) backend.Tensor {
	c := m.copies[p.on]
	t.Offset += c.Offset + p.at - p.from
	t.Mem = c.Mem
	return t
}

// copyState copies memory that is divided: a tensor within one layer's part, or whole rows that are
// divided in the same way.
func (d *Device) copyState(dst, src backend.Tensor) {
	defer d.yield()
	to, from := d.mine(dst), d.mine(src)
	if from.cut == nil {
		panic("split: copy from undivided to divided memory")
	}
	if dst.Rows == 0 || dst.Cols == 0 {
		return
	}
	p, q := to.cut.find(dst.Offset), from.cut.find(src.Offset)
	if dst.Offset+(dst.Rows-1)*dst.Stride+dst.Cols <= p.to {
		if p.on != q.on {
			panic("split: copy between the states of different layers")
		}
		d.queue(p.on).Copy(to.shift(p, dst), from.shift(q, src))
		return
	}
	if to.cols != from.cols || dst.Rows != 1 || src.Rows != 1 || dst.Offset != src.Offset {
		panic(fmt.Sprintf("split: copy of %d numbers of state into %d", from.cols, to.cols))
	}
	for _, p := range to.cut.pieces {
		a, b := max(p.from, dst.Offset), min(p.to, dst.Offset+dst.Cols)
		if a < b {
			x, y := dst.ColRange(a-dst.Offset, b-dst.Offset), src.ColRange(a-dst.Offset, b-dst.Offset)
			d.queue(p.on).Copy(to.shift(p, x), from.shift(p, y))
		}
	}
}
