package cpu

// normalise scales x to length one, times scale.
func normalise(x []float32, scale float32) {
	s := rsqrt(dot(x, x)+1e-6) * scale
	for i := range x {
		x[i] *= s
	}
}

// deltaRead computes one head's output for one token, and the update it makes, from the
// state before the token, [key, value]:
//
//	u = Sᵀk, w = Sᵀq           each a sum over key mod 4, then (0+1)+(2+3)
//	delta = beta*(v - decay*u)
//	out = decay*w + (k·q)*delta
//
// which is the delta rule with the decay and the update applied to the sums instead of the
// state, so that the state is read once. The result is in buf, which has room for 9 values.
func deltaRead(out, state, q, k, v []float32, decay, beta float32, buf []float32) []float32 {
	n := len(v)
	delta, sums := buf[:n], buf[n:9*n]
	clear(sums)
	for i, x := range k {
		y := q[i]
		s := state[i*n:][:n]
		u, w := sums[i%4*n:][:n], sums[(4+i%4)*n:][:n]
		axpy(u, s, x)
		axpy(w, s, y)
	}
	kq := dot(k, q)
	for j := range delta {
		u := (sums[j] + sums[n+j]) + (sums[2*n+j] + sums[3*n+j])
		w := (sums[4*n+j] + sums[5*n+j]) + (sums[6*n+j] + sums[7*n+j])
		delta[j] = fma32(-decay, u, v[j]) * beta
		out[j] = fma32(kq, delta[j], float32(decay*w))
	}
	return delta
}

// deltaUpdate is S = decay*S + k⊗delta.
func deltaUpdate(state, k, delta []float32, decay float32) {
	n := len(delta)
	for i, x := range k {
		s := state[i*n:][:n]
		for j := range s {
			s[j] = float32(decay * s[j])
		}
		axpy(s, delta, x)
	}
}
