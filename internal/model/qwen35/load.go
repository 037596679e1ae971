package qwen35

import (
	"errors"
	"fmt"
	"iter"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/exactmath"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/rescue"
)

// source is where weights come from: a checkpoint or a generator.
type source interface {
	// find looks for a weight. One that is not there is noted, for err.
	find(w *Weight) bool
	// err is the error of all weights that were not found, nil if there are none.
	err() error
	matrices(w *Weight) ([]dtype.Matrix, error)
	// values are effective numbers.
	values(w *Weight) ([]float32, error)
	// release gives the pages of a matrix back. It reports whether the matrix is a view: if
	// not, it is memory of its own.
	release(m *dtype.Matrix) bool
}

// loader brings weights from a source to a backend.
type loader struct {
	from source
	b    backend.Backend
	o    model.Options

	weights    []backend.Weight
	tensors    []backend.Tensor
	missing    bool // a weight was not found
	parameters int64
	done       int64 // bytes read
	total      int64
	garbage    int64 // bytes of copies dropped since memory was last given back
}

// model loads a model, with its head if it is to have one. After an error the caller frees
// what was loaded.
func (l *loader) model(cfg *config, head bool) (*Model, error) {
	m := newModel(cfg)
	m.b, m.loaded = l.b, l
	if err := l.load(m.weights()); err != nil {
		return nil, err
	}
	if cfg.tied {
		m.unembed = m.embed
	}
	parameters := l.parameters
	if head {
		m.head = newHead(cfg)
		m.head.b, m.head.embed, m.head.unembed = l.b, m.embed, m.unembed
		m.head.layout = cfg.layout(l.o, true)
		m.head.block.at = m.head.layout.Places()[0]
		if err := l.load(m.head.weights()); err != nil {
			return nil, err
		}
	}
	if err := l.from.err(); err != nil {
		return nil, err
	}
	m.layout = cfg.layout(l.o, cfg.layers...)
	for i, at := range m.layout.Places() {
		m.layers[i].at = at
	}
	m.info = model.Info{
		Family: cfg.modelType, Vocab: cfg.vocab, Width: cfg.hidden, Layers: len(cfg.layers),
		Context: cfg.context, Stop: cfg.stop, Parameters: parameters, Bytes: l.bytes(),
		Compute: l.o.Compute, Head: head,
	}
	return m, nil
}

// load loads a table. A missing weight turns the rest of it into a search for others, so
// that the error names them all.
func (l *loader) load(table iter.Seq[*Weight]) error {
	for w := range table {
		l.missing = !l.from.find(w) || l.missing
		if l.missing {
			continue
		}
		l.parameters += w.Parameters()
		var err error
		if w.IsMatrix() {
			*w.matrix, err = l.matrices(w)
		} else {
			*w.tensor, err = l.vector(w)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// matrices quantizes the matrices of a weight if that was asked for, and brings them to the
// backend. The file's pages are released afterwards.
func (l *loader) matrices(w *Weight) (backend.Weight, error) {
	stack, err := l.from.matrices(w)
	if err != nil {
		return nil, err
	}
	use := stack
	bits := l.bits(w.module())
	if bits > 0 {
		use = make([]dtype.Matrix, len(stack))
		for i := range stack {
			if use[i], err = l.requantize(&stack[i], bits); err != nil {
				return nil, fmt.Errorf("qwen35: %s: %w", w.module(), err)
			}
		}
	}
	loaded, err := l.b.Load(l.o.Compute, use...)
	if err != nil {
		return nil, fmt.Errorf("qwen35: %s: %w", w.module(), err)
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
// let a few of the largest pile up, so the memory goes back to the system here, though not
// for every small one.
func (l *loader) discard(copies ...[]dtype.Matrix) {
	const enough = 16 << 20
	for _, c := range copies {
		clear(c) // the backend may still have the list
	}
	if l.garbage >= enough {
		debug.FreeOSMemory()
		l.garbage = 0
	}
}

// release gives the pages of a matrix back, so that weights are not kept twice.
func (l *loader) release(m *dtype.Matrix) {
	if !l.from.release(m) {
		l.garbage += m.Bytes()
	}
	l.done += m.Bytes()
	if l.o.Progress != nil {
		l.o.Progress(min(l.done, l.total), l.total)
	}
}

// bits is what a module is quantized to on load, 0 for not at all. Small matrices with a
// large say keep 8 bits: the router decides between experts, the head between draft tokens, and
// the decay is an exponential of its projection. At 4 bits, which small models notice, the
// matrices that others build on get one more, and embedding and output two.
func (l *loader) bits(module string) int {
	bits := l.o.Quantize
	last := module[strings.LastIndexByte(module, '.')+1:]
	switch {
	case bits == 0:
		return 0
	case isHead(module):
		return 8
	}
	switch last {
	case "gate", "shared_expert_gate", "in_proj_a", "in_proj_b", "in_proj_ba":
		return 8
	case "embed_tokens", "lm_head":
		if bits == 4 {
			return 6
		}
	case "in_proj_qkv", "in_proj_qkvz", "out_proj", "v_proj", "o_proj", "down_proj":
		if bits == 4 {
			return 5
		}
	}
	return bits
}

// requantize returns m with the given bits, or m itself if it has no more already or if its
// rows cannot be cut into groups. Pages of the file are released as they are read: those
// of one large matrix may be more than the whole model takes in fewer bits.
func (l *loader) requantize(m *dtype.Matrix, bits int) (dtype.Matrix, error) {
	group := 64
	for group > 32 && m.Cols%group != 0 {
		group /= 2
	}
	if m.Cols%group != 0 || m.Format != dtype.Plain && m.ElementBits() <= bits {
		return *m, nil
	}
	scale := dtype.BF16
	if m.Type == dtype.F16 || m.ScaleType == dtype.F16 {
		scale = dtype.F16
	}
	q, err := dtype.NewAffine(m.Rows, m.Cols, bits, group, scale)
	if err != nil {
		return q, err
	}
	quantize := dtype.QuantizeRows
	if bits <= 5 {
		quantize = dtype.FitRows
	}
	step := max(1, 1<<20/m.RowBytes())
	threads := runtime.GOMAXPROCS(0)
	errs := make([]error, threads)
	var wg sync.WaitGroup
	for i := range threads {
		wg.Go(func() {
			errs[i] = rescue.Do(func() error {
				from, to := i*m.Rows/threads, (i+1)*m.Rows/threads
				for ; from < to; from += step {
					rows := m.RowRange(from, min(from+step, to))
					if err := quantize(&q, m, from, from+rows.Rows); err != nil {
						return err
					}
					l.from.release(&rows)
				}
				return nil
			})
		})
	}
	wg.Wait()
	return q, errors.Join(errs...)
}

// vector brings the numbers of a weight that is no matrix to the backend, in the form in
// which they are used.
func (l *loader) vector(w *Weight) (t backend.Tensor, err error) {
	v, err := l.from.values(w)
	if err != nil {
		return t, err
	}
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
	if t, err = l.b.Alloc(dtype.F32, rows, cols); err == nil {
		l.tensors = append(l.tensors, t)
		err = l.b.Write(t, v)
	}
	if err != nil {
		return t, fmt.Errorf("qwen35: %w", err)
	}
	return t, nil
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

// bytes is the memory of everything loaded so far.
func (l *loader) bytes() int64 {
	n := int64(0)
	for _, w := range l.weights {
		n += w.Bytes()
	}
	for _, t := range l.tensors {
		n += t.Mem.Bytes()
	}
	return n
}

// free gives everything loaded so far back.
func (l *loader) free() {
	for _, w := range l.weights {
		l.b.Unload(w)
	}
	for _, t := range l.tensors {
		l.b.Free(t)
	}
	l.weights, l.tensors = nil, nil
}
