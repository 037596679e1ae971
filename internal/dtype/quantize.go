package dtype

import (
	"encoding/binary"
	"fmt"
	"math"
)

// NewAffine is an Affine matrix of zeros, in new memory, for QuantizeRows to fill.
func NewAffine(rows, cols, bits, group int, scaleType Type) (Matrix, error) {
	m, err := newIntegers(rows, cols, Matrix{Format: Affine, Bits: bits, Group: group, ScaleType: scaleType})
	if err == nil {
		m.Biases = make([]byte, rows*m.ScaleRowBytes())
	}
	return m, err
}

// NewSymmetric is a ZeroPoint matrix without stored zero points, in new memory, for QuantizeRows to fill.
func NewSymmetric(rows, cols, bits, group int, scaleType Type) (Matrix, error) {
	return newIntegers(rows, cols, Matrix{Format: ZeroPoint, Bits: bits, Group: group, ScaleType: scaleType})
}

// IntegerForm is the form, without Data, in which integer products use a matrix of 8-bit floats: symmetric
// integers of 8 bits. ok is false for other formats, and where no group divides the columns.
func (m *Matrix) IntegerForm() (f Matrix, ok bool) {
	f = Matrix{Rows: m.Rows, Cols: m.Cols, Format: ZeroPoint, Bits: 8, Group: 64, ScaleType: BF16, Input: m.Input}
	if m.Cols%f.Group != 0 {
		f.Group = 32
	}
	return f, (m.Format == FP8 || m.Format == MXFP8) && m.Cols%f.Group == 0
}

// newIntegers is a matrix of a form, with codes and scales in new memory.
func newIntegers(rows, cols int, m Matrix) (Matrix, error) {
	m.Rows, m.Cols = rows, cols
	if rows < 0 || cols < 1 {
		return Matrix{}, fmt.Errorf("dtype: matrix of %d×%d", rows, cols)
	}
	if err := m.ValidateFormat(); err != nil {
		return Matrix{}, err
	}
	n, ok := product(rows, cols)
	if _, fits := product(n, 8); !ok || !fits {
		return Matrix{}, fmt.Errorf("dtype: matrix of %d×%d overflows", rows, cols)
	}
	m.Data = make([]byte, rows*m.RowBytes())
	m.Scales = make([]byte, rows*m.ScaleRowBytes())
	return m, nil
}

// Quantize returns m in the Affine format, in new memory. Groups are quantized by
// MLX's rule as its CPU backend has it: round half to even, and the bias placed so
// that zero is exactly representable. m may be of any format; it must be valid.
func Quantize(m *Matrix, bits, group int, scaleType Type) (Matrix, error) {
	q, err := NewAffine(m.Rows, m.Cols, bits, group, scaleType)
	if err != nil {
		return Matrix{}, err
	}
	return q, QuantizeRows(&q, m, 0, m.Rows)
}

// QuantizeRows quantizes rows [r0, r1) of src into the same rows of dst, which is
// of the same shape and Affine, by Quantize's rule, or of NewSymmetric: then the largest
// magnitude of a group has the largest code. Calls on disjoint ranges may run at the same time.
// It is an error when a row holds a NaN or an infinity, or a value that the type
// of the scales cannot hold; dst is then unfinished.
func QuantizeRows(dst, src *Matrix, r0, r1 int) error {
	if dst.Format == ZeroPoint {
		round := dst.ScaleType.rounding()
		rule := func(q []uint8, w []float32, bits int) (float32, float32, bool) {
			return symmetricGroup(q, w, bits, round)
		}
		if src.Format == FP8 && src.Group%dst.Group == 0 && (src.Input == nil || dst.Input != nil) {
			t := byteTables{src: src, bits: dst.Bits, rule: rule, groups: make([][128]*byteTable, src.Groups())}
			return quantizeRows(dst, src, r0, r1, nil, &t)
		}
		return quantizeRows(dst, src, r0, r1, rule, nil)
	}
	return quantizeRows(dst, src, r0, r1, quantizeGroup, nil)
}

// groupRule writes the codes of one group of numbers and returns their scale and bias. ok
// is false when the numbers are not finite.
type groupRule func(q []uint8, w []float32, bits int) (scale, bias float32, ok bool)

// quantizeRows is QuantizeRows with any rule for a group, or with tables. If dst lacks the Input of src, the rows undo it.
func quantizeRows(dst, src *Matrix, r0, r1 int, rule groupRule, tables *byteTables) error {
	if dst.Format != Affine && (dst.Format != ZeroPoint || dst.Zeros != nil) || dst.Rows != src.Rows || dst.Cols != src.Cols || r0 < 0 || r1 < r0 || r1 > src.Rows {
		panic(fmt.Sprintf("dtype: quantize rows %d to %d of %d×%d into %v %d×%d",
			r0, r1, src.Rows, src.Cols, dst.Format, dst.Rows, dst.Cols))
	}
	groups := dst.Groups()
	w, q := make([]float32, src.Cols), make([]uint8, src.Cols)
	scales, biases := make([]float32, groups), make([]float32, groups)
	n, sn := dst.RowBytes(), dst.ScaleRowBytes()
	for r := r0; r < r1; r++ {
		switch {
		case tables != nil: // they need no numbers
		case dst.Input != nil:
			src.Row(w, r)
		default:
			src.PlainRow(w, r)
		}
		for g := range groups {
			lo, hi := g*dst.Group, (g+1)*dst.Group
			var ok bool
			if tables != nil {
				scales[g], ok = tables.group(q[lo:hi], r, lo)
			} else {
				scales[g], biases[g], ok = rule(q[lo:hi], w[lo:hi], dst.Bits)
			}
			if !ok {
				return fmt.Errorf("dtype: row %d, columns %d to %d: not finite, cannot be quantized", r, lo, hi-1)
			}
		}
		Pack(dst.Data[r*n:(r+1)*n], dst.Bits, q)
		FromF32(dst.Scales[r*sn:(r+1)*sn], dst.ScaleType, scales)
		if dst.Format == Affine {
			FromF32(dst.Biases[r*sn:(r+1)*sn], dst.ScaleType, biases)
		}
		for g := range groups {
			if infinite(dst.ScaleType, dst.Scales, r*groups+g) || dst.Format == Affine && infinite(dst.ScaleType, dst.Biases, r*groups+g) {
				return fmt.Errorf("dtype: row %d, columns from %d: scale %g or bias %g exceeds %v",
					r, g*dst.Group, scales[g], biases[g], dst.ScaleType)
			}
		}
	}
	return nil
}

func infinite(t Type, b []byte, i int) bool { return math.IsInf(float64(number(t, b, i)), 0) }

// quantizeGroup writes the codes of w to q and returns scale and bias, unrounded,
// as they were used. ok is false when the range of w is not finite.
func quantizeGroup(q []uint8, w []float32, bits int) (scale, bias float32, ok bool) {
	lo, hi, ok := bounds(w)
	spread := hi - lo
	if !ok || !(spread <= math.MaxFloat32) {
		return 0, 0, false
	}
	top := int32(1)<<bits - 1
	scale = max(spread/float32(top), 1e-7)
	edge := lo
	if math.Float32bits(lo)&0x7fffffff <= math.Float32bits(hi)&0x7fffffff { // |lo| <= |hi|
		scale, edge = -scale, hi
	}
	if q0 := float32(math.RoundToEven(float64(edge / scale))); q0 != 0 {
		scale, bias = edge/q0, edge
	}
	q = q[:len(w)]
	if scale == 0 { // the edge over infinity: huge numbers, all the same
		clear(q)
		return scale, bias, true
	}
	for i, v := range w {
		// The quotient is at most twice top. Adding 1.5*2^23 rounds it half to even and
		// leaves it, with its sign, in the low bits; the bounds being whole numbers,
		// clamping last is the same as first.
		const shift = 0x1.8p23
		x := int32(math.Float32bits((v-bias)/scale+shift) - 0x4b400000)
		q[i] = uint8(min(max(x, 0), top))
	}
	return scale, bias, true
}

// symmetricGroup writes the codes of w to q, the middle for zero, and returns the scale as it will be stored.
func symmetricGroup(q []uint8, w []float32, bits int, round func(float32) float32) (scale, bias float32, ok bool) {
	lo, hi, ok := bounds(w)
	if !ok {
		return 0, 0, false
	}
	middle := int32(1) << (bits - 1)
	scale = round(max(-lo, hi) / float32(middle-1))
	for i, v := range w[:len(q)] {
		const shift = 0x1.8p23 // as in quantizeGroup
		x := int32(0)
		if scale != 0 { // or numbers are too small for the type of the scales
			x = int32(math.Float32bits(v/scale+shift) - 0x4b400000)
		}
		q[i] = uint8(min(max(x, 1-middle), middle-1) + middle)
	}
	return scale, 0, true
}

// byteTables is symmetricGroup for groups of an FP8 matrix that have one factor each. The factor and the largest magnitude
// of a group determine the codes of all bytes. Neighboring rows share most of these tables.
type byteTables struct {
	src    *Matrix
	bits   int
	rule   groupRule
	groups [][128]*byteTable // for each group of src, by the largest magnitude
}

// byteTable is the codes of all bytes of a group.
type byteTable struct {
	factor, scale float32
	ok            bool
	codes         [256]uint8
}

// group writes the codes of row r from column lo on to q and returns their scale. ok is false when the numbers are not finite.
func (t *byteTables) group(q []uint8, r, lo int) (scale float32, ok bool) {
	at := lo / t.src.Group
	factor := number(t.src.ScaleType, t.src.Scales, r*t.src.Groups()+at)
	data := t.src.Data[r*t.src.Cols+lo:][:len(q)]
	top := uint64(0)
	for i := 0; i+8 <= len(data); i += 8 {
		top = greater(top, binary.LittleEndian.Uint64(data[i:])&0x7f7f7f7f7f7f7f7f)
	}
	top = greater(top, top>>32)
	top = greater(top, top>>16)
	top = greater(top, top>>8) & 127
	x := t.groups[at][top]
	if x == nil || x.factor != factor {
		if x == nil {
			x = new(byteTable)
			t.groups[at][top] = x
		}
		x.factor = factor
		t.fill(x, int(top))
	}
	for i, v := range data {
		q[i] = x.codes[v]
	}
	return x.scale, x.ok
}

// greater is the greater of each two bytes below 128.
func greater(a, b uint64) uint64 {
	const high = 0x8080808080808080
	mask := (a | high - b) & high // where a is not less
	mask -= mask >> 7
	return a&mask | b&^mask
}

// fill computes a table for magnitudes up to top. Negative numbers have the mirrored codes.
func (t *byteTables) fill(x *byteTable, top int) {
	var w [128]float32
	for i := range w[:top+1] {
		w[i] = e4m3[i] * x.factor
	}
	x.scale, _, x.ok = t.rule(x.codes[:top+1], w[:top+1], t.bits)
	for i, v := range x.codes[:top+1] {
		x.codes[128+i] = uint8(1<<t.bits - int(v))
	}
}

// rounding returns the rounding to a type of scales.
func (t Type) rounding() func(float32) float32 {
	switch t {
	case F16:
		return func(x float32) float32 { return FromF16(ToF16(x)) }
	case BF16:
		return func(x float32) float32 { return FromBF16(ToBF16(x)) }
	}
	return func(x float32) float32 { return x }
}

// bounds is the least and the greatest number of w; ok is false if one is a NaN or an
// infinity. The comparison is of integers in the order of the numbers: it needs no branch,
// and numbers that are not finite become a bound.
func bounds(w []float32) (lo, hi float32, ok bool) {
	least, greatest := int32(math.MaxInt32), int32(math.MinInt32)
	for _, v := range w {
		b := int32(math.Float32bits(v))
		b ^= b >> 31 & 0x7fffffff
		least, greatest = min(least, b), max(greatest, b)
	}
	const infinity = 0x7f800000
	if least <= ^infinity || greatest >= infinity {
		return 0, 0, false
	}
	return ordered(least), ordered(greatest), true
}

// ordered is the number that stands at b in the order of bounds.
func ordered(b int32) float32 { return math.Float32frombits(uint32(b ^ b>>31&0x7fffffff)) }
