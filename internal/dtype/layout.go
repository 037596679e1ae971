package dtype

import (
	"fmt"
	"math/bits"
)

// String is the format's name as quantization configs spell it, or GGUF's; "plain" and
// "fp8" for the two that have no mode name.
func (f Format) String() string {
	if b := f.block(); b != nil {
		return b.name
	}
	names := [...]string{"plain", "affine", "mxfp4", "nvfp4", "mxfp8", "fp8", "zero-point"}
	if int(f) >= len(names) {
		return fmt.Sprintf("Format(%d)", uint8(f))
	}
	return names[f]
}

// ElementBits is the width of one element of Data, scales in blocks left out.
func (m *Matrix) ElementBits() int {
	if b := m.Format.block(); b != nil {
		return b.bits
	}
	switch m.Format {
	case Plain:
		return 8 * m.Type.Size()
	case Affine, ZeroPoint:
		return m.Bits
	case MXFP4, NVFP4:
		return 4
	default:
		return 8
	}
}

// RowBytes is the number of bytes of Data that one row occupies.
func (m *Matrix) RowBytes() int {
	if b := m.Format.block(); b != nil {
		return m.Cols / b.columns * b.bytes
	}
	return packedBytes(m.Cols, m.ElementBits())
}

// Groups is the number of scales of one row; 0 when Plain.
func (m *Matrix) Groups() int {
	if m.Format == Plain || m.Group <= 0 {
		return 0
	}
	return (m.Cols-1)/m.Group + 1
}

// ScaleRowBytes is the number of bytes of Scales (and of Biases, where there are
// any) that one row occupies; 0 when Plain or in a block format.
func (m *Matrix) ScaleRowBytes() int {
	if m.Format == Plain || m.Format.Blocks() {
		return 0
	}
	return m.Groups() * m.ScaleType.Size()
}

// ZeroRowBytes is the number of bytes of Zeros that one row occupies; 0 without Zeros. A
// matrix without Data has empty, non-nil Zeros if its file has them.
func (m *Matrix) ZeroRowBytes() int {
	if m.Format != ZeroPoint || m.Zeros == nil {
		return 0
	}
	return m.Groups()
}

// InputBytes is about the device memory of the tables of the Input. For a matrix without Data only
// the rounds are known.
func (m *Matrix) InputBytes() int64 {
	switch {
	case m.Input == nil:
		return 0
	case m.Input.Rotation == nil:
		return int64(4 * m.Cols)
	}
	rounds := m.Input.Rotation.Rounds
	return int64(m.Cols) * int64(4+rounds+1+4*rounds)
}

// maxLoadedGroup is the most columns of a group of ZeroPoint in memory: sums of activations fit 16 bits, sums of
// products float32, and tiles of AMX a group.
const maxLoadedGroup = 128

// LoadedGroup is how many columns share a scale in memory. Longer groups of ZeroPoint are cut into several that repeat the scale.
func (m *Matrix) LoadedGroup() int {
	if m.Format != ZeroPoint || m.Group <= maxLoadedGroup {
		return m.Group
	}
	group := maxLoadedGroup
	for m.Group%group != 0 {
		group -= 16
	}
	return group
}

// LoadedRowBytes is about the device memory of a row: as here, but scales of one byte become bfloat16, or
// float32 if that has too few digits, and some blocks are larger.
func (m *Matrix) LoadedRowBytes() int {
	n := m.RowBytes()
	switch b := m.Format.block(); {
	case m.Format == NVFP4Blocks && m.Global != 1:
		return m.Cols/2 + F32.Size()*m.Groups()
	case b != nil && b.loaded > 0:
		return m.Cols / b.columns * b.loaded
	case m.Format == Affine:
		return n + 2*m.ScaleRowBytes()
	case m.Format == ZeroPoint:
		repeated := m.Group / m.LoadedGroup()
		return n + repeated*(m.ScaleRowBytes()+m.ZeroRowBytes())
	case m.Format == MXFP4 || m.Format == NVFP4 && m.Global == 1:
		return n + BF16.Size()*m.Groups()
	case m.Format == NVFP4 || m.Format == MXFP8:
		return n + F32.Size()*m.Groups()
	}
	return n + m.ScaleRowBytes()
}

// Bytes is the size of the matrix: Data, Scales, Biases and Zeros together.
func (m *Matrix) Bytes() int64 {
	return int64(len(m.Data)) + int64(len(m.Scales)) + int64(len(m.Biases)) + int64(len(m.Zeros))
}

// Validate reports the first thing about m that contradicts its format. Every
// other method may be called on a matrix that passed, whatever file it came from.
func (m *Matrix) Validate() error {
	if m.Rows < 0 || m.Cols < 1 {
		return fmt.Errorf("dtype: matrix of %d×%d", m.Rows, m.Cols)
	}
	if err := m.ValidateFormat(); err != nil {
		return err
	}
	// The element width is at most 64 bits, so once Cols*64 fits, RowBytes does too.
	if _, ok := product(m.Cols, 64); !ok {
		return fmt.Errorf("dtype: matrix of %d×%d overflows", m.Rows, m.Cols)
	}
	biasRow := 0
	if m.Format == Affine {
		biasRow = m.ScaleRowBytes()
	}
	for _, part := range []struct {
		name string
		row  int
		got  int
	}{
		{"data", m.RowBytes(), len(m.Data)},
		{"scales", m.ScaleRowBytes(), len(m.Scales)},
		{"biases", biasRow, len(m.Biases)},
		{"zero points", m.ZeroRowBytes(), len(m.Zeros)},
	} {
		want, ok := product(m.Rows, part.row)
		if !ok {
			return fmt.Errorf("dtype: matrix of %d×%d overflows", m.Rows, m.Cols)
		}
		if part.got != want {
			return fmt.Errorf("dtype: %v matrix of %d×%d: %s has %d bytes, want %d",
				m.Format, m.Rows, m.Cols, part.name, part.got, want)
		}
	}
	for i, z := range m.Zeros {
		if m.Format == ZeroPoint && z>>m.Bits != 0 {
			return fmt.Errorf("dtype: zero point %d of row %d, group %d does not fit %d bits", z, i/m.Groups(), i%m.Groups(), m.Bits)
		}
	}
	if m.Input != nil {
		if err := m.Input.Validate(m.Cols); err != nil {
			return err
		}
	}
	return nil
}

// ValidateFormat is Validate for a matrix without Data, of which only the header of a file
// is known: it checks the parameters of the format and no lengths.
func (m *Matrix) ValidateFormat() error {
	if b := m.Format.block(); b != nil {
		return b.validate(m)
	}
	group, scale := 0, Invalid // what the format demands; 0 and Invalid leave it open
	switch m.Format {
	case Plain:
		if m.Type != F32 && m.Type != F16 && m.Type != BF16 {
			return fmt.Errorf("dtype: plain matrix of %v, want F32, F16 or BF16", m.Type)
		}
		return nil
	case Affine, ZeroPoint:
		switch m.Bits {
		case 2, 3, 4, 5, 6, 8:
		default:
			return fmt.Errorf("dtype: %v matrix of %d bits, want 2, 3, 4, 5, 6 or 8", m.Format, m.Bits)
		}
		if m.ScaleType != F32 && m.ScaleType != F16 && m.ScaleType != BF16 {
			return fmt.Errorf("dtype: %v matrix with scales of %v, want F32, F16 or BF16", m.Format, m.ScaleType)
		}
		// Sixteen elements are a whole number of bytes at any width.
		if m.Group <= 0 || m.Group%16 != 0 {
			return fmt.Errorf("dtype: %v matrix in groups of %d, want a multiple of 16", m.Format, m.Group)
		}
	case MXFP4, MXFP8:
		group, scale = 32, F8E8M0
	case NVFP4:
		group, scale = 16, F8E4M3
	case FP8:
		scale = F32
	default:
		return fmt.Errorf("dtype: matrix of unknown format %v", m.Format)
	}
	if m.Group <= 0 || group != 0 && m.Group != group {
		return fmt.Errorf("dtype: %v matrix in groups of %d, want %d", m.Format, m.Group, group)
	}
	if scale != Invalid && m.ScaleType != scale {
		return fmt.Errorf("dtype: %v matrix with scales of %v, want %v", m.Format, m.ScaleType, scale)
	}
	if m.Format != FP8 && m.Cols%m.Group != 0 {
		return fmt.Errorf("dtype: %v matrix of %d columns is not a whole number of groups of %d", m.Format, m.Cols, m.Group)
	}
	return nil
}

// product multiplies two sizes; ok is false when either is negative or the result
// does not fit an int.
func product(a, b int) (n int, ok bool) {
	if a < 0 || b < 0 {
		return 0, false
	}
	hi, lo := bits.Mul(uint(a), uint(b))
	return int(lo), hi == 0 && int(lo) >= 0
}

// RowRange is the matrix of rows [r0, r1), a view of the same bytes, without Data if m has none.
// It panics if the range is not inside the matrix.
func (m *Matrix) RowRange(r0, r1 int) Matrix {
	if r0 < 0 || r1 < r0 || r1 > m.Rows {
		panic(fmt.Sprintf("dtype: RowRange(%d, %d) of %d rows", r0, r1, m.Rows))
	}
	v := *m
	v.Rows = r1 - r0
	v.Data = slab(m.Data, r0, r1, m.RowBytes())
	v.Scales = slab(m.Scales, r0, r1, m.ScaleRowBytes())
	if m.Format == Affine {
		v.Biases = slab(m.Biases, r0, r1, m.ScaleRowBytes())
	}
	v.Zeros = slab(m.Zeros, r0, r1, m.ZeroRowBytes())
	return v
}

func slab(b []byte, r0, r1, row int) []byte {
	if row == 0 || len(b) == 0 {
		return b
	}
	return b[r0*row : r1*row : r1*row]
}

// Gather is the matrix made of the given rows in the given order, a copy in new
// memory, without Data if m has none. It panics when a row is not inside the matrix.
func (m *Matrix) Gather(rows []int) Matrix {
	g := *m
	g.Rows = len(rows)
	if m.Data == nil {
		return g
	}
	g.Data = make([]byte, 0, len(rows)*m.RowBytes())
	g.Scales, g.Biases, g.Zeros = nil, nil, nil
	if m.ScaleRowBytes() > 0 {
		g.Scales = make([]byte, 0, len(rows)*m.ScaleRowBytes())
	}
	if m.Format == Affine {
		g.Biases = make([]byte, 0, len(rows)*m.ScaleRowBytes())
	}
	if m.ZeroRowBytes() > 0 {
		g.Zeros = make([]byte, 0, len(rows)*m.ZeroRowBytes())
	}
	for _, r := range rows {
		v := m.RowRange(r, r+1)
		g.Zeros = append(g.Zeros, v.Zeros...)
		g.Data = append(g.Data, v.Data...)
		g.Scales = append(g.Scales, v.Scales...)
		g.Biases = append(g.Biases, v.Biases...)
	}
	return g
}

// Arrange is the matrix with its columns in another order, a copy in new memory, without Data if m
// has none. Its columns are len(order) pieces of one size, and piece i is piece order[i] of m.
// Blocks that would be cut become groups of Affine, and groups that would be cut become numbers; so
// does a matrix with an Input.
func (m *Matrix) Arrange(order []int) Matrix {
	size, a := m.Cols/len(order), *m
	b := m.Format.block()
	form, affine := m.AffineForm()
	switch {
	case m.Input != nil: // it speaks of columns
		a = m.Numbers()
	case m.Format == Plain || b != nil && size%b.columns == 0 || m.Format == ZeroPoint && size%m.Group == 0:
	case affine && size%form.Group == 0:
		if a = form; m.Data != nil {
			a = m.Widen()
		}
	default:
		a = m.Numbers()
	}
	a.Data, a.Scales, a.Biases = arrange(a.Data, m.Rows, order), arrange(a.Scales, m.Rows, order), arrange(a.Biases, m.Rows, order)
	if len(a.Zeros) > 0 {
		a.Zeros = arrange(a.Zeros, m.Rows, order)
	}
	return a
}

// arrange is rows with their pieces in another order.
func arrange(data []byte, rows int, order []int) []byte {
	if data == nil {
		return nil
	}
	out, size := make([]byte, 0, len(data)), len(data)/rows/len(order)
	for r := range rows {
		for _, i := range order {
			out = append(out, data[(r*len(order)+i)*size:][:size]...)
		}
	}
	return out
}

// Numbers is the matrix as float32 without an Input, without Data if m has none.
func (m *Matrix) Numbers() Matrix {
	n := Matrix{Rows: m.Rows, Cols: m.Cols, Type: F32}
	if m.Data == nil {
		return n
	}
	row, size := make([]float32, m.Cols), n.RowBytes()
	n.Data = make([]byte, m.Rows*size)
	for r := range m.Rows {
		m.PlainRow(row, r)
		FromF32(n.Data[r*size:][:size], F32, row)
	}
	return n
}
