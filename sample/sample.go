// Package sample has the sampling options of a request, seeds, and log-probabilities of tokens.
//
// The steps and their order are fixed: the ids that a constraint forbids are removed; then logit
// bias, repetition, frequency and presence penalties; temperature; top-k, top-p, min-p, XTC. Each
// step sees the result of the one before it, as a distribution that sums to one. Equal logits rank
// by id, lowest first.
//
// A draw is a function of seed, position and distribution alone. The same options and the same
// seed give the same tokens.
package sample

import (
	"crypto/rand"
	"encoding/binary"
)

// Options are a request's sampling options. The zero value is greedy decoding without penalties.
type Options struct {
	// Temperature, in [0, 100], divides the logits. 0 is greedy: the most likely id, regardless
	// of the truncation options.
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

	// RepetitionPenalty, in [0.01, 100], divides the positive and multiplies the negative logits of
	// the ids in the last RepetitionWindow tokens of prompt and output. 0 and 1 are off.
	RepetitionPenalty float64
	// RepetitionWindow is in tokens; 0 is the whole text.
	RepetitionWindow int
	// PresencePenalty, in [-100, 100], is taken once from the logit of every id generated so far.
	// The prompt does not count.
	PresencePenalty float64
	// FrequencyPenalty, in [-100, 100], is taken from a logit as often as its id was generated so
	// far. The prompt does not count.
	FrequencyPenalty float64
	// LogitBias is added to the logits of its ids, before the penalties.
	LogitBias map[int32]float32

	// Constraint returns a Constraint for one answer; nil allows all ids.
	Constraint func() Constraint

	// Seed decides all draws, together with the position.
	Seed uint64
	// Vocab is the number of ids that stand for tokens. Logits from there on are the
	// padding of a matrix and never drawn. 0 takes the whole row. Generate sets it.
	Vocab int
}

// A Constraint says which ids may come next, for example those that keep a text in a
// grammar. It follows the text of one answer. The constraints of several answers may be called
// at the same time.
type Constraint interface {
	// Allowed is the set of ids that may follow once the tokens ahead have followed the
	// text: bit id%64 of word id/64, and no id beyond the words. nil allows everything. It is
	// valid until the next call.
	Allowed(ahead []int32) []uint64
	// Accept makes id part of the text.
	Accept(id int32)
}

// A LogProb is an id with the logarithm of its probability.
type LogProb struct {
	ID      int32
	LogProb float32
}

// NewSeed returns a random seed below 2^53, which every reader of JSON keeps exact.
func NewSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, by its contract
	return binary.LittleEndian.Uint64(b[:]) >> 11
}
