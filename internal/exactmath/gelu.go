package exactmath

// GELU32 is x*Φ(x), Φ being the normal distribution, with an error of a few units in the last
// place; results below the smallest normal number are zero.
func GELU32(x float32) float32 {
	a := atMost(Abs32(x), 14) // from there on e is zero
	z := float32(a * a)
	e := Exp32(float32(-0.5 * z))
	e = FMA32(e, float32(-0.5*FMA32(a, a, -z)), e) // times e^-d/2, where d is the rounding error of z
	// p is (1-Φ(a))*e^(a²/2)/t for 0 <= a <= 14, interpolated at Chebyshev's nodes of t.
	t := 1 / FMA32(a, 0.25, 1)
	p := FMA32(0.0153836033, t, -0.0563454643)
	p = FMA32(p, t, 0.0366152550)
	p = FMA32(p, t, 0.0483180834)
	p = FMA32(p, t, -0.00367795936)
	p = FMA32(p, t, 0.0953755683)
	p = FMA32(p, t, 0.0690116361)
	p = FMA32(p, t, 0.0961508647)
	p = FMA32(p, t, 0.0994166231)
	p = FMA32(p, t, 0.0997517922)
	y := float32(float32(float32(a*t)*p) * e) // a*(1-Φ(a))
	return max(x, 0) - y
}

// GELUTanh32 is x*(1+tanh(u))/2 with u = sqrt(2/π)*(x+0.044715x³), which is x*Sigmoid(2u), with
// an error of a few units in the last place.
func GELUTanh32(x float32) float32 {
	const (
		c0, c0Lo = 1.59576917, -4.53406804e-8 // 2*sqrt(2/π), its float32 and the rest
		c1, c1Lo = 0.0713548139, 2.39883240e-9
	)
	a := atMost(Abs32(x), 16) // from there on e is zero
	// v + low is 2u of a: where e is small, an error of v is a large one of e.
	z := float32(a * a)
	m := float32(c1 * z)
	low := FMA32(c1Lo, z, FMA32(c1, FMA32(a, a, -z), FMA32(c1, z, -m)))
	s := c0 + m
	t := s - c0 // TwoSum: s and the next bracket are c0 + m exactly
	low += float32((c0-(s-t))+(m-t)) + c0Lo
	v := float32(a * s)
	low = FMA32(a, low, FMA32(a, s, -v))
	e := Exp32(-v)
	e = FMA32(e, -low, e)
	p := float32(a * e)
	y := p + FMA32(-p, e/(1+e), FMA32(a, e, -p)) // as SiLU32 has it
	return max(x, 0) - y
}

// atMost is min(x, limit); NaN stays NaN.
func atMost(x, limit float32) float32 {
	if x > limit {
		return limit
	}
	return x
}
