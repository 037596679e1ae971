package weights

import (
	"context"
	"fmt"
	"iter"
	"runtime/debug"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/exactmath"
	"github.com/foretoken/foretoken/internal/rescue"
)

// source is where weights come from: a checkpoint or a generator.
type source interface {
	// find searches a weight. A missing one is recorded, for err, unless it is optional.
	find(w *Weight) bool
	// copies reports whether a weight that was found is a copy, see NewCopy.
	copies(w *Weight) (bool, error)
	// err is the error of all missing weights, or nil.
	err() error
	matrices(w *Weight) ([]dtype.Matrix, error)
	// values are effective numbers.
	values(w *Weight) ([]float32, error)
	// numbers are IDs.
	numbers(w *Weight) ([]int64, error)
	// release drops the pages of a matrix. It reports whether the matrix is a view: if
	// not, it is separate memory.
	release(m *dtype.Matrix) bool
	// keep makes a matrix stay valid until free is called.
	keep(m *dtype.Matrix) (free func() error)
}

// Loader brings weights from a source to a backend.
type Loader struct {
	Backend backend.Backend
	Compute backend.Compute
	// Bits is the number of bits that a module, by its canonical name, is quantized to; 0: it is unchanged.
	// Nil: all are.
	Bits    func(module string) int
	Context context.Context // ends loading with its error; nil: nothing does
	// Progress is called from time to time with the bytes read so far; may be nil.
	Progress func(done, total int64)

	from       source
	weights    []backend.Weight
	tensors    []backend.Tensor
	kept       []func() error
	missing    bool // a weight was not found
	parameters int64
	done       int64 // bytes read
	total      int64
	tables     int64 // bytes of matrices on the host
	garbage    int64 // bytes of copies dropped since memory was last returned to the system
}

// From makes the loader read a checkpoint.
func (l *Loader) From(f *Files) {
	l.from, l.total = f, f.source.Bytes()
}

// Generated makes the loader generate weights of a form that mean nothing.
func (l *Loader) Generated(f Form) { l.from = &generator{form: f} }

// Parameters is the number of numbers loaded so far.
func (l *Loader) Parameters() int64 { return l.parameters }

// Done forgets the source of the weights: it may be large, and the loader lives as long as
// they do.
func (l *Loader) Done() { l.from = nil }

// Err is the error of all missing weights, or nil.
func (l *Loader) Err() error { return l.from.err() }

// Load loads a table. After a missing weight it only searches the rest, so
// that the error names all missing ones.
func (l *Loader) Load(table iter.Seq[*Weight]) error {
	for w := range table {
		found := l.from.find(w)
		l.missing = l.missing || !found && w.copied == ""
		if l.missing {
			continue
		}
		same := !found
		var err error
		switch {
		case w.copied != "" && found:
			same, err = l.from.copies(w)
		case w.alike != nil:
			same, err = l.alike(w)
		}
		if err != nil {
			return err
		}
		if same {
			*w.matrix = *w.shared
			continue
		}
		if l.Context != nil && l.Context.Err() != nil {
			return l.Context.Err()
		}
		l.parameters += w.Parameters()
		switch {
		case w.Kind == Table:
			*w.host, err = l.table(w)
		case w.Kind == Lookup:
			*w.rows, err = l.lookup(w)
		case w.Kind == IDs:
			*w.ids, err = l.from.numbers(w)
			l.tables += 4 * int64(w.Cols)
		case w.IsMatrix():
			*w.matrix, err = l.matrices(w)
		default:
			err = l.vector(w)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// alike reports whether a weight is the matrix that it may be in place of.
func (l *Loader) alike(w *Weight) (bool, error) {
	stack, err := l.from.matrices(w)
	if err != nil {
		return false, err
	}
	return w.alike(&stack[0])
}

// matrices quantizes the matrices of a weight if requested, or if integer products have no
// other form of it, and copies them to the backend. The file's pages are released afterwards.
func (l *Loader) matrices(w *Weight) (backend.Weight, error) {
	stack, err := l.from.matrices(w)
	if err != nil {
		return nil, err
	}
	use := stack
	bits := 0
	if l.Bits != nil && w.Kind != Kernel {
		bits = l.Bits(w.module())
	}
	if _, floats := stack[0].IntegerForm(); floats && bits == 0 && l.Compute == backend.Int8 {
		bits = 8
	}
	if bits > 0 {
		use = make([]dtype.Matrix, len(stack))
		for i := range stack {
			if use[i], err = l.requantize(&stack[i], bits); err != nil {
				return nil, fmt.Errorf("weights: %s: %w", w.module(), err)
			}
		}
	}
	loaded, err := backend.At(l.Backend, partOf(w.Name)).Load(l.Compute, use...)
	if err != nil {
		return nil, fmt.Errorf("weights: %s: %w", w.module(), err)
	}
	l.weights = append(l.weights, loaded)
	for i := range stack {
		l.release(&stack[i])
	}
	if bits > 0 {
		for i := range use {
			l.garbage += use[i].Bytes()
		}
	}
	l.discard(use, stack)
	return loaded, nil
}

// discard drops matrices that were decoded or quantized on load. The collector alone would
// let a few of the largest accumulate, so the memory is returned to the system here, but not
// for every small one.
func (l *Loader) discard(copies ...[]dtype.Matrix) {
	const enough = 16 << 20
	for _, c := range copies {
		clear(c) // the backend may still have the list
	}
	if l.garbage >= enough {
		debug.FreeOSMemory()
		l.garbage = 0
	}
}

// release drops the pages of a matrix, so that weights are not in memory twice.
func (l *Loader) release(m *dtype.Matrix) {
	if !l.from.release(m) {
		l.garbage += m.Bytes()
	}
	l.done += m.Bytes()
	if l.Progress != nil {
		l.Progress(min(l.done, l.total), l.total)
	}
}

// requantize returns m with the given bits, or m itself if it has no more already or if its
// rows cannot be cut into groups. Floats of 8 bits become integers of 8 bits. Pages of the file are
// released as they are read: those of one large matrix may be more than the whole model takes in fewer bits.
func (l *Loader) requantize(m *dtype.Matrix, bits int) (dtype.Matrix, error) {
	group := 64
	for group > 32 && m.Cols%group != 0 {
		group /= 2
	}
	form, floats := m.IntegerForm()
	if m.Cols%group != 0 || m.Format != dtype.Plain && (m.ElementBits() < bits || m.ElementBits() == bits && !floats) {
		return *m, nil
	}
	scale := dtype.BF16
	if m.Type == dtype.F16 || m.ScaleType == dtype.F16 {
		scale = dtype.F16
	}
	q, err := dtype.NewAffine(m.Rows, m.Cols, bits, group, scale)
	if floats && bits == form.Bits {
		q, err = dtype.NewSymmetric(m.Rows, m.Cols, bits, form.Group, form.ScaleType)
	}
	if err != nil {
		return q, err
	}
	q.Input = m.Input // rows are quantized in their stored form
	quantize := dtype.QuantizeRows
	if bits <= 5 {
		quantize = dtype.FitRows
	}
	step := max(1, 1<<20/m.RowBytes())
	return q, rescue.Deal(m.Rows, 1, 1, func(from, to int) error {
		for ; from < to; from += step {
			rows := m.RowRange(from, min(from+step, to))
			if err := quantize(&q, m, from, from+rows.Rows); err != nil {
				return err
			}
			l.from.release(&rows)
		}
		return nil
	})
}

// vector copies the numbers of a weight that is not a matrix to the backend, in their
// effective form, unless only the host needs them.
func (l *Loader) vector(w *Weight) error {
	v := ones(w.Cols)
	if w.Kind != Ones {
		var err error
		if v, err = l.from.values(w); err != nil {
			return err
		}
	}
	if w.then != nil {
		w.then(v)
	}
	if w.tensor == nil {
		return nil
	}
	t, err := l.upload(w, v)
	*w.tensor = t
	return err
}

// upload copies the numbers of a weight to the backend.
func (l *Loader) upload(w *Weight, v []float32) (t backend.Tensor, err error) {
	rows, cols := w.Rows, w.Cols
	switch w.Kind {
	case Decay:
		for i, x := range v {
			v[i] = -float32(exactmath.Exp(float64(x)))
		}
	case Conv:
		v = transpose(v, rows, cols)
		rows, cols = cols, rows
	}
	if t, err = backend.At(l.Backend, partOf(w.Name)).Alloc(dtype.F32, rows, cols); err == nil {
		l.tensors = append(l.tensors, t)
		err = l.Backend.Write(t, v)
	}
	if err != nil {
		return t, fmt.Errorf("weights: %w", err)
	}
	return t, nil
}

// table is the numbers of a matrix that stays on the host.
func (l *Loader) table(w *Weight) ([]float32, error) {
	stack, err := l.from.matrices(w)
	if err != nil {
		return nil, err
	}
	m := &stack[0]
	v := make([]float32, m.Rows*m.Cols)
	for r := range m.Rows {
		m.PlainRow(v[r*m.Cols:(r+1)*m.Cols], r)
	}
	l.release(m)
	l.tables += 4 * int64(len(v))
	return v, nil
}

// transpose turns [rows, cols] into [cols, rows].
func transpose(v []float32, rows, cols int) []float32 {
	t := make([]float32, len(v))
	for r := range rows {
		for c := range cols {
			t[c*rows+r] = v[r*cols+c]
		}
	}
	return t
}

// Bytes is the memory of everything loaded so far.
func (l *Loader) Bytes() int64 {
	n := l.tables
	for _, w := range l.weights {
		n += w.Bytes()
	}
	for _, t := range l.tensors {
		n += t.Mem.Bytes()
	}
	return n
}

// Free frees all loaded weights.
func (l *Loader) Free() {
	for _, w := range l.weights {
		l.Backend.Unload(w)
	}
	for _, t := range l.tensors {
		l.Backend.Free(t)
	}
	for _, free := range l.kept {
		_ = free() // of memory that was only read
	}
	l.weights, l.tensors, l.kept, l.tables = nil, nil, nil, 0
}
