// Package cpu computes on the CPU: memory, a pool of threads, and the operations of
// package backend, each cut into parts for the threads. The inner loops are those of package
// kernel.
//
// Every operation gives each output element one fixed order of additions that depends neither
// on the other rows of the call nor on the number of threads.
package cpu

import (
	"fmt"
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
	"github.com/foretoken/foretoken/internal/dtype"
)

func init() {
	backend.Register(backend.Device{
		Name: "cpu", ISAs: isas, Probe: probe, Threads: usualThreads,
		Open: func(o backend.Options) (backend.Backend, error) {
			b, err := Open(o)
			if err != nil {
				return nil, err // and no Backend that is a nil pointer
			}
			return b, nil
		},
	})
}

// Backend is the processor. See backend.Backend for the contract of its methods.
type Backend struct {
	name    string
	isa     *kernel.Set
	pool    *poolUser
	workers []scratch // one per thread
	allocs  map[*memory]struct{}
	weights map[*kernel.Weight]struct{}
	inputs  map[*kernel.Input]int // transformations of weights' inputs, and how many weights have each
	used    atomic.Int64          // bytes of all of them

	// Operands of the running operation. They live here and not on the stack so that
	// handing them to the pool allocates nothing.
	matmul  matmulOp
	heads   eachOp
	attend  attendOp
	delta   deltaOp
	experts expertsOp
	rowwise rowwiseOp
	conv    convolveOp
	mix     mixOp
	top     topOp
	spread  spreadOp
}

var (
	_ backend.Backend  = (*Backend)(nil)
	_ backend.Spreader = (*Backend)(nil)
	_ backend.Meter    = (*Backend)(nil)
)

// tile is how many output rows of a weight are computed together.
const tile = kernel.Tile

// scratch is the working memory of one thread.
type scratch struct {
	kernel kernel.Scratch
	rows   kernel.Activations // of a product, some of its input
	out    []float32          // tiles of a product, before they go to their rows
	turned []float32          // a row of an input, transformed
	sum    []float32          // of the experts' answers for a row
	keys   []float32          // ranks of a row's experts
	groups []float32          // likewise, groups of experts
	best   []int32            // of these
	top    topScratch
}

// Open returns the CPU as a backend. All backends of a process share their threads,
// an operation at a time; one with fewer threads uses the first of them. The threads
// spin between operations and so occupy a slot of Go's scheduler each: a process with other
// work sets GOMAXPROCS to one more than Threads.
func Open(o backend.Options) (*Backend, error) {
	n := o.Threads
	if n < 0 {
		return nil, fmt.Errorf("cpu: %d threads; want 0 (the default) or more", n)
	}
	if n == 0 {
		n, _ = usualThreads()
	}
	set, err := findISA(o.ISA)
	if err != nil {
		return nil, err
	}
	pool := usePool(n)
	return &Backend{
		name:    fmt.Sprintf("cpu %s, %d threads", set.Name, pool.size()),
		isa:     set,
		pool:    pool,
		workers: make([]scratch, n),
		allocs:  map[*memory]struct{}{},
		weights: map[*kernel.Weight]struct{}{},
		inputs:  map[*kernel.Input]int{},
	}, nil
}

// Name is the instruction set and the number of threads.
func (b *Backend) Name() string { return b.name }

// hostMemory is the bytes of memory of the machine, 0 if the system does not tell, and those that this process may still
// allocate: then few enough for a small machine.
func hostMemory() (total, free int64) {
	if total, free = systemMemory(); total == 0 {
		return 0, 4 << 30
	}
	return total, free
}

// FreeMemory is the free memory of the machine for this process.
func (b *Backend) FreeMemory() int64 {
	_, free := hostMemory()
	return free
}

// Usage implements backend.Meter.
func (b *Backend) Usage() []backend.Usage {
	total, free := hostMemory()
	return []backend.Usage{{Device: b.name, Memory: total, Free: free, Used: b.used.Load()}}
}

// Close frees all memory. Tensors and weights are invalid after it.
func (b *Backend) Close() error {
	b.pool.release()
	for w := range b.weights {
		b.Unload(w)
	}
	for m := range b.allocs {
		b.release(m)
	}
	return nil
}

// memory is a piece of host memory; one of the slices is set, and none once it was freed: a
// use of freed memory is a panic that names a line, never a read of
// newer contents.
type memory struct {
	f32 []float32
	f16 []uint16
	i8  []int8 // aligned like float32: scales are among the codes

	mapped []byte // the same as bytes, if it is outside of the heap
}

// mapFrom is the size in bytes from which memory is mapped. The system gives whole pages: at
// this size the overhead is a sixteenth at most.
const mapFrom = 64 << 10

func (m *memory) Bytes() int64 { return int64(4*len(m.f32) + 2*len(m.f16) + len(m.i8)) }

// raw is the memory of n numbers from number at on.
func (m *memory) raw(at, n int) []byte {
	switch {
	case m.f32 != nil:
		return bytesOf(m.f32[at : at+n])
	case m.f16 != nil:
		return bytesOf(m.f16[at : at+n])
	default:
		return bytesOf(m.i8[at : at+n])
	}
}

// bytesOf is the same memory as bytes.
func bytesOf[T float32 | uint16 | int8](x []T) []byte {
	var one T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(one)))
}

// Alloc returns zeroed memory.
func (b *Backend) Alloc(t dtype.Type, rows, cols int) (backend.Tensor, error) {
	if rows < 0 || cols < 0 || (cols > 0 && rows > (1<<40)/cols) {
		return backend.Tensor{}, fmt.Errorf("cpu: cannot allocate a tensor of %d×%d", rows, cols)
	}
	if t != dtype.F32 && t != dtype.F16 && t != dtype.I8 {
		return backend.Tensor{}, fmt.Errorf("cpu: tensors of type %v are not supported", t)
	}
	m, n := &memory{}, rows*cols
	var start unsafe.Pointer
	if bytes := n * t.Size(); bytes >= mapFrom {
		var err error
		if m.mapped, err = mapMemory(bytes); err != nil {
			return backend.Tensor{}, err
		}
		start = unsafe.Pointer(unsafe.SliceData(m.mapped))
	} else {
		start = unsafe.Pointer(unsafe.SliceData(make([]float32, (bytes+3)/4)))
	}
	switch t {
	case dtype.F32:
		m.f32 = unsafe.Slice((*float32)(start), n)
	case dtype.F16:
		m.f16 = unsafe.Slice((*uint16)(start), n)
	default:
		m.i8 = unsafe.Slice((*int8)(start), n)
	}
	b.allocs[m] = struct{}{}
	b.used.Add(m.Bytes())
	return backend.Tensor{Type: t, Rows: rows, Cols: cols, Stride: cols, Mem: m}, nil
}

// Free frees the memory of t. All tensors in it are invalid after it.
func (b *Backend) Free(t backend.Tensor) {
	if m, ok := t.Mem.(*memory); ok {
		b.release(m)
	}
}

// release frees memory, once.
func (b *Backend) release(m *memory) {
	if _, ok := b.allocs[m]; !ok {
		return
	}
	delete(b.allocs, m)
	b.used.Add(-m.Bytes())
	mapped := m.mapped
	*m = memory{}
	unmapMemory(mapped)
}

// Write copies src into dst.
func (b *Backend) Write(dst backend.Tensor, src []float32) error {
	if len(src) != dst.Rows*dst.Cols {
		return fmt.Errorf("cpu: write of %d numbers into %d×%d", len(src), dst.Rows, dst.Cols)
	}
	for r := range dst.Rows {
		copy(row(dst, r), src[r*dst.Cols:(r+1)*dst.Cols])
	}
	return nil
}

// Fill sets all numbers of dst.
func (b *Backend) Fill(dst backend.Tensor, x float32) {
	for r := range dst.Rows {
		y := row(dst, r)
		if math.Float32bits(x) == 0 {
			clear(y) // much faster than a loop
			continue
		}
		for i := range y {
			y[i] = x
		}
	}
}

// Host is t's numbers themselves.
func (b *Backend) Host(t backend.Tensor) ([]float32, error) {
	if t.Stride != t.Cols && t.Rows > 1 {
		return nil, fmt.Errorf("cpu: host view of rows %d apart and %d long", t.Stride, t.Cols)
	}
	return t.Mem.(*memory).f32[t.Offset : t.Offset+t.Rows*t.Cols], nil
}

// Pass calls queue: there is nothing to gain from recording.
func (b *Backend) Pass(_ backend.Pass, queue func()) { queue() }

// Copy copies src to dst.
func (b *Backend) Copy(dst, src backend.Tensor) {
	backend.CheckCopy(dst, src)
	if dst.Stride == dst.Cols && src.Stride == src.Cols { // no gaps: one long row
		dst.Rows, dst.Cols, src.Cols = 1, dst.Rows*dst.Cols, dst.Rows*dst.Cols
	}
	for r := range dst.Rows {
		copy(rawRow(dst, r), rawRow(src, r))
	}
}

// ReadBytes copies src's memory to dst.
func (b *Backend) ReadBytes(dst []byte, src backend.Tensor) error {
	if want := src.Rows * src.Cols * src.Type.Size(); len(dst) != want {
		return fmt.Errorf("cpu: read of %d bytes from a tensor of %d", len(dst), want)
	}
	for r := range src.Rows {
		dst = dst[copy(dst, rawRow(src, r)):]
	}
	return nil
}

// WriteBytes copies src to dst's memory.
func (b *Backend) WriteBytes(dst backend.Tensor, src []byte) error {
	if want := dst.Rows * dst.Cols * dst.Type.Size(); len(src) != want {
		return fmt.Errorf("cpu: write of %d bytes into a tensor of %d", len(src), want)
	}
	for r := range dst.Rows {
		src = src[copy(rawRow(dst, r), src):]
	}
	return nil
}

// rawRow is the memory of row r of any tensor.
func rawRow(t backend.Tensor, r int) []byte {
	return t.Mem.(*memory).raw(t.Offset+r*t.Stride, t.Cols)
}

// rowsOf is a float32 tensor for kernels.
func rowsOf(t backend.Tensor) kernel.Rows {
	n := 0
	if t.Rows > 0 {
		n = (t.Rows-1)*t.Stride + t.Cols
	}
	return kernel.Rows{Data: t.Mem.(*memory).f32[t.Offset:][:n], N: t.Rows, Cols: t.Cols, Stride: t.Stride}
}

// row is row r of a float32 tensor.
func row(t backend.Tensor, r int) []float32 {
	i := t.Offset + r*t.Stride
	return t.Mem.(*memory).f32[i : i+t.Cols : i+t.Cols]
}
