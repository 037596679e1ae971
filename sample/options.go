package sample

import (
	"fmt"
	"math"
	"slices"
)

// MaxVocab is the longest row of logits a Sampler looks at. It keeps the sum of
// a row's weights, each at most 2^42, inside 63 bits.
const MaxVocab = 1 << 21

// Options are a request's sampling options. The zero value is greedy decoding without penalties.
type Options struct {
	// Temperature divides the logits. 0 is greedy: the most likely id, whatever
	// the truncation options say.
	Temperature float64

	// TopK keeps the K most likely ids; 0 keeps all.
	TopK int
	// TopP, in [0, 1], keeps the fewest most likely ids whose probabilities reach
	// TopP together; 0 and 1 keep all.
	TopP float64
	// MinP, in [0, 1], drops ids less likely than MinP times the likeliest; 0 keeps all.
	MinP float64

	// XTCProbability, in [0, 1], is how often XTC ("exclude top choices") applies:
	// then every id at least XTCThreshold likely is dropped, save the least likely
	// of them and the ids of XTCExempt. 0 is off.
	XTCProbability float64
	// XTCThreshold, in (0, 0.5], is looked at only if XTCProbability is above 0.
	XTCThreshold float64
	// XTCExempt lists ids XTC never drops, commonly the newline and the stop tokens.
	XTCExempt []int32

	// RepetitionPenalty divides the positive and multiplies the negative logits of
	// the ids in the last RepetitionWindow tokens of prompt and output. 0 and 1 are off.
	RepetitionPenalty float64
	// RepetitionWindow is in tokens; 0 is the whole text.
	RepetitionWindow int
	// PresencePenalty is taken once from the logit of every id generated so far.
	// The prompt does not count.
	PresencePenalty float64
	// FrequencyPenalty is taken from a logit as often as its id was generated so
	// far. The prompt does not count.
	FrequencyPenalty float64
	// LogitBias is added to the logits of its ids, before the penalties.
	LogitBias map[int32]float32

	// Constraint makes what says which ids may come next, one for each Sampler; nil allows
	// all. Ids that it does not allow are out before anything else is applied.
	Constraint func() Constraint

	// Seed decides all draws, together with the position.
	Seed uint64
	// Vocab is the number of ids that stand for tokens. Logits from there on are the
	// padding of a matrix and never drawn. 0 takes the whole row.
	Vocab int
}

// validate names the first option out of range and the range.
func (o *Options) validate() error {
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
		if err := o.validateID("XTCExempt", id); err != nil {
			return err
		}
	}
	for _, id := range sortedIDs(o.LogitBias) {
		if err := o.validateID("LogitBias", id); err != nil {
			return err
		}
		if v := float64(o.LogitBias[id]); math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("sample: option LogitBias of id %d is %v, want a finite number", id, v)
		}
	}
	return nil
}

func (o *Options) validateID(name string, id int32) error {
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
