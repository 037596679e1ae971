package cuda

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
)

// callBlock is what kernels read of a pass that differs between two of one shape: kernels/call.cuh
// has its layout. It lies at one address, so that graphs can name it.
type callBlock struct {
	at    driver.Ptr
	bytes int
	data  []byte // what is being written, from address at on
}

// Sizes in call.cuh.
const (
	callHeader    = 80
	callSeq       = 32
	callRecurrent = 64
)

// leastCall is how many bytes the block has at first: the page tables of a dozen long sequences. To move it
// gives up everything that was recorded.
const leastCall = 1 << 20

// lists is the address of the call block for an operation with the lists of p. Within a pass that
// is the pass's, whose lists they must be; elsewhere a block of its own is uploaded.
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
	n := callHeader + 4*(len(p.IDs)+len(p.Want)+len(p.Only)) + rows*16 + len(p.Batch)*callSeq + 8*16
	for i := range p.Batch {
		n += 8*len(p.Batch[i].Pages) + callRecurrent*len(p.Batch[i].Delta)
	}
	return n
}

// writeCall lays out the lists of p in c.data.
func (b *Backend) writeCall(p *backend.Pass) {
	c, rows := &b.call, p.Rows()
	c.data = append(c.data[:0], make([]byte, callHeader)...)
	le := binary.LittleEndian
	for i, n := range []int{rows, len(p.Batch), len(p.Want), len(p.Only)} {
		le.PutUint32(c.data[4*i:], uint32(n))
	}
	field := 16
	next := func() { // the field of the header that points here
		for len(c.data)%16 != 0 {
			c.data = append(c.data, 0)
		}
		le.PutUint64(c.data[field:], uint64(c.at)+uint64(len(c.data)))
		field += 8
	}
	for _, list := range [][]int32{p.IDs, p.Want, p.Only} {
		next()
		for _, x := range list {
			c.data = le.AppendUint32(c.data, uint32(x))
		}
	}
	next()
	pages, deltas := 0, 0
	for i := range p.Batch {
		s := &p.Batch[i]
		for _, x := range [8]int{s.First, s.N, s.Pos, s.Drafts, s.Accepted, pages, deltas, 0} {
			c.data = le.AppendUint32(c.data, uint32(x))
		}
		pages, deltas = pages+len(s.Pages), deltas+len(s.Delta)
	}
	next()
	c.appendRows(p, rows)
	start := len(c.data) - rows*12
	le.PutUint64(c.data[field:], uint64(c.at)+uint64(start))
	field += 8
	next()
	for i := range p.Batch {
		for _, t := range p.Batch[i].Pages {
			c.data = le.AppendUint64(c.data, uint64(b.address(t)))
		}
	}
	next()
	for i := range p.Batch {
		for j := range p.Batch[i].Delta {
			b.appendRecurrent(&p.Batch[i].Delta[j])
		}
	}
	if len(c.data) > c.bytes {
		panic(fmt.Sprintf("cuda: a call block of %d bytes in %d", len(c.data), c.bytes))
	}
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

// appendRecurrent appends the state of one layer.
func (b *Backend) appendRecurrent(r *backend.Recurrent) {
	c := &b.call
	tensors := [...]backend.Tensor{r.State, r.Tail, r.Keys, r.Deltas, r.Decays}
	for _, t := range tensors {
		c.data = binary.LittleEndian.AppendUint64(c.data, uint64(b.address(t)))
	}
	for _, t := range tensors {
		c.data = binary.LittleEndian.AppendUint32(c.data, uint32(t.Stride))
	}
	c.data = binary.LittleEndian.AppendUint32(c.data, 0)
}
