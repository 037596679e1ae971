package cost

// filter is a Kalman filter: an estimate of some numbers that change slowly, and its covariance.
type filter struct {
	x [states]float64
	p [states][states]float64
}

// term is one of the numbers with its weight in a sum.
type term struct {
	i int
	w float64
}

// sum is a measured quantity: a weighted sum of a few numbers.
type sum [5]term

// value is the expected value of a sum.
func (f *filter) value(h *sum) (v float64) {
	for _, t := range h {
		v += t.w * f.x[t.i]
	}
	return v
}

// covariance is that of the estimates of two sums.
func (f *filter) covariance(g, h *sum) (v float64) {
	for _, a := range g {
		for _, b := range h {
			v += a.w * b.w * f.p[a.i][b.i]
		}
	}
	return v
}

// update adds a measured sum, off from its expected value. noise is the variance of the measurement.
func (f *filter) update(h *sum, off, noise float64) {
	var gain [states]float64
	for i := range f.x {
		for _, t := range h {
			gain[i] += t.w * f.p[i][t.i]
		}
	}
	total := f.covariance(h, h) + noise
	for i := range f.x {
		g := gain[i] / total
		f.x[i] += g * off
		for j := range f.x {
			f.p[i][j] -= g * gain[j]
		}
	}
}
