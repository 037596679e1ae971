package state

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
)

// Block is a piece of a pool's memory with a reference count: a page, or a copy of other
// numbers. It counts against the budget once. While it has more than one
// reference, its numbers do not change.
type Block struct {
	pool  *Pool
	shape shape
	t     backend.Tensor
	refs  int
	used  bool // it was released before
}

// Tensor is the block's memory. It is valid until the block is released and is not to be
// written.
func (b *Block) Tensor() backend.Tensor { return b.t }

// Bytes is the block's part of the budget, 0 for a nil block.
func (b *Block) Bytes() int64 {
	if b == nil {
		return 0
	}
	return b.shape.bytes()
}

// Refs is the number of references.
func (b *Block) Refs() int { return b.refs }

// Retain adds a reference, which has to be released, and returns the block.
func (b *Block) Retain() *Block {
	b.refs++
	return b
}

// Release releases one reference, the last one the memory too. A nil block has no memory.
func (b *Block) Release() {
	if b == nil {
		return
	}
	if b.refs--; b.refs < 0 {
		panic("state: block released more often than retained")
	}
	if b.refs == 0 {
		b.pool.put(b)
	}
}

// AppendTo appends the block's bytes, as the device has them, to dst. It waits for the device; the
// error is that of Pool.Settle. A nil block has none.
func (b *Block) AppendTo(dst []byte) ([]byte, error) {
	if b == nil {
		return dst, nil
	}
	n := len(dst)
	dst = append(dst, make([]byte, b.Bytes())...)
	return dst, failed(b.pool.b.ReadBytes(dst[n:], b.t))
}

// read fills a new block of that shape with the first bytes of data, and returns the rest.
func (p *Pool) read(s shape, data []byte, take func() (*Block, error)) (*Block, []byte, error) {
	n := s.bytes()
	if int64(len(data)) < n {
		return nil, nil, fmt.Errorf("state: %d bytes for a block of %d", len(data), n)
	}
	b, err := take()
	if err != nil {
		return nil, nil, err
	}
	if err := p.b.WriteBytes(b.t, data[:n]); err != nil {
		b.Release()
		return nil, nil, failed(err)
	}
	return b, data[n:], nil
}
