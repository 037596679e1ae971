package sampling

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/foretoken/foretoken/sample"
)

// maxVocab is the longest row of logits a Sampler looks at. It keeps the sum of
// a row's weights, each at most 2^42, inside 63 bits.
const maxVocab = 1 << 21

// A Range is the numbers that an option may have, both ends included.
type Range struct{ Low, High float64 }

// Holds reports whether x is a number of the range.
func (r Range) Holds(x float64) bool { return x >= r.Low && x <= r.High }

// The ranges of options, for all that set them: programs, requests over HTTP, flags and files of
// checkpoints.
var (
	Temperature       = Range{0, 100}
	TopP              = Range{0, 1}
	MinP              = Range{0, 1}
	XTCProbability    = Range{0, 1}
	XTCThreshold      = Range{0, 0.5} // above 0 if XTCProbability is
	RepetitionPenalty = Range{0.01, 100}
	Penalty           = Range{-100, 100} // of presence and frequency
)

// MaxCount is the highest number of tokens that TopK and RepetitionWindow may have.
const MaxCount = math.MaxInt32

// ClientTopP applies the meaning that clients give a TopP of 0: the fewest tokens that reach it are
// one. In sample.Options 0 is the zero value and keeps all.
func ClientTopP(o *sample.Options) {
	if o.TopP == 0 {
		o.TopK = 1
	}
}

// validate names the first option out of range and the range.
func validate(o *sample.Options) error {
	ranges := []struct {
		name  string
		value float64
		Range
	}{
		{"Temperature", o.Temperature, Temperature},
		{"TopK", float64(o.TopK), Range{0, MaxCount}},
		{"TopP", o.TopP, TopP},
		{"MinP", o.MinP, MinP},
		{"XTCProbability", o.XTCProbability, XTCProbability},
		{"XTCThreshold", o.XTCThreshold, XTCThreshold},
		{"RepetitionPenalty", cmp.Or(o.RepetitionPenalty, 1), RepetitionPenalty}, // 0 is the zero value: none
		{"RepetitionWindow", float64(o.RepetitionWindow), Range{0, MaxCount}},
		{"PresencePenalty", o.PresencePenalty, Penalty},
		{"FrequencyPenalty", o.FrequencyPenalty, Penalty},
		{"Vocab", float64(o.Vocab), Range{0, maxVocab}},
	}
	for _, r := range ranges {
		if !r.Holds(r.value) {
			return fmt.Errorf("sample: option %s is %.10g, want %.10g to %.10g", r.name, r.value, r.Low, r.High)
		}
	}
	if o.XTCProbability > 0 && o.XTCThreshold == 0 {
		return fmt.Errorf("sample: option XTCThreshold is 0, want above 0 and at most 0.5 when XTCProbability is set")
	}
	for _, id := range o.XTCExempt {
		if err := validateID(o, "XTCExempt", id); err != nil {
			return err
		}
	}
	for _, id := range sortedIDs(o.LogitBias) {
		if err := validateID(o, "LogitBias", id); err != nil {
			return err
		}
		if v := float64(o.LogitBias[id]); math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("sample: option LogitBias of id %d is %v, want a finite number", id, v)
		}
	}
	return nil
}

func validateID(o *sample.Options, name string, id int32) error {
	end := int32(maxVocab)
	if o.Vocab > 0 {
		end = int32(o.Vocab)
	}
	if id < 0 || id >= end {
		return fmt.Errorf("sample: option %s names id %d, want 0 to %d", name, id, end-1)
	}
	return nil
}

// sortedIDs lists the keys of m in ascending order, so that errors and sums do
// not depend on Go's map order.
func sortedIDs(m map[int32]float32) []int32 {
	ids := make([]int32, 0, len(m))
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
