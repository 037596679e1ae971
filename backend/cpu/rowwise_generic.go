package cpu

// rmsNorm sets dst to x/sqrt(mean(x²)+eps)*gain. dst may be x.
func rmsNorm(dst, x, gain []float32, eps float32) {
	scale := rsqrt(dot(x, x)/float32(len(x)) + eps)
	for i, v := range x {
		dst[i] = float32(v*scale) * gain[i]
	}
}

// swiglu sets dst to silu(gate)*up.
func swiglu(dst, gate, up []float32) {
	for i, g := range gate {
		dst[i] = silu(g) * up[i]
	}
}
