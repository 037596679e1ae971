package qwen35

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/rescue"
)

// loader brings weights from a checkpoint to a backend. It keeps the first error, so that
// loading reads like a list of what there is. A missing tensor turns the rest of the list
// into a search for others, so that the error names them all.
type loader struct {
	c     *checkpoint.Checkpoint
	b     backend.Backend
	o     model.Options
	cfg   *config
	names names
	norms normRule
	made  *generator // where weights come from instead of a checkpoint
	look  *Survey    // if set, nothing is loaded: headers are looked at, and this is what they say

	err     error
	missing []string // canonical names

	weights    []backend.Weight
	tensors    []backend.Tensor
	gains      []float64 // mean effective gain of the trunk's input norms
	parameters int64
	done       int64 // bytes read
	total      int64
	garbage    int64 // bytes of copies dropped since memory was last given back
}

func layerName(i int, name string) string { return fmt.Sprintf("layers.%d.%s", i, name) }

// fail keeps err if it is the first; a survey goes on and keeps all.
func (l *loader) fail(err error) {
	if l.look != nil {
		l.look.fail(err)
	} else if l.err == nil {
		l.err = err
	}
}

// stopped reports whether nothing more is to be loaded. A survey never stops.
func (l *loader) stopped() bool { return l.look == nil && (l.err != nil || len(l.missing) > 0) }

// mostMissing bounds the search for missing tensors: a config may promise millions.
const mostMissing = 1000

// miss notes that a tensor is not there.
func (l *loader) miss(name string) {
	if len(l.missing) < mostMissing {
		l.missing = append(l.missing, name)
	}
}

// verdict is the error of loading, nil if there was none.
func (l *loader) verdict() error {
	if l.err != nil || len(l.missing) == 0 {
		return l.err
	}
	hint := ""
	switch {
	case slices.Contains(l.missing, "lm_head.weight"):
		hint = " (config.json does not say that the embedding takes its place: tie_word_embeddings)"
	case strings.HasPrefix(l.missing[0], "mtp."): // the head is loaded last
		hint = " (the multi-token-prediction head is incomplete)"
	}
	return fmt.Errorf("qwen35: %w: %s%s", checkpoint.ErrMissing, list(l.missing), hint)
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
	if l.made != nil {
		m, err := l.made.matrix(rows, cols)
		if err != nil {
			l.fail(fmt.Errorf("qwen35: %s: %w", module, err))
		}
		return m, err == nil
	}
	from, path, ok := l.names.module(module)
	if !ok {
		l.miss(module + ".weight")
	}
	if l.stopped() || !ok {
		return dtype.Matrix{}, false
	}
	get := from.Matrix
	if l.look != nil {
		get = from.LookMatrix
	}
	m, err := get(path, rows, cols)
	if err != nil {
		l.fail(fmt.Errorf("qwen35: %w", err))
		return dtype.Matrix{}, false
	}
	return m, true
}

// load quantizes matrices if that was asked for, and brings them to the backend as one
// weight. The file's pages are released afterwards.
func (l *loader) load(module string, stack ...dtype.Matrix) backend.Weight {
	if l.stopped() {
		return nil
	}
	if l.look != nil {
		l.look.matrices(module, stack)
		return nil
	}
	use := stack
	bits := l.bits(module)
	if bits > 0 {
		use = make([]dtype.Matrix, len(stack))
		for i := range stack {
			var err error
			if use[i], err = l.requantize(&stack[i], bits); err != nil {
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
	if bits > 0 {
		for i := range use {
			l.garbage += use[i].Bytes()
		}
	}
	l.discard(use, stack)
	return w
}

// discard drops matrices that were decoded or quantized on load. The collector alone would
// let a few of the largest pile up, so the memory goes back to the system here, though not
// for every small one.
func (l *loader) discard(copies ...[]dtype.Matrix) {
	const enough = 16 << 20
	for _, c := range copies {
		clear(c) // the backend may still hold the list
	}
	if l.garbage >= enough {
		debug.FreeOSMemory()
		l.garbage = 0
	}
}

// release gives the pages of a matrix back, so that weights are not held twice.
func (l *loader) release(m *dtype.Matrix) {
	if !l.releasePages(m) {
		l.garbage += m.Bytes()
	}
	l.done += m.Bytes()
	if l.o.Progress != nil {
		l.o.Progress(min(l.done, l.total), l.total)
	}
}

// releasePages reports whether the matrix is a view: if not, it is memory of its own.
func (l *loader) releasePages(m *dtype.Matrix) bool {
	if l.made != nil {
		return true
	}
	view := l.c.ReleaseMatrix(*m)
	for _, s := range l.c.Sidecars {
		view = s.ReleaseMatrix(*m) || view
	}
	return view
}

// bits is what a module is quantized to on load, 0 for not at all. Small matrices with a
// large say keep 8 bits: the router decides between experts, the head between guesses, and
// the decay is an exponential of its projection. At 4 bits, which small models notice, the
// matrices that others build on get one more, and embedding and output two.
func (l *loader) bits(module string) int {
	bits := l.o.Quantize
	last := module[strings.LastIndexByte(module, '.')+1:]
	switch {
	case bits == 0:
		return 0
	case strings.HasPrefix(module, "mtp."):
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

// requantize returns m with so many bits, or m itself if it has no more already or if its
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
					l.releasePages(&rows)
				}
				return nil
			})
		})
	}
	wg.Wait()
	return q, errors.Join(errs...)
}

// vector loads n numbers of a tensor.
func (l *loader) vector(name string, n int) []float32 {
	if l.made != nil {
		l.parameters += int64(n)
		return l.made.vector(name, n)
	}
	p, ok := l.names[name]
	if !ok {
		l.miss(name)
	}
	if l.stopped() || !ok {
		return nil
	}
	if l.look != nil {
		l.look.vector(name, p, n)
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
	if l.look != nil {
		l.look.norm(l, name, n)
		return backend.Tensor{}
	}
	if l.stopped() {
		return backend.Tensor{}
	}
	c := l.norms.of(name, v)
	if l.norms.votes && strings.HasPrefix(name, "mtp.") {
		l.o.Log.Info("norm convention by its numbers", "tensor", name, "mean", mean(v), "convention", c)
	}
	if c == stored0p {
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
	if l.stopped() || l.look != nil {
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
