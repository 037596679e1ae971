package vulkan

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/gpu"
	"github.com/foretoken/foretoken/internal/backend/vulkan/driver"
)

// callBlock is the call block and its memory.
type callBlock struct {
	gpu.Call
	bytes int
}

// leastCall is the initial size of the block in bytes.
const leastCall = 1 << 16

// listsOf is the address of the call block for an operation with the lists of p. Within a pass that
// is the pass's, whose lists they must be; elsewhere another block is uploaded.
func (b *Backend) listsOf(p backend.Pass) driver.Ptr {
	if b.inPass {
		r := &b.lists
		if !gpu.Same(p.IDs, r.IDs) || !gpu.Same(p.Want, r.Want) || !gpu.Same(p.Only, r.Only) || !gpu.Same(p.Batch, r.Batch) {
			panic("vulkan: operation with a list of another pass")
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
			b.free(driver.Ptr(c.At))
		}
		c.bytes = 0
		n = max(2*n, leastCall)
		at, err := b.memory.Alloc(int64(n))
		if err != nil {
			return err
		}
		c.At, c.bytes = uint64(at), n
	}
	c.Write(p, func(t backend.Tensor) uint64 { return uint64(b.address(t)) })
	return b.send(driver.Ptr(c.At), c.Data)
}

// Pass queues the operations of a call of a network.
func (b *Backend) Pass(p backend.Pass, queue func()) {
	if b.inPass {
		panic("vulkan: a pass within a pass")
	}
	if b.err != nil {
		return
	}
	if err := b.uploadCall(&p); err != nil {
		b.fail(err)
		return
	}
	b.lists, b.inPass = p, true
	defer func() {
		b.lists, b.inPass = backend.Pass{}, false
		for _, at := range b.turns {
			b.free(at)
		}
		clear(b.turns)
	}()
	queue()
}
