package convert

import (
	"fmt"
	"math"
	"slices"

	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// kept is the MLX form of matrices like s, which are not quantized: numbers
// if MLX has no such form. t is the requested type, Invalid if nothing may be rounded.
func kept(s *dtype.Matrix, t dtype.Type) dtype.Matrix {
	plain := dtype.Matrix{Type: t}
	if t == dtype.Invalid {
		plain.Type = numbers(s)
	}
	switch a, ok := affineForm(s, t != dtype.Invalid); {
	case s.Input != nil: // MLX transforms no inputs: numbers of the matrix without it
		return plain
	case ok:
		if t != dtype.Invalid {
			a.ScaleType = t
		}
		return a
	case s.Format == dtype.MXFP4Blocks:
		return Encoding{Format: dtype.MXFP4}.form(t)
	case s.Format == dtype.NVFP4Blocks:
		return Encoding{Format: dtype.NVFP4}.form(t)
	case s.Format == dtype.Affine || s.Format == dtype.ZeroPoint:
		if t == dtype.Invalid {
			plain.Type = dtype.F32 // a code times a scale has more digits than the scale
		}
		return plain
	case s.Format == dtype.Plain || s.Format == dtype.FP8 || s.Format.Blocks():
		return plain
	}
	return *s
}

// affineForm is the form of MLX's affine groups with the numbers of m, without data; ok is false
// if there is none. With rounding the numbers may differ in their last digit.
func affineForm(m *dtype.Matrix, rounding bool) (a dtype.Matrix, ok bool) {
	switch m.Format {
	case dtype.Affine:
		a, ok = *m, true
	case dtype.ZeroPoint:
		a, ok = dtype.Matrix{Format: dtype.Affine, Bits: m.Bits, Group: m.Group, ScaleType: m.ScaleType}, rounding || m.ScaleType != dtype.F32
		if m.Zeros != nil {
			a.ScaleType = dtype.F32 // a zero point times a scale has more digits than the scale
		}
	default:
		a, ok = m.AffineForm()
	}
	if largest := groups[len(groups)-1]; a.Group%largest == 0 {
		a.Group = largest
	}
	return a, ok && slices.Contains(groups, a.Group)
}

// affine is m in groups of MLX's affine form, with the same codes; nil if it has no such form.
func affine(m *dtype.Matrix) *dtype.Matrix {
	form, ok := affineForm(m, true)
	if !ok {
		return nil
	}
	a := *m
	switch m.Format {
	case dtype.Affine:
	case dtype.ZeroPoint:
		a = withBiases(m)
	default:
		a = m.Widen()
	}
	if times := a.Group / form.Group; times > 1 {
		size := a.ScaleType.Size()
		a.Scales, a.Biases = dtype.Repeat(a.Scales, size, times), dtype.Repeat(a.Biases, size, times)
		a.Group = form.Group
	}
	return &a
}

// withBiases is a matrix with zero points as one with scales and biases of float32.
func withBiases(m *dtype.Matrix) dtype.Matrix {
	n := m.Rows * m.Groups()
	scales, biases := make([]float32, n), make([]float32, n)
	dtype.ToF32(scales, m.ScaleType, m.Scales)
	for i, s := range scales {
		zero := float32(int(1) << (m.Bits - 1))
		if m.Zeros != nil {
			zero = float32(m.Zeros[i])
		}
		biases[i] = -zero * s
	}
	a := *m
	a.Format, a.ScaleType, a.Zeros = dtype.Affine, dtype.F32, nil
	a.Scales, a.Biases = make([]byte, 4*n), make([]byte, 4*n)
	dtype.FromF32(a.Scales, dtype.F32, scales)
	dtype.FromF32(a.Biases, dtype.F32, biases)
	return a
}

// smallFloats are the elements and scales of GGUF's blocks of small floats, as MLX has them.
func smallFloats(m *dtype.Matrix) [][]byte {
	columns, size := m.Format.BlockSize()
	scales := columns / m.Group
	codes := make([]uint8, columns)
	var data, bytes []byte
	for at := 0; at < len(m.Data); at += size {
		block := m.Data[at : at+size]
		m.Format.BlockCodes(codes, block)
		n := len(data)
		data = append(data, make([]byte, columns/2)...)
		dtype.Pack(data[n:], 4, codes)
		for _, s := range block[:scales] {
			if m.Format == dtype.NVFP4Blocks {
				s = dtype.UnsignedE4M3(s)
			}
			bytes = append(bytes, s)
		}
	}
	return [][]byte{data, bytes}
}

// globals are the numbers from which a reader gets the factors of a stack's matrices. exact requires
// exactly these factors.
func globals(w *weights.Weight, exact bool) ([]float32, error) {
	ms, err := w.Matrices()
	if err != nil {
		return nil, err
	}
	list := make([]float32, len(ms))
	for i := range ms {
		want := ms[i].Global
		list[i] = want * dtype.MaxNVFP4
		// The product may have rounded past the number whose quotient is the factor.
		x, found := list[i], false
		for _, near := range []float32{x, math.Nextafter32(x, 0), math.Nextafter32(x, x*2)} {
			if near/dtype.MaxNVFP4 == want {
				list[i], found = near, true
				break
			}
		}
		if exact && !found {
			return nil, fmt.Errorf("convert: %s: MLX's layout has no global_scale for the factor %g of this nvfp4 matrix: choose --dtype to round the factor in its last digit, or other encodings with --q-override or --dequantize", w.Name, want)
		}
	}
	return list, nil
}
