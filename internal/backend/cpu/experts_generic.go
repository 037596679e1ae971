package cpu

import (
	"math"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
)

// choose ranks the experts of a row and weighs them. The logits are lost.
func (op *expertsOp) choose(s *scratch, chosen []int32, weights, logits []float32) {
	e, vector := op.e, &op.b.isa.Vector
	if e.Sigmoid || e.Bias.Mem != nil || e.Groups > 1 {
		chooseByScores(s, chosen, weights, logits, e, vector)
	} else {
		chooseExperts(chosen, weights, logits, e.Normalize, vector.Softmax)
	}
	if e.Scale != 0 {
		for j := range weights {
			weights[j] *= e.Scale
		}
	}
	if e.PerExpert.Mem != nil {
		factors := row(e.PerExpert, 0)
		for j, i := range chosen {
			weights[j] *= factors[i]
		}
	}
}

// chooseExperts writes the indices of the highest logits, highest first and the lower
// index first among equals, and their softmax weights over all logits; normalized, they
// sum to one. The logits are lost.
func chooseExperts(chosen []int32, weights, logits []float32, normalized bool, softmax func([]float32) (top, sum float32)) {
	rank(chosen, logits)
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

// chooseByScores is choose with every option but the scale. It makes scores of the logits,
// ranks them with the biases added and without the excluded groups, and takes the
// scores of the chosen as weights. Normalized, they are divided by their sum, which is taken
// in the order of the ranks, and 1e-20.
func chooseByScores(s *scratch, chosen []int32, weights, logits []float32, e *backend.Experts, vector *kernel.Vector) {
	scores := logits
	if e.Sigmoid {
		vector.Sigmoids(scores, logits)
	} else {
		_, total := vector.Softmax(scores)
		for i := range scores {
			scores[i] /= total
		}
	}
	s.keys = append(s.keys[:0], scores...)
	if e.Bias.Mem != nil {
		vector.Add(s.keys, row(e.Bias, 0))
	}
	if e.Groups > 1 {
		s.leaveOut(e.Groups, e.TopGroups)
	}
	rank(chosen, s.keys)
	var total float32
	for j, i := range chosen {
		weights[j] = scores[i]
		total += scores[i]
	}
	if e.Normalize {
		for j := range weights {
			weights[j] /= total + 1e-20
		}
	}
}

// leaveOut makes the keys of all but the best groups minus infinity. Groups are ranked by the
// sum of their two highest keys.
func (s *scratch) leaveOut(groups, best int) {
	size := len(s.keys) / groups
	s.groups, s.best = kernel.Grow(s.groups, groups), kernel.Grow(s.best, best)
	var two [2]int32
	for g := range s.groups {
		keys := s.keys[g*size:][:size]
		top := two[:min(2, size)]
		rank(top, keys)
		s.groups[g] = 0
		for _, i := range top {
			s.groups[g] += keys[i]
		}
	}
	rank(s.best, s.groups)
	for i := range s.keys {
		if !slices.Contains(s.best, int32(i/size)) {
			s.keys[i] = float32(math.Inf(-1))
		}
	}
}

// rank writes the indices of the highest keys, highest first and the lower index first among
// equals.
func rank(chosen []int32, keys []float32) {
	n := 0
	for i, x := range keys {
		j := n
		for j > 0 && x > keys[chosen[j-1]] {
			j--
		}
		if j == len(chosen) {
			continue
		}
		n = min(n+1, len(chosen))
		copy(chosen[j+1:n], chosen[j:n-1])
		chosen[j] = int32(i)
	}
}
