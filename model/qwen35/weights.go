package qwen35

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"

	"github.com/foretoken/foretoken/backend"
	"github.com/foretoken/foretoken/checkpoint"
	"github.com/foretoken/foretoken/dtype"
	"github.com/foretoken/foretoken/model"
)

// loader brings weights from a checkpoint to a backend. It keeps the first error, so that
// loading reads like a list of what there is.
type loader struct {
	c     *checkpoint.Checkpoint
	b     backend.Backend
	o     model.Options
	cfg   *config
	names names
	norms normRule
	err   error

	weights    []backend.Weight
	tensors    []backend.Tensor
	gains      []float64 // mean effective gain of the trunk's input norms
	parameters int64
	done       int64 // bytes read
	total      int64
}

func layerName(i int, name string) string { return fmt.Sprintf("layers.%d.%s", i, name) }

// fail keeps err if it is the first.
func (l *loader) fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

// matrix loads the matrix of a module.
func (l *loader) matrix(module string, rows, cols int) backend.Weight {
	m, ok := l.find(module, rows, cols)
	if !ok {
		return nil
	}
	return l.load(module, m)
}

// find is the matrix of a module in the file.
func (l *loader) find(module string, rows, cols int) (dtype.Matrix, bool) {
	if l.err != nil {
		return dtype.Matrix{}, false
	}
	from, path, err := l.names.module(module)
	if err != nil {
		l.fail(err)
		return dtype.Matrix{}, false
	}
	m, err := from.Matrix(path, rows, cols)
	if err != nil {
		l.fail(fmt.Errorf("qwen35: %w", err))
		return dtype.Matrix{}, false
	}
	return m, true
}

// load quantises matrices if that was asked for, and brings them to the backend as one
// weight. The file's pages are released afterwards.
func (l *loader) load(module string, stack ...dtype.Matrix) backend.Weight {
	if l.err != nil {
		return nil
	}
	use := stack
	if bits := l.bits(module); bits > 0 {
		use = make([]dtype.Matrix, len(stack))
		for i := range stack {
			var err error
			if use[i], err = requantise(&stack[i], bits); err != nil {
				l.fail(fmt.Errorf("qwen35: %s: %w", module, err))
				return nil
			}
		}
	}
	w, err := l.b.Load(l.o.Compute, use...)
	if err != nil {
		l.fail(fmt.Errorf("qwen35: %s: %w", module, err))
		return nil
	}
	l.weights = append(l.weights, w)
	l.parameters += int64(w.Count()) * int64(w.Rows()) * int64(w.Cols())
	for i := range stack {
		l.release(&stack[i])
	}
	return w
}

// release gives the pages of a matrix back, so that weights are not held twice.
func (l *loader) release(m *dtype.Matrix) {
	l.c.ReleaseMatrix(*m)
	for _, s := range l.c.Sidecars {
		s.ReleaseMatrix(*m)
	}
	l.done += m.Bytes()
	if l.o.Progress != nil {
		l.o.Progress(min(l.done, l.total), l.total)
	}
}

// bits is what a module is quantised to on load, 0 for not at all. The router decides
// between experts and the head between guesses: both keep at least 8 bits.
func (l *loader) bits(module string) int {
	bits := l.o.Quantise
	if bits > 0 && bits < 8 {
		if strings.HasPrefix(module, "mtp.") || strings.HasSuffix(module, "mlp.gate") || strings.HasSuffix(module, "shared_expert_gate") {
			return 8
		}
	}
	return bits
}

// requantise returns m with so many bits, or m itself if it has no more already or if its
// rows cannot be cut into groups.
func requantise(m *dtype.Matrix, bits int) (dtype.Matrix, error) {
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
	threads := runtime.GOMAXPROCS(0)
	errs := make([]error, threads)
	var wg sync.WaitGroup
	for i := range threads {
		wg.Go(func() {
			errs[i] = dtype.QuantizeRows(&q, m, i*m.Rows/threads, (i+1)*m.Rows/threads)
		})
	}
	wg.Wait()
	return q, errors.Join(errs...)
}

// vector loads n numbers of a tensor.
func (l *loader) vector(name string, n int) []float32 {
	if l.err != nil {
		return nil
	}
	p, ok := l.names[name]
	if !ok {
		l.fail(fmt.Errorf("qwen35: tensor %s: %w", name, checkpoint.ErrMissing))
		return nil
	}
	v, err := p.from.Vector(p.name, n)
	if err != nil {
		l.fail(fmt.Errorf("qwen35: %w", err))
	}
	l.parameters += int64(n)
	return v
}

// norm loads the effective gain of a norm of the offset form.
func (l *loader) norm(module string, n int) backend.Tensor {
	name := module + ".weight"
	v := l.vector(name, n)
	if l.err == nil && l.norms.of(name, v) == stored0p {
		for i := range v {
			v[i]++
		}
	}
	if strings.HasPrefix(module, "layers.") && strings.HasSuffix(module, "input_layernorm") {
		l.gains = append(l.gains, mean(v))
	}
	return l.tensor(v, 1, n)
}

// tensor brings numbers to the backend as [rows, cols].
func (l *loader) tensor(v []float32, rows, cols int) backend.Tensor {
	if l.err != nil {
		return backend.Tensor{}
	}
	t, err := l.b.Alloc(dtype.F32, rows, cols)
	if err == nil {
		l.tensors = append(l.tensors, t)
		err = l.b.Write(t, v)
	}
	if err != nil {
		l.fail(fmt.Errorf("qwen35: %w", err))
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
