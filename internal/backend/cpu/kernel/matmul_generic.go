package kernel

import (
	"math"

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

// integerTiles is Set.Integer.
//
// For one row and output, over the groups in ascending order:
//
//	i   = sum of code*q over the group       exact
//	t   = float32(i) * activation scale
//	acc = fma(t, weight scale, acc)
//	acc = fma(weight bias, activation sum, acc)    where there are biases
//
// Biases that are a multiple of the scales are none: codes are signed instead. So are codes less
// their zero points. Blocks of TQ1_0 and TQ2_0 are superblocks without factors, and multiply by the
// weight scale first. A superblock has one
// activation scale, and factors of its groups that are integers:
//
//	i   = sum of factor*code*q over the superblock            exact
//	m   = sum of bias factor * sum of q over its groups       exact, where there are biases
//	t   = float32(i) * weight scale
//	t   = fma(float32(m), -bias scale, t)                     of these
//	acc = fma(t, activation scale, acc)
func integerTiles(out []float32, w *Weight, n, from, to int, a *Activations, s *Scratch) {
	m := a.OutRows()
	s.ints = Grow(s.ints, Tile*w.group)
	s.codes = Grow(s.codes, w.per*w.group)
	multiply := integerTile
	if w.per > 1 {
		multiply = superTile
	}
	for t := from; t < to; t++ {
		if w.grid() {
			superTile(out[(t-from)*m*Tile:][:m*Tile], s.expand(w, n, t, t+1, 0, w.groups/w.per, nil), 0, 0, a, s)
			continue
		}
		multiply(out[(t-from)*m*Tile:][:m*Tile], w, n, t, a, s)
	}
}

func integerTile(acc []float32, w *Weight, n, t int, a *Activations, s *Scratch) {
	clear(acc)
	var scale, bias [Tile]float32
	for g := range w.groups {
		block := w.at(n, t, g)
		w.integers(s.ints, block)
		w.scales(&scale, &bias, n, t, g)
		for r := range a.rows {
			sa, ss := a.codes(s.codes, r, g)
			out := (*[Tile]float32)(acc[r*Tile:])
			total, zero := sumCodes(s.codes), int32(w.zero)
			for j := range Tile {
				if w.zeros > 0 {
					zero = int32(bias[j])
				}
				x := float32(dotCodes(s.ints[j*w.group:][:w.group], s.codes) + zero*total)
				if w.first {
					out[j] = exactmath.FMA32(float32(x*scale[j]), sa, out[j])
				} else {
					out[j] = exactmath.FMA32(float32(x*sa), scale[j], out[j])
				}
			}
			if w.biased() && w.zero == 0 {
				for j := range Tile {
					out[j] = exactmath.FMA32(bias[j], ss, out[j])
				}
			}
		}
	}
}

// superTile is integerTile for weights of superblocks.
func superTile(acc []float32, w *Weight, n, t int, a *Activations, s *Scratch) {
	clear(acc)
	for i := range w.groups / w.per {
		tail := w.super(n, t, i)[w.per*w.block:]
		for r := range a.rows {
			sa, _ := a.codes(s.codes, r, i)
			out := (*[Tile]float32)(acc[r*Tile:])
			var sums, least [Tile]int32
			for g := range w.per {
				w.integers(s.ints, w.at(n, t, i*w.per+g))
				q := s.codes[g*w.group:][:w.group]
				total := sumCodes(q)
				for j := range Tile {
					scale, bias := w.smallFactors(tail, j, g)
					sums[j] += scale * (dotCodes(s.ints[j*w.group:][:w.group], q) + int32(w.zero)*total)
					least[j] += bias * total
				}
			}
			for j := range Tile {
				scale, bias := w.superScales(tail, j)
				x := float32(float32(sums[j]) * scale)
				if w.least() {
					x = exactmath.FMA32(float32(least[j]), -bias, x)
				}
				out[j] = exactmath.FMA32(x, sa, out[j])
			}
		}
	}
}

func sumCodes(q []int8) int32 {
	total := int32(0)
	for _, c := range q {
		total += int32(c)
	}
	return total
}

// dotCodes is exact: codes are at most 255 and groups at most 128 long.
func dotCodes(w []int16, q []int8) int32 {
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

// floatTiles is Set.Float.
//
// For one row and output: a chain of fused multiply-adds over the even columns, one over
// the odd columns, both ascending, and their sum.
func floatTiles(out []float32, w *Weight, n, from, to int, x Rows, s *Scratch) {
	m := x.N
	s.floats = Grow(s.floats, m*Tile+w.group*Tile)
	s.ints = Grow(s.ints, Tile*w.group)
	for t := from; t < to; t++ {
		if w.grid() {
			floatTile(out[(t-from)*m*Tile:][:m*Tile], s.expand(w, n, t, t+1, 0, w.groups/w.per, nil), 0, 0, x, s)
			continue
		}
		floatTile(out[(t-from)*m*Tile:][:m*Tile], w, n, t, x, s)
	}
}

func floatTile(even []float32, w *Weight, n, t int, x Rows, s *Scratch) {
	m := x.N
	odd, block := s.floats[:m*Tile], s.floats[m*Tile:]
	clear(even)
	clear(odd)
	for g := range w.groups {
		width := w.width(g)
		w.floats(block, s.ints, n, t, g)
		for r := range m {
			v := x.at(r)[g*w.group:][:width]
			a, b := (*[Tile]float32)(even[r*Tile:]), (*[Tile]float32)(odd[r*Tile:])
			for k, y := range v {
				acc := a
				if k&1 == 1 {
					acc = b
				}
				exactmath.AXPY32(acc[:], block[k*Tile:], y)
			}
		}
	}
	for i := range even {
		even[i] += odd[i]
	}
}
