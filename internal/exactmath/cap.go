package exactmath

import "math"

// Cap32 is c*tanh(x/c), with an error of about 2^-23 times c. Minus infinity stays: of logits, it
// stands for those that were not computed.
func Cap32(x, c float32) float32 {
	if x < -math.MaxFloat32 {
		return x
	}
	y := FMA32(-2*c, Sigmoid32(-2*Abs32(x)/c), c) // tanh(a) = 1 - 2*sigmoid(-2a)
	if x < 0 {
		return -y
	}
	return y
}
