package spec

import (
	"strconv"
	"time"
)

// Receipt is what guessing did for one sequence.
type Stats struct {
	Drafter        string
	Rule           Rule
	Rounds         int           // passes of the target that gave tokens, that over the prompt's end included
	Drafted        int           // guesses made
	Accepted       int           // guesses that held
	AcceptedAt     [MaxDepth]int // guesses that held, by position
	DraftedAt      [MaxDepth]int // guesses made, by position
	Copied         int           // guesses made that were copied from the text
	CopiedAccepted int           // of those, the ones that held
	DraftVocab     int           // tokens that the last guesses were drawn among; 0: none was drawn

	// Time of its rounds after the prompt: in company, its share of them.
	Draft  time.Duration // spent guessing and learning
	Verify time.Duration // spent in passes

	// Of this sequence's rounds after the prompt, in units of a plain one; 0: not measured.
	Beta  float64 // time of a pass with as many guesses as there were in the mean
	Delta float64 // time of a guess

	decoded  int // rounds after the prompt
	batchSum int // sequences in those, added up
}

// Count takes in one round.
func (r *Record) Count(drafts, accepted int) {
	r.Rounds++
	r.Drafted += drafts
	r.Accepted += accepted
	if r.source != Computed {
		r.Copied += drafts
		r.CopiedAccepted += accepted
	}
	for j := range drafts {
		r.DraftedAt[j]++
		if j < accepted {
			r.AcceptedAt[j]++
		}
	}
}

// Spent takes in the sequence's share of the pass of a round after the prompt, in which so
// many sequences took part.
func (r *Stats) Spent(verify time.Duration, sequences int) {
	r.Verify += verify
	r.decoded++
	r.batchSum += sequences
}

// Settle works out Beta and Delta from what passes have cost on this machine.
func (c *Controller) Settle(r *Stats) {
	r.Beta, r.Delta = 0, 0
	if r.decoded == 0 {
		return
	}
	n := int(float64(r.batchSum)/float64(r.decoded) + 0.5)
	if c.verify[min(n, maxRows)].n == 0 {
		return // what a plain round takes was never seen
	}
	plain := c.verifyCost(n)
	rows := float64(n) * (1 + float64(r.Drafted)/float64(r.decoded))
	below := int(rows)
	lo, hi := c.verifyCost(below), c.verifyCost(below+1)
	r.Beta = (lo + (rows-float64(below))*(hi-lo)) / plain
	if r.Drafted > 0 && r.Verify > 0 {
		// Both times are of the same rounds, so it does not matter how busy the machine was.
		round := r.Verify.Seconds() / float64(r.decoded)
		r.Delta = r.Beta * (r.Draft.Seconds() / float64(r.Drafted)) / round
	}
}

// Measured is a number that is null in JSON where it is 0: not measured.
type Measured float64

// MarshalJSON writes the number, or null.
func (m Measured) MarshalJSON() ([]byte, error) {
	if m == 0 {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, float64(m), 'g', 6, 64), nil
}

// Summary is a receipt as users read it.
type Summary struct {
	Rounds             int      `json:"rounds"`
	Drafted            int      `json:"drafted"`
	Accepted           int      `json:"accepted"`
	AcceptedByPosition []int    `json:"accepted_by_position"` // as far as guesses were made
	TokensPerRound     float64  `json:"tokens_per_round"`
	MeanDepth          float64  `json:"mean_depth"`
	Rule               string   `json:"rule"`
	Drafter            string   `json:"drafter"`
	DraftVocab         int      `json:"draft_vocab,omitempty"` // tokens that guesses were drawn among
	DraftMS            float64  `json:"draft_ms"`
	VerifyMS           float64  `json:"verify_ms"`
	Beta               Measured `json:"beta"`
	Delta              Measured `json:"delta"`
	SpeedupEstimate    Measured `json:"speedup_estimate"`

	Copied         int `json:"copied,omitempty"`          // guesses that were copied from the text
	CopiedAccepted int `json:"copied_accepted,omitempty"` // of those, the ones that held
}

// Summary works out rates. SpeedupEstimate is tokens per second with guesses as a multiple
// of those without: tokens per round over its time in plain rounds, both without the round
// that ends the prompt.
func (r *Stats) Summary() Summary {
	s := Summary{
		Rounds: r.Rounds, Drafted: r.Drafted, Accepted: r.Accepted, AcceptedByPosition: []int{},
		Rule: r.Rule.String(), Drafter: r.Drafter, DraftVocab: r.DraftVocab,
		DraftMS: milliseconds(r.Draft), VerifyMS: milliseconds(r.Verify),
		Beta: Measured(r.Beta), Delta: Measured(r.Delta),
		Copied: r.Copied, CopiedAccepted: r.CopiedAccepted,
	}
	for j, n := range r.DraftedAt {
		if n > 0 {
			s.AcceptedByPosition = append(s.AcceptedByPosition, r.AcceptedAt[j])
		}
	}
	if r.Rounds > 0 {
		s.TokensPerRound = 1 + float64(r.Accepted)/float64(r.Rounds)
		s.MeanDepth = float64(r.Drafted) / float64(r.Rounds)
	}
	if r.Beta > 0 {
		n := float64(r.decoded)
		depth := float64(r.Drafted) / n
		s.SpeedupEstimate = Measured((1 + float64(r.Accepted)/n) / (r.Beta + depth*r.Delta))
	}
	return s
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
