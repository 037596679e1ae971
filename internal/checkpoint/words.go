package checkpoint

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/rescue"
)

// words is a matrix of GPTQ or AutoAWQ: 32-bit words, zero points and scales, all of them by columns. Both have the same
// names. The number of rows of words identifies the format and the width of codes. ParoQuant has AutoAWQ's.
func (m *module) words() ([]dtype.Matrix, error) {
	if m.stacked {
		return nil, m.elements.errorf("shape %s: a stack of matrices in 32-bit words is not supported", shapeText(m.elements.shape))
	}
	zeros, err := m.companion(m.elements, m.name+".qzeros")
	if err != nil {
		return nil, err
	}
	scales, err := m.companion(m.elements, m.name+".scales")
	if err != nil {
		return nil, err
	}
	l, err := m.layout(scales)
	if err != nil {
		return nil, err
	}
	x := dtype.Matrix{Rows: m.rows, Cols: m.cols, Format: dtype.ZeroPoint, Bits: l.bits, ScaleType: scales.typ}
	groups := scales.shape[0]
	if x.Group, err = m.group(scales, groups); err != nil {
		return nil, err
	}
	repeat := 1
	if groups == 1 && channelGroup(m.cols) > 0 {
		x.Group = channelGroup(m.cols)
		repeat = m.cols / x.Group
	}
	if err := zeros.want([]int{groups, m.rows * l.bits / 32}); err != nil {
		return nil, err
	}
	if zeros.typ != dtype.I32 {
		return nil, zeros.errorf("type %v, want I32", zeros.typ)
	}
	if err := x.ValidateFormat(); err != nil {
		return nil, m.elements.errorf("%w", err)
	}
	if err := m.zeroBias(); err != nil {
		return nil, err
	}
	ms := []dtype.Matrix{x}
	if !m.look {
		err = m.repack(&ms[0], l, zeros, scales, repeat)
	} else if !m.quant.symmetric {
		ms[0].Zeros = []byte{}
	}
	if err != nil {
		return nil, err
	}
	return ms, cmp.Or(m.ordered(ms, m.name+".g_idx"), m.rotated(ms))
}

// layout is how the words of a matrix are arranged.
type layout struct {
	bits  int
	zeros func(codes []byte, row []byte) // the zero points of a group
	// columns writes the rows [from, to) of the matrix.
	columns func(dst, src []byte, x *dtype.Matrix, from, to int)
}

// layout distinguishes GPTQ's words from AutoAWQ's.
func (m *module) layout(scales *entry) (l layout, err error) {
	e := m.elements
	if len(e.shape) != 2 || len(scales.shape) != 2 || m.rows%8 != 0 || m.cols%16 != 0 {
		return l, e.errorf("shape %s with scales of %s, want matrices of 32-bit words for %d×%d", shapeText(e.shape), shapeText(scales.shape), m.rows, m.cols)
	}
	if scales.shape[1] != m.rows {
		err = scales.errorf("shape %s, want %d columns", shapeText(scales.shape), m.rows)
		if slices.Equal(e.shape, []int{m.rows, m.cols / 8}) {
			err = scales.errorf("shape %s, want %d columns: AutoAWQ's gemv layout is not supported, %s", shapeText(scales.shape), m.rows, gemm)
		}
		return l, err
	}
	if slices.Equal(e.shape, []int{m.cols, m.rows / 8}) {
		return layout{4, awqZeros, awqColumns}, nil
	}
	l = layout{bits: e.shape[0] * 32 / m.cols, zeros: nil, columns: gptqColumns}
	if e.shape[1] != m.rows || l.bits < 2 || l.bits > 8 || l.bits*m.cols != 32*e.shape[0] || l.bits*m.rows%32 != 0 {
		return l, e.errorf("I32 of shape %s, want [%d, %d] (AutoAWQ) or [%d*bits/32, %d] (GPTQ) for a matrix of %d×%d",
			shapeText(e.shape), m.cols, m.rows/8, m.cols, m.rows, m.rows, m.cols)
	}
	l.zeros = func(codes, row []byte) { dtype.Unpack(codes, l.bits, row) }
	return l, nil
}

// repack fills in a matrix from words, zero points and scales by columns.
func (m *module) repack(x *dtype.Matrix, l layout, zeros, scales *entry, repeat int) error {
	var parts [3][]byte
	for i, e := range []*entry{m.elements, zeros, scales} {
		var err error
		if parts[i], err = e.load(); err != nil {
			return err
		}
	}
	groups := scales.shape[0]
	points := make([]byte, groups*m.rows)
	for g := range groups {
		row := len(parts[1]) / groups
		l.zeros(points[g*m.rows:][:m.rows], parts[1][g*row:][:row])
	}
	if points = m.quant.restore(points, l.bits, m.elements.shape[0] == m.cols); points != nil {
		x.Zeros = make([]byte, len(points))
	}
	size := x.ScaleType.Size()
	x.Data, x.Scales = make([]byte, x.Rows*x.RowBytes()), make([]byte, len(parts[2]))
	err := rescue.Deal(m.rows, tileRows, worth/x.RowBytes(), func(from, to int) error {
		l.columns(x.Data, parts[0], x, from, to)
		transposed(x.Scales, parts[2], groups, m.rows, size, from, to)
		transposed(x.Zeros, points, groups, m.rows, 1, from, to)
		return nil
	})
	if err != nil {
		return m.elements.errorf("%w", err)
	}
	for _, p := range parts {
		m.release(p)
	}
	if repeat > 1 {
		x.Scales = dtype.Repeat(x.Scales, size, repeat)
		if x.Zeros != nil {
			x.Zeros = dtype.Repeat(x.Zeros, 1, repeat)
		}
	}
	return nil
}

// restore makes zero points of stored ones, nil if all are half of the range. GPTQ's first version stores them less
// one; zero is then stored as the largest code. For symmetric files the numbers determine the version, not the
// config.
func (q *quantization) restore(points []byte, bits int, asStored bool) []byte {
	half := byte(1) << (bits - 1)
	if uniform(points, half) && (asStored || q.symmetric || q.zerosAsStored) || !asStored && uniform(points, half-1) && (q.symmetric || !q.zerosAsStored) {
		return nil
	}
	if !asStored && !q.zerosAsStored {
		for i := range points {
			points[i] = (points[i] + 1) & (2*half - 1)
		}
	}
	return points
}

// zeroBias marks the bias that writers of GPTQ add to every module, if it is zero. Another one is left to the architecture.
func (m *module) zeroBias() error {
	e, ok := m.tensors[m.name+".bias"]
	if !ok {
		return nil
	}
	b, err := e.load()
	if err == nil && uniform(b, 0) {
		e.used.Store(true)
	}
	return err
}

// tileRows is the rows of a matrix that are repacked together: 128 bytes of AutoAWQ's words. Their tile fits the
// first cache.
const tileRows = 256

// gptqColumns writes the columns [from, to) of words as rows: a row of a matrix is the bit stream down a column.
func gptqColumns(dst, src []byte, x *dtype.Matrix, from, to int) {
	const wide, high, low = 16, 64, 1<<32 - 1 // words of a tile, which fits the first cache; a word
	var tile [wide][4 * high]byte
	rows := x.RowBytes() / 4
	for c := from; c < to; c += wide {
		n := min(wide, to-c)
		for r := 0; r < rows; r += high {
			h := min(high, rows-r)
			for i := 0; i < h; i += 2 { // two words of two rows at a time
				line := src[4*((r+i)*x.Rows+c):][:4*n]
				next := line // not copied if there is no such row
				if i+1 < h {
					next = src[4*((r+i+1)*x.Rows+c):][:4*n]
				}
				for j := 0; j < n; j += 2 {
					a, b := binary.LittleEndian.Uint64(line[4*j:]), binary.LittleEndian.Uint64(next[4*j:])
					binary.LittleEndian.PutUint64(tile[j][4*i:], a&low|b<<32)
					binary.LittleEndian.PutUint64(tile[j+1][4*i:], a>>32|b&^low)
				}
			}
			for j := range n {
				copy(dst[4*((c+j)*rows+r):][:4*h], tile[j][:])
			}
		}
	}
}

// awqOrder is the place among eight rows of each nibble of a word.
var awqOrder = [8]int{0, 2, 4, 6, 1, 3, 5, 7}

// awqZeros are the zero points of a group, eight to a word.
func awqZeros(codes, row []byte) {
	var q [8]byte
	for i := 0; i < len(row); i += 4 {
		dtype.Unpack(q[:], 4, row[i:])
		for n, v := range q {
			codes[2*i+awqOrder[n]] = v
		}
	}
}

// awqColumns writes rows [from, to) of a matrix that has eight of them in each word and a row of words for each column.
// Squares of 8×8 nibbles are transposed in words of 64 bits, two squares at a time.
func awqColumns(dst, src []byte, x *dtype.Matrix, from, to int) {
	const high = 128 // columns of a tile: 64 bytes
	var tile [tileRows][high / 2]byte
	line, size := x.Rows/2, x.Cols/2
	for row := from; row < to; row += tileRows {
		n := min(tileRows, to-row)
		for col := 0; col < x.Cols; col += high {
			h := min(high, x.Cols-col)
			for c := 0; c < h; c += 16 {
				for r := 0; r < n; r += 8 {
					var w squares
					w.read(src[(col+c)*line+(row+r)/2:], line)
					w.transpose()
					out := (*[8][high / 2]byte)(tile[r:])
					for i := range w {
						binary.LittleEndian.PutUint64(out[awqOrder[i]&7][c/2:], w[i])
					}
				}
			}
			for r := range n {
				copy(dst[(row+r)*size+col/2:][:h/2], tile[r][:])
			}
		}
	}
}

// squares is two squares of 8×8 nibbles, one in the low halves and one in the high halves of words.
type squares [8]uint64

// read reads 16 words of 32 bits, one in each line of src.
func (w *squares) read(src []byte, line int) {
	second := src[8*line:]
	at := 0
	for i := range w {
		w[i] = uint64(binary.LittleEndian.Uint32(src[at:])) | uint64(binary.LittleEndian.Uint32(second[at:]))<<32
		at += line
	}
}

// transpose transposes both squares: halves of words of 32 bits change places, then bytes, then nibbles.
func (w *squares) transpose() {
	const halves, bytes, nibbles = 0x0000ffff0000ffff, 0x00ff00ff00ff00ff, 0x0f0f0f0f0f0f0f0f
	a, b, c, d, e, f, g, h := w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]
	a, e = a&halves|e&halves<<16, a>>16&halves|e&^halves
	b, f = b&halves|f&halves<<16, b>>16&halves|f&^halves
	c, g = c&halves|g&halves<<16, c>>16&halves|g&^halves
	d, h = d&halves|h&halves<<16, d>>16&halves|h&^halves
	a, c = a&bytes|c&bytes<<8, a>>8&bytes|c&^bytes
	b, d = b&bytes|d&bytes<<8, b>>8&bytes|d&^bytes
	e, g = e&bytes|g&bytes<<8, e>>8&bytes|g&^bytes
	f, h = f&bytes|h&bytes<<8, f>>8&bytes|h&^bytes
	w[0], w[1] = a&nibbles|b&nibbles<<4, a>>4&nibbles|b&^nibbles
	w[2], w[3] = c&nibbles|d&nibbles<<4, c>>4&nibbles|d&^nibbles
	w[4], w[5] = e&nibbles|f&nibbles<<4, e>>4&nibbles|f&^nibbles
	w[6], w[7] = g&nibbles|h&nibbles<<4, g>>4&nibbles|h&^nibbles
}

// transposed writes the columns [from, to) of units of size bytes, [rows, cols], as rows. src may be empty.
func transposed(dst, src []byte, rows, cols, size, from, to int) {
	if len(dst) == 0 {
		return
	}
	for c := from; c < to; c++ {
		line := dst[c*rows*size:][:rows*size]
		for r := range rows {
			at := (r*cols + c) * size
			switch size {
			case 1:
				line[r] = src[at]
			case 2:
				binary.LittleEndian.PutUint16(line[2*r:], binary.LittleEndian.Uint16(src[at:]))
			default:
				binary.LittleEndian.PutUint32(line[4*r:], binary.LittleEndian.Uint32(src[at:]))
			}
		}
	}
}
