package checkpoint

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/dtype"
)

// fp4 is a matrix of E2M1 nibbles with a scale of one byte per group: NVFP4 or MXFP4 by the type of the
// scales. compressed-tensors and ModelOpt have the same bytes under different names.
func (m *module) fp4() ([]dtype.Matrix, error) {
	scales, err := m.companion(m.elements, m.name+".weight_scale")
	if err != nil {
		return nil, err
	}
	x := dtype.Matrix{Rows: m.rows, Cols: m.cols, Format: dtype.NVFP4, Group: 16, ScaleType: dtype.F8E4M3, Global: 1}
	switch scales.typ {
	case dtype.F8E4M3:
	case dtype.U8, dtype.F8E8M0:
		x.Format, x.Group, x.ScaleType, x.Global = dtype.MXFP4, 32, dtype.F8E8M0, 0
	default:
		return nil, scales.errorf("type %v, want F8_E4M3 for NVFP4 or U8 for MXFP4", scales.typ)
	}
	if err := m.whole(x.Group); err != nil {
		return nil, err
	}
	if err := cmp.Or(m.elements.want(m.with(m.rows, m.cols/2)), scales.want(m.with(m.rows, m.cols/x.Group))); err != nil {
		return nil, err
	}
	ms, err := m.split(x, scales, nil)
	if err != nil || x.Format == dtype.MXFP4 {
		return ms, err
	}
	return ms, m.global(ms)
}

// whole checks that groups of group columns divide the rows.
func (m *module) whole(group int) error {
	if m.cols%group != 0 {
		return m.elements.errorf("rows of %d columns are not a whole number of groups of %d", m.cols, group)
	}
	return nil
}

// global sets the factors of NVFP4 matrices. Those of compressed-tensors are reciprocal.
func (m *module) global(ms []dtype.Matrix) error {
	name, inverse := m.name+".weight_scale_2", false
	if !m.Has(name) {
		name, inverse = m.name+".weight_global_scale", true
	}
	if !m.Has(name) {
		_, err := m.companion(m.elements, name)
		return err
	}
	factors, err := m.factors(name)
	if err != nil {
		return err
	}
	for i, f := range factors {
		if inverse && !m.look {
			f = 1 / f
		}
		if math.IsNaN(float64(f)) || math.IsInf(float64(f), 0) {
			return m.tensors[name].errorf("factor %g of the matrix: the file is damaged", factors[i])
		}
		ms[i].Global = f
	}
	return nil
}

// fp8 is a matrix of E4M3 elements. Scales of one byte make it MXFP8. Others multiply blocks, rows, or
// everything, regardless of their suffix; they are spread over the rows in new memory, which for the
// usual blocks is a thirty-second of the elements.
func (m *module) fp8() ([]dtype.Matrix, error) {
	e := m.elements
	if err := e.want(m.with(m.rows, m.cols)); err != nil {
		return nil, err
	}
	name := m.name + ".weight_scale_inv"
	switch {
	case m.Has(name):
	case m.Has(m.name + ".weight_scale"):
		name = m.name + ".weight_scale"
	case e.name == m.name:
		name = m.name + "_scale_inv"
	}
	scale, err := m.companion(e, name)
	if err != nil {
		return nil, err
	}
	if scale.typ == dtype.U8 || scale.typ == dtype.F8E8M0 {
		x := dtype.Matrix{Rows: m.rows, Cols: m.cols, Format: dtype.MXFP8, Group: 32, ScaleType: dtype.F8E8M0}
		if err := cmp.Or(m.whole(x.Group), scale.want(m.with(m.rows, m.cols/x.Group))); err != nil {
			return nil, err
		}
		return m.split(x, scale, nil)
	}
	rows, cols, err := m.blockOf(scale)
	if err != nil {
		return nil, err
	}
	ms, err := m.split(dtype.Matrix{Rows: m.rows, Cols: m.cols, Format: dtype.FP8, Group: cols, ScaleType: dtype.F32}, nil, nil)
	if err != nil || m.look {
		return ms, cmp.Or(err, m.LookVector(name, scale.numbers()))
	}
	values, err := m.Vector(name, scale.numbers())
	if err != nil {
		return nil, err
	}
	across := (m.cols-1)/cols + 1
	for i := range ms {
		block := values
		if n := ((m.rows-1)/rows + 1) * across; n < len(values) {
			block = values[i*n : (i+1)*n]
		}
		ms[i].Scales = spread(block, m.rows, rows, across)
	}
	return ms, nil
}

// blockOf is how many rows and columns a number of scale is for: the whole matrix, a row, or a block of the
// config's size or of the releases'. If the config has no size, blocks that divide the matrix are found
// by their number.
func (m *module) blockOf(scale *entry) (rows, cols int, err error) {
	if scale.numbers() == 1 {
		return m.rows, m.cols, nil
	}
	shape := scale.shape
	if len(shape) == 4 && shape[1] == 1 && shape[3] == 1 { // ModelOpt keeps the dimensions within blocks
		shape = []int{shape[0], shape[2]}
	}
	block := m.quant.block
	candidates := [][2]int{block, {1, m.cols}, {m.rows, m.cols}}
	if block == ([2]int{}) {
		candidates[0] = usualBlock
		n := len(shape)
		if strings.HasSuffix(scale.name, ".weight_scale") && n >= 2 && shape[n-1] > 0 && shape[n-2] > 0 && m.cols%shape[n-1] == 0 && m.rows%shape[n-2] == 0 {
			candidates = append(candidates, [2]int{m.rows / shape[n-2], m.cols / shape[n-1]})
		}
	}
	for _, b := range candidates {
		down, across := (m.rows-1)/b[0]+1, (m.cols-1)/b[1]+1
		if list := m.with(down, across); slices.Equal(shape, list) || across == 1 && slices.Equal(shape, list[:len(list)-1]) {
			return b[0], b[1], nil
		}
	}
	b := candidates[0]
	return 0, 0, scale.errorf("shape %s, want %s for blocks of %d×%d, %s for rows, or one number", shapeText(scale.shape),
		shapeText(m.with((m.rows-1)/b[0]+1, (m.cols-1)/b[1]+1)), b[0], b[1], shapeText(m.with(m.rows, 1)))
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
