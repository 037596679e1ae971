package qwen35

import "math"

// The functions of this file compute numbers that become part of a model when it is
// loaded. They are our own so that those numbers do not depend on the processor: the
// standard library's use assembly that differs between machines.

// exp is e^x: a power series at x/1024, squared ten times.
func exp(x float64) float64 {
	y := x / 1024
	s := 1.0
	for n := 10.0; n >= 1; n-- {
		s = 1 + float64(float64(y*s)/n)
	}
	for range 10 {
		s *= s
	}
	return s
}

// log is the natural logarithm of a positive number, by Newton's method on exp.
func log(x float64) float64 {
	m, e := math.Frexp(x)
	y := 0.0 // log m, in [-log 2, 0]
	for range 6 {
		y += float64(m*exp(-y)) - 1
	}
	return y + float64(float64(e)*math.Ln2)
}
