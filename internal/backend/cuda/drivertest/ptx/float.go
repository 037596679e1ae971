package ptx

import (
	"math"

	"github.com/foretoken/foretoken/internal/exactmath"
)

// NaN results of 16 and 32 bits have one bit pattern on the hardware, for any operands.
// Those of 64 bits are the NaN operand, made quiet, or nan64 if there is no such
// operand: an H200 does so, and TestInstructionsEqualHardware has its results.
const (
	nan16 = 0x7fff
	nan32 = 0x7fffffff
	nan64 = 0xfff8000000000000
	quiet = 1 << 51
)

func f32(x uint32) float32 { return math.Float32frombits(x) }
func f64(x uint64) float64 { return math.Float64frombits(x) }

func bits32(x float32) uint32 {
	if x != x {
		return nan32
	}
	return math.Float32bits(x)
}

// bits64 is the bits of x; if x is NaN, of the first NaN operand.
func bits64(x float64, operands ...uint64) uint64 {
	if x == x {
		return math.Float64bits(x)
	}
	for _, o := range operands {
		if f64(o) != f64(o) {
			return o | quiet
		}
	}
	return nan64
}

// canonical is x, or the pattern of results that are no numbers.
func canonical(t typ, x uint64) uint64 {
	if t == typeF32 {
		return uint64(bits32(f32(uint32(x))))
	}
	return bits64(f64(x), x)
}

func notNumber(t typ, x uint64) bool {
	if t == typeF32 {
		return f32(uint32(x)) != f32(uint32(x))
	}
	return f64(x) != f64(x)
}

func addF32(d, a, b, _ *v32) {
	for i := range d {
		d[i] = bits32(f32(a[i]) + f32(b[i]))
	}
}

func subF32(d, a, b, _ *v32) {
	for i := range d {
		d[i] = bits32(f32(a[i]) - f32(b[i]))
	}
}

func mulF32(d, a, b, _ *v32) {
	for i := range d {
		d[i] = bits32(f32(a[i]) * f32(b[i]))
	}
}

func divF32(d, a, b, _ *v32) {
	for i := range d {
		d[i] = bits32(f32(a[i]) / f32(b[i]))
	}
}

func fmaF32(d, a, b, c *v32) {
	for i := range d {
		d[i] = bits32(exactmath.FMA32(f32(a[i]), f32(b[i]), f32(c[i])))
	}
}

func sqrtF32(d, a, _, _ *v32) {
	for i := range d { // float64 has more than twice the digits: rounding twice is right
		d[i] = bits32(float32(math.Sqrt(float64(f32(a[i])))))
	}
}

func addF64(d, a, b, _ *v64) {
	for i := range d {
		d[i] = bits64(f64(a[i])+f64(b[i]), b[i], a[i])
	}
}

func subF64(d, a, b, _ *v64) {
	for i := range d {
		d[i] = bits64(f64(a[i])-f64(b[i]), b[i], a[i])
	}
}

func mulF64(d, a, b, _ *v64) {
	for i := range d {
		d[i] = bits64(f64(a[i])*f64(b[i]), b[i], a[i])
	}
}

func divF64(d, a, b, _ *v64) {
	for i := range d {
		d[i] = bits64(f64(a[i])/f64(b[i]), a[i], b[i])
	}
}

func fmaF64(d, a, b, c *v64) {
	for i := range d {
		d[i] = bits64(math.FMA(f64(a[i]), f64(b[i]), f64(c[i])), b[i], a[i], c[i])
	}
}

func sqrtF64(d, a, _, _ *v64) {
	for i := range d {
		d[i] = bits64(math.Sqrt(f64(a[i])), a[i])
	}
}

// extremeFloat returns the other operand if one is NaN; -0 is less than 0.
func extremeFloat(t typ, most bool) func(a, b uint64) uint64 {
	value := func(x uint64) float64 {
		if t == typeF32 {
			return float64(f32(uint32(x)))
		}
		return f64(x)
	}
	return func(a, b uint64) uint64 {
		x, y := value(a), value(b)
		switch {
		case x != x:
			return canonical(t, b)
		case y != y:
			return a
		case x < y || x == y && math.Signbit(x) && !math.Signbit(y):
			if most {
				return b
			}
			return a
		}
		if most {
			return a
		}
		return b
	}
}

// widen16 is the value of a half.
func widen16(h uint32) float32 {
	sign, e, m := h&0x8000<<16, h>>10&31, h&1023
	switch {
	case e == 31 && m != 0:
		return f32(nan32)
	case e == 31:
		return f32(sign | 0x7f800000)
	case e == 0: // m/2^24, exact
		v := float32(m) * 0x1p-24
		return f32(sign | math.Float32bits(v))
	}
	return f32(sign | (e+112)<<23 | m<<13)
}

func widenHalves(d, a, _, _ *v32) {
	for i := range d {
		if h := a[i]; h&0x7fff-0x400 < 0x7800 { // neither subnormal nor infinite
			d[i] = h&0x8000<<16 | (h&0x7fff<<13 + 112<<23)
		} else {
			d[i] = math.Float32bits(widen16(h))
		}
	}
}

// narrow16 is the half nearest to x, ties to even.
func narrow16(x float32) uint32 {
	u := math.Float32bits(x)
	sign, u := u>>16&0x8000, u&0x7fffffff
	switch {
	case u > 0x7f800000:
		return nan16
	case u >= 0x477ff000: // 65520 and more
		return sign | 0x7c00
	case u < 0x38800000: // below 2^-14: a multiple of 2^-24, which adding 0.5 rounds to
		return sign | (math.Float32bits(f32(u)+0.5) - 0x3f000000)
	}
	return sign | (u-0x38000000+0xfff+u>>13&1)>>13
}
