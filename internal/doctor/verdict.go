package doctor

import (
	"fmt"
	"math"
)

// What a sound model shows. The weakest sound head we know, that of a model with 21 million
// parameters, is right at the first position in two thirds of its own text; one whose norms
// were shifted twice may still be in a quarter.
const (
	goodRate   = 0.6  // of first guesses that are right: nothing needs to be looked for
	soundRate  = 0.45 // below it something is wrong
	randomRate = 0.08 // no better than naming frequent tokens
	coarseBits = 4    // of a matrix of the head, at which its guesses may suffer
)

// judge turns measurements into words.
func (r *Report) judge() {
	r.text()
	switch {
	case len(r.Findings) > 0: // what a head says about damaged text means nothing
	case len(r.Trials) == 0:
		r.headless()
	default:
		r.head()
	}
	r.Healthy = len(r.Findings) == 0
	if r.Verdict == "" && r.Healthy {
		r.pays()
	}
}

// find adds a finding; the first is the verdict.
func (r *Report) find(remedy, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if r.Verdict == "" {
		r.Verdict = what
	}
	r.Findings = append(r.Findings, Problem{What: what, Remedy: remedy})
}

// text judges the backbone: one that has learned anything finds a text far less surprising
// than a draw among all tokens.
func (r *Report) text() {
	if limit := float64(r.Network.Vocab) / 8; r.Perplexity > limit || math.IsNaN(r.Perplexity) {
		r.find("fetch the original and convert it again: foretoken convert --model ORIGINAL --out DIR",
			"The model does not know its language: its perplexity on plain text is %.0f, of %d tokens. The weights are random, damaged, or read with the wrong norms.", r.Perplexity, r.Network.Vocab)
	}
}

// headless judges a model without a head.
func (r *Report) headless() {
	if r.Network.Head.Promised > 0 {
		r.find(injectRemedy(r.Name), "The model works, but its multi-token-prediction head is gone: config.json promises one, and a converter has dropped its tensors.")
		return
	}
	r.Verdict = "The model works. It has no multi-token-prediction head, so it gives one token at a time; --draft ngram guesses from repetitions in the text."
}

// head judges the head by the best way to run it.
func (r *Report) head() {
	used, best := r.used(), r.best()
	now := used.Rates[0]
	n := float64(r.Positions)
	broken := now*n+math.Sqrt(n) < soundRate*n
	swap := replaceRemedy(r.Name)
	bits := 0
	for _, p := range r.Network.Parts {
		if p.Name == "mtp head" {
			bits = p.Bits
		}
	}
	switch {
	case best != nil && best.Kind == "hidden":
		r.find(best.cause, "The head is fed the wrong hidden state: %.0f %% of its first guesses are right, and %.0f %% with the %s.", 100*now, 100*best.Rates[0], best.Name)
	case best != nil:
		r.find(swap, "The head was damaged by a conversion: %s. %.0f %% of its first guesses are right, and %.0f %% once that is undone.", best.cause, 100*now, 100*best.Rates[0])
	case now < randomRate:
		r.find(swap, "The head guesses at random (%.1f %% of its first guesses are right): it was never trained, or belongs to another model.", 100*now)
	case now < goodRate && bits <= coarseBits:
		r.find("quantize the head less: foretoken convert --model ORIGINAL --out DIR --mtp-bits 8",
			"The head is quantized too coarsely: with %d bits only %.0f %% of its first guesses are right, where a sound head gets more than %.0f %%.", bits, 100*now, 100*goodRate)
	case broken:
		r.find(swap, "The head is damaged in a way we do not know: %.0f %% of its first guesses are right, where a sound head gets more than %.0f %%.", 100*now, 100*goodRate)
	}
}

// best is a way to run the head that makes it sound and is clearly better than the way it is
// run: by more than chance, and by enough to matter. Nil if there is none.
func (r *Report) best() *Trial {
	var best *Trial
	used := r.used()
	for i := range r.Trials {
		t := &r.Trials[i]
		if t.Used || t.Kind == "vocabulary" || t.Rates[0] < soundRate || t.Rates[0] < used.Rates[0]+0.02 {
			continue
		}
		// Of the positions where the two differ, half would go either way by chance.
		if sure := float64(t.won-t.lost) > 3*math.Sqrt(float64(t.won+t.lost)); !sure {
			continue
		}
		if best == nil || t.Rates[0] > best.Rates[0] {
			best = t
		}
	}
	return best
}

// pays is the verdict on a head that works.
func (r *Report) pays() {
	now := r.used().Rates[0]
	sound := fmt.Sprintf("The model and its head are sound: %.0f %% of the head's first guesses are right.", 100*now)
	if now < goodRate {
		sound = fmt.Sprintf("The head works, but is right less often than most: with %.0f %% of its first guesses.", 100*now)
	}
	if r.Best.Depth == 0 {
		r.Verdict = sound + " Guessing does not pay on this machine."
		return
	}
	r.Verdict = fmt.Sprintf("%s Guessing %s at a time is expected to give %.2f times the speed of plain decoding on this machine.",
		sound, counted(r.Best.Depth, "token", "tokens"), r.Best.Speedup)
}
