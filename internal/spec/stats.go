package spec

import "time"

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

// Speedup estimates tokens per second with speculative decoding as a multiple of those without:
// tokens per round over its time in plain rounds, both without the round that ends the prompt.
// It is 0 where what a plain round takes was not measured.
func (r *Stats) Speedup() float64 {
	if r.Beta <= 0 {
		return 0
	}
	n := float64(r.decoded)
	return (1 + float64(r.Accepted)/n) / (r.Beta + float64(r.Drafted)/n*r.Delta)
}

// MeanDepth is the mean number of drafts in a round.
func (r *Stats) MeanDepth() float64 { return float64(r.Drafted) / float64(max(r.Rounds, 1)) }
