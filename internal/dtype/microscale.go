package dtype

import (
	"fmt"
	"math"
)

// MaxNVFP4 is the largest element of NVFP4 times the largest scale of a group.
const MaxNVFP4 = 6 * 448

// NewMicroscale is a matrix of zeros in one of the formats of small floats with a scale
// per group (MXFP4, NVFP4 or MXFP8), in new memory, for MicroscaleRows to fill.
func NewMicroscale(rows, cols int, f Format) (Matrix, error) {
	m := Matrix{Rows: rows, Cols: cols, Format: f, Group: 32, ScaleType: F8E8M0}
	switch f {
	case MXFP4, MXFP8:
	case NVFP4:
		m.Group, m.ScaleType, m.Global = 16, F8E4M3, 1
	default:
		return Matrix{}, fmt.Errorf("dtype: %v has no scales of one byte, want mxfp4, nvfp4 or mxfp8", f)
	}
	if rows < 0 || cols < 1 {
		return Matrix{}, fmt.Errorf("dtype: matrix of %d×%d", rows, cols)
	}
	if err := m.ValidateFormat(); err != nil {
		return Matrix{}, err
	}
	if _, ok := product(rows, cols); !ok {
		return Matrix{}, fmt.Errorf("dtype: matrix of %d×%d overflows", rows, cols)
	}
	m.Data = make([]byte, rows*m.RowBytes())
	m.Scales = make([]byte, rows*m.ScaleRowBytes())
	return m, nil
}

// MicroscaleRows encodes rows [r0, r1) of src into the same rows of dst, which is MXFP4,
// NVFP4 (with a Global of 1) or MXFP8 and of the same shape. A scale maps the
// largest magnitude of its group to the largest element. Elements are rounded to nearest,
// ties to even; those that a rounded scale leaves too large become the largest element.
// Calls on disjoint ranges may run at the same time. A row with a NaN or an infinity
// is an error; dst is then unfinished.
func MicroscaleRows(dst, src *Matrix, r0, r1 int) error {
	if dst.ScaleType.Size() != 1 || dst.Rows != src.Rows || dst.Cols != src.Cols || r0 < 0 || r1 < r0 || r1 > src.Rows {
		panic(fmt.Sprintf("dtype: encode rows %d to %d of %d×%d into %v %d×%d",
			r0, r1, src.Rows, src.Cols, dst.Format, dst.Rows, dst.Cols))
	}
	w := make([]float32, src.Cols)
	groups, n, part := dst.Groups(), dst.RowBytes(), packedBytes(dst.Group, dst.ElementBits())
	for r := r0; r < r1; r++ {
		src.PlainRow(w, r)
		data := dst.Data[r*n : (r+1)*n]
		for g := range groups {
			group := w[g*dst.Group : (g+1)*dst.Group]
			lo, hi, ok := bounds(group)
			if !ok {
				return fmt.Errorf("dtype: row %d, columns %d to %d: not finite, cannot be quantized",
					r, g*dst.Group, (g+1)*dst.Group-1)
			}
			out := data[g*part : (g+1)*part]
			dst.Scales[r*groups+g] = dst.Format.microscale(out, group, max(-lo, hi))
		}
	}
	return nil
}

// microscale writes the elements of a group with the given largest magnitude, and returns
// its scale.
func (f Format) microscale(dst []byte, w []float32, largest float32) (scale byte) {
	var s float32
	switch f {
	case MXFP8:
		scale = nearestE8M0(largest / 448)
		s = FromE8M0(scale)
		for i, v := range w {
			dst[i] = ToE4M3(v / s)
		}
		return scale
	case MXFP4:
		scale = nearestE8M0(largest / 6)
		s = FromE8M0(scale)
	default:
		scale = ToE4M3(largest / 6)
		if s = FromE4M3(scale); s == 0 { // all that is left of the group is its signs
			s = math.MaxFloat32
		}
	}
	for i := range dst {
		dst[i] = toE2M1(w[2*i]/s) | toE2M1(w[2*i+1]/s)<<4
	}
	return scale
}

// nearestE8M0 is the byte of the power of two that is nearest to x by its logarithm;
// x is not negative. The midpoint of two powers is a multiple of the root of two, which is not a
// float: there are no ties.
func nearestE8M0(x float32) uint8 {
	fraction, exponent := math.Frexp(float64(x)) // x = fraction*2^exponent, fraction in [1/2, 1)
	if x == 0 {
		return 0
	}
	exponent--
	if fraction*fraction >= 0.5 { // exact: 24 bits squared
		exponent++
	}
	return uint8(min(max(exponent, -127), 127) + 127)
}

// toE2M1 rounds to the nearest 4-bit float, ties to even, in the low nibble; values beyond
// ±6 and NaN become ±6.
func toE2M1(f float32) uint8 {
	b := math.Float32bits(f)
	sign := b >> 28 & 8
	b &= 0x7fffffff
	// Both ways are computed: a branch would be mispredicted half of the time.
	code := min((b+0x1fffff+b>>22&1-0x3f000000)>>22, 7)
	subnormal := math.Float32bits(math.Float32frombits(b)+0x1p22) - 0x4a800000 // 2^22 has the unit 1/2
	if b < 0x3f800000 {
		code = subnormal
	}
	return uint8(code | sign)
}
