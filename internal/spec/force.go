package spec

import (
	"slices"

	"github.com/foretoken/foretoken/internal/sampling"
)

// MaxForced is the maximum number of tokens of a draft that a constraint forces. They cannot be
// rejected, but each is a row of a pass that other sequences wait for.
const MaxForced = MaxCopy

// Force completes a draft with the tokens that the sampler's constraint forces: if only one
// may come next it becomes the draft's, at the draft's beginning, inside and behind its end. Tokens that the
// constraint does not allow are cut off, and so are those after one of the ids in stop. The draft
// has at most `most` tokens afterwards.
//
// Forced tokens need no drafter and say nothing about one. Those before all others
// are certainly accepted.
func (d *Draft) Force(s *sampling.Sampler, stop []int32, most int) {
	d.Forced = d.Forced[:0]
	forced := 0
	for i := range most {
		id, ok := s.Forced(d.Tokens[:i])
		if ok = ok && forced < MaxForced; ok {
			forced++
		}
		switch {
		case ok && (i == len(d.Tokens) || d.Tokens[i] != id):
			d.Cut(i)
			d.Tokens = append(d.Tokens, id)
		case i == len(d.Tokens):
			return
		case !s.Allows(d.Tokens[:i], d.Tokens[i]):
			d.Cut(i)
			return
		}
		d.Forced = append(d.Forced, ok)
		if slices.Contains(stop, d.Tokens[i]) {
			most = i + 1
			break
		}
	}
	d.Cut(most)
}

// Certain is the number of tokens at the draft's beginning that are forced and not in stop: they
// become part of the text, and the text goes on after them.
func (d *Draft) Certain(stop []int32) int {
	for i, id := range d.Tokens {
		if i >= len(d.Forced) || !d.Forced[i] || slices.Contains(stop, id) {
			return i
		}
	}
	return len(d.Tokens)
}

// Cut drops all but the first n tokens.
func (d *Draft) Cut(n int) {
	d.Tokens = d.Tokens[:min(n, len(d.Tokens))]
	d.Dists = d.Dists[:min(n, len(d.Dists))]
	d.Probs = d.Probs[:min(n, len(d.Probs))]
	d.Forced = d.Forced[:min(n, len(d.Forced))]
}
