package measure

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Spread is a median of measurements, with its confidence interval of 95 %.
type Spread struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// String is a spread for people.
func (s Spread) String() string { return fmt.Sprintf("%.2f (%.2f to %.2f)", s.Median, s.Low, s.High) }

// Tolerance is how far two runs of a benchmark may disagree. A wider interval is noise.
const Tolerance = 0.05

// Noisy reports whether the interval is too wide for another run to be expected to agree.
func (s Spread) Noisy() bool { return s.High-s.Low > Tolerance*s.Median }

// resamples is how often the bootstrap draws; more would not change a second digit.
const resamples = 2000

// NewSpread is the median of measurements of one thing with its interval.
func NewSpread(x []float64) Spread { return Pooled([][]float64{x}) }

// Pooled is the geometric mean of the medians of several groups, with its bootstrap interval:
// each group is resampled by itself. A median ignores a disturbed measurement,
// and the mean over many groups reduces the remaining noise. The draws are the
// same every time, so that a report is a function of the measurements.
func Pooled(groups [][]float64) Spread {
	rng := rand.New(rand.NewPCG(1, uint64(len(groups))))
	draws := make([]float64, resamples)
	var draw []float64
	for i := range draws {
		draws[i] = meanOfMedians(groups, func(x []float64) []float64 {
			draw = draw[:0]
			for range x {
				draw = append(draw, x[rng.IntN(len(x))])
			}
			return draw
		})
	}
	return Spread{meanOfMedians(groups, slices.Clone), Quantile(draws, 0.025), Quantile(draws, 0.975)}
}

// meanOfMedians is the geometric mean of the medians of draw(group) for each group; 0 if
// one of them is not above 0.
func meanOfMedians(groups [][]float64, draw func([]float64) []float64) float64 {
	logs := 0.0
	for _, x := range groups {
		m := Median(draw(x))
		if m <= 0 {
			return 0
		}
		logs += math.Log(m)
	}
	if len(groups) == 0 {
		return 0
	}
	return math.Exp(logs / float64(len(groups)))
}

// Median of an odd or even number of measurements; the list is sorted.
func Median(x []float64) float64 { return Quantile(x, 0.5) }

// Quantile is the value that a share q of the measurements is below, between two of them
// where it falls between; the list is sorted.
func Quantile(x []float64, q float64) float64 {
	if len(x) == 0 {
		return 0
	}
	slices.Sort(x)
	at := q * float64(len(x)-1)
	i := int(at)
	if i+1 >= len(x) {
		return x[len(x)-1]
	}
	return x[i] + (at-float64(i))*(x[i+1]-x[i])
}

// Ratio is a over b, 0 if b is 0.
func Ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// Speedup is the cost model of speculative decoding: the tokens that a round gives over the time
// of its pass and of its draft. In units of a plain pass it is the multiple of plain decoding's
// speed.
func Speedup(tokens, pass, draft float64) float64 { return Ratio(tokens, pass+draft) }

// Gain is how many tokens a round gives if the draft token at position j, and so all before it,
// is accepted in a share accepted[j] of the rounds: 1 + p₁ + p₁p₂ + …
func Gain(accepted []float64) float64 {
	gain := 1.0
	for _, p := range accepted {
		gain += p
	}
	return gain
}

// BreakEven is the acceptance, accepted over drafted, above which drafting depth tokens is
// faster than plain decoding. pass and draft are in plain passes.
func BreakEven(depth, pass, draft float64) float64 { return Ratio(pass+draft-1, depth) }
