package dtype

import "fmt"

// Row decodes row r into dst[:Cols], every element exactly as its format defines
// it, in float32. If there is an Input, it is a row of the matrix that multiplies the transformed
// input. The matrix must be valid, r inside it and dst long enough, else it panics.
func (m *Matrix) Row(dst []float32, r int) {
	if r < 0 || r >= m.Rows || len(dst) < m.Cols {
		panic(fmt.Sprintf("dtype: Row(%d) of %d rows into %d of %d numbers", r, m.Rows, len(dst), m.Cols))
	}
	dst = dst[:m.Cols]
	n := m.RowBytes()
	data := m.Data[r*n : (r+1)*n]
	switch m.Format {
	case Plain:
		ToF32(dst, m.Type, data)
	case Affine:
		m.affineRow(dst, data, r)
	case ZeroPoint:
		m.zeroPointRow(dst, data, r)
	case MXFP4, NVFP4:
		m.nibbleRow(dst, data, r)
	case MXFP8, FP8:
		m.byteRow(dst, data, r)
	default:
		b := m.Format.block()
		b.row(dst, data)
	}
	if (m.Format == NVFP4 || m.Format == NVFP4Blocks) && m.Global != 1 {
		for i := range dst {
			dst[i] *= m.Global
		}
	}
}

// PlainRow is Row of the matrix that does the same without its Input.
func (m *Matrix) PlainRow(dst []float32, r int) {
	m.Row(dst, r)
	if m.Input != nil {
		m.Input.Undo(dst[:m.Cols])
	}
}

// affineRow computes scale*q + bias. With F16 or BF16 scales the product is exact
// (at most 11+8 bits of mantissa), so there is one rounding, whether or not a
// machine fuses; with F32 scales the conversion keeps the product rounded on its own.
func (m *Matrix) affineRow(dst []float32, data []byte, r int) {
	const step = 16 // divides every group, and is whole bytes at any width
	var q [step]uint8
	groups := m.Groups()
	for g := range groups {
		s := number(m.ScaleType, m.Scales, r*groups+g)
		b := number(m.ScaleType, m.Biases, r*groups+g)
		for c := g * m.Group; c < (g+1)*m.Group; c += step {
			Unpack(q[:], m.Bits, data[c*m.Bits/8:])
			d := dst[c : c+step]
			for i, v := range q {
				d[i] = float32(s*float32(v)) + b
			}
		}
	}
}

// zeroPointRow computes scale*(q - zero), rounded once.
func (m *Matrix) zeroPointRow(dst []float32, data []byte, r int) {
	const step = 16 // as in affineRow
	var q [step]uint8
	groups := m.Groups()
	for g := range groups {
		s, z := number(m.ScaleType, m.Scales, r*groups+g), 1<<(m.Bits-1)
		if m.Zeros != nil {
			z = int(m.Zeros[r*groups+g])
		}
		for c := g * m.Group; c < (g+1)*m.Group; c += step {
			Unpack(q[:], m.Bits, data[c*m.Bits/8:])
			d := dst[c : c+step]
			for i, v := range q {
				d[i] = s * float32(int(v)-z)
			}
		}
	}
}

// nibbleRow decodes E2M1 elements. Element times group scale is exact in float32
// (2+4 bits of mantissa) save where it leaves the range; Global rounds once.
func (m *Matrix) nibbleRow(dst []float32, data []byte, r int) {
	groups, step := m.Groups(), m.Group/2
	for g := range groups {
		s := number(m.ScaleType, m.Scales, r*groups+g)
		d := dst[g*m.Group : (g+1)*m.Group]
		for i, v := range data[g*step : (g+1)*step] {
			d[2*i] = e2m1[v&15] * s
			d[2*i+1] = e2m1[v>>4] * s
		}
	}
}

// byteRow decodes E4M3 elements; the last group may be short.
func (m *Matrix) byteRow(dst []float32, data []byte, r int) {
	groups := m.Groups()
	for g := range groups {
		s := number(m.ScaleType, m.Scales, r*groups+g)
		lo, hi := g*m.Group, min((g+1)*m.Group, m.Cols)
		d := dst[lo:hi]
		for i, v := range data[lo:hi] {
			d[i] = e4m3[v] * s
		}
	}
}
