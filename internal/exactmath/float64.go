package exactmath

import "math"

const (
	ln2Hi = 0x1.62e42feep-1       // its product with an exponent is exact
	ln2Lo = 0x1.a39ef35793c76p-33 // ln 2 - ln2Hi
)

// atanhTerms are 2/21, 2/19, … 2/3: the series of 2·atanh(s)/s - 2 in s², highest
// power first. With |s| below 0.172 the first term left out is under 2^-58.
var atanhTerms = [...]float64{2. / 21, 2. / 19, 2. / 17, 2. / 15, 2. / 13, 2. / 11, 2. / 9, 2. / 7, 2. / 5, 2. / 3}

// Log is the natural logarithm of a positive finite x, within 1.1 units in the last place.
func Log(x float64) float64 {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m *= 2
		e--
	}
	// With s = f/(2+f), log(1+f) = 2·atanh(s); and 2s = f - s·f keeps the leading
	// term exact.
	f := m - 1
	s := f / (2 + f)
	s2 := s * s
	r := 0.0
	for _, c := range atanhTerms {
		r = float64(r*s2) + c
	}
	r = float64(r * s2)
	k := float64(e)
	tail := float64(k*ln2Lo) - float64(s*(f-r))
	return float64(k*ln2Hi) + (f + tail)
}

// Exp is e^x: a power series at x/1024, squared ten times.
func Exp(x float64) float64 {
	y := min(max(x, -1000), 1000) / 1024 // beyond, the result is 0 or infinite, and the series is not near it
	s := 1.0
	for n := 10.0; n >= 1; n-- {
		s = 1 + float64(float64(y*s)/n)
	}
	for range 10 {
		s *= s
	}
	return s
}

// LogOfExp is the natural logarithm of a positive number by Newton's method on Exp. Models use it
// when they are loaded. Log is more accurate and faster, but differs in
// the last digits, which would change a model's bits where they decide the rounding to float32:
// Log can replace it with the next arithmetic version.
func LogOfExp(x float64) float64 {
	m, e := math.Frexp(x)
	y := 0.0 // log m, in [-log 2, 0]
	for range 6 {
		y += float64(m*Exp(-y)) - 1
	}
	return y + float64(float64(e)*math.Ln2)
}
