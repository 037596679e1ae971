package doctor

import (
	"fmt"
	"math"

	"github.com/foretoken/foretoken/internal/measure"
)

// Limits of a sound model. The weakest sound head we know, that of a model with 21 million
// parameters, has two thirds of its first draft tokens accepted on the model's own text; one
// whose norms were shifted twice may still have a quarter.
const (
	goodRate   = 0.6  // acceptance of the first draft token from which nothing needs to be looked for
	soundRate  = 0.45 // below it something is wrong
	randomRate = 0.08 // no better than drafting frequent tokens
	coarseBits = 4    // of a matrix of the head, at which acceptance may suffer
)

// judge turns measurements into words.
func (r *Report) judge() {
	r.text()
	switch {
	case len(r.Findings) > 0: // acceptance on damaged text means nothing
	case len(r.Trials) == 0:
		r.headless()
	default:
		r.head()
	}
	if r.Drafter != nil && r.Perplexity <= r.perplexityLimit() {
		r.drafter()
	}
	r.judgeImages()
	if r.Healthy = len(r.Findings) == 0; !r.Healthy {
		return
	}
	if r.Verdict == "" {
		r.sound()
	}
	if r.Drafter != nil {
		r.Verdict += " " + r.Drafter.sound()
	}
}

// find adds a finding; the first is the verdict.
func (r *Report) find(remedy, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if len(r.Findings) == 0 {
		r.Verdict = what
	}
	r.Findings = append(r.Findings, Problem{What: what, Remedy: remedy})
}

// perplexityLimit is the perplexity of a model that knows nothing.
func (r *Report) perplexityLimit() float64 { return float64(r.Model.Vocab) / 8 }

// text judges the model without its head: a trained one finds a text far less surprising than a
// draw from all tokens.
func (r *Report) text() {
	if !(r.Perplexity <= r.perplexityLimit()) {
		r.find("fetch the original and convert it again: foretoken convert --model ORIGINAL --out DIR",
			"The perplexity on plain text is %.0f with a vocabulary of %d tokens: the weights are random, damaged, or read with the wrong norms.", r.Perplexity, r.Model.Vocab)
	}
}

// headless judges a model without a head.
func (r *Report) headless() {
	if r.Model.Head.Promised > 0 {
		r.find(injectRemedy(r.Name), "The model works, but its multi-token-prediction head is missing: config.json promises one, and a converter has dropped its tensors.")
		return
	}
	if r.Verdict = "The model works. It has no multi-token-prediction head"; r.Drafter == nil {
		r.Verdict += ", so draft tokens come only from repetitions in the text"
	}
	r.Verdict += "."
}

// head judges the head by the best way to run it.
func (r *Report) head() {
	used, best := r.used(), bestOf(r.Trials)
	now := used.Rates[0]
	n := float64(r.Positions)
	broken := now*n+math.Sqrt(n) < soundRate*n
	swap := replaceRemedy(r.Name)
	bits := 0
	for _, p := range r.Model.Parts {
		if p.Name == "mtp head" {
			bits = p.Bits
		}
	}
	switch {
	case best != nil && best.Kind == "hidden":
		r.find(best.cause, "The head gets the wrong hidden state: %.0f %% of its first draft tokens are accepted, but %.0f %% with the %s.", 100*now, 100*best.Rates[0], best.Name)
	case best != nil:
		r.find(swap, "The head was damaged by a conversion: %s. %.0f %% of its first draft tokens are accepted, and %.0f %% with the damage reverted.", best.cause, 100*now, 100*best.Rates[0])
	case now < randomRate:
		r.find(swap, "The head drafts at random (%.1f %% of its first draft tokens are accepted): it was never trained, or belongs to another model.", 100*now)
	case now < goodRate && bits <= coarseBits:
		r.find("quantize the head less: foretoken convert --model ORIGINAL --out DIR --mtp-bits 8",
			"The head has too few bits: with %d bits only %.0f %% of its first draft tokens are accepted; a sound head has more than %.0f %%.", bits, 100*now, 100*goodRate)
	case broken:
		r.find(swap, "The head has an unknown kind of damage: %.0f %% of its first draft tokens are accepted; a sound head has more than %.0f %%.", 100*now, 100*goodRate)
	}
}

// bestOf is a way to run a head or a drafter that makes it sound and is clearly better than the used
// one: by more than chance, and by a relevant amount. Nil if there is none.
func bestOf(trials []trial) (best *trial) {
	for i := range trials {
		t := &trials[i]
		if t.Used || t.Kind == "vocabulary" || t.Rates[0] < soundRate || measure.Gain(t.Rates) < measure.Gain(t.before)+0.02 {
			continue
		}
		// By chance, half of the differing positions would favor each.
		if sure := float64(t.won-t.lost) > 3*math.Sqrt(float64(t.won+t.lost)); !sure {
			continue
		}
		if best == nil || t.Rates[0] > best.Rates[0] {
			best = t
		}
	}
	return best
}

// sound is the verdict on a head that works.
func (r *Report) sound() {
	now := r.used().Rates[0]
	line := fmt.Sprintf("The model and its head are intact: %.0f %% of the head's first draft tokens are accepted.", 100*now)
	if now < goodRate {
		line = fmt.Sprintf("The head works, but its acceptance is lower than usual: %.0f %% of its first draft tokens.", 100*now)
	}
	if r.Best.Depth == 0 {
		r.Verdict = line + " Speculative decoding is not faster than plain decoding on this machine."
		return
	}
	r.Verdict = fmt.Sprintf("%s With %s at a time, the expected speed on this machine is %.2f times that of plain decoding.",
		line, counted(r.Best.Depth, "draft token", "draft tokens"), r.Best.Speedup)
}
