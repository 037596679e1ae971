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

// callBytes is at most how many bytes the block of p has.
func callBytes(p *backend.Pass) int {
	rows := p.Rows()
	n := int(unsafe.Sizeof(callParam{})) + 4*(len(p.IDs)+len(p.Want)+len(p.Only)) + rows*16 + len(p.Batch)*int(unsafe.Sizeof(seqParam{})) + 8*16
	for i := range p.Batch {
		n += 8*len(p.Batch[i].Pages) + int(unsafe.Sizeof(recurrentParam{}))*len(p.Batch[i].Delta)
	}
	return n
}

// writeCall lays out the lists of p in c.data.
func (b *Backend) writeCall(p *backend.Pass) {
	c, le := &b.call, binary.LittleEndian
	h := callParam{rows: i32(p.Rows()), seqs: i32(len(p.Batch)), wants: i32(len(p.Want)), onlys: i32(len(p.Only))}
	c.data = append(c.data[:0], raw(h)...) // its place
	h.ids, h.want, h.only = c.list(p.IDs), c.list(p.Want), c.list(p.Only)
	h.seq = c.next()
	pages, deltas := 0, 0
	for i := range p.Batch {
		s := &p.Batch[i]
		c.data = append(c.data, raw(seqParam{
			first: i32(s.First), n: i32(s.N), pos: i32(s.Pos), drafts: i32(s.Drafts), accepted: i32(s.Accepted), pages: i32(pages), deltas: i32(deltas),
		})...)
		pages, deltas = pages+len(s.Pages), deltas+len(s.Delta)
	}
	h.rowSeq = c.next()
	h.positions = h.rowSeq + driver.Ptr(4*h.rows)
	c.appendRows(p, p.Rows())
	h.page = c.next()
	for i := range p.Batch {
		for _, t := range p.Batch[i].Pages {
			c.data = le.AppendUint64(c.data, uint64(b.address(t)))
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
	copy(c.data, raw(h))
	if len(c.data) > c.bytes {
		panic(fmt.Sprintf("cuda: a call block of %d bytes in %d", len(c.data), c.bytes))
	}
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
