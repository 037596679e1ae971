package cuda

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
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

// Alloc returns zeroed memory.
func (b *Backend) Alloc(t dtype.Type, rows, cols int) (backend.Tensor, error) {
	if rows < 0 || cols < 0 || (cols > 0 && rows > (1<<40)/cols) {
		return backend.Tensor{}, fmt.Errorf("cuda: cannot allocate a tensor of %d×%d", rows, cols)
	}
	if t != dtype.F32 && t != dtype.F16 && t != dtype.I8 {
		return backend.Tensor{}, fmt.Errorf("cuda: tensors of type %v are not supported", t)
	}
	bytes := int64(rows) * int64(cols) * int64(t.Size())
	at, err := b.memory.alloc(bytes)
	if err != nil {
		return backend.Tensor{}, err
	}
	if bytes > 0 {
		if err := b.stream.Set(at, 0, bytes); err != nil {
			return backend.Tensor{}, errors.Join(err, b.memory.free(at))
		}
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
	b.passes.forget(m)
	b.fail(b.memory.free(m.at))
}

// Write copies src into dst.
func (b *Backend) Write(dst backend.Tensor, src []float32) error {
	if dst.Type != dtype.F32 || len(src) != dst.Rows*dst.Cols {
		return fmt.Errorf("cuda: write of %d numbers into %d×%d of %v", len(src), dst.Rows, dst.Cols, dst.Type)
	}
	return b.WriteBytes(dst, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(src))), 4*len(src)))
}

// WriteBytes copies src to dst's memory.
func (b *Backend) WriteBytes(dst backend.Tensor, src []byte) error {
	b.begin()
	row := dst.Cols * dst.Type.Size()
	if len(src) != dst.Rows*row {
		return fmt.Errorf("cuda: write of %d bytes into a tensor of %d", len(src), dst.Rows*row)
	}
	to := b.address(dst)
	if len(src) == 0 {
		return nil
	}
	if solid(dst) {
		return b.send(to, src)
	}
	from, err := b.memory.alloc(int64(len(src)))
	if err != nil {
		return err
	}
	if err = b.send(from, src); err == nil {
		b.copyRows(to, dst.Stride, from, dst.Cols, dst.Rows, dst.Cols, dst.Type.Size())
	}
	return errors.Join(err, b.memory.free(from))
}

// Host copies t's numbers to pinned memory.
func (b *Backend) Host(t backend.Tensor) ([]float32, error) {
	if t.Type != dtype.F32 || !solid(t) {
		return nil, fmt.Errorf("cuda: host view of rows %d apart and %d long, of %v", t.Stride, t.Cols, t.Type)
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
		return fmt.Errorf("cuda: read of %d bytes from a tensor of %d", len(dst), src.Rows*row)
	}
	from := b.address(src)
	if !solid(src) {
		to, err := b.memory.alloc(int64(len(dst)))
		if err != nil {
			return err
		}
		defer func() { b.fail(b.memory.free(to)) }()
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

// readPiece is how many bytes ReadBytes copies at once, through pinned memory.
const readPiece = 16 << 20

// Copy copies src to dst.
func (b *Backend) Copy(dst, src backend.Tensor) {
	backend.CheckCopy(dst, src)
	b.begin()
	b.copyRows(b.at(dst), dst.Stride, b.at(src), src.Stride, dst.Rows, dst.Cols, dst.Type.Size())
}

// solid reports whether a tensor has no gaps between its rows.
func solid(t backend.Tensor) bool { return t.Stride == t.Cols || t.Rows <= 1 }

// read brings n bytes of the device to pinned memory, where they stay until the next read. It waits
// for queued work and returns its error.
func (b *Backend) read(from driver.Ptr, n int) ([]byte, error) {
	if len(b.host) < n {
		if err := b.wait(); err != nil {
			return nil, err
		}
		grown, err := b.dev.Pin(int64(max(n, 64<<10)))
		if err != nil {
			return nil, err
		}
		if b.host != nil {
			if err := b.dev.Unpin(b.host); err != nil {
				return nil, err
			}
		}
		b.host = grown
	}
	if n > 0 {
		if err := b.stream.Read(b.host[:n], from); err != nil {
			return nil, errors.Join(err, b.wait())
		}
	}
	if err := b.wait(); err != nil {
		return nil, err
	}
	return b.host[:n:n], nil
}

// staging is pinned memory for uploads. It is free again after every wait for
// the stream.
type staging struct {
	data []byte
	used int
}

// stage is n bytes of pinned memory for one copy to the device, n at most its size.
func (b *Backend) stage(n int) ([]byte, error) {
	if b.staged.used+n > len(b.staged.data) {
		if err := b.stream.Wait(); err != nil {
			return nil, err
		}
		b.staged.used = 0
	}
	piece := b.staged.data[b.staged.used:][:n:n]
	b.staged.used += (n + 255) &^ 255
	return piece, nil
}

// send copies data to the device and returns when it may be changed.
func (b *Backend) send(to driver.Ptr, data []byte) error {
	for len(data) > 0 {
		n := min(len(data), max(1, len(b.staged.data)/2))
		piece, err := b.stage(n)
		if err != nil {
			return err
		}
		copy(piece, data)
		if err := b.stream.Write(to, piece); err != nil {
			return err
		}
		to, data = to+driver.Ptr(n), data[n:]
	}
	return nil
}

// scratch is the working memory of operations: a list of pieces, which the operations share.
// They do not move unless one has to grow, and then recorded passes are dropped.
type scratch struct {
	pieces []piece
	next   int // piece of the running operation
}

type piece struct {
	at      driver.Ptr
	bytes   int64
	outside bool // of passes
}

// scratch is memory for the running operation, with undefined contents. Every call gives another piece. Operations outside of
// passes have separate pieces, so recorded passes stay when these grow.
func (b *Backend) scratch(bytes int) driver.Ptr {
	if b.passes.recording == nil {
		return b.take(&b.outside, bytes)
	}
	return b.take(&b.pieces, bytes)
}

// take is the next piece of a list.
func (b *Backend) take(s *scratch, bytes int) driver.Ptr {
	if s.next == len(s.pieces) {
		s.pieces = append(s.pieces, piece{outside: s == &b.outside})
	}
	p := &s.pieces[s.next]
	s.next++
	return b.grow(p, bytes)
}

// grow is memory that does not move unless it has to grow, and then recorded passes
// are dropped.
func (b *Backend) grow(p *piece, bytes int) driver.Ptr {
	if int64(bytes) <= p.bytes {
		return p.at
	}
	if p.bytes > 0 {
		if !p.outside {
			b.passes.clear(b)
		}
		b.retire(p.at)
	}
	*p = piece{bytes: int64(bytes), outside: p.outside}
	var err error
	if p.at, err = b.memory.alloc(p.bytes); err != nil {
		*p = piece{outside: p.outside}
		b.fail(err)
	}
	return p.at
}

// zeros is grow for memory that is zero when it is new: kernels leave it so. After an error there is nothing new, for
// nothing could make it zero.
func (b *Backend) zeros(p *piece, bytes int) driver.Ptr {
	if b.err != nil {
		return p.at
	}
	had := p.bytes
	at := b.grow(p, bytes)
	if p.bytes == had || b.err != nil {
		return at
	}
	if err := b.stream.Set(at, 0, p.bytes); err != nil {
		b.fail(err)
		b.retire(at)
		*p = piece{}
	}
	return at
}

// retire frees memory that operations of the running pass may still use.
func (b *Backend) retire(at driver.Ptr) {
	if r := b.passes.recording; r != nil {
		r.retired = append(r.retired, at)
		return
	}
	b.fail(b.memory.free(at))
}

// upload is memory of the running operation with the contents of data. It is not part of a pass:
// the differences between passes are in the call block.
func (b *Backend) upload(data []byte) driver.Ptr {
	if b.passes.recording != nil {
		panic("cuda: upload of a list within a pass: lists of a pass are in its call block")
	}
	if len(data) == 0 {
		return 0
	}
	at := b.scratch(len(data))
	if b.err == nil {
		b.fail(b.send(at, data))
	}
	return at
}

// arena is the device's memory: slabs that are cut into pieces, and single large
// allocations. Freed memory can be used again at once: the stream runs in order.
type arena struct {
	dev   driver.Device
	slab  int64
	slabs []*slab
	sizes map[driver.Ptr]int64 // of the pieces that are used
	taken atomic.Int64         // bytes of the driver, those of slabs included
}

// take allocates memory of the driver, if necessary after freeing unused slabs. If
// there is not enough, the error says how much is free.
func (a *arena) take(bytes int64) (driver.Ptr, error) {
	at, err := a.dev.Alloc(bytes)
	if errors.Is(err, driver.OutOfMemory) && slices.ContainsFunc(a.slabs, (*slab).empty) {
		if err := a.trim(); err != nil {
			return 0, err
		}
		at, err = a.dev.Alloc(bytes)
	}
	if err == nil {
		a.taken.Add(bytes)
		return at, nil
	}
	var e *driver.Error
	if free, total, unknown := a.dev.Memory(); unknown == nil && errors.As(err, &e) && e.Code == driver.OutOfMemory {
		const mb = 1e6
		err = &driver.Error{Call: e.Call, Code: e.Code, Cause: fmt.Errorf("%.1f MB are needed, %.1f of the GPU's %.1f MB are free and this process has %.1f MB",
			float64(bytes)/mb, float64(free)/mb, float64(total)/mb, float64(a.taken.Load())/mb)}
	}
	return 0, err
}

// trim frees slabs without pieces.
func (a *arena) trim() (err error) {
	a.slabs = slices.DeleteFunc(a.slabs, func(s *slab) bool {
		if !s.empty() {
			return false
		}
		err = errors.Join(err, a.give(s.at, s.bytes))
		return true
	})
	return err
}

// give returns memory to the driver.
func (a *arena) give(at driver.Ptr, bytes int64) error {
	a.taken.Add(-bytes)
	return a.dev.Free(at)
}

// slab is memory of the driver, and its unused ranges by address.
type slab struct {
	at    driver.Ptr
	bytes int64
	free  []span
}

type span struct {
	at    driver.Ptr
	bytes int64
}

// alignment is that of every piece.
const alignment = 256

// alloc returns memory with any content.
func (a *arena) alloc(bytes int64) (driver.Ptr, error) {
	if a.sizes == nil {
		a.sizes = map[driver.Ptr]int64{}
	}
	size := max(bytes, 1)
	if size*4 > a.slab {
		return a.alone(size)
	}
	size = (size + alignment - 1) &^ (alignment - 1)
	for _, s := range a.slabs {
		if at := s.take(size); at != 0 {
			a.sizes[at] = size
			return at, nil
		}
	}
	at, err := a.take(a.slab)
	if errors.Is(err, driver.OutOfMemory) {
		return a.alone(size) // the last of the memory is less than a slab
	}
	if err != nil {
		return 0, err
	}
	s := &slab{at: at, bytes: a.slab, free: []span{{at, a.slab}}}
	a.slabs = append(a.slabs, s)
	s.take(size)
	a.sizes[at] = size
	return at, nil
}

// alone is a piece outside of slabs.
func (a *arena) alone(size int64) (driver.Ptr, error) {
	at, err := a.take(size)
	if err == nil {
		a.sizes[at] = size
	}
	return at, err
}

// take cuts a piece from the first range that has it, or returns 0.
func (s *slab) take(size int64) driver.Ptr {
	for i := range s.free {
		f := &s.free[i]
		if f.bytes < size {
			continue
		}
		at := f.at
		f.at, f.bytes = f.at+driver.Ptr(size), f.bytes-size
		if f.bytes == 0 {
			s.free = slices.Delete(s.free, i, i+1)
		}
		return at
	}
	return 0
}

// give returns a piece, joined with its neighbors.
func (s *slab) give(at driver.Ptr, size int64) {
	i, _ := slices.BinarySearchFunc(s.free, at, func(f span, at driver.Ptr) int {
		if f.at < at {
			return -1
		}
		return 1
	})
	s.free = slices.Insert(s.free, i, span{at, size})
	if i+1 < len(s.free) && s.free[i].at+driver.Ptr(s.free[i].bytes) == s.free[i+1].at {
		s.free[i].bytes += s.free[i+1].bytes
		s.free = slices.Delete(s.free, i+1, i+2)
	}
	if i > 0 && s.free[i-1].at+driver.Ptr(s.free[i-1].bytes) == s.free[i].at {
		s.free[i-1].bytes += s.free[i].bytes
		s.free = slices.Delete(s.free, i, i+1)
	}
}

func (s *slab) empty() bool { return len(s.free) == 1 && s.free[0].bytes == s.bytes }

// free frees a piece. One slab without pieces is kept for the next allocation.
func (a *arena) free(at driver.Ptr) error {
	size, ok := a.sizes[at]
	if !ok {
		return nil
	}
	delete(a.sizes, at)
	empty := 0
	for i, s := range a.slabs {
		if s.empty() {
			empty++
		}
		if at < s.at || at >= s.at+driver.Ptr(s.bytes) {
			continue
		}
		s.give(at, size)
		if s.empty() && (empty > 0 || slices.ContainsFunc(a.slabs[i+1:], (*slab).empty)) {
			a.slabs = slices.Delete(a.slabs, i, i+1)
			return a.give(s.at, s.bytes)
		}
		return nil
	}
	return a.give(at, size)
}

// unused is how many bytes of slabs are in no piece.
func (a *arena) unused() int64 {
	var n int64
	for _, s := range a.slabs {
		for _, f := range s.free {
			n += f.bytes
		}
	}
	return n
}

// close frees everything.
func (a *arena) close() error {
	var err error
	for at, size := range a.sizes {
		if !slices.ContainsFunc(a.slabs, func(s *slab) bool { return at >= s.at && at < s.at+driver.Ptr(s.bytes) }) {
			err = errors.Join(err, a.give(at, size))
		}
	}
	for _, s := range a.slabs {
		err = errors.Join(err, a.give(s.at, s.bytes))
	}
	a.slabs, a.sizes = nil, nil
	return err
}
