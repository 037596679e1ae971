package exactmath

import "math"

// Cap32 is c*tanh(x/c), with an error of about 2^-23 times c. Minus infinity stays: of logits, it
// stands for those that were not computed.
func Cap32(x, c float32) float32 { return Capped32(x, c, Sigmoid32(-2*Abs32(x)/c)) }

// Capped32 is Cap32 with s, which is Sigmoid32 of -2*Abs32(x)/c.
func Capped32(x, c, s float32) float32 {
	if x < -math.MaxFloat32 {
		return x
	}
	y := FMA32(-2*c, s, c) // tanh(a) = 1 - 2*sigmoid(-2a)
	if x < 0 {
		return -y
	}
	return y
}
