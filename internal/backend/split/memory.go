package split

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// memory is a piece of memory with a copy on one side or both, or with parts on each.
type memory struct {
	owner      *Device
	home       side // its first side
	t          dtype.Type
	rows, cols int
	copies     [2]backend.Tensor // Mem is nil without a copy
	stale      [2]region         // of a copy: the part that is newer in the other
	cut        *cut              // nil: every copy has all of it
	freed      bool
}

// Bytes is that of all copies.
func (m *memory) Bytes() int64 {
	n := int64(0)
	for _, c := range m.copies {
		if c.Mem != nil {
			n += c.Mem.Bytes()
		}
	}
	return n
}

// cut is how a row is divided between the sides.
type cut struct {
	pieces []piece // in order
	cols   [2]int  // of each side
}

// piece is columns [from, to) of a row, which are those from at on of a side's row.
type piece struct {
	from, to, at int
	side         side
}

// cutOf divides a row of columns of parts.
func (d *Device) cutOf(parts []backend.Part, cols []int) *cut {
	c := &cut{}
	at := 0
	for i, p := range parts {
		if cols[i] == 0 {
			continue
		}
		s := d.side(p)
		if n := len(c.pieces); n > 0 && c.pieces[n-1].side == s {
			c.pieces[n-1].to += cols[i]
		} else {
			c.pieces = append(c.pieces, piece{at, at + cols[i], c.cols[s], s})
		}
		at += cols[i]
		c.cols[s] += cols[i]
	}
	return c
}

// find is the piece that a column is in.
func (c *cut) find(col int) piece {
	for _, p := range c.pieces {
		if col >= p.from && col < p.to {
			return p
		}
	}
	panic(fmt.Sprintf("split: column %d is beyond the end of the row", col))
}

// AllocParts implements backend.Parted.
func (d *Device) AllocParts(t dtype.Type, parts []backend.Part, cols []int) (backend.Tensor, error) {
	c := d.cutOf(parts, cols)
	n := c.cols[device] + c.cols[host]
	m := &memory{owner: d, t: t, rows: 1, cols: n, cut: c}
	for s, b := range d.dev {
		if c.cols[s] == 0 && n > 0 {
			continue
		}
		var err error
		if m.copies[s], err = b.Alloc(t, 1, c.cols[s]); err != nil {
			d.release(m)
			return backend.Tensor{}, err
		}
	}
	return backend.Tensor{Type: t, Rows: 1, Cols: n, Stride: n, Mem: m}, nil
}

// FreeParts implements backend.Parted.
func (d *Device) FreeParts(parts []backend.Part, cols []int) int64 {
	c := d.cutOf(parts, cols)
	all := c.cols[device] + c.cols[host]
	if all == 0 {
		return d.FreeMemory()
	}
	free := int64(-1)
	for s, b := range d.dev {
		if c.cols[s] == 0 {
			continue
		}
		if n := int64(float64(b.FreeMemory()) * float64(all) / float64(c.cols[s])); free < 0 || n < free {
			free = n
		}
	}
	return free
}

// Alloc allocates memory of the host, and of the device when it is first used there.
func (d *Device) Alloc(t dtype.Type, rows, cols int) (backend.Tensor, error) {
	return d.alloc(host, t, rows, cols)
}

func (d *Device) alloc(home side, t dtype.Type, rows, cols int) (backend.Tensor, error) {
	x, err := d.dev[home].Alloc(t, rows, cols)
	if err != nil {
		return x, err
	}
	m := &memory{owner: d, home: home, t: t, rows: rows, cols: cols}
	m.copies[home] = x
	m.stale[home.other()] = region(nil).plus(rect{0, rows, 0, cols})
	x.Mem, x.Offset = m, 0
	return x, nil
}

// reserve makes sure that there is a copy on a side.
func (m *memory) reserve(s side) error {
	if m.copies[s].Mem != nil || m.cut != nil {
		return nil
	}
	var err error
	m.copies[s], err = m.owner.dev[s].Alloc(m.t, m.rows, m.cols)
	return err
}

// Free implements backend.Backend.
func (d *Device) Free(t backend.Tensor) {
	if m, ok := t.Mem.(*memory); ok && m.owner == d && !m.freed {
		m.freed = true
		d.forget(m)
		d.release(m)
	}
}

func (d *Device) release(m *memory) {
	for s, c := range m.copies {
		if c.Mem != nil {
			d.dev[s].Free(c)
		}
	}
}

// memory is that of a tensor.
func (d *Device) memory(t backend.Tensor) *memory {
	m, ok := t.Mem.(*memory)
	if !ok || m.owner != d || m.freed {
		panic("split: tensor of another device, or freed tensor")
	}
	return m
}

// rect is a view's part of its memory, and whether that is all between its first
// number and its last.
func (m *memory) rect(t backend.Tensor) (a rect, exact bool) {
	switch {
	case t.Rows == 0 || t.Cols == 0 || m.cols == 0:
		return rect{}, true
	case t.Stride == m.cols || t.Rows == 1 && t.Offset%m.cols+t.Cols <= m.cols:
		r, c := t.Offset/m.cols, t.Offset%m.cols
		return rect{r, r + t.Rows, c, c + t.Cols}, true
	}
	// A tensor that was laid into the memory, whose rows are others.
	end := t.Offset + (t.Rows-1)*t.Stride + t.Cols
	if m.rows == 1 {
		return rect{0, 1, t.Offset, end}, t.Stride == t.Cols
	}
	return rect{t.Offset / m.cols, (end-1)/m.cols + 1, 0, m.cols}, false
}

// on is the tensor of one side's device for t, of which there is a copy.
func (d *Device) on(s side, t backend.Tensor) backend.Tensor {
	if t.Mem == nil {
		return t
	}
	m := d.memory(t)
	if m.cut != nil {
		panic("split: operation on memory that is divided between devices")
	}
	t.Offset += m.copies[s].Offset
	t.Mem = m.copies[s].Mem
	return t
}

// bring makes a view of a side's copy as new as the other's.
func (d *Device) bring(s side, t backend.Tensor) error {
	if t.Mem == nil {
		return nil
	}
	m := d.memory(t)
	if err := m.reserve(s); err != nil {
		return err
	}
	a, _ := m.rect(t)
	return d.bringRect(s, m, a)
}

// bringRect is bring of a part of memory that has a copy on the side.
func (d *Device) bringRect(s side, m *memory, a rect) error {
	for _, x := range m.stale[s].and(a) {
		if err := d.move(s, m, x); err != nil {
			return err
		}
	}
	m.stale[s] = m.stale[s].less(a)
	return nil
}

// wrote notes that a side has new numbers in a view.
func (d *Device) wrote(s side, t backend.Tensor) {
	m := d.memory(t)
	a, _ := m.rect(t)
	m.stale[s] = m.stale[s].less(a)
	m.stale[s.other()] = m.stale[s.other()].plus(a)
}

// fresher is the side with the newer numbers of views, or the fewest old ones; otherwise
// that side.
func (d *Device) fresher(otherwise side, views ...backend.Tensor) side {
	var stale [2]int
	for _, t := range views {
		if t.Mem == nil {
			continue
		}
		m := d.memory(t)
		if m.cut != nil {
			panic("split: operation on memory that is divided between devices")
		}
		a, _ := m.rect(t)
		for s := range stale {
			stale[s] += m.stale[s].within(a)
			if m.copies[s].Mem == nil {
				stale[s]++
			}
		}
	}
	switch {
	case stale[device] < stale[host]:
		return device
	case stale[host] < stale[device]:
		return host
	}
	return otherwise
}

// move copies a rectangle to a side from the other.
func (d *Device) move(to side, m *memory, a rect) error {
	view := func(s side) backend.Tensor {
		return m.copies[s].RowRange(a.r0, a.r1).ColRange(a.c0, a.c1)
	}
	from := to.other()
	src, dst := view(from), view(to)
	d.moved++
	if m.t == dtype.F32 && (src.Rows == 1 || src.Cols == src.Stride) {
		x, err := d.dev[from].Host(src)
		if err != nil {
			return err
		}
		return d.dev[to].Write(dst, x)
	}
	n := a.size() * m.t.Size()
	if len(d.bytes) < n {
		d.bytes = make([]byte, n)
	}
	if err := d.dev[from].ReadBytes(d.bytes[:n], src); err != nil {
		return err
	}
	return d.dev[to].WriteBytes(dst, d.bytes[:n])
}
