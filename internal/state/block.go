package state

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
)

// Block is a piece of a pool's memory that several may hold: a page of keys and values, or
// a copy of other numbers. It counts against the budget once. While more than one holds it,
// its numbers do not change.
type Block struct {
	pool    *Pool
	shape   shape
	t       backend.Tensor
	holders int
}

// Tensor is the block's memory. It is valid while the block is held and is not to be
// written.
func (b *Block) Tensor() backend.Tensor { return b.t }

// Bytes is what the block takes of the budget.
func (b *Block) Bytes() int64 { return b.shape.bytes() }

// Hold adds a holder, who has to release the block, and returns the block.
func (b *Block) Hold() *Block {
	b.holders++
	return b
}

// Release ends one hold. The last one gives the memory back. A nil block has no memory.
func (b *Block) Release() {
	if b == nil {
		return
	}
	if b.holders--; b.holders < 0 {
		panic("state: block released more often than held")
	}
	if b.holders == 0 {
		b.pool.put(b)
	}
}

// AppendTo appends the block's bytes, as the device holds them, to dst.
func (b *Block) AppendTo(dst []byte) ([]byte, error) {
	n := len(dst)
	dst = append(dst, make([]byte, b.Bytes())...)
	return dst, b.pool.b.ReadBytes(dst[n:], b.t)
}

// read fills a new block of that shape with the first bytes of data, and returns the rest.
func (p *Pool) read(s shape, data []byte) (*Block, []byte, error) {
	n := s.bytes()
	if int64(len(data)) < n {
		return nil, nil, fmt.Errorf("state: %d bytes where a block has %d", len(data), n)
	}
	b, err := p.block(s)
	if err != nil {
		return nil, nil, err
	}
	if err := p.b.WriteBytes(b.t, data[:n]); err != nil {
		b.Release()
		return nil, nil, err
	}
	return b, data[n:], nil
}
