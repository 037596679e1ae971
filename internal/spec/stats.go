package spec

import "time"

// Outcome is the result of one round for one sequence.
type Outcome struct {
	Rows     int           // fed to the model, drafts included
	Drafted  int           // drafts among them, forced ones included
	Accepted int           // drafts that became part of the text, likewise
	Forced   []bool        // by draft: it was forced, as far as some were
	Tokens   int           // added to the text; 0: nothing was verified
	Prefill  bool          // rows of a prompt were fed
	Batch    int           // sequences in the round
	Verify   time.Duration // the sequence's share of the pass
}

// forced reports whether draft j was forced.
func (o *Outcome) forced(j int) bool { return j < len(o.Forced) && o.Forced[j] }

// Count separates drafts that could have been rejected, and the accepted ones among them, from
// forced ones that became part of the text.
func (o *Outcome) Count() (drafted, accepted, forced int) {
	drafted, accepted = o.Drafted, o.Accepted
	for j := range min(len(o.Forced), o.Drafted) {
		if !o.Forced[j] {
			continue
		}
		drafted--
		if j < o.Accepted {
			accepted--
			forced++
		}
	}
	return drafted, accepted, forced
}

// Speculative calls f with the position of each draft that could have been rejected and was
// reached, that is, all before it were accepted, and whether it was accepted.
func (o *Outcome) Speculative(f func(j int, accepted bool)) {
	for j := range min(o.Drafted, o.Accepted+1, MaxDepth) {
		if !o.forced(j) {
			f(j, j < o.Accepted)
		}
	}
}

// Kept is the number of rows that the state has kept: those of rejected drafts are rolled back,
// and the last token of the text was not fed.
func (o *Outcome) Kept() int { return o.Rows - o.Drafted + max(o.Tokens-1, 0) }

// Stats is the result of speculative decoding for one sequence.
type Stats struct {
	Drafter        string
	Rule           Rule
	Rounds         int           // passes of the model that gave tokens, that over the prompt's end included
	Drafted        int           // draft tokens that could be rejected
	Accepted       int           // accepted drafts
	Forced         int           // tokens beside them that were fed as drafts because nothing else could come
	AcceptedAt     [MaxDepth]int // accepted drafts, by position
	DraftedAt      [MaxDepth]int // drafts, by position
	Copied         int           // drafts that were copied from the text
	CopiedAccepted int           // accepted ones among them
	Beside         int           // drafts of the second drafter that computes
	BesideAccepted int           // accepted ones among them
	DraftVocab     int           // draft vocabulary of the last drafts; 0: none was drawn

	// Time of its rounds after the prompt: in a batch, its share of them.
	Draft  time.Duration // spent drafting, and filling the drafter's KV cache
	Verify time.Duration // spent in passes of the model

	// Of this sequence's rounds after the prompt, in units of a plain one; 0: not measured.
	Beta  float64 // time of a pass with the mean number of drafts
	Delta float64 // time of a draft

	decoded  int // rounds after the prompt
	fed      int // drafts fed in those, forced ones included
	batchSum int // sequences in those, added up
}

// add adds one round.
func (r *Stats) add(o *Outcome, source Source) {
	if o.Tokens > 0 {
		drafted, accepted, forced := o.Count()
		r.Rounds++
		r.Drafted += drafted
		r.Accepted += accepted
		r.Forced += forced
		switch {
		case source == Beside:
			r.Beside += drafted
			r.BesideAccepted += accepted
		case !source.Computed():
			r.Copied += drafted
			r.CopiedAccepted += accepted
		}
		for j := range min(o.Drafted, MaxDepth) {
			if o.forced(j) {
				continue
			}
			r.DraftedAt[j]++
			if j < o.Accepted {
				r.AcceptedAt[j]++
			}
		}
	}
	if !o.Prefill {
		r.fed += o.Drafted
		r.Verify += o.Verify
		r.decoded++
		r.batchSum += o.Batch
	}
}

// Settle computes Beta and Delta from the costs of passes on this machine.
func (c *Controller) Settle(r *Stats) {
	r.Beta, r.Delta = 0, 0
	if r.decoded == 0 {
		return
	}
	n := int(float64(r.batchSum)/float64(r.decoded) + 0.5)
	if c.Measured(n) == 0 {
		return // a plain round was never measured
	}
	plain := c.Pass(n)
	rows := float64(n) * (1 + float64(r.fed)/float64(r.decoded))
	below := int(rows)
	lo, hi := c.Pass(below), c.Pass(below+1)
	r.Beta = (lo + (rows-float64(below))*(hi-lo)) / plain
	if r.Drafted > 0 && r.Verify > 0 {
		// Both times are of the same rounds, so it does not matter how busy the machine was.
		round := r.Verify.Seconds() / float64(r.decoded)
		r.Delta = r.Beta * (r.Draft.Seconds() / float64(r.Drafted)) / round
	}
}

// Speedup estimates tokens per second with speculative decoding as a multiple of those without:
// tokens per round over its time in plain rounds, both without the round that ends the prompt.
// It is 0 if a plain round was not measured.
func (r *Stats) Speedup() float64 {
	if r.Beta <= 0 {
		return 0
	}
	n := float64(r.decoded)
	return (1 + float64(r.Accepted+r.Forced)/n) / (r.Beta + float64(r.Drafted)/n*r.Delta)
}

// MeanDepth is the mean number of drafts in a round, without forced ones.
func (r *Stats) MeanDepth() float64 { return float64(r.Drafted) / float64(max(r.Rounds, 1)) }
