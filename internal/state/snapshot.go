package state

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Snapshot is a state at one moment. It shares the state's pages and has a copy of the
// recurrent memory, as small as it can be. It counts against the pool's budget until it is
// closed.
type Snapshot struct {
	layout    Layout
	len, kept int
	tables    [][]*Block // as of the state; without the pages that were detached from the first
	detached  int        // pages that Detach removed; those of windows before them are not written with the snapshot
	recurrent *Block
	steps     []step
}

// Save takes a snapshot. Drafts that were not committed are not part of it.
func (s *State) Save() (*Snapshot, error) { return s.SaveFirst(s.len) }

// SaveFirst takes a snapshot of the first n tokens. If they are not all, CanTruncate must allow that.
func (s *State) SaveFirst(n int) (*Snapshot, error) {
	if n != s.len && !s.CanTruncate(n) {
		panic(fmt.Sprintf("state: SaveFirst(%d) of %d tokens", n, s.len))
	}
	x := &Snapshot{layout: s.layout, len: n, steps: slices.Clone(upTo(s.steps, n))}
	if n == s.len {
		x.kept = s.kept
	}
	if s.delta != nil {
		part := s.layout.copied(s.kept)
		var err error
		if x.recurrent, err = s.pool.layered(part.shape(), s.layout, part.cols); err != nil {
			return nil, err
		}
		copyRecurrent(s.pool.b, part.carve(x.recurrent.t), s.needed())
	}
	for i := range s.tables {
		t := &s.tables[i]
		list := slices.Clone(t.pages[t.shape.first(n)-t.first : t.shape.pages(n)-t.first])
		for _, p := range list {
			p.Retain()
		}
		x.tables = append(x.tables, list)
	}
	return x, nil
}

// Load restores the state of the snapshot. The pages that were detached from the
// snapshot come before it. Only the recurrent memory is copied:
// pages are shared until s writes to one. s is deepened if the snapshot is of a deepened state and
// has more than MaxDrafts drafts to replay. After an error s is unchanged.
func (s *State) Load(from *Snapshot, before ...*Block) error {
	if !s.layout.Equal(from.layout) {
		return fmt.Errorf("state: snapshot of another layout: %+v, want %+v", from.layout, s.layout)
	}
	if s.layout.Paged() && len(before) != from.detached {
		return fmt.Errorf("state: %d pages before a snapshot from which %d were detached", len(before), from.detached)
	}
	if from.kept > s.drafts {
		if err := s.Deepen(); err != nil {
			return err
		}
	}
	for i := range s.tables {
		t := &s.tables[i]
		old := t.pages
		*t = table{shape: t.shape, first: t.shape.first(from.len), tensors: t.tensors[:0]}
		if i == 0 {
			for _, p := range before {
				t.add(p.Retain())
			}
		}
		for _, p := range from.tables[i] {
			t.add(p.Retain())
		}
		for _, p := range old {
			p.Release()
		}
	}
	s.len, s.kept, s.open = from.len, from.kept, 0
	s.steps = append(s.steps[:0], from.steps...)
	if s.delta != nil {
		copyRecurrent(s.pool.b, s.needed(), s.layout.copied(from.kept).carve(from.recurrent.t))
	}
	return nil
}

// needed is the part of the recurrent memory that later calls will read.
func (s *State) needed() []backend.Recurrent {
	list := make([]backend.Recurrent, len(s.delta))
	for i, d := range s.delta {
		list[i] = backend.Recurrent{
			State:  d.State,
			Tail:   d.Tail.RowRange(s.kept, s.kept+d.Tail.Rows-s.drafts),
			Keys:   d.Keys.RowRange(0, s.kept),
			Deltas: d.Deltas.RowRange(0, s.kept),
			Decays: d.Decays.RowRange(0, s.kept),
		}
	}
	return list
}

func copyRecurrent(b backend.Backend, dst, src []backend.Recurrent) {
	for i := range dst {
		to, from := dst[i].Tensors(), src[i].Tensors()
		for j := range to {
			b.Copy(*to[j], *from[j])
		}
	}
}

// Len is the number of tokens that had been fed.
func (x *Snapshot) Len() int { return x.len }

// Detached is the number of pages that come before the snapshot's own.
func (x *Snapshot) Detached() int { return x.detached }

// Detach removes the first n pages of layers that see everything from the snapshot. The caller owns their references and
// passes them to Load. Without such pages the result is empty. Pages of windows before page n stay, but AppendTo leaves them
// out: see Window.
func (x *Snapshot) Detach(n int) []*Block {
	if n < 0 || n > pagesOf(x.len) || x.detached > 0 {
		panic(fmt.Sprintf("state: Detach(%d) of %d tokens with %d pages detached", n, x.len, x.detached))
	}
	x.detached = n
	if !x.layout.Paged() {
		return nil
	}
	own := &x.tables[0]
	pages := (*own)[:n:n]
	*own = (*own)[n:]
	return pages
}

// Window is page i of each of the layout's windows, nil where it was released. The snapshot keeps them.
func (x *Snapshot) Window(i int) []*Block {
	pages := x.layout.pages()[1:]
	list := make([]*Block, len(pages))
	for w, s := range pages {
		if at := i - s.first(x.len); at >= 0 {
			list[w] = x.tables[1+w][at]
		}
	}
	return list
}

// written are the blocks that AppendTo writes.
func (x *Snapshot) written() []*Block {
	var list []*Block
	for i, s := range x.layout.pages() {
		own := x.tables[i]
		if i > 0 {
			own = own[min(max(x.detached-s.first(x.len), 0), len(own)):]
		}
		list = append(list, own...)
	}
	if x.recurrent != nil {
		list = append(list, x.recurrent)
	}
	return list
}

// Blocks are the pieces of memory of the snapshot: its pages without those that were
// detached, then the recurrent memory. They are valid until it is closed.
func (x *Snapshot) Blocks() []*Block {
	list := slices.Concat(x.tables...)
	if x.recurrent != nil {
		list = append(list, x.recurrent)
	}
	return list
}

// Close releases the snapshot's memory. The snapshot must not be used after it.
func (x *Snapshot) Close() {
	for _, b := range x.Blocks() {
		b.Release()
	}
	*x = Snapshot{}
}

// Sizes of a written snapshot, in bytes.
const (
	headerBytes = 3 * 4 // tokens, those to replay, pages detached
	stepBytes   = 2 * 4 // tokens, delta
)

// Bytes is the number of bytes that AppendTo appends.
func (x *Snapshot) Bytes() int64 {
	if x == nil {
		return 0
	}
	n := int64(headerBytes + stepBytes*len(x.steps))
	for _, b := range x.written() {
		n += b.Bytes()
	}
	return n
}

// AppendTo appends the snapshot in a form that ReadSnapshot understands to dst. A nil snapshot is empty.
func (x *Snapshot) AppendTo(dst []byte) ([]byte, error) {
	if x == nil {
		return dst, nil
	}
	for _, n := range []int{x.len, x.kept, x.detached} {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(n))
	}
	var err error
	for _, b := range x.written() {
		if dst, err = b.AppendTo(dst); err != nil {
			return nil, err
		}
	}
	for _, y := range x.steps {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(y.len))
		dst = binary.LittleEndian.AppendUint32(dst, uint32(int32(y.delta)))
	}
	return dst, nil
}

// ReadPage makes a page of that layout from the output of Block.AppendTo, and returns
// the rest of data. Its contents are not checked. It is one of the layers with a window, 0: that see everything.
func (p *Pool) ReadPage(l Layout, window int, data []byte) (page *Block, rest []byte, err error) {
	s := l.page(window)
	return p.read(s, data, func() (*Block, error) { return p.newPage(s, l) })
}

// ReadRow makes a block of one row of float32 from the output of Block.AppendTo.
func (p *Pool) ReadRow(data []byte) (*Block, error) {
	row := shape{t: dtype.F32, rows: 1, cols: len(data) / dtype.F32.Size()}
	b, _, err := p.read(row, data, func() (*Block, error) { return p.block(row) })
	return b, err
}

// ReadSnapshot makes a snapshot of that layout from the output of Snapshot.AppendTo. Lengths are
// checked, numbers are not. detached returns page i of the layout's window w, if AppendTo left it out: see Snapshot.Window.
func (p *Pool) ReadSnapshot(l Layout, data []byte, detached func(w, i int) (*Block, error)) (x *Snapshot, err error) {
	if len(data) < headerBytes {
		return nil, fmt.Errorf("state: a snapshot of %d bytes", len(data))
	}
	number := func(i int) int { return int(binary.LittleEndian.Uint32(data[4*i:])) }
	x = &Snapshot{layout: l, len: number(0), kept: number(1), detached: number(2)}
	data = data[headerBytes:]
	if x.kept > min(l.DeepDrafts(), x.len) || x.detached > pagesOf(x.len) {
		return nil, fmt.Errorf("state: a snapshot of %d tokens, %d of them to replay, with %d pages detached", x.len, x.kept, x.detached)
	}
	missing := int64(0)
	for _, s := range l.pages() {
		missing += int64(max(0, s.pages(x.len)-max(s.first(x.len), x.detached))) * s.bytes()
	}
	if missing > int64(len(data)) {
		return nil, fmt.Errorf("state: %d bytes for the pages of a snapshot, want %d", len(data), missing)
	}
	for w, s := range l.pages() {
		x.tables = append(x.tables, nil)
		from := s.first(x.len)
		if w == 0 {
			from = x.detached
		}
		for i := from; i < s.pages(x.len); i++ {
			var b *Block
			if i < x.detached {
				b, err = detached(w-1, i)
			} else {
				b, data, err = p.read(s, data, func() (*Block, error) { return p.newPage(s, l) })
			}
			if err != nil {
				x.Close()
				return nil, err
			}
			x.tables[w] = append(x.tables[w], b)
		}
	}
	if part := l.copied(x.kept); !part.empty() {
		row := part.shape()
		if x.recurrent, data, err = p.read(row, data, func() (*Block, error) { return p.layered(row, l, part.cols) }); err != nil {
			x.Close()
			return nil, err
		}
	}
	if x.steps, err = readSteps(data, x.len); err != nil {
		x.Close()
		return nil, err
	}
	return x, nil
}

// readSteps reads the steps of a state of n tokens, which are the last of a snapshot.
func readSteps(data []byte, n int) (steps []step, err error) {
	if len(data)%stepBytes != 0 {
		return nil, fmt.Errorf("state: %d bytes after a snapshot", len(data))
	}
	last := step{}
	for ; len(data) > 0; data = data[stepBytes:] {
		y := step{int(binary.LittleEndian.Uint32(data)), int(int32(binary.LittleEndian.Uint32(data[4:])))}
		if y.len <= last.len || y.len > n || y.delta == last.delta || y.len+y.delta <= 0 || n+y.delta > math.MaxInt32 {
			return nil, fmt.Errorf("state: a snapshot of %d tokens shifts positions by %d after token %d", n, y.delta, y.len)
		}
		steps, last = append(steps, y), y
	}
	return steps, nil
}
