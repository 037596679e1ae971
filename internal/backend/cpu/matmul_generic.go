package cpu

import (
	"math"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/exactmath"
)

// quantizeGroup rounds x to integers in [-127, 127], nearest with ties to even, and returns
// the scale, the scaled sum of the integers, and their sum itself. A group with a number
// that is not finite has scale and scaled sum NaN, so that the fault shows in the product.
func quantizeGroup(q []int8, x []float32) (scale, sum float32, total int32) {
	var top uint32 // magnitudes order like their bits, NaN above infinity
	for _, v := range x {
		top = max(top, math.Float32bits(v)&^(1<<31))
	}
	const inf = 0x7f800000
	if top == 0 || top >= inf {
		clear(q)
		if top == 0 {
			return 0, 0, 0
		}
		nan := float32(math.NaN())
		return nan, nan, 0
	}
	amax := math.Float32frombits(top)
	scale = amax / 127
	inverse := 127 / amax
	if inverse > math.MaxFloat32 { // amax is subnormal
		clear(q)
		return 0, 0, 0
	}
	for i, v := range x {
		const round = 3 << 22 // adding it leaves the nearest integer
		n := int32(float32(v*inverse)+round) - round
		n = min(max(n, -127), 127)
		q[i] = int8(n)
		total += n
	}
	return scale, float32(total) * scale, total
}

// integerTiles is productKernels.integer.
//
// For one row and output, over the groups in ascending order:
//
//	i   = sum of code*q over the group       exact
//	t   = float32(i) * activation scale
//	acc = fma(t, weight scale, acc)
//	acc = fma(weight bias, activation sum, acc)    affine only
func integerTiles(out []float32, w *weight, n, from, to int, a *activations, s *scratch) {
	m := a.outRows()
	s.ints = grow(s.ints, tile*w.group)
	s.codes = grow(s.codes, w.group)
	for t := from; t < to; t++ {
		integerTile(out[(t-from)*m*tile:][:m*tile], w, n, t, a, s)
	}
}

func integerTile(acc []float32, w *weight, n, t int, a *activations, s *scratch) {
	clear(acc)
	var scale, bias [tile]float32
	for g := range w.groups {
		block := w.at(n, t, g)
		w.integers(s.ints, block)
		w.scales(&scale, &bias, block)
		for r := range a.rows {
			sa, ss := a.codes(s.codes, r, g)
			out := (*[tile]float32)(acc[r*tile:])
			for j := range tile {
				x := float32(float32(integerDot(s.ints[j*w.group:][:w.group], s.codes)) * sa)
				out[j] = exactmath.FMA32(x, scale[j], out[j])
			}
			if w.format == dtype.Affine {
				for j := range tile {
					out[j] = exactmath.FMA32(bias[j], ss, out[j])
				}
			}
		}
	}
}

// integerDot is exact: codes are at most 255 and groups at most 128 long.
func integerDot(w []int16, q []int8) int32 {
	q = q[:len(w)]
	var a, b, c, d int32
	for i := 0; i+4 <= len(w); i += 4 {
		a += int32(w[i]) * int32(q[i])
		b += int32(w[i+1]) * int32(q[i+1])
		c += int32(w[i+2]) * int32(q[i+2])
		d += int32(w[i+3]) * int32(q[i+3])
	}
	return a + b + c + d
}

// floatTiles is productKernels.float.
//
// For one row and output: a chain of fused multiply-adds over the even columns, one over
// the odd columns, both ascending, and their sum.
func floatTiles(out []float32, w *weight, n, from, to int, x backend.Tensor, s *scratch) {
	m := x.Rows
	s.floats = grow(s.floats, m*tile+w.group*tile)
	s.ints = grow(s.ints, tile*w.group)
	for t := from; t < to; t++ {
		floatTile(out[(t-from)*m*tile:][:m*tile], w, n, t, x, s)
	}
}

func floatTile(even []float32, w *weight, n, t int, x backend.Tensor, s *scratch) {
	m := x.Rows
	odd, block := s.floats[:m*tile], s.floats[m*tile:]
	clear(even)
	clear(odd)
	for g := range w.groups {
		width := w.width(g)
		w.floats(block, s.ints, w.at(n, t, g), width)
		for r := range m {
			v := row(x, r)[g*w.group:][:width]
			a, b := (*[tile]float32)(even[r*tile:]), (*[tile]float32)(odd[r*tile:])
			for k, y := range v {
				acc := a
				if k&1 == 1 {
					acc = b
				}
				exactmath.AXPY32(acc[:], block[k*tile:], y)
			}
		}
	}
	for i := range even {
		even[i] += odd[i]
	}
}
