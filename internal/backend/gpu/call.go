package gpu

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/foretoken/foretoken/internal/backend"
)

// The call block is the inputs of kernels that differ between two passes of one shape. It begins with a Head, whose
// addresses point behind it.
type (
	// Head is the beginning of a call block.
	Head struct {
		Rows, Seqs, Wants, Onlys int32
		IDs, Want, Only          uint64 // [Rows], [Wants], [Onlys] of int32
		Seq                      uint64 // [Seqs] of Seq
		RowSeq                   uint64 // [Rows] of int32: -1 for a row of no sequence
		Positions                uint64 // [Rows][3] of int32
		Page                     uint64 // addresses of the pages of all sequences, one after another
		Delta                    uint64 // likewise of Recurrent, a layer after the other
	}
	// Seq is a backend.Seq. Pages and Deltas are the indices of its first entry in Head.Page and Head.Delta.
	Seq struct {
		First, N, Pos, Drafts, Accepted, Pages, Deltas, Unused int32
	}
	// Recurrent is a backend.Recurrent. Strides are in numbers.
	Recurrent struct {
		State, Tail, Keys, Deltas, Decays                                       uint64
		StateStride, TailStride, KeysStride, DeltasStride, DecaysStride, Unused int32
	}
)

// Call is the call block of a device that is little-endian. It has a fixed address, so that recorded passes can name it.
type Call struct {
	At   uint64 // on the device
	Data []byte // what Write has written
	seqs []uint64
}

// tables is how many tables of pages sequences have.
func tables(batch []backend.Seq) int {
	n := 0
	for i := range batch {
		n = max(n, len(batch[i].Windows))
	}
	return 1 + n
}

// HeadOf is the address of the call block for a layer with pages of that table. Each table has a head of its own, whose sequences
// have its pages.
func HeadOf(call uint64, at *backend.Place) uint64 {
	return call + uint64(at.Window)*uint64(unsafe.Sizeof(Head{}))
}

// CallBytes is at most how many bytes the block of p has.
func CallBytes(p *backend.Pass) int {
	n := 4*(len(p.IDs)+len(p.Want)+len(p.Only)) + p.Rows()*16 + 8*16
	n += tables(p.Batch) * (int(unsafe.Sizeof(Head{})) + len(p.Batch)*int(unsafe.Sizeof(Seq{})) + 16)
	for i := range p.Batch {
		n += int(unsafe.Sizeof(Recurrent{})) * len(p.Batch[i].Delta)
		for range p.Batch[i].AllPages {
			n += 8
		}
	}
	return n
}

// Write lays out the lists of p in c.Data. address is that of a tensor's first number, 0 for the zero Tensor.
func (c *Call) Write(p *backend.Pass, address func(backend.Tensor) uint64) {
	h := Head{Rows: i32(p.Rows()), Seqs: i32(len(p.Batch)), Wants: i32(len(p.Want)), Onlys: i32(len(p.Only))}
	tables := tables(p.Batch)
	c.Data = c.Data[:0]
	for range tables {
		c.Data = append(c.Data, raw(&h)...) // its place
	}
	h.IDs, h.Want, h.Only = c.list(p.IDs), c.list(p.Want), c.list(p.Only)
	c.seqs = c.seqs[:0]
	pages := 0
	for w := range tables {
		c.seqs = append(c.seqs, c.next())
		pages = c.appendSeqs(p, w, pages)
	}
	h.RowSeq = c.next()
	h.Positions = h.RowSeq + uint64(4*h.Rows)
	c.appendRows(p, p.Rows())
	h.Page = c.next()
	for w := range tables {
		for i := range p.Batch {
			_, pages := tableOf(&p.Batch[i], w)
			for _, t := range pages {
				c.Data = binary.LittleEndian.AppendUint64(c.Data, address(t))
			}
		}
	}
	h.Delta = c.next()
	for i := range p.Batch {
		for _, r := range p.Batch[i].Delta {
			c.Data = append(c.Data, raw(&Recurrent{
				State: address(r.State), Tail: address(r.Tail), Keys: address(r.Keys), Deltas: address(r.Deltas), Decays: address(r.Decays),
				StateStride: i32(r.State.Stride), TailStride: i32(r.Tail.Stride), KeysStride: i32(r.Keys.Stride), DeltasStride: i32(r.Deltas.Stride), DecaysStride: i32(r.Decays.Stride),
			})...)
		}
	}
	for w, at := range c.seqs {
		h.Seq = at
		copy(c.Data[w*int(unsafe.Sizeof(h)):], raw(&h))
	}
}

// tableOf is a table of a sequence, empty if it has fewer.
func tableOf(s *backend.Seq, window int) (first int, pages []backend.Tensor) {
	if window > len(s.Windows) {
		return 0, nil
	}
	return s.Table(&backend.Place{Window: window})
}

// appendSeqs appends the sequences with the pages of a table. The first page is page n of the call; the page behind the last one is
// returned. Kernels count pages from the beginning of a sequence, so released pages are subtracted.
func (c *Call) appendSeqs(p *backend.Pass, window, n int) int {
	deltas := 0
	for i := range p.Batch {
		s := &p.Batch[i]
		first, pages := tableOf(s, window)
		c.Data = append(c.Data, raw(&Seq{
			First: i32(s.First), N: i32(s.N), Pos: i32(s.Pos), Drafts: i32(s.Drafts), Accepted: i32(s.Accepted), Pages: i32(n - first), Deltas: i32(deltas),
		})...)
		n, deltas = n+len(pages), deltas+len(s.Delta)
	}
	return n
}

// next is the address of the next appended data.
func (c *Call) next() uint64 {
	for len(c.Data)%16 != 0 {
		c.Data = append(c.Data, 0)
	}
	return c.At + uint64(len(c.Data))
}

// list appends a list and returns its address.
func (c *Call) list(list []int32) uint64 {
	at := c.next()
	for _, x := range list {
		c.Data = binary.LittleEndian.AppendUint32(c.Data, uint32(x))
	}
	return at
}

// appendRows appends each row's sequence, and then each row's three positions.
func (c *Call) appendRows(p *backend.Pass, rows int) {
	at := len(c.Data)
	c.Data = append(c.Data, make([]byte, 16*rows)...)
	seqs, positions := c.Data[at:][:4*rows], c.Data[at+4*rows:]
	for i := range seqs {
		seqs[i] = 0xff // of no sequence
	}
	le := binary.LittleEndian
	for i := range p.Batch {
		s := &p.Batch[i]
		for j := range s.N {
			r := s.First + j
			if r >= rows {
				panic(fmt.Sprintf("gpu: row %d of a call of %d", r, rows))
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

// Same reports whether a is b, or is not given: a list of an operation within a pass is one of the pass.
func Same[T any](a, b []T) bool {
	return a == nil || len(a) == len(b) && unsafe.SliceData(a) == unsafe.SliceData(b)
}

// raw is the bytes of a structure.
func raw[T Head | Seq | Recurrent](x *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(x)), unsafe.Sizeof(*x))
}

// i32 is a number as kernels have it.
func i32(n int) int32 {
	if n != int(int32(n)) {
		panic(fmt.Sprintf("gpu: %d does not fit in 32 bits", n))
	}
	return int32(n)
}
