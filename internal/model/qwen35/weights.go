package qwen35

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Kind is what a weight is to the model, which decides how it may be stored.
type Kind uint8

const (
	// Matrix multiplies activations or is looked up; it may be quantized.
	Matrix Kind = iota
	// Router is a matrix that chooses: small errors in it have large effects.
	Router
	// Gain is that of a norm as it is effective, whatever the file has.
	Gain
	// Vector is numbers that are used as they are stored.
	Vector
	// Decay is the logarithms of decay rates.
	Decay
	// Conv is a convolution of Rows channels with a kernel of Cols.
	Conv
)

// Weight is one weight of a model under its canonical name, which is the same whatever
// layout the checkpoint has: that of the raw release without the prefix of the language
// model, except that experts are stacks called switch_mlp as in converted checkpoints.
type Weight struct {
	Name       string // of the tensor, such as layers.0.mlp.down_proj.weight
	Kind       Kind
	Experts    int // matrices in the stack; 0: it is no stack
	Rows, Cols int // of one matrix; other weights but Conv have one row

	// Where it is loaded to: one of the two.
	matrix *backend.Weight
	tensor *backend.Tensor

	other   []storage // than under its name, in the order of preference
	storage storage   // the one that the checkpoint has
	places  []place   // of its tensor or module, or of its experts one by one
	norms   *normRule
}

// IsMatrix reports whether the weight is a matrix or a stack of them: the others have
// Values.
func (w *Weight) IsMatrix() bool { return w.Kind == Matrix || w.Kind == Router }

// Head reports whether the weight is one of the multi-token-prediction head.
func (w *Weight) Head() bool { return isHead(w.Name) }

// Count is the number of matrices.
func (w *Weight) Count() int { return max(w.Experts, 1) }

// Parameters is the number of numbers.
func (w *Weight) Parameters() int64 { return int64(w.Count()) * int64(w.Rows) * int64(w.Cols) }

// module is the canonical path of the module that the weight is stored in, that of a stack
// if its matrices have one each.
func (w *Weight) module() string {
	if w.storage.module == "" {
		return strings.TrimSuffix(w.Name, ".weight")
	}
	return strings.Replace(w.storage.module, ".%d", "", 1)
}

// Stored is how the matrices are stored, by the headers alone: matrices without Data.
func (w *Weight) Stored() ([]dtype.Matrix, error) {
	return w.matrices((*checkpoint.Weights).LookMatrix, (*checkpoint.Weights).LookStack)
}

// Matrices are the matrices as they are stored: views of the checkpoint where its layout
// allows.
func (w *Weight) Matrices() ([]dtype.Matrix, error) {
	return w.matrices((*checkpoint.Weights).Matrix, (*checkpoint.Weights).MatrixStack)
}

func (w *Weight) matrices(
	one func(_ *checkpoint.Weights, path string, rows, cols int) (dtype.Matrix, error),
	many func(_ *checkpoint.Weights, path string, n, rows, cols int) ([]dtype.Matrix, error),
) ([]dtype.Matrix, error) {
	s := &w.storage
	rows := w.Rows
	if s.groups > 0 {
		rows = s.groups * s.size
	}
	list := make([]dtype.Matrix, 0, w.Count())
	for _, p := range w.places {
		var ms []dtype.Matrix
		var err error
		if w.Experts > 0 && !s.apart() {
			ms, err = many(p.from, p.name, w.Experts, rows, w.Cols)
		} else {
			ms = make([]dtype.Matrix, 1)
			ms[0], err = one(p.from, p.name, rows, w.Cols)
		}
		if err != nil {
			return nil, fmt.Errorf("qwen35: %w", err)
		}
		for i := range ms {
			list = append(list, s.take(p.from, &ms[i]))
		}
	}
	return list, nil
}

// Release tells the system that m, some rows of Matrices, is not needed for now.
func (w *Weight) Release(m dtype.Matrix) {
	for i, p := range w.places {
		if i == 0 || p.from != w.places[0].from {
			p.from.ReleaseMatrix(m)
		}
	}
}

// Type is the type in which the numbers of a weight that is no matrix are stored.
func (w *Weight) Type() dtype.Type {
	t, _ := w.places[0].from.Look(w.places[0].name)
	return t.Type
}

// Values are the numbers of a weight that is no matrix. Those of a Gain are effective:
// with the one that raw files leave out.
func (w *Weight) Values() ([]float32, error) {
	v, c, err := w.stored()
	c.restore(v)
	return v, err
}

// layerInput reports whether the weight is the input norm of a layer of the model.
func (w *Weight) layerInput() bool {
	return !w.Head() && strings.HasSuffix(w.Name, ".input_layernorm.weight")
}

// stored are the numbers of a weight that is no matrix as they are stored, and the
// convention of a norm's.
func (w *Weight) stored() ([]float32, convention, error) {
	p := w.places[0]
	v, err := p.from.Vector(p.name, w.Rows*w.Cols)
	if err != nil {
		return nil, stored1p, fmt.Errorf("qwen35: %w", err)
	}
	if w.Kind != Gain {
		return v, stored1p, nil
	}
	return v, w.norms.of(w.Name, v), nil
}

// check looks at the headers of the weight, which marks its tensors as used.
func (w *Weight) check() error {
	if w.IsMatrix() {
		_, err := w.Stored()
		return err
	}
	p := w.places[0]
	if err := p.from.LookVector(p.name, w.Rows*w.Cols); err != nil {
		return fmt.Errorf("qwen35: %w", err)
	}
	return nil
}

// Scaled reports whether the file has a factor for a whole matrix.
func (w *Weight) Scaled() bool {
	return slices.ContainsFunc(w.places, func(p place) bool { return p.from.Has(p.name + ".global_scale") })
}

// files is a checkpoint as the source of weights.
type files struct {
	weights []*checkpoint.Weights // the main ones, and those beside them that have the head
	names   names
	norms   normRule
	log     *slog.Logger
	missing []string  // canonical names
	gains   []float64 // mean effective gain of the layers' input norms
}

var _ source = (*files)(nil)

// openFiles looks through the names of a checkpoint and decides the convention of its norms.
func openFiles(c *checkpoint.Checkpoint, cfg *config, log *slog.Logger) (*files, error) {
	found, err := findNames(c, cfg, log)
	if err != nil {
		return nil, err
	}
	f := &files{weights: []*checkpoint.Weights{c.Weights}, names: found, log: log}
	for _, s := range c.Sidecars {
		if found.from(s.Weights) {
			f.weights = append(f.weights, s.Weights)
		}
	}
	if f.norms, err = findNormRule(c, found, cfg, log); err != nil {
		return f, fmt.Errorf("qwen35: %w", err)
	}
	return f, nil
}

// find sets the storage and the places of a weight, and reports whether all of it is there.
func (f *files) find(w *Weight) bool {
	w.norms = &f.norms
	if !w.IsMatrix() {
		p, ok := f.names[w.Name]
		if !ok {
			f.miss(w.Name)
			return false
		}
		w.places = []place{p}
		return true
	}
	for _, s := range w.other {
		if s.marks == nil || f.names.has(s.marks...) {
			w.storage = s
			break
		}
	}
	if !w.storage.apart() {
		return f.module(w, w.module())
	}
	all := true
	for i := 0; i < w.Experts && len(f.missing) < maxMissing; i++ {
		all = f.module(w, fmt.Sprintf(w.storage.module, i)) && all
	}
	return all
}

// module adds the place of a module to those of a weight.
func (f *files) module(w *Weight, module string) bool {
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
func (f *files) miss(name string) {
	if len(f.missing) < maxMissing {
		f.missing = append(f.missing, name)
	}
}

// err is the error of what is missing.
func (f *files) err() error {
	if len(f.missing) == 0 {
		return nil
	}
	hint := ""
	switch {
	case slices.Contains(f.missing, outputMatrix+".weight"):
		hint = " (config.json does not say that the embedding takes its place: tie_word_embeddings)"
	case isHead(f.missing[0]): // the head is loaded last
		hint = " (the multi-token-prediction head is incomplete)"
	}
	return fmt.Errorf("qwen35: %w: %s%s", checkpoint.ErrMissing, list(f.missing), hint)
}

func (f *files) matrices(w *Weight) ([]dtype.Matrix, error) { return w.Matrices() }

func (f *files) values(w *Weight) ([]float32, error) {
	v, c, err := w.stored()
	if err != nil {
		return nil, err
	}
	if w.Kind == Gain && w.Head() && f.norms.votes {
		f.log.Info("norm convention by its numbers", "tensor", w.Name, "mean", mean(v), "convention", c)
	}
	c.restore(v)
	if w.layerInput() {
		f.gains = append(f.gains, mean(v))
	}
	return v, nil
}

func (f *files) release(m *dtype.Matrix) bool {
	return slices.ContainsFunc(f.weights, func(w *checkpoint.Weights) bool { return w.ReleaseMatrix(*m) })
}

// head reports whether there is a head. The error is that of one that is not supported.
func (f *files) head() (bool, error) {
	if depth := f.names.headDepth(); depth > 1 {
		return true, fmt.Errorf("qwen35: the head has %d layers, want 1", depth)
	}
	return f.names.hasHead(), nil
}

// unused lists the tensors, under their names in the files, that nothing asked for.
func (f *files) unused() []string {
	var list []string
	for _, w := range f.weights {
		list = append(list, w.Unused()...)
	}
	return list
}
