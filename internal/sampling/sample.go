// Package sampling turns logits into a distribution and a distribution into a token.
//
// A Sampler holds one request's options and the part of its text that the penalties
// need. It knows token ids, logits and positions, but no text,
// models, batches or drafting. Its parts serve speculative decoding:
// distributions at positions ahead, and draws that can be repeated.
//
// The steps and their order are fixed: ids that a constraint forbids are removed; logit
// bias, repetition, frequency and presence penalties; temperature; top-k, top-p,
// min-p, XTC. Each step sees the result of the previous one, as a distribution that sums to
// one. Equal logits rank by id, lowest first. A NaN logit is never chosen, +Inf counts
// as the largest float32, and an id 2^43 times less likely than the best (1e-13
// of its probability after temperature) counts as impossible.
//
// A draw is the Gumbel-max over the distribution with noise that is a function of
// seed, position and id alone (see randomVersion): the token does not depend on the number
// and order of draws, and two distributions drawn
// from at one position, a draft's and its target's, tend to agree.
package sampling

import (
	"math"
	"math/bits"
	"slices"

	"github.com/foretoken/foretoken/internal/exactmath"
	"github.com/foretoken/foretoken/internal/topk"
	"github.com/foretoken/foretoken/sample"
)

// A Sampler chooses the tokens of one request. It must not be used by two
// goroutines at once; its Dists share its memory.
type Sampler struct {
	options  sample.Options
	minLevel uint64  // the last level min-p keeps
	exempt   []int32 // from XTC, ascending
	biases   []bias
	text     *text // nil without penalties
	position int
	// constraint is nil where every id may come next.
	constraint sample.Constraint
	inside     bool // a call has begun and not returned

	dists   []*dist
	live    int // Dists made since the last Accept
	row     []float32
	scratch scratch
}

// New returns a Sampler at position 0, after the prompt. Negative ids of the
// prompt are not tokens: penalties ignore them. It keeps neither the prompt nor
// the slices and maps of o. The error names an option out of range.
func New(o sample.Options, prompt []int32) (*Sampler, error) {
	if err := validate(&o); err != nil {
		return nil, err
	}
	if o.RepetitionPenalty == 0 {
		o.RepetitionPenalty = 1
	}
	s := &Sampler{options: o}
	if o.MinP > 0 {
		s.minLevel = uint64(min(-exactmath.Log(o.MinP)*log2e*octave, floorLevel-1))
	}
	s.exempt = slices.Sorted(slices.Values(o.XTCExempt))
	for _, id := range sortedIDs(o.LogitBias) {
		s.biases = append(s.biases, bias{id, o.LogitBias[id]})
	}
	s.options.XTCExempt, s.options.LogitBias = nil, nil
	switch {
	case o.RepetitionPenalty != 1:
		s.text = newText(o.RepetitionWindow, prompt)
	case o.FrequencyPenalty != 0 || o.PresencePenalty != 0:
		s.text = newText(0, nil)
	}
	if o.Constraint != nil {
		s.constraint = o.Constraint()
	}
	return s, nil
}

// Accept makes id part of the text and all Dists of s invalid.
func (s *Sampler) Accept(id int32) {
	s.inside = true
	s.position++
	if s.text != nil {
		s.text.push(id)
	}
	if s.constraint != nil {
		s.constraint.Accept(id)
	}
	s.release()
	s.inside = false
}

// Broken reports that a call of Accept or Dist has panicked, as a Constraint may: the Sampler
// must not be used any more. It attributes a panic to one of several sequences.
func (s *Sampler) Broken() bool { return s.inside }

// Dist is the distribution of the token that follows once the tokens ahead have
// followed the text: Dist(l, [a b]) equals Dist(l, nil) after Accept(a), Accept(b).
// logits has one number for each id, and is not modified. See Dist for how long
// the result is valid and whether it reads logits later.
func (s *Sampler) Dist(logits []float32, ahead []int32) Dist {
	s.inside = true
	d := s.take()
	d.pos = s.position + len(ahead)
	row, best, listed := s.hold(d, s.adjust(logits[:s.vocab(len(logits))], ahead), s.allowed(ahead))
	s.choose(d, row, best, listed)
	s.inside = false
	return d.dist(useToken)
}

// vocab is how many of n logits count.
func (s *Sampler) vocab(n int) int {
	n = min(n, maxVocab)
	if s.options.Vocab > 0 {
		n = min(n, s.options.Vocab)
	}
	return n
}

// choose fills d with the result for a row, or for s.scratch.keys if the ids are listed there.
// best is the greatest key of them, 0 if there is none.
func (s *Sampler) choose(d *dist, row []float32, best uint64, listed bool) {
	switch {
	case best == 0: // nothing to choose from
	case s.options.Temperature == 0:
		s.scratch.keys = append(s.scratch.keys[:0], best)
		d.list(s.scratch.keys)
	default:
		d.scale = newScale(topk.Logit(best), s.options.Temperature)
		s.filter(d, row, listed)
		if d.id == nil && len(s.row) > 0 && &d.z[0] == &s.row[0] {
			s.row, d.row = d.row, s.row // the row is a copy: let d have it
		}
	}
}

// Draw is the token that the noise of d's position chooses from d, a Dist of s; -1
// if d is empty. The same d always gives the same token.
func (s *Sampler) Draw(d Dist) int32 {
	at := d.open()
	switch at.len() {
	case 0:
		return -1
	case 1:
		return at.tokenAt(0)
	}
	noises := stream(s.options.Seed, d.use, at.pos)
	if at.p != nil {
		return at.race(noises)
	}
	return at.gumbelMax(noises)
}

// Coin is true with probability p: the acceptance coin of d's position, one coin
// for all p. It is true if p is 1 or more and false if p is not a number.
func (s *Sampler) Coin(d Dist, p float32) bool {
	return unit(noise(stream(s.options.Seed, useAccept, d.open().pos), 0)) < float64(p)
}

// gumbelMax is the id with the highest sum of score and noise; of equals, the
// lowest.
//
// Few ids need their noise worked out. Let h be an id's random word and u its
// unit. As -log u ≥ 1-u, the noise -log(-log u) is at most -log(1-u); and if h
// begins with m ones, m ≤ 52, then 1-u ≥ 2^-(m+1), so the noise is at most
// (m+1)·ln 2. An id with score t can therefore only match the best sum so far, B,
// if (m+1)·ln 2 ≥ B-t. With t the highest score of a block that rules out nearly
// all ids by comparing h to a constant, and whole blocks if even m = 52 falls
// short. Scores lie in [-30, 0] and noise in [-4, 37], so rounding errors stay
// below 1e-13, and gateSlack covers them.
func (d *dist) gumbelMax(noises uint64) int32 {
	start := d.best
	if d.mask == nil {
		start = first(d.z, d.maxima, topk.Max(d.maxima)) // not scale.top, which XTC may have removed
	}
	best := d.tokenAt(start)
	bestSum := d.scale.score(d.z[start]) + gumbel(noise(noises, best))
	var buffer [topk.Block]int32
	for b, m := range d.maxima {
		if m < d.low {
			continue
		}
		limit, ok := gate(bestSum - d.scale.score(m))
		if !ok {
			continue
		}
		hits := buffer[:0]
		if lo, hi := b*topk.Block, min((b+1)*topk.Block, len(d.z)); d.id == nil {
			hits = premixed(hits, noises, limit, lo, hi)
		} else {
			hits = premixedOf(hits, d.id, noises, limit, lo, hi)
		}
		for _, i := range hits {
			z := d.z[i]
			if !(z >= d.low) || d.mask != nil && d.mask[b]>>(i%topk.Block)&1 == 0 {
				continue
			}
			id := d.tokenAt(int(i))
			h := noise(noises, id)
			t := d.scale.score(z)
			if float64(float64(bits.LeadingZeros64(^h)+1)*math.Ln2)+gateSlack < bestSum-t {
				continue
			}
			sum := t + gumbel(h)
			if sum > bestSum || sum == bestSum && id < best {
				best, bestSum = id, sum
			}
		}
	}
	return best
}

const gateSlack = 1e-9

// gate is the least random word, rounded down to a multiple of 2^33, whose noise
// may reach g; ok is false if none does. gumbelMax has the proof.
func gate(g float64) (limit uint64, ok bool) {
	ones := float64((g-gateSlack)*log2e) - 1
	switch {
	case ones > 52:
		return 0, false
	case ones <= 0:
		return 0, true
	}
	return math.MaxUint64 << (64 - min(uint(math.Ceil(ones)), 31)), true
}

// race is gumbelMax for given probabilities. The sum log p - log(-log u) is
// highest where (-log u)/p is lowest, which needs one logarithm instead of three,
// and none if the bound 1-u already loses.
func (d *dist) race(noises uint64) int32 {
	best, lowest := d.id[0], math.Inf(1)
	for i, id := range d.id {
		u := unit(noise(noises, id))
		if (1-u)*(1-gateSlack) > lowest*d.p[i] {
			continue
		}
		if x := -exactmath.Log(u) / d.p[i]; x < lowest {
			best, lowest = id, x
		}
	}
	return best
}
