package gpu

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Memory is the memory of a tensor.
type Memory[P ~uint64] struct {
	owner *Tensors[P]
	at    P
	bytes int64
	freed bool
}

// Bytes implements backend.Memory.
func (m *Memory[P]) Bytes() int64 { return m.bytes }

// Device is the functions of a device that Tensors need.
type Device[P ~uint64] struct {
	Begin    func()                                                             // an operation begins: the working memory of the one before is free
	Zero     func(at P, bytes int64) error                                      // queues that memory becomes zero
	Send     func(to P, data []byte) error                                      // copies data to the device and returns when they may be changed
	Read     func(from P, bytes int) ([]byte, error)                            // waits, and returns bytes of the device, which are valid until the next Read
	CopyRows func(to P, toStride int, from P, fromStride, rows, cols, size int) // of cols numbers of size bytes; strides are in numbers
	At       func(t backend.Tensor) P                                           // Address, and notes the memory as used by the running pass
	Forget   func(m *Memory[P])                                                 // drops recorded passes that use memory
	Fail     func(err error)                                                    // keeps an error for the next call that returns one
}

// Tensors are the tensors of a device: the methods of backend.Backend for memory. A device embeds them.
type Tensors[P ~uint64] struct {
	name   string
	arena  *Arena[P]
	device Device[P]
	closed bool
}

// Init sets the name of the kind of device, its memory and its functions. It is called once, before all other methods.
func (ts *Tensors[P]) Init(name string, arena *Arena[P], d Device[P]) {
	ts.name, ts.arena, ts.device = name, arena, d
}

// Leave makes Free do nothing: all memory is freed at once. It reports false if it was called before.
func (ts *Tensors[P]) Leave() bool {
	was := ts.closed
	ts.closed = true
	return !was
}

// Address is the address of a tensor's first number, 0 of the zero Tensor.
func (ts *Tensors[P]) Address(t backend.Tensor) P {
	if t.Mem == nil {
		return 0
	}
	m, ok := t.Mem.(*Memory[P])
	if !ok || m.owner != ts || m.freed {
		panic(ts.name + ": tensor of another device, or freed tensor")
	}
	end := t.Offset
	if t.Rows > 0 {
		end += (t.Rows-1)*t.Stride + t.Cols
	}
	if t.Offset < 0 || int64(end*t.Type.Size()) > m.bytes {
		panic(fmt.Sprintf("%s: %d×%d numbers %d apart from %d on, in memory of %d bytes", ts.name, t.Rows, t.Cols, t.Stride, t.Offset, m.bytes))
	}
	return m.at + P(t.Offset*t.Type.Size())
}

// Alloc returns zeroed memory.
func (ts *Tensors[P]) Alloc(t dtype.Type, rows, cols int) (backend.Tensor, error) {
	if rows < 0 || cols < 0 || (cols > 0 && rows > (1<<40)/cols) {
		return backend.Tensor{}, fmt.Errorf("%s: cannot allocate a tensor of %d×%d", ts.name, rows, cols)
	}
	if t != dtype.F32 && t != dtype.F16 && t != dtype.I8 {
		return backend.Tensor{}, fmt.Errorf("%s: tensors of type %v are not supported", ts.name, t)
	}
	bytes := int64(rows) * int64(cols) * int64(t.Size())
	at, err := ts.arena.Alloc(bytes)
	if err != nil {
		return backend.Tensor{}, err
	}
	if bytes > 0 {
		if err := ts.device.Zero(at, bytes); err != nil {
			return backend.Tensor{}, errors.Join(err, ts.arena.Free(at))
		}
	}
	return backend.Tensor{Type: t, Rows: rows, Cols: cols, Stride: cols, Mem: &Memory[P]{owner: ts, at: at, bytes: bytes}}, nil
}

// Over is a tensor of float32 numbers over memory of the device, which is not freed with it.
func (ts *Tensors[P]) Over(at P, rows, cols int) backend.Tensor {
	return backend.Tensor{Type: dtype.F32, Rows: rows, Cols: cols, Stride: cols, Mem: &Memory[P]{owner: ts, at: at, bytes: int64(4 * rows * cols)}}
}

// Free frees the memory of t. All tensors in it are invalid after it.
func (ts *Tensors[P]) Free(t backend.Tensor) {
	m, ok := t.Mem.(*Memory[P])
	if !ok || m.freed || m.owner != ts || ts.closed {
		return
	}
	m.freed = true
	ts.device.Forget(m)
	ts.device.Fail(ts.arena.Free(m.at))
}

// Write copies src into dst.
func (ts *Tensors[P]) Write(dst backend.Tensor, src []float32) error {
	if dst.Type != dtype.F32 || len(src) != dst.Rows*dst.Cols {
		return fmt.Errorf("%s: write of %d numbers into %d×%d of %v", ts.name, len(src), dst.Rows, dst.Cols, dst.Type)
	}
	return ts.WriteBytes(dst, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(src))), 4*len(src)))
}

// WriteBytes copies src to dst's memory.
func (ts *Tensors[P]) WriteBytes(dst backend.Tensor, src []byte) error {
	ts.device.Begin()
	row := dst.Cols * dst.Type.Size()
	if len(src) != dst.Rows*row {
		return fmt.Errorf("%s: write of %d bytes into a tensor of %d", ts.name, len(src), dst.Rows*row)
	}
	to := ts.Address(dst)
	if len(src) == 0 {
		return nil
	}
	if solid(dst) {
		return ts.device.Send(to, src)
	}
	from, err := ts.arena.Alloc(int64(len(src)))
	if err != nil {
		return err
	}
	if err = ts.device.Send(from, src); err == nil {
		ts.device.CopyRows(to, dst.Stride, from, dst.Cols, dst.Rows, dst.Cols, dst.Type.Size())
	}
	return errors.Join(err, ts.arena.Free(from))
}

// Host copies t's numbers to the host.
func (ts *Tensors[P]) Host(t backend.Tensor) ([]float32, error) {
	if t.Type != dtype.F32 || !solid(t) {
		return nil, fmt.Errorf("%s: host view of rows %d apart and %d long, of %v", ts.name, t.Stride, t.Cols, t.Type)
	}
	data, err := ts.device.Read(ts.Address(t), 4*t.Rows*t.Cols)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/4), nil
}

// ReadBytes copies src's memory to dst.
func (ts *Tensors[P]) ReadBytes(dst []byte, src backend.Tensor) error {
	ts.device.Begin()
	row := src.Cols * src.Type.Size()
	if len(dst) != src.Rows*row {
		return fmt.Errorf("%s: read of %d bytes from a tensor of %d", ts.name, len(dst), src.Rows*row)
	}
	from := ts.Address(src)
	if !solid(src) {
		to, err := ts.arena.Alloc(int64(len(dst)))
		if err != nil {
			return err
		}
		defer func() { ts.device.Fail(ts.arena.Free(to)) }()
		ts.device.CopyRows(to, src.Cols, from, src.Stride, src.Rows, src.Cols, src.Type.Size())
		from = to
	}
	for at := 0; at < len(dst) || at == 0; at += readPiece {
		n := min(readPiece, len(dst)-at)
		data, err := ts.device.Read(from+P(at), n)
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
func (ts *Tensors[P]) Copy(dst, src backend.Tensor) {
	backend.CheckCopy(dst, src)
	ts.device.Begin()
	ts.device.CopyRows(ts.device.At(dst), dst.Stride, ts.device.At(src), src.Stride, dst.Rows, dst.Cols, dst.Type.Size())
}

// solid reports whether a tensor has no gaps between its rows.
func solid(t backend.Tensor) bool { return t.Stride == t.Cols || t.Rows <= 1 }
