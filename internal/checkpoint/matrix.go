package checkpoint

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/foretoken/foretoken/internal/dtype"
)

// Matrix returns the weight matrix of a module, in whatever encoding the file has
// it, and marks its tensors as used. module is a tensor name without ".weight";
// a tensor that bears the module's name itself is found too. rows and cols are
// what the architecture expects; anything else is an error. The matrix is a view
// of the file, save for scales that had to be spread (FP8).
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

// shape is what a module is expected to be: rows × cols, or n of those.
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

func (w *Weights) matrices(module string, s shape) ([]dtype.Matrix, error) {
	if s.count() < 1 || s.rows < 1 || s.cols < 1 {
		return nil, fmt.Errorf("checkpoint: module %q: shape %s is empty", module, shapeText(s.with(s.rows, s.cols)))
	}
	e, err := w.use(module + ".weight")
	if err != nil && w.Has(module) {
		e, err = w.use(module)
	}
	if err != nil {
		if w.quant.method != "" && w.quant.method != "fp8" {
			err = fmt.Errorf("%w (%s says that the weights have the format %q, which is not supported)", err, configFile, w.quant.method)
		}
		return nil, err
	}
	var ms []dtype.Matrix
	switch {
	case e.blocks != nil:
		ms, err = e.matrices(s)
	case e.typ == dtype.F32 || e.typ == dtype.F16 || e.typ == dtype.BF16:
		ms, err = w.plain(e, module, s)
	case e.typ == dtype.U32:
		ms, err = w.packed(e, module, s)
	case e.typ == dtype.F8E4M3:
		ms, err = w.fp8(e, module, s)
	default:
		err = e.errorf("type %v, want F32, F16, BF16, F8_E4M3, or U32 with scales", e.typ)
	}
	if err != nil {
		return nil, err
	}
	for i := range ms {
		validate := ms[i].Validate
		if s.look {
			validate = ms[i].ValidateFormat
		}
		if err := validate(); err != nil {
			return nil, e.errorf("%w", err)
		}
	}
	return ms, nil
}

func (w *Weights) plain(e *entry, module string, s shape) ([]dtype.Matrix, error) {
	if o, ok := w.quant.paths[module]; ok && !o.Plain {
		return nil, e.errorf("%s says it is quantized, but its type is %v", configFile, e.typ)
	}
	if err := e.want(s.with(s.rows, s.cols)); err != nil {
		return nil, err
	}
	m := dtype.Matrix{Rows: s.rows, Cols: s.cols, Type: e.typ}
	return split(m, s, e, nil, nil)
}

// matrices are those of a tensor in a block format.
func (e *entry) matrices(s shape) ([]dtype.Matrix, error) {
	m := *e.blocks
	if m.Cols != s.cols {
		return nil, e.errorf("%v with %d columns, want %d", m.Format, m.Cols, s.cols)
	}
	if err := e.want(s.with(s.rows, m.RowBytes())); err != nil {
		return nil, err
	}
	m.Rows = s.rows
	return split(m, s, e, nil, nil)
}

// packed is a matrix quantized by MLX: 32-bit words of packed elements. With the
// number of columns known, the shapes of weight and scales give width and group,
// and the type of the scales gives the mode.
func (w *Weights) packed(e *entry, module string, s shape) ([]dtype.Matrix, error) {
	override, named := w.quant.paths[module]
	if override.Plain {
		return nil, e.errorf("%s says it is not quantized, but its type is U32", configFile)
	}
	scales, err := w.companion(e, module+".scales")
	if err != nil {
		return nil, err
	}
	words, groups := last(e.shape), last(scales.shape)
	m := dtype.Matrix{Rows: s.rows, Cols: s.cols, Bits: words * 32 / s.cols}
	if words < 1 || m.Bits*s.cols != words*32 {
		return nil, e.errorf("shape %s: rows of %d words are too short for %d columns", shapeText(e.shape), words, s.cols)
	}
	if groups < 1 || s.cols%groups != 0 {
		return nil, scales.errorf("shape %s: %d groups do not divide %d columns", shapeText(scales.shape), groups, s.cols)
	}
	m.Group = s.cols / groups
	if err := cmp.Or(e.want(s.with(s.rows, words)), scales.want(s.with(s.rows, groups))); err != nil {
		return nil, err
	}
	var ms []dtype.Matrix
	if scales.typ == dtype.U8 {
		ms, err = w.floating(m, module, s, e, scales)
	} else {
		ms, err = w.affine(m, module, s, e, scales)
	}
	if err != nil || !named {
		return ms, err
	}
	return ms, override.check(e, &ms[0])
}

// affine completes a matrix m that has scales and biases.
func (w *Weights) affine(m dtype.Matrix, module string, s shape, e, scales *entry) ([]dtype.Matrix, error) {
	biases, err := w.companion(scales, module+".biases")
	if err != nil {
		return nil, err
	}
	if biases.typ != scales.typ {
		return nil, biases.errorf("type %v, want %v as the scales", biases.typ, scales.typ)
	}
	if err := biases.want(scales.shape); err != nil {
		return nil, err
	}
	m.Format, m.ScaleType = dtype.Affine, scales.typ
	return split(m, s, e, scales, biases)
}

// floating completes a matrix m in one of the modes whose elements are small floats.
func (w *Weights) floating(m dtype.Matrix, module string, s shape, e, scales *entry) ([]dtype.Matrix, error) {
	switch [2]int{m.Bits, m.Group} {
	case [2]int{4, 32}:
		m.Format, m.ScaleType = dtype.MXFP4, dtype.F8E8M0
	case [2]int{8, 32}:
		m.Format, m.ScaleType = dtype.MXFP8, dtype.F8E8M0
	case [2]int{4, 16}:
		m.Format, m.ScaleType, m.Global = dtype.NVFP4, dtype.F8E4M3, 1
	default:
		return nil, scales.errorf("no mode has %d bits in groups of %d with scales of one byte", m.Bits, m.Group)
	}
	m.Bits = 0
	ms, err := split(m, s, e, scales, nil)
	if err != nil {
		return nil, err
	}
	if name := module + ".global_scale"; m.Format == dtype.NVFP4 && w.Has(name) {
		if s.look {
			return ms, w.LookVector(name, len(ms))
		}
		global, err := w.Vector(name, len(ms))
		if err != nil {
			return nil, err
		}
		for i := range ms {
			// The file's number is the largest magnitude of the matrix, for which the
			// largest element, 6, and the largest group scale, 448, stand.
			ms[i].Global = global[i] / (6 * 448)
		}
	}
	return ms, nil
}

// fp8 is a matrix of E4M3 elements with one scale per block, per row, or one for all. The
// scales are spread over the rows, in new memory: for the usual blocks a
// thirty-second of what the elements take.
func (w *Weights) fp8(e *entry, module string, s shape) ([]dtype.Matrix, error) {
	if err := e.want(s.with(s.rows, s.cols)); err != nil {
		return nil, err
	}
	name := module + ".weight_scale_inv"
	rows, cols := w.quant.block[0], w.quant.block[1]
	switch {
	case w.Has(name):
	case w.Has(module + ".weight_scale"): // compressed-tensors: one for each row
		name, rows, cols = module+".weight_scale", 1, s.cols
	case e.name == module:
		name = module + "_scale_inv"
	}
	scale, err := w.companion(e, name)
	if err != nil {
		return nil, err
	}
	down, across := (s.rows-1)/rows+1, (s.cols-1)/cols+1
	one := scale.numbers() == 1
	if one {
		rows, cols, down, across = s.rows, s.cols, 1, 1
	} else if list := s.with(down, across); !slices.Equal(scale.shape, list) && (across > 1 || !slices.Equal(scale.shape, list[:len(list)-1])) {
		return nil, scale.errorf("shape %s, want %s for blocks of %d×%d, or one number",
			shapeText(scale.shape), shapeText(s.with(down, across)), rows, cols)
	}
	m := dtype.Matrix{Rows: s.rows, Cols: s.cols, Format: dtype.FP8, Group: cols, ScaleType: dtype.F32}
	ms, err := split(m, s, e, nil, nil)
	if err != nil {
		return nil, err
	}
	if s.look {
		return ms, w.LookVector(name, scale.numbers())
	}
	values, err := w.Vector(name, scale.numbers())
	if err != nil {
		return nil, err
	}
	for i := range ms {
		block := values
		if !one {
			block = values[i*down*across : (i+1)*down*across]
		}
		ms[i].Scales = spread(block, s.rows, rows, across)
	}
	return ms, nil
}

// spread repeats each row of block scales for the rows of the matrix it covers.
func spread(scales []float32, rows, block, across int) []byte {
	n := 4 * across
	out := make([]byte, rows*n)
	for r := range rows {
		if r%block == 0 {
			dtype.FromF32(out[r*n:(r+1)*n], dtype.F32, scales[r/block*across:(r/block+1)*across])
			continue
		}
		copy(out[r*n:(r+1)*n], out[(r-1)*n:r*n])
	}
	return out
}

// split cuts the bytes of the tensors into matrices like m. Their shapes have
// been checked, so the parts are equal.
func split(m dtype.Matrix, s shape, data, scales, biases *entry) ([]dtype.Matrix, error) {
	ms := make([]dtype.Matrix, s.count())
	for i := range ms {
		ms[i] = m
	}
	for kind, e := range [...]*entry{data, scales, biases} {
		if e == nil || s.look {
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
