package spec

import (
	"strconv"
	"time"
)

// Outcome is what one round did for one sequence.
type Outcome struct {
	Rows     int           // fed to the model, drafts included
	Drafted  int           // drafts among them
	Accepted int           // drafts that became part of the text
	Tokens   int           // added to the text; 0: nothing was verified
	Prefill  bool          // rows of a prompt were fed
	Batch    int           // sequences in the round
	Verify   time.Duration // the sequence's share of the pass
}

// Kept is the number of rows that the state has kept: those of rejected drafts are rolled back,
// and the last token of the text was not fed.
func (o *Outcome) Kept() int { return o.Rows - o.Drafted + max(o.Tokens-1, 0) }

// Stats is what speculative decoding did for one sequence.
type Stats struct {
	Drafter        string
	Rule           Rule
	Rounds         int           // passes of the model that gave tokens, that over the prompt's end included
	Drafted        int           // draft tokens
	Accepted       int           // accepted drafts
	AcceptedAt     [MaxDepth]int // accepted drafts, by position
	DraftedAt      [MaxDepth]int // drafts, by position
	Copied         int           // drafts that were copied from the text
	CopiedAccepted int           // of those, the accepted ones
	DraftVocab     int           // draft vocabulary of the last drafts; 0: none was drawn

	// Time of its rounds after the prompt: in a batch, its share of them.
	Draft  time.Duration // spent drafting, and filling the drafter's KV cache
	Verify time.Duration // spent in passes of the model

	// Of this sequence's rounds after the prompt, in units of a plain one; 0: not measured.
	Beta  float64 // time of a pass with the mean number of drafts
	Delta float64 // time of a draft

	decoded  int // rounds after the prompt
	batchSum int // sequences in those, added up
}

// add takes in one round.
func (r *Stats) add(o *Outcome, source Source) {
	if o.Tokens > 0 {
		r.Rounds++
		r.Drafted += o.Drafted
		r.Accepted += o.Accepted
		if source != Computed {
			r.Copied += o.Drafted
			r.CopiedAccepted += o.Accepted
		}
		for j := range o.Drafted {
			r.DraftedAt[j]++
			if j < o.Accepted {
				r.AcceptedAt[j]++
			}
		}
	}
	if !o.Prefill {
		r.Verify += o.Verify
		r.decoded++
		r.batchSum += o.Batch
	}
}

// Settle works out Beta and Delta from what passes have cost on this machine.
func (c *Controller) Settle(r *Stats) {
	r.Beta, r.Delta = 0, 0
	if r.decoded == 0 {
		return
	}
	n := int(float64(r.batchSum)/float64(r.decoded) + 0.5)
	if c.pass.cells[min(n, maxRows)].n == 0 {
		return // what a plain round takes was never seen
	}
	plain := c.passCost(n)
	rows := float64(n) * (1 + float64(r.Drafted)/float64(r.decoded))
	below := int(rows)
	lo, hi := c.passCost(below), c.passCost(below+1)
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

// Summary is Stats as users read them.
type Summary struct {
	Rounds             int      `json:"rounds"`
	Drafted            int      `json:"drafted"`
	Accepted           int      `json:"accepted"`
	AcceptedByPosition []int    `json:"accepted_by_position"` // as far as there were drafts
	TokensPerRound     float64  `json:"tokens_per_round"`
	MeanDepth          float64  `json:"mean_depth"`
	Rule               string   `json:"rule"`
	Drafter            string   `json:"drafter"`
	DraftVocab         int      `json:"draft_vocab,omitempty"` // tokens that drafts were drawn from
	DraftMS            float64  `json:"draft_ms"`
	VerifyMS           float64  `json:"verify_ms"`
	Beta               Measured `json:"beta"`
	Delta              Measured `json:"delta"`
	SpeedupEstimate    Measured `json:"speedup_estimate"`

	Copied         int `json:"copied,omitempty"`          // drafts that were copied from the text
	CopiedAccepted int `json:"copied_accepted,omitempty"` // of those, the accepted ones
}

// Summary works out rates. SpeedupEstimate is tokens per second with speculative decoding as a
// multiple of those without: tokens per round over its time in plain rounds, both without the
// round that ends the prompt.
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
