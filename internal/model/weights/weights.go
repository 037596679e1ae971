// Package weights loads the weights of checkpoints. A family has one
// table of its weights: name, kind, shape, possible encodings and destination of each.
// Loading, a survey of headers, an inventory for converters and a
// generated model all walk that table. The package knows names, shapes,
// encodings and files, but no family and no arithmetic of a model.
package weights

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Kind is the role of a weight in the model, which decides how it may be stored.
type Kind uint8

const (
	// Matrix multiplies activations or is looked up; it may be quantized.
	Matrix Kind = iota
	// Router is a matrix that chooses: small errors in it have large effects.
	Router
	// Gain is the effective gain of a norm.
	Gain
	// Vector is numbers that are used as stored.
	Vector
	// Decay is the logarithms of decay rates.
	Decay
	// Conv is a convolution of Rows channels with a kernel of Cols.
	Conv
	// Kernel is a matrix whose rows are convolution kernels, see Weight.Kernel: numbers, never
	// quantized.
	Kernel
	// Table is a matrix of which the host computes: it is kept there, as numbers.
	Table
	// IDs are whole numbers that the host uses.
	IDs
	// Lookup is a matrix whose rows are looked up on the host: it stays in its file.
	Lookup
	// Ones is a gain of ones, which no checkpoint has.
	Ones
)

// Weight is one weight of a model, a row of its family's table, under its canonical name. That is the same for every
// layout: embed_tokens.weight, layers.0.mlp.gate_proj.weight, norm.weight and lm_head.weight; names of the
// multi-token-prediction head begin with mtp., those of the vision tower with visual. Stacks of experts are called
// switch_mlp, as in converted checkpoints.
type Weight struct {
	Name       string // of the tensor, such as layers.0.mlp.down_proj.weight
	Kind       Kind
	Experts    int // matrices in the stack; 0: it is not a stack
	Rows, Cols int // of one matrix; other weights but Conv have one row
	// Kernel is the dimensions of a row of kind Kernel, the outermost first: channels, which
	// converted checkpoints have innermost, then frames, lines and columns.
	Kernel [4]int
	// Keeps makes it stay in its stored type: it is small,
	// and its rounding matters.
	Keeps bool

	// The destination: one of the five. A vector of Then may have none.
	matrix *backend.Weight
	tensor *backend.Tensor
	host   *[]float32
	ids    *[]int64
	rows   *Rows

	other   []Storage // than under its name, in the order of preference
	storage Storage   // the one that the checkpoint has
	order   *Order    // nil: that of the checkpoint
	places  []Place   // of its tensor or module, or of its single experts
	norms   *Norms
	copied  string          // name of the weight that it may be a copy of; "": it is needed
	shared  *backend.Weight // the destination of that
	alike   func(m *dtype.Matrix) (bool, error)
	then    func(values []float32)
}

// NewMatrix is the row of a matrix. It is stored under its name, or as one of other.
func NewMatrix(to *backend.Weight, module string, rows, cols int, other ...Storage) Weight {
	return Weight{Name: module + ".weight", Kind: Matrix, Rows: rows, Cols: cols, other: other, matrix: to}
}

// NewRouter is the row of a matrix that chooses.
func NewRouter(to *backend.Weight, module string, rows, cols int) Weight {
	w := NewMatrix(to, module, rows, cols)
	w.Kind = Router
	return w
}

// Kept is w, which keeps its type.
func (w Weight) Kept() Weight {
	w.Keeps = true
	return w
}

// Lent is w, in place of which the matrix of another model is used if alike reports that the stored one is that: only another one is
// loaded.
func (w Weight) Lent(from *backend.Weight, alike func(m *dtype.Matrix) (bool, error)) Weight {
	w.shared, w.alike = from, alike
	return w
}

// NewKernel is the row of a matrix of convolution kernels.
func NewKernel(to *backend.Weight, module string, rows int, kernel [4]int) Weight {
	w := NewMatrix(to, module, rows, kernel[0]*kernel[1]*kernel[2]*kernel[3])
	w.Kind, w.Kernel = Kernel, kernel
	return w
}

// NewStack is the row of a stack of matrices.
func NewStack(to *backend.Weight, module string, n, rows, cols int, other ...Storage) Weight {
	w := NewMatrix(to, module, rows, cols, other...)
	w.Experts = n
	return w
}

// NewCopy is the row of a matrix in the place of which a checkpoint may have another one of the
// model's: either it does not store this one, or it stores the same bytes twice. The other has the
// name original and is loaded to shared before; only a matrix that differs is loaded to to.
func NewCopy(to *backend.Weight, module string, rows, cols int, original string, shared *backend.Weight) Weight {
	w := NewMatrix(to, module, rows, cols)
	w.copied, w.shared = original+".weight", shared
	return w
}

// NewTable is the row of a matrix of which the host computes.
func NewTable(to *[]float32, module string, rows, cols int) Weight {
	return Weight{Name: module + ".weight", Kind: Table, Rows: rows, Cols: cols, host: to}
}

// NewIDs is the row of n whole numbers.
func NewIDs(to *[]int64, name string, n int) Weight {
	return Weight{Name: name, Kind: IDs, Rows: 1, Cols: n, ids: to}
}

// NewLookup is the row of a matrix whose rows are looked up.
func NewLookup(to *Rows, module string, rows, cols int) Weight {
	return Weight{Name: module + ".weight", Kind: Lookup, Rows: rows, Cols: cols, rows: to}
}

// NewOnes is the row of a gain of n ones, for norms that have none. Its name places it on a device.
func NewOnes(to *backend.Tensor, module string, n int) Weight {
	return NewVector(to, Ones, module+".weight", 1, n)
}

// Then is w, a vector, with a function that is called with its numbers when they are loaded, and may keep or change them.
// Conversion does not call it.
func (w Weight) Then(change func(values []float32)) Weight {
	w.then = change
	return w
}

// NewGain is the row of a norm.
func NewGain(to *backend.Tensor, module string, n int) Weight {
	return NewVector(to, Gain, module+".weight", 1, n)
}

// NewVector is the row of a weight that is not a matrix.
func NewVector(to *backend.Tensor, kind Kind, name string, rows, cols int) Weight {
	return Weight{Name: name, Kind: kind, Rows: rows, Cols: cols, tensor: to}
}

// Tables are those of a checkpoint: of the model alone, of its head and of its vision tower; nil
// for missing parts, and for an unusable tower.
type Tables struct{ Model, Head, Tower iter.Seq[*Weight] }

// Each yields the rows of a list and reports whether to go on.
func Each(list []Weight, yield func(*Weight) bool) bool {
	for i := range list {
		if !yield(&list[i]) {
			return false
		}
	}
	return true
}

// IsMatrix reports whether the weight is a matrix or a stack of them: the rest have
// Values.
func (w *Weight) IsMatrix() bool {
	return w.Kind == Matrix || w.Kind == Router || w.Kind == Kernel || w.Kind == Table || w.Kind == Lookup
}

// Head reports whether the weight is one of the multi-token-prediction head.
func (w *Weight) Head() bool { return IsHead(w.Name) }

// Tower reports whether the weight is one of the vision tower.
func (w *Weight) Tower() bool { return IsTower(w.Name) }

// Tensor is the destination of a weight that is not a matrix.
func (w *Weight) Tensor() *backend.Tensor { return w.tensor }

// LoadedBytes is the memory of a matrix, or a stack of them, that was loaded: 0 if it stays in its file.
func (w *Weight) LoadedBytes() int64 {
	if w.Kind == Lookup {
		return 0
	}
	return (*w.matrix).Bytes()
}

// Count is the number of matrices.
func (w *Weight) Count() int { return max(w.Experts, 1) }

// Parameters is the number of numbers in a checkpoint.
func (w *Weight) Parameters() int64 {
	if w.Kind == Ones {
		return 0
	}
	return int64(w.Count()) * int64(w.Rows) * int64(w.Cols)
}

// module is the canonical path of the module that the weight is stored in, that of a stack
// if its matrices have one each.
func (w *Weight) module() string {
	if w.storage.Module == "" {
		return strings.TrimSuffix(w.Name, ".weight")
	}
	return strings.Replace(w.storage.Module, ".%d", "", 1)
}

// Stored is how the matrices are stored, by the headers alone: matrices without Data.
func (w *Weight) Stored() ([]dtype.Matrix, error) {
	if w.Kind == Kernel {
		m, _, err := w.lookKernel()
		return []dtype.Matrix{m}, err
	}
	return w.matrices((*checkpoint.Weights).LookMatrix, (*checkpoint.Weights).LookStack)
}

// Matrices are the stored matrices: views of the checkpoint if its layout
// allows.
func (w *Weight) Matrices() ([]dtype.Matrix, error) {
	if w.Kind == Kernel {
		return w.kernels()
	}
	return w.matrices((*checkpoint.Weights).Matrix, (*checkpoint.Weights).MatrixStack)
}

func (w *Weight) matrices(
	one func(_ *checkpoint.Weights, path string, rows, cols int) (dtype.Matrix, error),
	many func(_ *checkpoint.Weights, path string, n, rows, cols int) ([]dtype.Matrix, error),
) ([]dtype.Matrix, error) {
	s := &w.storage
	rows, cols := w.Rows, w.Cols
	if s.Transposed {
		cols = w.Rows
	}
	if s.Groups > 0 {
		rows = s.Groups * s.Size
	}
	list := make([]dtype.Matrix, 0, w.Count())
	for _, p := range w.places {
		var ms []dtype.Matrix
		var err error
		if w.Experts > 0 && !s.apart() && !s.Stacked {
			ms, err = many(p.From, p.Name, w.Experts, rows, cols)
		} else {
			ms = make([]dtype.Matrix, 1)
			ms[0], err = one(p.From, p.Name, rows, cols)
		}
		if err != nil {
			return nil, fmt.Errorf("weights: %w", err)
		}
		if s.Stacked {
			list = append(list, s.stack(p.From, &ms[0])...)
			continue
		}
		for i := range ms {
			m := s.take(p.From, &ms[i])
			list = append(list, w.order.matrix(p.From, &m))
		}
	}
	evenZeros(list)
	if partOf(w.Name).Kind == backend.EmbeddingPart && list[0].Input != nil {
		list[0] = list[0].Numbers() // rows are looked up: no input is transformed
	}
	return list, nil
}

// evenZeros gives all matrices of a stack zero points if some have them: readers leave out those at
// half of the range.
func evenZeros(list []dtype.Matrix) {
	if !slices.ContainsFunc(list, func(m dtype.Matrix) bool { return m.Zeros != nil }) {
		return
	}
	for i := range list {
		if m := &list[i]; m.Format == dtype.ZeroPoint && m.Zeros == nil {
			m.Zeros = []byte{}
			if m.Data != nil {
				m.Zeros = bytes.Repeat([]byte{1 << (m.Bits - 1)}, m.Rows*m.Groups())
			}
		}
	}
}

// Release tells the system that m, some rows of Matrices, is not needed for now.
func (w *Weight) Release(m dtype.Matrix) {
	for i, p := range w.places {
		if i == 0 || p.From != w.places[0].From {
			p.From.ReleaseMatrix(m)
		}
	}
}

// Type is the stored type of the numbers of a weight that is not a matrix.
func (w *Weight) Type() dtype.Type {
	t, _ := w.places[0].From.Look(w.places[0].Name)
	return t.Type
}

// Shape is the stored shape of a weight that is not a matrix.
func (w *Weight) Shape() []int {
	t, _ := w.places[0].From.Look(w.places[0].Name)
	return t.Shape
}

// Values are the numbers of a weight that is not a matrix. Those of a Gain are effective:
// with the 1 that raw files leave out.
func (w *Weight) Values() ([]float32, error) {
	v, c, err := w.stored()
	c.restore(v)
	return v, err
}

// layerInput reports whether the weight is the input norm of a layer of the model.
func (w *Weight) layerInput() bool {
	return !w.Head() && strings.HasSuffix(w.Name, ".input_layernorm.weight")
}

// stored are the stored numbers of a weight that is not a matrix, and the
// convention of a norm's.
func (w *Weight) stored() ([]float32, Convention, error) {
	p := w.places[0]
	v, err := p.From.Vector(p.Name, w.Rows*w.Cols)
	if err != nil {
		return nil, Effective, fmt.Errorf("weights: %w", err)
	}
	v = w.order.values(v)
	if w.Kind != Gain {
		return v, Effective, nil
	}
	return v, w.norms.of(w.Name, v), nil
}

// check reads the headers of the weight, which marks its tensors as used.
func (w *Weight) check() error {
	if w.IsMatrix() {
		_, err := w.Stored()
		return err
	}
	p := w.places[0]
	if w.Kind == IDs {
		_, err := w.Bytes()
		return err
	}
	if err := p.From.LookVector(p.Name, w.Rows*w.Cols); err != nil {
		return fmt.Errorf("weights: %w", err)
	}
	return nil
}

// Bytes are the stored bytes of IDs.
func (w *Weight) Bytes() ([]byte, error) {
	t, err := w.places[0].From.Tensor(w.places[0].Name)
	if err != nil {
		return nil, fmt.Errorf("weights: %w", err)
	}
	if t.Type != dtype.I64 || len(t.Data) != 8*w.Cols {
		return nil, fmt.Errorf("weights: tensor %s is %v with %d bytes, want I64 with %d numbers", t.Name, t.Type, len(t.Data), w.Cols)
	}
	return t.Data, nil
}

// Scaled reports whether the file has a factor for a whole matrix.
func (w *Weight) Scaled() bool {
	return slices.ContainsFunc(w.places, func(p Place) bool {
		return p.From.Has(p.Name+".global_scale") || p.From.Has(p.Name+".weight_global_scale") || p.From.Has(p.Name+".weight_scale_2")
	})
}

// Place is the file and the name of the first of the tensors that the weight is stored as.
func (w *Weight) Place() (file, tensor string) {
	w.eachTensor(func(_ *checkpoint.Weights, t checkpoint.Tensor) {
		if tensor == "" {
			file, tensor = t.File, t.Name
		}
	})
	return file, tensor
}
