package checkpoint

import (
	"fmt"
	"slices"

	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/rescue"
)

// Matrix returns the weight matrix of a module, in any encoding of the file, and
// marks its tensors as used. module is a tensor name without ".weight" or
// the suffix of other formats; a tensor with the module's name itself is
// found too. rows and cols are those of the architecture; anything else is an
// error. The matrix is a view of the file if the format has the bytes of a
// dtype.Matrix; other formats are repacked in new memory.
func (w *Weights) Matrix(module string, rows, cols int) (dtype.Matrix, error) {
	ms, err := w.matrices(module, shape{rows: rows, cols: cols})
	if err != nil {
		return dtype.Matrix{}, err
	}
	return ms[0], nil
}

// MatrixStack is Matrix for a tensor that holds n matrices of rows × cols, one
// after another.
func (w *Weights) MatrixStack(module string, n, rows, cols int) ([]dtype.Matrix, error) {
	return w.matrices(module, shape{n: n, rows: rows, cols: cols, stacked: true})
}

// shape is the expected shape of a module: rows × cols, or n of those.
type shape struct {
	n, rows, cols int
	stacked       bool
	look          bool // headers only: no byte of the tensors is touched
}

// count is the number of matrices.
func (s shape) count() int {
	if s.stacked {
		return s.n
	}
	return 1
}

// with is the shape of a tensor of this module that has the given last two dimensions.
func (s shape) with(rows, cols int) []int {
	if s.stacked {
		return []int{s.n, rows, cols}
	}
	return []int{rows, cols}
}

// module is a module whose matrices are requested.
type module struct {
	*Weights
	shape
	name     string
	elements *entry // the tensor with the elements of the matrices
}

// A form is an encoding of the matrices of a module. The name and the type of the tensor
// with the elements identify it; read checks shapes and the tensors beside it.
type form struct {
	suffix string
	typ    dtype.Type
	read   func(*module) ([]dtype.Matrix, error)
}

var forms = []form{
	{".weight", dtype.F32, (*module).plain},
	{".weight", dtype.F16, (*module).plain},
	{".weight", dtype.BF16, (*module).plain},
	{".weight", dtype.U32, (*module).mlx},
	{".weight", dtype.F8E4M3, (*module).fp8},
	{".weight", dtype.U8, (*module).fp4},
	{".weight", dtype.I8, (*module).int8},
	{".weight_packed", dtype.U8, (*module).fp4},
	{".weight_packed", dtype.I32, (*module).packed},
	{".qweight", dtype.I32, (*module).words},
	{".qweight", dtype.I16, (*module).gemvFast},
}

// elements are the suffixes of tensors with elements, the most frequent
// first. Releases have none for stacks, whose tensors are written as those of ".weight" are.
var elements = []string{".weight", "", ".weight_packed", ".qweight"}

// parts are the suffixes of all other tensors of matrices.
var parts = []string{
	".scales", ".biases", ".global_scale", ".weight_scale_inv", "_scale_inv", ".weight_scale", ".weight_scale_2",
	".weight_global_scale", ".weight_zero_point", ".weight_shape", ".weight_g_idx", ".qzeros", ".g_idx",
	".theta", ".pairs", ".channel_scales",
}

// Elements returns the name of the tensor that has the elements of a module's matrix, in any
// encoding, among those that has reports; ok is false if there is none.
func Elements(module string, has func(name string) bool) (name string, ok bool) {
	for _, suffix := range elements {
		if has(module + suffix) {
			return module + suffix, true
		}
	}
	return "", false
}

// Parts lists the tensors that a module's matrix is made of, without Data.
func (w *Weights) Parts(module string) []Tensor {
	var list []Tensor
	for _, suffix := range slices.Concat(elements, parts) {
		if t, ok := w.Look(module + suffix); ok {
			list = append(list, t)
		}
	}
	return list
}

func (w *Weights) matrices(name string, s shape) ([]dtype.Matrix, error) {
	if s.count() < 1 || s.rows < 1 || s.cols < 1 {
		return nil, fmt.Errorf("checkpoint: module %q: shape %s is empty", name, shapeText(s.with(s.rows, s.cols)))
	}
	m := &module{Weights: w, shape: s, name: name}
	ms, err := m.read()
	if err != nil {
		return nil, err
	}
	for i := range ms {
		if err := m.check(&ms[i]); err != nil {
			return nil, m.elements.errorf("%w", err)
		}
	}
	return ms, nil
}

// read finds the form of the module and reads its matrices.
func (m *module) read() ([]dtype.Matrix, error) {
	tensor, ok := Elements(m.name, m.Has)
	if !ok {
		tensor = m.name + ".weight"
	}
	e, err := m.use(tensor)
	if err != nil {
		return nil, err
	}
	if err := m.refused(e); err != nil {
		return nil, err
	}
	m.elements = e
	if e.blocks != nil {
		return m.blocks()
	}
	suffix := tensor[len(m.name):]
	if suffix == "" {
		suffix = elements[0]
	}
	var want []dtype.Type
	for _, f := range forms {
		if f.suffix != suffix {
			continue
		}
		if f.typ == e.typ {
			return f.read(m)
		}
		want = append(want, f.typ)
	}
	return nil, e.errorf("type %v, want one of %v", e.typ, want)
}

// check compares a matrix with its format and with the config's entry for the module, and
// refuses scales that are NaN or infinite.
func (m *module) check(x *dtype.Matrix) error {
	if err := m.quant.confirm(m.name, x, m.elements.typ); err != nil {
		return err
	}
	if m.look {
		return x.ValidateFormat()
	}
	if err := x.Validate(); err != nil {
		return err
	}
	const worth = 1 << 18 // bytes of scales for a goroutine
	return rescue.Deal(x.Rows, 1, worth/(x.ScaleRowBytes()+1), x.Sound)
}

func (m *module) plain() ([]dtype.Matrix, error) {
	if err := m.elements.want(m.with(m.rows, m.cols)); err != nil {
		return nil, err
	}
	return m.split(dtype.Matrix{Rows: m.rows, Cols: m.cols, Type: m.elements.typ}, nil, nil)
}

// blocks are the matrices of a tensor in a block format.
func (m *module) blocks() ([]dtype.Matrix, error) {
	x := *m.elements.blocks
	if x.Cols != m.cols {
		return nil, m.elements.errorf("%v with %d columns, want %d", x.Format, x.Cols, m.cols)
	}
	if err := m.elements.want(m.with(m.rows, x.RowBytes())); err != nil {
		return nil, err
	}
	x.Rows = m.rows
	ms, err := m.split(x, nil, nil)
	if err != nil || m.elements.factors == nil {
		return ms, err
	}
	f := m.elements.factors
	if len(f) != 1 && len(f) != len(ms) {
		return nil, m.elements.errorf("%d factors, want 1 or %d", len(f), len(ms))
	}
	for i := range ms {
		ms[i].Global = f[i%len(f)]
	}
	return ms, nil
}

// split cuts the bytes of the tensors into matrices like x. Their shapes have
// been checked, so the parts are equal.
func (m *module) split(x dtype.Matrix, scales, biases *entry) ([]dtype.Matrix, error) {
	ms := slices.Repeat([]dtype.Matrix{x}, m.count())
	for kind, e := range [...]*entry{m.elements, scales, biases} {
		if e == nil || m.look {
			continue
		}
		b, err := e.load()
		if err != nil {
			return nil, err
		}
		size := len(b) / len(ms)
		for i := range ms {
			part := b[i*size : (i+1)*size : (i+1)*size]
			*[...]*[]byte{&ms[i].Data, &ms[i].Scales, &ms[i].Biases}[kind] = part
		}
	}
	return ms, nil
}

// companion finds a tensor without which e means nothing, and marks it.
func (w *Weights) companion(e *entry, name string) (*entry, error) {
	c, err := w.use(name)
	if err != nil {
		return nil, e.errorf("type %v needs %q beside it: %w", e.typ, name, ErrMissing)
	}
	return c, nil
}

// factors are one number for each matrix, of the tensor that scales them as a whole. With look they are
// not read.
func (m *module) factors(name string) ([]float32, error) {
	n := m.count()
	if m.look {
		return make([]float32, n), m.LookVector(name, n)
	}
	return m.Vector(name, n)
}

// want checks the shape.
func (e *entry) want(shape []int) error {
	if !slices.Equal(e.shape, shape) {
		return e.errorf("%v of shape %s, want %s", e.typ, shapeText(e.shape), shapeText(shape))
	}
	return nil
}

// numbers is how many elements the tensor has.
func (e *entry) numbers() int { return (e.end - e.begin) / e.typ.Size() }

func last(shape []int) int {
	if len(shape) == 0 {
		return 0
	}
	return shape[len(shape)-1]
}
