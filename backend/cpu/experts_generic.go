package cpu

// chooseExperts writes the indices of the highest logits, highest first and the lower
// index first among equals, and their softmax weights over all logits; normalised, they
// sum to one.
func chooseExperts(chosen []int32, weights, logits []float32, normalised bool) {
	n := 0
	for i, x := range logits {
		j := n
		for j > 0 && x > logits[chosen[j-1]] {
			j--
		}
		if j == len(chosen) {
			continue
		}
		n = min(n+1, len(chosen))
		copy(chosen[j+1:n], chosen[j:n-1])
		chosen[j] = int32(i)
	}
	top := logits[chosen[0]]
	total := float32(0)
	if normalised {
		for j, i := range chosen {
			weights[j] = exp(logits[i] - top)
			total += weights[j]
		}
	} else {
		for _, x := range logits {
			total += exp(x - top)
		}
		for j, i := range chosen {
			weights[j] = exp(logits[i] - top)
		}
	}
	for j := range weights {
		weights[j] /= total
	}
}

// addScaled adds w*x to dst.
func addScaled(dst, x []float32, w float32) {
	for i, v := range x {
		dst[i] += float32(w * v)
	}
}
