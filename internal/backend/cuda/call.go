package cuda

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
	"github.com/foretoken/foretoken/internal/backend/gpu"
)

// callBlock is the call block and its memory: kernels/call.cuh has its layout.
type callBlock struct {
	gpu.Call
	bytes int
}

// leastCall is the initial size of the block in bytes: the page tables of a dozen long sequences. Moving it
// drops all recorded passes.
const leastCall = 1 << 20

// lists is the address of the call block for an operation with the lists of p. Within a pass that
// is the pass's, whose lists they must be; elsewhere another block is uploaded.
func (b *Backend) lists(p backend.Pass) driver.Ptr {
	if r := b.passes.recording; r != nil {
		if !gpu.Same(p.IDs, r.Lists.IDs) || !gpu.Same(p.Want, r.Lists.Want) || !gpu.Same(p.Only, r.Lists.Only) || !gpu.Same(p.Batch, r.Lists.Batch) {
			panic("cuda: operation with a list of another pass")
		}
		return driver.Ptr(b.call.At)
	}
	if b.err == nil {
		b.fail(b.uploadCall(&p))
	}
	return driver.Ptr(b.call.At)
}

// uploadCall queues the upload of p's lists.
func (b *Backend) uploadCall(p *backend.Pass) error {
	c := &b.call
	if n := gpu.CallBytes(p); n > c.bytes {
		if c.bytes > 0 {
			b.clearPasses()
			if err := b.memory.Free(driver.Ptr(c.At)); err != nil {
				return err
			}
		}
		c.bytes = 0
		n = max(2*n, leastCall)
		at, err := b.memory.Alloc(int64(n))
		if err != nil {
			return err
		}
		c.At, c.bytes = uint64(at), n
	}
	c.Write(p, func(t backend.Tensor) uint64 { return uint64(b.Address(t)) })
	if len(c.Data) > c.bytes {
		panic(fmt.Sprintf("cuda: a call block of %d bytes in %d", len(c.Data), c.bytes))
	}
	return b.send(driver.Ptr(c.At), c.Data)
}
