package checkpoint

import (
	"cmp"

	"github.com/foretoken/foretoken/internal/dtype"
)

// mlx is a matrix quantized by MLX: 32-bit words of packed elements. With the
// number of columns known, the shapes of weight and scales give width and group,
// and the type of the scales gives the mode.
func (m *module) mlx() ([]dtype.Matrix, error) {
	e := m.elements
	scales, err := m.companion(e, m.name+".scales")
	if err != nil {
		return nil, err
	}
	words, groups := last(e.shape), last(scales.shape)
	x := dtype.Matrix{Rows: m.rows, Cols: m.cols, Bits: words * 32 / m.cols}
	if words < 1 || x.Bits*m.cols != words*32 {
		return nil, e.errorf("shape %s: rows of %d words are too short for %d columns", shapeText(e.shape), words, m.cols)
	}
	if x.Group, err = m.group(scales, groups); err != nil {
		return nil, err
	}
	if err := cmp.Or(e.want(m.with(m.rows, words)), scales.want(m.with(m.rows, groups))); err != nil {
		return nil, err
	}
	if scales.typ == dtype.U8 {
		return m.microscaled(x, scales)
	}
	biases, err := m.companion(scales, m.name+".biases")
	if err != nil {
		return nil, err
	}
	if biases.typ != scales.typ {
		return nil, biases.errorf("type %v, want %v as the scales", biases.typ, scales.typ)
	}
	if err := biases.want(scales.shape); err != nil {
		return nil, err
	}
	x.Format, x.ScaleType = dtype.Affine, scales.typ
	return m.split(x, scales, biases)
}

// group is the number of columns of each of groups groups.
func (m *module) group(scales *entry, groups int) (int, error) {
	if groups < 1 || m.cols%groups != 0 {
		return 0, scales.errorf("shape %s: %d groups do not divide %d columns", shapeText(scales.shape), groups, m.cols)
	}
	return m.cols / groups, nil
}

// microscaled completes a matrix x in one of MLX's modes whose elements are small floats.
func (m *module) microscaled(x dtype.Matrix, scales *entry) ([]dtype.Matrix, error) {
	switch [2]int{x.Bits, x.Group} {
	case [2]int{4, 32}:
		x.Format, x.ScaleType = dtype.MXFP4, dtype.F8E8M0
	case [2]int{8, 32}:
		x.Format, x.ScaleType = dtype.MXFP8, dtype.F8E8M0
	case [2]int{4, 16}:
		x.Format, x.ScaleType, x.Global = dtype.NVFP4, dtype.F8E4M3, 1
	default:
		return nil, scales.errorf("no mode has %d bits in groups of %d with scales of one byte", x.Bits, x.Group)
	}
	x.Bits = 0
	ms, err := m.split(x, scales, nil)
	if name := m.name + ".global_scale"; err == nil && x.Format == dtype.NVFP4 && m.Has(name) {
		var global []float32
		if global, err = m.factors(name); err != nil {
			return nil, err
		}
		for i := range ms {
			ms[i].Global = global[i] / dtype.MaxNVFP4 // the file's number is the largest magnitude of the matrix
		}
	}
	return ms, err
}
