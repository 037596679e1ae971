package vulkan

import (
	"errors"

	"github.com/foretoken/foretoken/internal/backend/gpu"
	"github.com/foretoken/foretoken/internal/backend/vulkan/driver"
)

// source is where the arena takes its memory from.
type source struct {
	driver.Device
	queue *queue
}

// Free returns memory when no queued work uses it.
func (s source) Free(at driver.Ptr) error { return errors.Join(s.queue.wait(), s.Device.Free(at)) }

func (s source) Full(err error) bool {
	return errors.Is(err, driver.OutOfDeviceMemory) || errors.Is(err, driver.OutOfHostMemory) || errors.Is(err, driver.TooManyObjects)
}

func (s source) Explain(err error, needed, taken int64) error {
	var e *driver.Error
	free, total, unknown := s.Memory()
	if unknown != nil || !errors.As(err, &e) {
		return err
	}
	return &driver.Error{Call: e.Call, Code: e.Code, Cause: gpu.Shortage(needed, free, total, taken)}
}

var _ gpu.Source[driver.Ptr] = source{}

// zero queues that memory becomes zero.
func (b *Backend) zero(at driver.Ptr, bytes int64) error {
	c, err := b.queue.commands(false)
	if err == nil {
		c.Set(at, (bytes+3)&^3)
	}
	return err
}

// copyRows copies rows of cols numbers of size bytes; strides are in numbers.
func (b *Backend) copyRows(to driver.Ptr, toStride int, from driver.Ptr, fromStride, rows, cols, size int) {
	if rows == 0 || cols == 0 || b.err != nil {
		return
	}
	if toStride == cols && fromStride == cols || rows == 1 {
		b.copyBytes(to, from, int64(rows*cols*size))
		return
	}
	kernel := "copy4"
	if size < 4 {
		kernel, toStride, fromStride, cols, size = "copy1", toStride*size, fromStride*size, cols*size, 1
	}
	eachRows(rows, func(first, last int) {
		b.launch(kernel, columns(last-first, cols), to+driver.Ptr(first*toStride*size), from+driver.Ptr(first*fromStride*size), toStride, fromStride, cols)
	})
}

func (b *Backend) copyBytes(to, from driver.Ptr, bytes int64) {
	b.queueUp(operation{to: to, from: from, bytes: bytes})
}

// read brings n bytes of the device to the host, where they stay until the next read. It waits
// for queued work and returns its error.
func (b *Backend) read(from driver.Ptr, n int) ([]byte, error) {
	if len(b.host.data) < n {
		if err := b.wait(); err != nil {
			return nil, err
		}
		data, at, err := b.dev.Pin(int64(max(n, 64<<10)))
		if err != nil {
			return nil, err
		}
		if b.host.data != nil {
			if err := b.dev.Unpin(b.host.at); err != nil {
				return nil, err
			}
		}
		b.host = pinned{data, at}
	}
	if n > 0 && b.err == nil {
		b.copyBytes(b.host.at, from, int64(n))
	}
	if err := b.wait(); err != nil {
		return nil, err
	}
	return b.host.data[:n:n], nil
}

// send copies data to the device and returns when it may be changed.
func (b *Backend) send(to driver.Ptr, data []byte) error {
	for len(data) > 0 {
		n := min(len(data), max(1, len(b.staged.data)/2))
		if b.stagedUsed+n > len(b.staged.data) {
			if err := b.queue.wait(); err != nil {
				return err
			}
			b.stagedUsed = 0
		}
		copy(b.staged.data[b.stagedUsed:], data[:n])
		c, err := b.queue.commands(false)
		if err != nil {
			return err
		}
		c.Copy(to, b.staged.at+driver.Ptr(b.stagedUsed), int64(n))
		b.stagedUsed += (n + 255) &^ 255
		to, data = to+driver.Ptr(n), data[n:]
	}
	return nil
}

// scratch is the working memory of operations: a list of pieces, which the operations share. Those of passes do not move unless one
// has to grow, and then recorded passes are dropped.
type scratch struct {
	pieces []piece
	next   int // piece of the running operation
}

type piece struct {
	at    driver.Ptr
	bytes int64
}

// space is the scratch of the running operation.
func (b *Backend) space() *scratch {
	if b.passes.recording == nil {
		return &b.outside
	}
	return &b.within
}

// scratch is memory for the running operation, with undefined contents. Every call gives another piece.
func (b *Backend) scratch(bytes int) driver.Ptr {
	s := b.space()
	if s.next == len(s.pieces) {
		s.pieces = append(s.pieces, piece{})
	}
	p := &s.pieces[s.next]
	s.next++
	if int64(bytes) <= p.bytes {
		return p.at
	}
	if p.bytes > 0 {
		b.retire(p.at)
	}
	*p = piece{bytes: int64(bytes)}
	var err error
	if p.at, err = b.memory.Alloc(p.bytes); err != nil {
		*p = piece{}
		b.fail(err)
	}
	return p.at
}
