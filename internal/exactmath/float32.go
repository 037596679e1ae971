package exactmath

import "math"

// The functions of this file define the float32 arithmetic of the devices. Vector code must
// return the same bits: it may use fused multiply-add exactly where FMA32 is written here,
// and must keep the order of everything else.

// Lanes is the number of partial sums of a dot product: element i goes to lane i mod Lanes.
const Lanes = 16

// FMA32 is a*b+c rounded once.
func FMA32(a, b, c float32) float32 {
	s := float64(a)*float64(b) + float64(c) // the product is exact in float64
	if ambiguous(s) {
		return fmaExact(a, b, c)
	}
	return float32(s)
}

// ambiguous reports whether rounding s, itself a rounded sum, to float32 may differ from
// rounding the exact sum: if s is halfway between two float32 values, so that the digits
// dropped by the first rounding decide, or in the subnormal range.
func ambiguous(s float64) bool {
	x := math.Float64bits(s)
	return x<<35 == 1<<63 || x<<1>>53-1 < 896
}

// fmaExact is FMA32 by rounding to odd: an inexact float64 sum is moved to the neighbor
// with an odd last digit, after which rounding it to float32 is right.
func fmaExact(a, b, c float32) float32 {
	p, z := float64(a)*float64(b), float64(c)
	s := p + z
	t := s - p // TwoSum (Knuth): s + e == p + z exactly
	e := (p - (s - t)) + (z - t)
	if e == 0 || math.IsInf(s, 0) || s != s {
		return float32(s)
	}
	if x := math.Float64bits(s); x&1 == 0 {
		if (e > 0) == (s > 0) {
			x++
		} else {
			x--
		}
		s = math.Float64frombits(x)
	}
	return float32(s)
}

// AXPY32 is y += a*x, every element with FMA32, which is written out here because the
// compiler does not inline it and this is where most of the time goes.
func AXPY32(y, x []float32, a float32) {
	x = x[:len(y)]
	b := float64(a)
	for i, v := range x {
		s := b*float64(v) + float64(y[i])
		if ambiguous(s) {
			y[i] = fmaExact(a, v, y[i])
		} else {
			y[i] = float32(s)
		}
	}
}

// SumLanes32 adds the lanes in a fixed tree: halves onto halves.
func SumLanes32(a *[Lanes]float32) float32 {
	for w := Lanes / 2; w > 0; w /= 2 {
		for i := range w {
			a[i] += a[i+w]
		}
	}
	return a[0]
}

// Dot32 is the inner product of x and y in lane order.
func Dot32(x, y []float32) float32 {
	y = y[:len(x)]
	var acc [Lanes]float32
	for i, v := range x {
		a := &acc[i%Lanes]
		s := float64(v)*float64(y[i]) + float64(*a)
		if ambiguous(s) {
			*a = fmaExact(v, y[i], *a)
		} else {
			*a = float32(s)
		}
	}
	return SumLanes32(&acc)
}

// wideLanes is the number of partial sums of a norm over a whole row, a multiple of Lanes. A row
// has thousands of numbers, and a device that computes a lane per thread waits for the chain of
// each: with 64 of them a row of 5120 is 80 steps.
const wideLanes = 64

// SumSquares32 is the sum of squares of x: element i goes to lane i mod wideLanes, and the
// lanes are added in the tree of SumLanes32, halves onto halves.
func SumSquares32(x []float32) float32 {
	var acc [wideLanes]float32
	for i, v := range x {
		acc[i%wideLanes] = FMA32(v, v, acc[i%wideLanes])
	}
	return sumWide32(&acc)
}

// Sum32 is the sum of x in the order of SumSquares32.
func Sum32(x []float32) float32 {
	var acc [wideLanes]float32
	for i, v := range x {
		acc[i%wideLanes] += v
	}
	return sumWide32(&acc)
}

func sumWide32(acc *[wideLanes]float32) float32 {
	for w := wideLanes / 2; w >= Lanes; w /= 2 {
		for i := range w {
			acc[i] += acc[i+w]
		}
	}
	return SumLanes32((*[Lanes]float32)(acc[:]))
}

// RSqrt32 is 1/sqrt(x), both steps rounded to float32.
func RSqrt32(x float32) float32 { return 1 / float32(math.Sqrt(float64(x))) }

// Bounds of Exp32: below ExpMin32 the result is flushed to zero, above ExpMax32 it is infinite.
const (
	ExpMin32 = -87.33654
	ExpMax32 = 88.72283
)

// Exp32 is e^x with an error below one unit in the last place; results below the smallest
// normal number are zero.
func Exp32(x float32) float32 {
	switch {
	case x != x:
		return x
	case x < ExpMin32:
		return 0
	case x > ExpMax32:
		return float32(math.Inf(1))
	}
	const (
		log2e = 1.44269504
		ln2Hi = 0.693145751953125 // 16 digits: n*ln2Hi is exact
		ln2Lo = 1.42860682030941723212e-6
		round = 3 << 22 // adding it leaves the nearest integer in the last digits
	)
	t := FMA32(x, log2e, round)
	n := t - round
	hi := FMA32(n, -ln2Hi, x)
	lo := float32(n * -ln2Lo)
	r := hi + lo
	// q is (e^r-1-r)/r² for |r| <= ln(2)/2, interpolated at Chebyshev's nodes.
	q := FMA32(0.000198909882, r, 0.00139336474)
	q = FMA32(q, r, 0.00833331048)
	q = FMA32(q, r, 0.0416664667)
	q = FMA32(q, r, 0.166666672)
	q = FMA32(q, r, 0.5)
	// e^r = 1 + hi + (lo + r²*q), where the rounding error of 1+hi is added to the bracket.
	one := 1 + hi
	lost := hi - (one - 1)
	p := one + (lost + FMA32(float32(r*r), q, lo))
	// n is in [-126, 128]: scale in two steps so that 2^128 does not overflow by itself.
	k := int32(n)
	h := k >> 1
	return p * pow2(h) * pow2(k-h)
}

// pow2 is 2^k for -126 <= k <= 127.
func pow2(k int32) float32 { return math.Float32frombits(uint32(k+127) << 23) }

// Sigmoid32 is 1/(1+e^-x).
//
// It and SiLU32 start from e/(1+e) = e - e*(e/(1+e)), e = e^-|x|: so computed, the errors of
// the quotient hardly count.
func Sigmoid32(x float32) float32 {
	e := Exp32(-Abs32(x))
	y := FMA32(-e, e/(1+e), e)
	if x < 0 {
		return y
	}
	return 1 - y
}

// SiLU32 is x*Sigmoid32(x) for finite x.
func SiLU32(x float32) float32 {
	e := Exp32(-Abs32(x))
	p := float32(x * e)
	y := p + FMA32(-p, e/(1+e), FMA32(x, e, -p)) // x*e/(1+e); the last term is what p lost
	if x < 0 {
		return y
	}
	return x - y
}

// Softplus32 is log(1+e^x).
func Softplus32(x float32) float32 {
	y := Exp32(-Abs32(x))
	// With s = y/(2+y), at most 1/3: log(1+y) = 2*atanh(s) = 2s + s*R = y - s*(y-R), where
	// R = 2s²/3 + 2s⁴/5 + ... In the last form the errors of s and R hardly count.
	s := y / (2 + y)
	z := float32(s * s)
	h := FMA32(2.0/17, z, 2.0/15)
	h = FMA32(h, z, 2.0/13)
	h = FMA32(h, z, 2.0/11)
	h = FMA32(h, z, 2.0/9)
	h = FMA32(h, z, 2.0/7)
	h = FMA32(h, z, 2.0/5)
	h = FMA32(h, z, 2.0/3)
	return max(x, 0) + FMA32(-s, FMA32(-z, h, y), y)
}

// Abs32 is x without its sign.
func Abs32(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

// Sincos32 is the sine and cosine of x, |x| < 2^20, computed in float64 and rounded. It is
// called once per position and pair of dimensions, so it has no vector form to agree with.
func Sincos32(x float32) (sin, cos float32) {
	const (
		half1 = 1.57079632673412561417e+00 // pi/2 in pieces of 33 bits: n*half1 is exact
		half2 = 6.07710050630396597660e-11
		half3 = 2.02226624879595063154e-21
	)
	v := float64(x)
	n := math.Floor(float64(v*(2/math.Pi)) + 0.5)
	r := v - float64(n*half1)
	r -= float64(n * half2)
	r -= float64(n * half3)
	z := float64(r * r)
	s, c := 1.0, 1.0
	for k := 14.0; k >= 2; k -= 2 { // Taylor series: |r| <= pi/4
		s = 1 - float64(float64(z*s)/(k*(k+1)))
		c = 1 - float64(float64(z*c)/(k*(k-1)))
	}
	s = float64(r * s)
	switch int64(n) & 3 {
	case 0:
		return float32(s), float32(c)
	case 1:
		return float32(c), float32(-s)
	case 2:
		return float32(-s), float32(-c)
	default:
		return float32(-c), float32(s)
	}
}
