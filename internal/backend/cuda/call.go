package cuda

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
)

// callBlock is the inputs of kernels that differ between two passes of one shape: kernels/call.cuh
// has its layout. It has a fixed address, so that graphs can name it.
type callBlock struct {
	at    driver.Ptr
	bytes int
	data  []byte // what is being written, from address at on
	seqs  []driver.Ptr
}

// leastCall is the initial size of the block in bytes: the page tables of a dozen long sequences. Moving it
// drops all recorded passes.
const leastCall = 1 << 20

// lists is the address of the call block for an operation with the lists of p. Within a pass that
// is the pass's, whose lists they must be; elsewhere another block is uploaded.
func (b *Backend) lists(p backend.Pass) driver.Ptr {
	if r := b.passes.recording; r != nil {
		if !same(p.IDs, r.lists.IDs) || !same(p.Want, r.lists.Want) || !same(p.Only, r.lists.Only) || !same(p.Batch, r.lists.Batch) {
			panic("cuda: operation with a list of another pass")
		}
		return b.call.at
	}
	if b.err == nil {
		b.fail(b.uploadCall(&p))
	}
	return b.call.at
}

// same reports whether a is b, or is not given.
func same[T any](a, b []T) bool {
	return a == nil || len(a) == len(b) && unsafe.SliceData(a) == unsafe.SliceData(b)
}

// uploadCall queues the upload of p's lists.
func (b *Backend) uploadCall(p *backend.Pass) error {
	c := &b.call
	if n := callBytes(p); n > c.bytes {
		if c.bytes > 0 {
			b.passes.clear(b)
			if err := b.memory.free(c.at); err != nil {
				return err
			}
		}
		c.bytes = 0
		n = max(2*n, leastCall)
		at, err := b.memory.alloc(int64(n))
		if err != nil {
			return err
		}
		c.at, c.bytes = at, n
	}
	b.writeCall(p)
	return b.send(c.at, c.data)
}

// tables is how many tables of pages sequences have.
func tables(batch []backend.Seq) int {
	n := 0
	for i := range batch {
		n = max(n, len(batch[i].Windows))
	}
	return 1 + n
}

// headOf is the address of the call block for a layer with pages of that table. Each table has a head of its own, whose sequences
// have its pages.
func headOf(call driver.Ptr, at *backend.Place) driver.Ptr {
	return call + driver.Ptr(at.Window*int(unsafe.Sizeof(callParam{})))
}

// callBytes is at most how many bytes the block of p has.
func callBytes(p *backend.Pass) int {
	n := 4*(len(p.IDs)+len(p.Want)+len(p.Only)) + p.Rows()*16 + 8*16
	n += tables(p.Batch) * (int(unsafe.Sizeof(callParam{})) + len(p.Batch)*int(unsafe.Sizeof(seqParam{})) + 16)
	for i := range p.Batch {
		n += int(unsafe.Sizeof(recurrentParam{})) * len(p.Batch[i].Delta)
		for range p.Batch[i].AllPages {
			n += 8
		}
	}
	return n
}

// writeCall lays out the lists of p in c.data.
func (b *Backend) writeCall(p *backend.Pass) {
	c, le := &b.call, binary.LittleEndian
	h := callParam{rows: i32(p.Rows()), seqs: i32(len(p.Batch)), wants: i32(len(p.Want)), onlys: i32(len(p.Only))}
	tables := tables(p.Batch)
	c.data = c.data[:0]
	for range tables {
		c.data = append(c.data, raw(h)...) // its place
	}
	h.ids, h.want, h.only = c.list(p.IDs), c.list(p.Want), c.list(p.Only)
	c.seqs = c.seqs[:0]
	pages := 0
	for w := range tables {
		c.seqs = append(c.seqs, c.next())
		pages = c.appendSeqs(p, w, pages)
	}
	h.rowSeq = c.next()
	h.positions = h.rowSeq + driver.Ptr(4*h.rows)
	c.appendRows(p, p.Rows())
	h.page = c.next()
	for w := range tables {
		for i := range p.Batch {
			_, pages := tableOf(&p.Batch[i], w)
			for _, t := range pages {
				c.data = le.AppendUint64(c.data, uint64(b.address(t)))
			}
		}
	}
	h.delta = c.next()
	for i := range p.Batch {
		for _, r := range p.Batch[i].Delta {
			c.data = append(c.data, raw(recurrentParam{
				state: b.address(r.State), tail: b.address(r.Tail), keys: b.address(r.Keys), deltas: b.address(r.Deltas), decays: b.address(r.Decays),
				stateStride: i32(r.State.Stride), tailStride: i32(r.Tail.Stride), keysStride: i32(r.Keys.Stride), deltasStride: i32(r.Deltas.Stride), decaysStride: i32(r.Decays.Stride),
			})...)
		}
	}
	for w, at := range c.seqs {
		h.seq = at
		copy(c.data[w*int(unsafe.Sizeof(h)):], raw(h))
	}
	if len(c.data) > c.bytes {
		panic(fmt.Sprintf("cuda: a call block of %d bytes in %d", len(c.data), c.bytes))
	}
}

// tableOf is a table of a sequence, empty if it has fewer.
func tableOf(s *backend.Seq, window int) (first int, pages []backend.Tensor) {
	if window > len(s.Windows) {
		return 0, nil
	}
	return s.Table(&backend.Place{Window: window})
}

// appendSeqs appends the sequences with the pages of a table, the first of which is the n-th of the call, and returns the number of
// the page behind them. Kernels count pages from the beginning of a sequence, so released pages are subtracted.
func (c *callBlock) appendSeqs(p *backend.Pass, window, n int) int {
	deltas := 0
	for i := range p.Batch {
		s := &p.Batch[i]
		first, pages := tableOf(s, window)
		c.data = append(c.data, raw(seqParam{
			first: i32(s.First), n: i32(s.N), pos: i32(s.Pos), drafts: i32(s.Drafts), accepted: i32(s.Accepted), pages: i32(n - first), deltas: i32(deltas),
		})...)
		n, deltas = n+len(pages), deltas+len(s.Delta)
	}
	return n
}

// next is the address of the next appended data.
func (c *callBlock) next() driver.Ptr {
	for len(c.data)%16 != 0 {
		c.data = append(c.data, 0)
	}
	return c.at + driver.Ptr(len(c.data))
}

// list appends a list and returns its address.
func (c *callBlock) list(list []int32) driver.Ptr {
	at := c.next()
	for _, x := range list {
		c.data = binary.LittleEndian.AppendUint32(c.data, uint32(x))
	}
	return at
}

// appendRows appends each row's sequence, and then each row's three positions.
func (c *callBlock) appendRows(p *backend.Pass, rows int) {
	at := len(c.data)
	c.data = append(c.data, make([]byte, 16*rows)...)
	seqs, positions := c.data[at:][:4*rows], c.data[at+4*rows:]
	for i := range seqs {
		seqs[i] = 0xff // of no sequence
	}
	le := binary.LittleEndian
	for i := range p.Batch {
		s := &p.Batch[i]
		for j := range s.N {
			r := s.First + j
			if r >= rows {
				panic(fmt.Sprintf("cuda: row %d of a call of %d", r, rows))
			}
			le.PutUint32(seqs[4*r:], uint32(i))
			for axis := range 3 {
				x := int32(s.Pos + j)
				if s.Positions != nil {
					x = s.Positions[j][axis]
				}
				le.PutUint32(positions[12*r+4*axis:], uint32(x))
			}
		}
	}
}
