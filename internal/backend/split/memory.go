package split

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// memory is a piece of memory with copies on some devices, or with parts on each.
type memory struct {
	owner      *Device
	home       int // the device of its first copy, or anywhere
	t          dtype.Type
	rows, cols int
	copies     []backend.Tensor // by device; Mem is nil without a copy
	stale      []region         // of a copy: the part that is newer in another. Every number is new in some copy
	cut        *cut             // nil: every copy has all of it
	flown      uint64           // the number of the last trip that has it as the state of a sequence
	freed      bool
}

func (d *Device) newMemory(t dtype.Type, rows, cols int) *memory {
	n := len(d.dev)
	return &memory{owner: d, home: anywhere, t: t, rows: rows, cols: cols, copies: make([]backend.Tensor, n), stale: make([]region, n)}
}

// tensor is all of the memory.
func (m *memory) tensor() backend.Tensor {
	return backend.Tensor{Type: m.t, Rows: m.rows, Cols: m.cols, Stride: m.cols, Mem: m}
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

// cut is how a row is divided between the devices.
type cut struct {
	pieces []piece // in order
	cols   []int   // of each device
}

// piece is columns [from, to) of a row, which are those from at on of a device's row.
type piece struct {
	from, to, at int
	on           int // the device
}

// cutOf divides a row of columns of parts.
func (d *Device) cutOf(parts []backend.Part, cols []int) *cut {
	c := &cut{cols: make([]int, len(d.dev))}
	at := 0
	for i, p := range parts {
		if cols[i] == 0 {
			continue
		}
		s := d.place(p)
		if n := len(c.pieces); n > 0 && c.pieces[n-1].on == s {
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
	m := d.newMemory(t, 1, c.width())
	m.cut = c
	defer d.yield()
	err := d.each(c.cols, func(s int) (err error) {
		m.copies[s], err = d.dev[s].Alloc(t, 1, c.cols[s])
		return err
	})
	if err != nil {
		d.release(m)
		return backend.Tensor{}, err
	}
	return m.tensor(), nil
}

// width is the columns of all devices.
func (c *cut) width() (n int) {
	for _, cols := range c.cols {
		n += cols
	}
	return n
}

// FreeParts implements backend.Parted.
func (d *Device) FreeParts(parts []backend.Part, cols []int) int64 {
	c := d.cutOf(parts, cols)
	all := c.width()
	if all == 0 {
		return d.FreeMemory()
	}
	d.quiet()
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

// Alloc allocates memory of each device when it is first used there.
func (d *Device) Alloc(t dtype.Type, rows, cols int) (backend.Tensor, error) {
	return d.newMemory(t, rows, cols).tensor(), nil
}

// alloc allocates memory of a device.
func (d *Device) alloc(on int, t dtype.Type, rows, cols int) (backend.Tensor, error) {
	defer d.yield()
	m := d.newMemory(t, rows, cols)
	if err := m.reserve(on); err != nil {
		return backend.Tensor{}, err
	}
	return m.tensor(), nil
}

// reserve makes sure that a device has a copy. The first is all zeros, and new.
func (m *memory) reserve(on int) error {
	if m.copies[on].Mem != nil || m.cut != nil {
		return nil
	}
	x, err := m.owner.hold(on).Alloc(m.t, m.rows, m.cols)
	if err != nil {
		return err
	}
	m.copies[on] = x
	if m.home == anywhere {
		m.home = on
	} else {
		m.stale[on] = region(nil).plus(rect{0, m.rows, 0, m.cols})
	}
	return nil
}

// Free implements backend.Backend.
func (d *Device) Free(t backend.Tensor) {
	if m, ok := t.Mem.(*memory); ok && m.owner == d && !m.freed {
		defer d.yield()
		d.mine(t)
		d.after(m, rect{0, m.rows, 0, m.cols}, true)
		m.freed = true
		d.forget(m)
		d.release(m)
	}
}

func (d *Device) release(m *memory) {
	for s, c := range m.copies {
		if c.Mem != nil {
			d.hold(s).Free(c)
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
	case t.Stride == t.Cols && t.Offset%m.cols == 0 && t.Rows*t.Cols%m.cols == 0: // whole rows, cut otherwise
		r := t.Offset / m.cols
		return rect{r, r + t.Rows*t.Cols/m.cols, 0, m.cols}, true
	}
	// A tensor that was laid into the memory, whose rows are others.
	end := t.Offset + (t.Rows-1)*t.Stride + t.Cols
	if m.rows == 1 {
		return rect{0, 1, t.Offset, end}, t.Stride == t.Cols
	}
	return rect{t.Offset / m.cols, (end-1)/m.cols + 1, 0, m.cols}, false
}

// on is a device's tensor for t, of which it has a copy.
func (d *Device) on(s int, t backend.Tensor) backend.Tensor {
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

// bring makes a view of a device's copy as new as any other.
func (d *Device) bring(s int, t backend.Tensor) error {
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

// bringRect is bring of a part of memory of which the device has a copy.
func (d *Device) bringRect(s int, m *memory, a rect) error {
	for _, x := range m.stale[s].and(a) {
		d.after(m, x, true)
		for _, v := range moves(nil, m, m.stale, s, x) {
			if err := d.move(v); err != nil {
				return err
			}
		}
	}
	m.stale[s] = m.stale[s].less(a)
	return nil
}

// move is numbers that are copied from one device to another.
type move struct {
	m        *memory
	a        rect
	from, to int
}

// moves adds to a list what brings a rectangle to a device, from the first devices that have it: stale is what copies
// lack, and devices without a copy have nothing.
func moves(list []move, m *memory, stale []region, to int, a rect) []move {
	rest := region{a}
	for from := range stale {
		if from == to || m.copies[from].Mem == nil {
			continue
		}
		var left region
		for _, x := range rest {
			for _, y := range x.minus(stale[from]) {
				list = append(list, move{m, y, from, to})
			}
			left = append(left, stale[from].and(x)...)
		}
		rest = left
	}
	return list
}

// wrote notes that a device has new numbers in a view.
func (d *Device) wrote(on int, t backend.Tensor) {
	m := d.memory(t)
	a, _ := m.rect(t)
	for s := range m.stale {
		switch {
		case s == on:
			m.stale[s] = m.stale[s].less(a)
		case m.copies[s].Mem != nil:
			m.stale[s] = m.stale[s].plus(a)
		}
	}
}

// fresher is the device with the fewest old numbers of views; of several that one, or the first.
func (d *Device) fresher(otherwise int, views ...backend.Tensor) int {
	clear(d.count)
	for _, t := range views {
		if t.Mem == nil {
			continue
		}
		m := d.memory(t)
		if m.cut != nil {
			panic("split: operation on memory that is divided between devices")
		}
		a, _ := m.rect(t)
		for s := range d.count {
			if m.copies[s].Mem != nil {
				d.count[s] += m.stale[s].within(a)
			} else if m.home != anywhere {
				d.count[s] += a.size() + 1
			}
		}
	}
	return least(d.count, otherwise)
}

// least is the index of the least number; of several otherwise, or the first.
func least(list []int, otherwise int) int {
	for i, n := range list {
		if n < list[otherwise] {
			otherwise = i
		}
	}
	return otherwise
}

// move copies a rectangle from one device to another.
func (d *Device) move(v move) error {
	src, dst, n := v.view(v.from), v.view(v.to), v.size()
	d.moved, d.crossed = d.moved+1, d.crossed+int64(n)
	if v.solid() {
		x, err := d.waited(v.from).Host(src)
		if err != nil {
			return err
		}
		return d.queue(v.to).Write(dst, x)
	}
	if len(d.bytes) < n {
		d.bytes = make([]byte, n)
	}
	if err := d.waited(v.from).ReadBytes(d.bytes[:n], src); err != nil {
		return err
	}
	return d.queue(v.to).WriteBytes(dst, d.bytes[:n])
}
