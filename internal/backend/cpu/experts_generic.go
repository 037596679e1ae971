package cpu

// chooseExperts writes the indices of the highest logits, highest first and the lower
// index first among equals, and their softmax weights over all logits; normalized, they
// sum to one. The logits are lost.
func chooseExperts(chosen []int32, weights, logits []float32, normalized bool, softmax func([]float32) (top, sum float32)) {
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
	var total float32
	if !normalized {
		_, total = softmax(logits)
	}
	for j, i := range chosen {
		weights[j] = logits[i]
	}
	if normalized {
		_, total = softmax(weights)
	}
	for j := range weights {
		weights[j] /= total
	}
}
