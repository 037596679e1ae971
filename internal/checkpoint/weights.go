package checkpoint

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"unsafe"

	"github.com/foretoken/foretoken/internal/dtype"
)

// ErrMissing is wrapped by the error of a request for a tensor that is not there.
var ErrMissing = errors.New("tensor is missing")

// Weights is the tensors of one or several safetensors files. All methods but
// Close may be called from several goroutines at once.
type Weights struct {
	name    string // of the checkpoint, for messages
	files   []*file
	tensors map[string]*entry
	quant   quantization
	inputs  inputs
}

// Tensor is one stored tensor: a read-only view of its file, valid until the
// weights or the checkpoint it came from are closed.
type Tensor struct {
	Name  string
	File  string // relative to the checkpoint
	Type  dtype.Type
	Shape []int
	Data  []byte // little-endian, row-major
	// Blocks is the encoding of a matrix in a block format, whose bytes are in Data: see
	// Source. Nil: Type is the encoding.
	Blocks *dtype.Matrix
}

// OpenWeights opens a single safetensors file. The caller closes it.
func OpenWeights(path string) (*Weights, error) {
	f, err := folder("").open(path)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %s: %w", path, err)
	}
	w := newWeights(path)
	if err := w.add(f); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

func newWeights(name string) *Weights {
	return &Weights{name: name, tensors: map[string]*entry{}}
}

// add parses an open file and takes ownership, also when it returns an error.
func (w *Weights) add(f *file) error {
	w.files = append(w.files, f)
	if err := f.parse(); err != nil {
		return fmt.Errorf("checkpoint: %s: %w", f.name, err)
	}
	for _, e := range f.entries {
		if other, ok := w.tensors[e.name]; ok {
			return fmt.Errorf("checkpoint: tensor %q is in both %s and %s", e.name, other.file.name, f.name)
		}
		w.tensors[e.name] = e
	}
	return nil
}

// Close unmaps the files. Tensors and matrices taken from them must not be
// used after it.
func (w *Weights) Close() error {
	errs := make([]error, len(w.files))
	for i, f := range w.files {
		errs[i] = f.close()
	}
	w.files, w.tensors = nil, nil
	return errors.Join(errs...)
}

// close unmaps the file, once nothing keeps it. It may be called twice.
func (f *file) close() error {
	f.users.Lock()
	defer f.users.Unlock()
	data := f.data
	f.data = nil
	switch {
	case data == nil || !f.mapped:
		return nil
	case f.users.kept > 0:
		f.users.left = data
		return nil
	}
	return unmapFile(data)
}

// users counts the matrices that keep a file.
type users struct {
	sync.Mutex
	kept int
	left []byte // the mapping, if the file was closed before they left
}

// Keep makes a matrix that is a view of these weights stay valid after they are closed, until free is called. Its pages
// are read from the file when they are touched.
func (w *Weights) Keep(m *dtype.Matrix) (free func() error) {
	var files []*file
	for _, b := range [][]byte{m.Data, m.Scales, m.Biases, m.Zeros} {
		if f := w.holder(b); f != nil {
			f.users.Lock()
			f.users.kept++
			f.users.Unlock()
			files = append(files, f)
		}
	}
	return func() error {
		var errs []error
		for _, f := range files {
			errs = append(errs, f.leave())
		}
		files = nil
		return errors.Join(errs...)
	}
}

// leave is the end of a use, which may be the last.
func (f *file) leave() error {
	f.users.Lock()
	defer f.users.Unlock()
	f.users.kept--
	if f.users.kept > 0 || f.users.left == nil {
		return nil
	}
	data := f.users.left
	f.users.left = nil
	return unmapFile(data)
}

// Tensors lists the names of all tensors, sorted.
func (w *Weights) Tensors() []string { return slices.Sorted(maps.Keys(w.tensors)) }

// Files lists the safetensors files, in the order they were opened.
func (w *Weights) Files() []string {
	names := make([]string, len(w.files))
	for i, f := range w.files {
		names[i] = f.name
	}
	return names
}

// Metadata is the header metadata of one of Files, or nil.
func (w *Weights) Metadata(file string) map[string]string {
	for _, f := range w.files {
		if f.name == file {
			return maps.Clone(f.metadata)
		}
	}
	return nil
}

// Has reports whether there is a tensor of that name. It does not count as use.
func (w *Weights) Has(name string) bool {
	_, ok := w.tensors[name]
	return ok
}

// Tensor returns the tensor of that name and marks it as used. The error wraps
// ErrMissing if there is none.
func (w *Weights) Tensor(name string) (Tensor, error) {
	e, err := w.use(name)
	if err != nil {
		return Tensor{}, err
	}
	data, err := e.load()
	if err != nil {
		return Tensor{}, err
	}
	return Tensor{Name: e.name, File: e.file.name, Type: e.typ, Shape: slices.Clone(e.shape), Data: data, Blocks: e.blocks}, nil
}

// Vector decodes a tensor of n numbers, of any shape, to float32 in new memory and
// marks it as used.
func (w *Weights) Vector(name string, n int) ([]float32, error) {
	e, err := w.vector(name, n)
	if err != nil {
		return nil, err
	}
	data, err := e.load()
	if err != nil {
		return nil, err
	}
	v := make([]float32, n)
	dtype.ToF32(v, e.typ, data)
	return v, nil
}

// vector finds a tensor of n numbers and marks it.
func (w *Weights) vector(name string, n int) (*entry, error) {
	e, err := w.use(name)
	if err != nil {
		return nil, err
	}
	switch e.typ {
	case dtype.F32, dtype.F16, dtype.BF16:
	default:
		return nil, e.errorf("type %v, want F32, F16 or BF16", e.typ)
	}
	if e.numbers() != n {
		return nil, e.errorf("%v of shape %s, want %d numbers", e.typ, shapeText(e.shape), n)
	}
	return e, nil
}

// Skip marks the tensors whose name satisfies known as known but not needed, and
// returns how many there were.
func (w *Weights) Skip(known func(name string) bool) int {
	n := 0
	for name, e := range w.tensors {
		if known(name) {
			e.used.Store(true)
			n++
		}
	}
	return n
}

// Unused lists the tensors that were neither read nor skipped, sorted.
func (w *Weights) Unused() []string {
	var names []string
	for name, e := range w.tensors {
		if !e.used.Load() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Release tells the kernel that t is not needed in memory for now, so that weights
// copied elsewhere are not in memory twice. The tensor stays readable: touched pages are read
// again. It does nothing for a checkpoint of strings outside of the program's constants.
func (w *Weights) Release(t Tensor) { w.release(t.Data) }

// ReleaseMatrix is Release for all parts of a matrix that view these weights. It reports
// whether its Data does; if not, that is memory that only the caller refers to.
func (w *Weights) ReleaseMatrix(m dtype.Matrix) bool {
	w.release(m.Scales)
	w.release(m.Biases)
	w.release(m.Zeros)
	return w.release(m.Data)
}

// release lets the kernel drop b if it lies in one of our mappings, and reports whether it
// lies in one of our files. Slices of other memory, such as scales that were spread over rows,
// are ignored.
func (w *Weights) release(b []byte) bool {
	f := w.holder(b)
	if f != nil && f.backed {
		adviseDrop(b)
	}
	return f != nil
}

// holder is the file that has b, nil if b is other memory.
func (w *Weights) holder(b []byte) *file {
	for _, f := range w.files {
		if f.contains(b) {
			return f
		}
	}
	return nil
}

// contains reports whether b is a part of the file's bytes.
func (f *file) contains(b []byte) bool {
	at, start := uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(unsafe.Pointer(unsafe.SliceData(f.data)))
	return len(b) > 0 && at >= start && at-start < uintptr(len(f.data))
}

// use finds a tensor and marks it.
func (w *Weights) use(name string) (*entry, error) {
	e, ok := w.tensors[name]
	if !ok {
		return nil, fmt.Errorf("checkpoint: %s: tensor %q: %w", w.name, name, ErrMissing)
	}
	e.used.Store(true)
	return e, nil
}

// bytes is the tensor's part of its file.
func (e *entry) bytes() []byte { return e.file.data[e.begin:e.end:e.end] }

// errorf is an error about the tensor that names it and its file.
func (e *entry) errorf(format string, args ...any) error {
	return fmt.Errorf("checkpoint: %s: tensor %q: %w", e.file.name, e.name, fmt.Errorf(format, args...))
}

// Bytes is the size of all tensors together.
func (w *Weights) Bytes() int64 {
	n := int64(0)
	for _, e := range w.tensors {
		n += int64(e.end - e.begin)
	}
	return n
}
