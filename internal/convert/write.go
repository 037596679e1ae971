package convert

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/rescue"
)

// chunk is the number of numbers converted at a time. Each thread keeps one chunk as
// float32 and one in the output encoding.
const chunk = 1 << 20

// Progress is how far a conversion has come.
type Progress struct {
	Tensors, AllTensors int
	Bytes, AllBytes     int64 // of the output
}

// job is a part of an item: some rows of one of its matrices, or all of it.
type job struct {
	it   *item
	row  int           // of the item's tensors, counted through all matrices
	rows *dtype.Matrix // nil: all of an item that is not a matrix
	last bool          // of its item
}

// writer writes the items of a plan. Every tensor has its place in a file from the
// beginning, so parts can come in any order.
type writer struct {
	files []*os.File

	mu       sync.Mutex // protects what follows
	progress Progress
	report   func(Progress)
}

// write writes the files of the plan to dir.
func (p *plan) write(ctx context.Context, dir string, o *Options) (err error) {
	w := &writer{report: o.Progress, progress: Progress{AllBytes: p.size()}}
	defer func() {
		for _, f := range w.files {
			if e := f.Close(); err == nil {
				err = e
			}
		}
	}()
	for _, it := range p.items {
		w.progress.AllTensors += len(it.decls)
	}
	for i, name := range p.files {
		if err := w.create(filepath.Join(dir, name), i, p.items); err != nil {
			return err
		}
	}
	if err := w.run(ctx, p.items, o.threads()); err != nil {
		return err
	}
	for _, f := range w.files {
		if err := f.Sync(); err != nil { // before the folder gets its name
			return err
		}
	}
	return nil
}

// create creates one file, writes its header and assigns the offsets of its items.
func (w *writer) create(path string, number int, items []*item) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	w.files = append(w.files, f)
	var decls []checkpoint.Decl
	for _, it := range items {
		if it.file == number {
			decls = append(decls, it.decls...)
		}
	}
	header, err := checkpoint.FileHeader(decls, map[string]string{"format": "mlx"})
	if err != nil {
		return err
	}
	at := int64(len(header))
	for _, it := range items {
		if it.file != number {
			continue
		}
		it.at = it.at[:0]
		for _, d := range it.decls {
			it.at = append(it.at, at)
			at += bytesOf(d)
		}
	}
	if _, err := f.Write(header); err != nil {
		return err
	}
	return f.Truncate(at)
}

// run deals the items out to threads. The first error ends all of them.
func (w *writer) run(ctx context.Context, items []*item, threads int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	jobs := make(chan job)
	var wg sync.WaitGroup
	for range threads {
		wg.Go(func() {
			for j := range jobs {
				if err := rescue.Do(func() error { return w.do(&j) }); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, it := range items {
		if err := it.deal(ctx, jobs); err != nil {
			cancel(err)
			break
		}
	}
	close(jobs)
	wg.Wait()
	return context.Cause(ctx)
}

// deal cuts the item into jobs.
func (it *item) deal(ctx context.Context, jobs chan<- job) error {
	give := func(j job) error {
		select {
		case jobs <- j:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if it.data != nil {
		return give(job{it: it, last: true})
	}
	ms, err := it.weight.Matrices()
	if err != nil {
		return err
	}
	step := max(1, chunk/it.form.Cols)
	for i := range ms {
		for r := 0; r < ms[i].Rows; r += step {
			rows := ms[i].RowRange(r, min(r+step, ms[i].Rows))
			last := i == len(ms)-1 && r+step >= ms[i].Rows
			if err := give(job{it: it, row: i*it.form.Rows + r, rows: &rows, last: last}); err != nil {
				return err
			}
		}
	}
	return nil
}

// do converts and writes one part.
func (w *writer) do(j *job) error {
	it := j.it
	var parts [][]byte
	var err error
	if j.rows == nil {
		parts = make([][]byte, 1)
		parts[0], err = it.data()
	} else {
		parts, err = encode(&it.form, j.rows)
	}
	if err == nil && j.last && it.global != nil {
		err = w.globals(it)
	}
	if err != nil {
		return fmt.Errorf("convert: %s: %w", it.decls[0].Name, err)
	}
	done := int64(0)
	for i, b := range parts {
		at := it.at[i]
		if j.rows != nil {
			at += int64(j.row) * int64(len(b)/j.rows.Rows)
		}
		if _, err := w.files[it.file].WriteAt(b, at); err != nil {
			return err
		}
		done += int64(len(b))
	}
	if j.rows != nil {
		it.weight.Release(*j.rows)
	}
	w.tell(j, done)
	return nil
}

// globals writes the factors of a stack's matrices, its last tensor.
func (w *writer) globals(it *item) error {
	b, err := encodeNumbers(dtype.F32, it.global)
	if err != nil {
		return err
	}
	_, err = w.files[it.file].WriteAt(b, it.at[len(it.at)-1])
	return err
}

// tell reports a finished part.
func (w *writer) tell(j *job, n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.progress.Bytes += n
	if j.last {
		w.progress.Tensors += len(j.it.decls)
	}
	if w.report != nil {
		w.report(w.progress)
	}
}

func (o *Options) threads() int {
	if o.Threads > 0 {
		return o.Threads
	}
	return runtime.GOMAXPROCS(0)
}

// encode is some rows in another form: the bytes of their tensors, in the order of an
// item's. Rows that have the form already are not copied.
func encode(form, m *dtype.Matrix) ([][]byte, error) {
	if sameForm(form, m) {
		return parts(m), nil
	}
	switch form.Format {
	case dtype.Plain:
		return plainRows(form.Type, m)
	case dtype.Affine:
		if a, ok := affineForm(m, true); ok && a.Bits == form.Bits && a.Group == form.Group && m.Input == nil {
			return rescaled(form.ScaleType, affine(m))
		}
		q, err := dtype.NewAffine(m.Rows, m.Cols, form.Bits, form.Group, form.ScaleType)
		if err != nil {
			return nil, err
		}
		return parts(&q), dtype.QuantizeRows(&q, m, 0, m.Rows)
	default:
		if m.Format == dtype.MXFP4Blocks && form.Format == dtype.MXFP4 || m.Format == dtype.NVFP4Blocks && form.Format == dtype.NVFP4 {
			return smallFloats(m), nil
		}
		q, err := dtype.NewMicroscale(m.Rows, m.Cols, form.Format)
		if err != nil {
			return nil, err
		}
		return parts(&q), dtype.MicroscaleRows(&q, m, 0, m.Rows)
	}
}

func parts(m *dtype.Matrix) [][]byte {
	switch m.Format {
	case dtype.Plain:
		return [][]byte{m.Data}
	case dtype.Affine:
		return [][]byte{m.Data, m.Scales, m.Biases}
	default:
		return [][]byte{m.Data, m.Scales}
	}
}

// plainRows is the numbers that the rows stand for.
func plainRows(t dtype.Type, m *dtype.Matrix) ([][]byte, error) {
	v := make([]float32, m.Rows*m.Cols)
	for r := range m.Rows {
		m.PlainRow(v[r*m.Cols:(r+1)*m.Cols], r)
	}
	b, err := encodeNumbers(t, v)
	return [][]byte{b}, err
}

// rescaled has the same codes with scales and biases of another type.
func rescaled(t dtype.Type, m *dtype.Matrix) ([][]byte, error) {
	out := [][]byte{m.Data, nil, nil}
	for i, b := range [][]byte{m.Scales, m.Biases} {
		v := make([]float32, len(b)/m.ScaleType.Size())
		dtype.ToF32(v, m.ScaleType, b)
		var err error
		if out[i+1], err = encodeNumbers(t, v); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// encodeNumbers rounds numbers to a type. One that is too large for it is an error.
func encodeNumbers(t dtype.Type, v []float32) ([]byte, error) {
	// From here on numbers become infinite.
	limit := map[dtype.Type]float32{dtype.F16: 65520, dtype.BF16: 0x1.ffp127}[t]
	for _, x := range v {
		if limit > 0 && (x >= limit || x <= -limit) && !math.IsInf(float64(x), 0) {
			return nil, fmt.Errorf("%g is too large for %v: choose a type with a wider range", x, t)
		}
	}
	b := make([]byte, len(v)*t.Size())
	dtype.FromF32(b, t, v)
	return b, nil
}
