package vulkan

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/gpu"
	"github.com/foretoken/foretoken/internal/backend/vulkan/driver"
	"github.com/foretoken/foretoken/internal/dtype"
)

// memory is a piece of the device's memory.
type memory struct {
	owner *Backend
	at    driver.Ptr
	bytes int64
	freed bool
}

func (m *memory) Bytes() int64 { return m.bytes }

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

// Alloc returns zeroed memory.
func (b *Backend) Alloc(t dtype.Type, rows, cols int) (backend.Tensor, error) {
	if rows < 0 || cols < 0 || (cols > 0 && rows > (1<<40)/cols) {
		return backend.Tensor{}, fmt.Errorf("vulkan: cannot allocate a tensor of %d×%d", rows, cols)
	}
	if t != dtype.F32 && t != dtype.F16 && t != dtype.I8 {
		return backend.Tensor{}, fmt.Errorf("vulkan: tensors of type %v are not supported", t)
	}
	bytes := int64(rows) * int64(cols) * int64(t.Size())
	at, err := b.memory.Alloc(bytes)
	if err != nil {
		return backend.Tensor{}, err
	}
	if bytes > 0 {
		c, err := b.queue.commands(false)
		if err != nil {
			return backend.Tensor{}, errors.Join(err, b.memory.Free(at))
		}
		c.Set(at, (bytes+3)&^3)
	}
	return backend.Tensor{Type: t, Rows: rows, Cols: cols, Stride: cols, Mem: &memory{owner: b, at: at, bytes: bytes}}, nil
}

// Free frees the memory of t. All tensors in it are invalid after it.
func (b *Backend) Free(t backend.Tensor) {
	m, ok := t.Mem.(*memory)
	if !ok || m.freed || m.owner != b || b.closed {
		return
	}
	m.freed = true
	b.passes.Forget(m)
	b.fail(b.memory.Free(m.at))
}

// Write copies src into dst.
func (b *Backend) Write(dst backend.Tensor, src []float32) error {
	if dst.Type != dtype.F32 || len(src) != dst.Rows*dst.Cols {
		return fmt.Errorf("vulkan: write of %d numbers into %d×%d of %v", len(src), dst.Rows, dst.Cols, dst.Type)
	}
	return b.WriteBytes(dst, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(src))), 4*len(src)))
}

// WriteBytes copies src to dst's memory.
func (b *Backend) WriteBytes(dst backend.Tensor, src []byte) error {
	b.begin()
	row := dst.Cols * dst.Type.Size()
	if len(src) != dst.Rows*row {
		return fmt.Errorf("vulkan: write of %d bytes into a tensor of %d", len(src), dst.Rows*row)
	}
	to := b.address(dst)
	if len(src) == 0 {
		return nil
	}
	if solid(dst) {
		return b.send(to, src)
	}
	from, err := b.memory.Alloc(int64(len(src)))
	if err != nil {
		return err
	}
	if err = b.send(from, src); err == nil {
		b.copyRows(to, dst.Stride, from, dst.Cols, dst.Rows, dst.Cols, dst.Type.Size())
	}
	return errors.Join(err, b.memory.Free(from))
}

// Host copies t's numbers to the host.
func (b *Backend) Host(t backend.Tensor) ([]float32, error) {
	if t.Type != dtype.F32 || !solid(t) {
		return nil, fmt.Errorf("vulkan: host view of rows %d apart and %d long, of %v", t.Stride, t.Cols, t.Type)
	}
	data, err := b.read(b.address(t), 4*t.Rows*t.Cols)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/4), nil
}

// ReadBytes copies src's memory to dst.
func (b *Backend) ReadBytes(dst []byte, src backend.Tensor) error {
	b.begin()
	row := src.Cols * src.Type.Size()
	if len(dst) != src.Rows*row {
		return fmt.Errorf("vulkan: read of %d bytes from a tensor of %d", len(dst), src.Rows*row)
	}
	from := b.address(src)
	if !solid(src) {
		to, err := b.memory.Alloc(int64(len(dst)))
		if err != nil {
			return err
		}
		defer func() { b.fail(b.memory.Free(to)) }()
		b.copyRows(to, src.Cols, from, src.Stride, src.Rows, src.Cols, src.Type.Size())
		from = to
	}
	for at := 0; at < len(dst) || at == 0; at += readPiece {
		n := min(readPiece, len(dst)-at)
		data, err := b.read(from+driver.Ptr(at), n)
		if err != nil {
			return err
		}
		copy(dst[at:], data)
	}
	return nil
}

// readPiece is how many bytes ReadBytes copies at once.
const readPiece = 16 << 20

// Copy copies src to dst.
func (b *Backend) Copy(dst, src backend.Tensor) {
	backend.CheckCopy(dst, src)
	b.begin()
	b.copyRows(b.at(dst), dst.Stride, b.at(src), src.Stride, dst.Rows, dst.Cols, dst.Type.Size())
}

// solid reports whether a tensor has no gaps between its rows.
func solid(t backend.Tensor) bool { return t.Stride == t.Cols || t.Rows <= 1 }

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
