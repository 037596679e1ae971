package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/binary"

	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/rescue"
)

// worth is how many bytes of elements are repacked by a goroutine at least.
const worth = 1 << 17

// packed is a matrix of compressed-tensors' pack-quantized: codes with an offset of half their range, a bit
// stream along the columns, which is that of dtype.ZeroPoint.
func (m *module) packed() ([]dtype.Matrix, error) {
	e := m.elements
	words := last(e.shape)
	x := dtype.Matrix{Rows: m.rows, Cols: m.cols, Format: dtype.ZeroPoint, Bits: words * 32 / m.cols}
	if words < 1 || x.Bits*m.cols != words*32 {
		return nil, e.errorf("shape %s: rows of %d words are no bit stream of %d columns: if they leave bits of each word unused, write them with a newer compressed-tensors",
			shapeText(e.shape), words, m.cols)
	}
	if err := cmp.Or(e.want(m.with(m.rows, words)), m.checkShape()); err != nil {
		return nil, err
	}
	ms, err := m.grouped(x)
	if err != nil {
		return nil, err
	}
	return ms, m.ordered(ms, m.name+".weight_g_idx")
}

// int8 is a matrix of compressed-tensors' int-quantized: signed bytes, which become unsigned.
func (m *module) int8() ([]dtype.Matrix, error) {
	if err := m.elements.want(m.with(m.rows, m.cols)); err != nil {
		return nil, err
	}
	ms, err := m.grouped(dtype.Matrix{Rows: m.rows, Cols: m.cols, Format: dtype.ZeroPoint, Bits: 8})
	if err != nil || m.look {
		return ms, err
	}
	for i := range ms {
		signed, codes := ms[i].Data, make([]byte, m.rows*m.cols)
		err := rescue.Deal(len(codes), 8, worth, func(from, to int) error {
			for ; from+8 <= to; from += 8 {
				binary.LittleEndian.PutUint64(codes[from:], binary.LittleEndian.Uint64(signed[from:])^0x8080808080808080)
			}
			for ; from < to; from++ {
				codes[from] = signed[from] ^ 128
			}
			return nil
		})
		if err != nil {
			return nil, m.elements.errorf("%w", err)
		}
		ms[i].Data = codes
		m.release(signed)
	}
	return ms, nil
}

// grouped completes a matrix x of integers, whose elements were checked, with the scales and zero points of
// compressed-tensors.
func (m *module) grouped(x dtype.Matrix) ([]dtype.Matrix, error) {
	scales, err := m.companion(m.elements, m.name+".weight_scale")
	if err != nil {
		return nil, err
	}
	x.ScaleType = scales.typ
	groups, repeat, parts := last(scales.shape), 1, scales
	n := scales.numbers()
	if n == 1 || n == m.rows*m.count() && (groups == 1 || len(scales.shape) < len(m.with(0, 0))) { // for all rows, or one for each
		if x.Group = channelGroup(m.cols); x.Group == 0 {
			return nil, m.whole(16)
		}
		groups, repeat, parts = 1, m.cols/x.Group, nil
	} else if x.Group, err = m.group(scales, groups); err == nil {
		err = scales.want(m.with(m.rows, groups))
	}
	if err != nil {
		return nil, err
	}
	zeros, err := m.zeroPoints(x.Bits, groups, repeat)
	if err != nil {
		return nil, err
	}
	ms, err := m.split(x, parts, nil)
	if err == nil && parts == nil && !m.look {
		err = m.spreadRows(ms, scales, repeat)
	}
	attach(ms, zeros)
	return ms, err
}

// spreadRows repeats the scale of each row, or the only one, for the groups of the rows.
func (m *module) spreadRows(ms []dtype.Matrix, scales *entry, repeat int) error {
	b, err := scales.load()
	if err != nil {
		return err
	}
	size := scales.typ.Size()
	if len(b) == size {
		b = bytes.Repeat(b, m.rows*len(ms))
	}
	for i := range ms {
		ms[i].Scales = dtype.Repeat(b[i*m.rows*size:][:m.rows*size], size, repeat)
	}
	return nil
}

// attach sets the zero points of each matrix; zeros are nil, empty, or those of all matrices.
func attach(ms []dtype.Matrix, zeros []byte) {
	for i := range ms {
		if n := len(zeros) / len(ms); zeros != nil {
			ms[i].Zeros = zeros[i*n : (i+1)*n : (i+1)*n]
		}
	}
}

// channelGroup is the number of columns of the groups in which rows with one scale are multiplied, 0 if there
// is none.
func channelGroup(cols int) int {
	for group := 128; group >= 16; group /= 2 {
		if cols%group == 0 {
			return group
		}
	}
	return 0
}

// zeroPoints are those of compressed-tensors, a byte each, [matrices, rows, groups*repeat]: nil if there are none or all
// are half of the range, empty with look. They are stored as signed bytes, or with the offset of the codes as a bit
// stream down the columns.
func (m *module) zeroPoints(bits, groups, repeat int) ([]byte, error) {
	name := m.name + ".weight_zero_point"
	if !m.Has(name) {
		return nil, nil
	}
	e, err := m.use(name)
	if err != nil {
		return nil, err
	}
	half, words := byte(1)<<(bits-1), (m.rows*bits+31)/32
	var want []int
	switch e.typ {
	case dtype.I8:
		want = m.with(m.rows, groups)
	case dtype.I32:
		want = m.with(words, groups)
	default:
		return nil, e.errorf("type %v, want I32 or I8", e.typ)
	}
	if e.numbers() != m.rows*m.count() || groups > 1 || e.typ != dtype.I8 { // rows of one number need no second dimension
		if err := e.want(want); err != nil {
			return nil, err
		}
	}
	if m.look {
		return []byte{}, nil
	}
	b, err := e.load()
	if err != nil {
		return nil, err
	}
	var zeros []byte
	if e.typ == dtype.I8 {
		zeros = make([]byte, len(b))
		for i, z := range b {
			if z += half; bits < 8 && z>>bits != 0 {
				return nil, e.errorf("zero point %d does not fit %d bits", int8(b[i]), bits)
			} else {
				zeros[i] = z
			}
		}
	} else {
		for i := range m.count() {
			zeros = append(zeros, unpackDown(b[4*words*groups*i:][:4*words*groups], bits, m.rows, groups)...)
		}
	}
	if uniform(zeros, half) {
		return nil, nil
	}
	return dtype.Repeat(zeros, 1, repeat), nil
}

// unpackDown is rows × cols codes that are bit streams down the columns of words.
func unpackDown(words []byte, bits, rows, cols int) []byte {
	high := len(words) / (4 * cols)
	out, column, codes := make([]byte, rows*cols), make([]byte, 4*high), make([]byte, rows)
	for c := range cols {
		for w := range high {
			copy(column[4*w:][:4], words[4*(w*cols+c):])
		}
		dtype.Unpack(codes, bits, column)
		for r, q := range codes {
			out[r*cols+c] = q
		}
	}
	return out
}

// uniform reports whether all of b are x.
func uniform(b []byte, x byte) bool { return bytes.Count(b, []byte{x}) == len(b) }

// checkShape checks the tensor in which compressed-tensors repeats the shape of a packed matrix.
func (m *module) checkShape() error {
	name := m.name + ".weight_shape"
	if !m.Has(name) {
		return nil
	}
	e, err := m.use(name)
	if err != nil || m.look {
		return err
	}
	list, err := e.integers()
	if err != nil {
		return err
	}
	if len(list) != 2 || list[0] != int64(m.rows) || list[1] != int64(m.cols) {
		return e.errorf("says that the matrix has the shape %v, want [%d %d]", list, m.rows, m.cols)
	}
	return nil
}

// integers are the numbers of a tensor of I32 or I64.
func (e *entry) integers() ([]int64, error) {
	if e.typ != dtype.I32 && e.typ != dtype.I64 {
		return nil, e.errorf("type %v, want I32 or I64", e.typ)
	}
	b, err := e.load()
	if err != nil {
		return nil, err
	}
	list := make([]int64, e.numbers())
	for i := range list {
		if e.typ == dtype.I64 {
			list[i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
		} else {
			list[i] = int64(int32(binary.LittleEndian.Uint32(b[4*i:])))
		}
	}
	return list, nil
}
