package sampling

import (
	"fmt"
	"math"
	"slices"

	"github.com/foretoken/foretoken/sample"
)

// MaxVocab is the longest row of logits a Sampler looks at. It keeps the sum of
// a row's weights, each at most 2^42, inside 63 bits.
const MaxVocab = 1 << 21

// validate names the first option out of range and the range.
func validate(o *sample.Options) error {
	ranges := []struct {
		name   string
		value  float64
		lo, hi float64
	}{
		{"Temperature", o.Temperature, 0, math.MaxFloat64},
		{"TopK", float64(o.TopK), 0, math.MaxInt32},
		{"TopP", o.TopP, 0, 1},
		{"MinP", o.MinP, 0, 1},
		{"XTCProbability", o.XTCProbability, 0, 1},
		{"XTCThreshold", o.XTCThreshold, 0, 0.5},
		{"RepetitionPenalty", o.RepetitionPenalty, 0, math.MaxFloat64},
		{"RepetitionWindow", float64(o.RepetitionWindow), 0, math.MaxInt32},
		{"PresencePenalty", o.PresencePenalty, -math.MaxFloat64, math.MaxFloat64},
		{"FrequencyPenalty", o.FrequencyPenalty, -math.MaxFloat64, math.MaxFloat64},
		{"Vocab", float64(o.Vocab), 0, MaxVocab},
	}
	for _, r := range ranges {
		if r.value >= r.lo && r.value <= r.hi {
			continue
		}
		return fmt.Errorf("sample: option %s is %.10g, want %s", r.name, r.value, span(r.lo, r.hi))
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
	end := int32(MaxVocab)
	if o.Vocab > 0 {
		end = int32(o.Vocab)
	}
	if id < 0 || id >= end {
		return fmt.Errorf("sample: option %s names id %d, want 0 to %d", name, id, end-1)
	}
	return nil
}

// span words an allowed range.
func span(lo, hi float64) string {
	switch {
	case hi < math.MaxFloat64:
		return fmt.Sprintf("%.10g to %.10g", lo, hi)
	case lo == 0:
		return "a finite number, 0 or above"
	default:
		return "a finite number"
	}
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
