package cpu

import "math"

// rotate turns the pairs (i, i+len(cos)) of x.
func rotate(x, cos, sin []float32) {
	half := len(cos)
	for i, c := range cos {
		a, b, s := x[i], x[i+half], sin[i]
		x[i] = fma32(a, c, -float32(b*s))
		x[i+half] = fma32(b, c, float32(a*s))
	}
}

// softmaxSum is a weighted sum of values over the pages seen so far. The sum itself is in
// the caller's output row, not yet divided by weight.
type softmaxSum struct {
	top    float32 // highest score
	weight float32 // sum of exp(score-top)
	begun  bool
}

// add takes in the first count positions of one page: the page's own softmax sum is
// computed by itself, then merged with what was there, so that the result depends on the
// positions of page borders and on nothing else.
//
// Scores are lane-order dot products; weights and values are summed in order of position.
func (s *softmaxSum) add(out, query []float32, keys, values pageRows, count int, scratch []float32) {
	d := len(query)
	scores, buf, sum := scratch[:count], scratch[count:count+d], scratch[count+d:count+2*d]
	scale := 1 / float32(math.Sqrt(float64(d)))
	top := float32(math.Inf(-1))
	for i := range scores {
		scores[i] = dot(query, keys.load(i, buf)) * scale
		top = max(top, scores[i])
	}
	clear(sum)
	weight := float32(0)
	for i, x := range scores {
		p := exp(x - top)
		weight += p
		axpy(sum, values.load(i, buf), p)
	}
	if !s.begun {
		copy(out, sum)
		*s = softmaxSum{top: top, weight: weight, begun: true}
		return
	}
	all := max(s.top, top)
	old, add := exp(s.top-all), exp(top-all)
	for j := range out {
		out[j] = fma32(sum[j], add, float32(out[j]*old))
	}
	s.weight = fma32(weight, add, float32(s.weight*old))
	s.top = all
}
