package weights

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Reading is how a family's files are read.
type Reading struct {
	ModelType string // of config.json
	Tied      bool   // the embedding is also the output matrix: a stored output matrix is not used
	// Canonical is the canonical form of a tensor's name in a file, and whether it is needed: for
	// text, or for images.
	Canonical func(name string) (canonical string, needed bool)
}

// Files is a checkpoint as the source of weights.
type Files struct {
	Reading
	Norms Norms // how gains are stored

	source  *checkpoint.Checkpoint
	weights []*checkpoint.Weights // the main ones, and those beside them that have the head
	names   names
	log     *slog.Logger
	missing []string  // canonical names
	gains   []float64 // mean effective gain of the layers' input norms
	twice   error     // of a vision tower: see findNames
}

var _ source = (*Files)(nil)

// Open reads the names of a checkpoint, which stays open as long as its weights are
// used. Gains are used as stored until Norms is set.
func Open(c *checkpoint.Checkpoint, r Reading, log *slog.Logger) (*Files, error) {
	found, twice, err := findNames(c, &r, log)
	if err != nil {
		return nil, err
	}
	f := &Files{Reading: r, source: c, weights: []*checkpoint.Weights{c.Weights}, names: found, log: log, twice: twice}
	for _, s := range c.Sidecars {
		if found.from(s.Weights) {
			f.weights = append(f.weights, s.Weights)
		}
	}
	return f, nil
}

// Place is where the tensor of a canonical name is stored.
func (f *Files) Place(name string) (Place, bool) {
	p, ok := f.names[name]
	return p, ok
}

// Gains are the mean effective gains of the layers' input norms that were read so far.
func (f *Files) Gains() []float64 { return f.gains }

// find sets the storage and the places of a weight, and reports whether all of it exists. Missing
// parts are recorded, unless they are optional.
func (f *Files) find(w *Weight) bool {
	if w.Kind == Ones {
		return true
	}
	w.norms, w.storage, w.places = &f.Norms, Storage{}, nil // a table may be walked again
	if !w.IsMatrix() {
		p, ok := f.names[w.Name]
		if !ok {
			f.miss(w.Name)
			return false
		}
		w.places = []Place{p}
		return true
	}
	for _, s := range w.other {
		if s.Marks == nil || f.names.has(s.Marks...) {
			w.storage = s
			break
		}
	}
	if w.copied != "" && !f.names.has(w.module()) {
		return false
	}
	if !w.storage.apart() {
		return f.module(w, w.module())
	}
	all := true
	for i := 0; i < w.Experts && len(f.missing) < maxMissing; i++ {
		all = f.module(w, fmt.Sprintf(w.storage.Module, i)) && all
	}
	return all
}

// module adds the place of a module to those of a weight.
func (f *Files) module(w *Weight, module string) bool {
	p, ok := f.names.module(module)
	if !ok {
		if w.Experts == 0 || w.storage.apart() {
			module += ".weight" // which releases leave out of stacks
		}
		f.miss(module)
		return false
	}
	w.places = append(w.places, p)
	return true
}

// maxMissing bounds the search for missing tensors: a config may promise millions.
const maxMissing = 1000

// miss notes that a tensor is not there.
func (f *Files) miss(name string) {
	if len(f.missing) < maxMissing {
		f.missing = append(f.missing, name)
	}
}

// err is the error of missing tensors.
func (f *Files) err() error {
	if len(f.missing) == 0 {
		return nil
	}
	hint := ""
	switch {
	case slices.Contains(f.missing, OutputMatrix+".weight"):
		hint = " (config.json does not set tie_word_embeddings, which would use the embedding instead)"
	case IsHead(f.missing[0]): // the head is loaded last
		hint = " (the multi-token-prediction head is incomplete)"
	}
	return fmt.Errorf("weights: %w: %s%s", checkpoint.ErrMissing, list(f.missing), hint)
}

func (f *Files) matrices(w *Weight) ([]dtype.Matrix, error) { return w.Matrices() }

// copies reports whether a weight, which is there, has the same bytes as the one that it may be a
// copy of.
func (f *Files) copies(w *Weight) (bool, error) {
	mine, its, err := f.originals(w, (*Weight).Matrices)
	if its == nil || err != nil {
		return false, err
	}
	same := alike(mine, its) && mine.Global == its.Global && bytes.Equal(mine.Data, its.Data) &&
		bytes.Equal(mine.Scales, its.Scales) && bytes.Equal(mine.Biases, its.Biases) && bytes.Equal(mine.Zeros, its.Zeros) &&
		mine.Input.Equal(its.Input)
	f.release(mine)
	f.release(its)
	return same, nil
}

// seemsCopied is copies by the headers alone.
func (f *Files) seemsCopied(w *Weight) bool {
	mine, its, err := f.originals(w, (*Weight).Stored)
	return err == nil && its != nil && alike(mine, its)
}

// originals are a weight that may be a copy and its possible original, which is nil if it does not
// exist.
func (f *Files) originals(w *Weight, read func(*Weight) ([]dtype.Matrix, error)) (mine, its *dtype.Matrix, err error) {
	p, ok := f.names.module(strings.TrimSuffix(w.copied, ".weight"))
	if !ok || len(w.places) == 0 {
		return nil, nil, nil
	}
	other := *w
	other.places = []Place{p}
	a, err := read(w)
	if err != nil {
		return nil, nil, err
	}
	b, err := read(&other)
	if err != nil {
		return nil, nil, err
	}
	return &a[0], &b[0], nil
}

// alike reports whether two matrices are encoded in the same way.
func alike(a, b *dtype.Matrix) bool {
	return a.Format == b.Format && a.Type == b.Type && a.Bits == b.Bits && a.Group == b.Group &&
		a.ScaleType == b.ScaleType
}

func (f *Files) values(w *Weight) ([]float32, error) {
	v, c, err := w.stored()
	if err != nil {
		return nil, err
	}
	if w.Kind == Gain && w.Head() && f.Norms.ByNumbers {
		f.log.Info("norm convention by its numbers", "tensor", w.Name, "mean", Mean(v), "convention", c)
	}
	c.restore(v)
	if w.layerInput() {
		f.gains = append(f.gains, Mean(v))
	}
	return v, nil
}

func (f *Files) numbers(w *Weight) ([]int64, error) {
	data, err := w.Bytes()
	if err != nil {
		return nil, err
	}
	ids := make([]int64, w.Cols)
	for i := range ids {
		ids[i] = int64(binary.LittleEndian.Uint64(data[8*i:]))
	}
	return ids, nil
}

func (f *Files) release(m *dtype.Matrix) bool {
	return slices.ContainsFunc(f.weights, func(w *checkpoint.Weights) bool { return w.ReleaseMatrix(*m) })
}

func (f *Files) keep(m *dtype.Matrix) (free func() error) {
	var all []func() error
	for _, w := range f.weights {
		all = append(all, w.Keep(m))
	}
	return func() (err error) {
		for _, leave := range all {
			err = errors.Join(err, leave())
		}
		return err
	}
}

// SkipHead marks the tensors of the head as known, whether they can be loaded or not.
func (f *Files) SkipHead() {
	f.weights = f.weights[:1] // files beside the main ones have nothing else
	f.source.Skip(func(name string) bool {
		name, _ = f.Canonical(name)
		return IsHead(name)
	})
}

// HasHead reports whether there is a head. The error is that of one that is not supported.
func (f *Files) HasHead() (bool, error) {
	if depth := f.names.headDepth(); depth > 1 {
		return true, fmt.Errorf("weights: the head has %d layers, want 1", depth)
	}
	return f.names.hasHead(), nil
}

// Leftover is the error of unused tensors, or nil.
func (f *Files) Leftover() error { return f.leftover(f.unused()) }

func (f *Files) leftover(tensors []string) error {
	if len(tensors) == 0 {
		return nil
	}
	return fmt.Errorf("weights: %d tensors are not part of a %s model: %s", len(tensors), f.ModelType, list(tensors))
}

// list names a few of many.
func list(names []string) string {
	const few = 8
	if len(names) > few {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
	}
	return strings.Join(names, ", ")
}

// unused lists the unused tensors, under their names in the files.
func (f *Files) unused() []string {
	var list []string
	for _, w := range f.weights {
		list = append(list, w.Unused()...)
	}
	return list
}
