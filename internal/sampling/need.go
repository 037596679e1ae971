package sampling

import (
	"math"
	"slices"

	"github.com/foretoken/foretoken/internal/exactmath"
	"github.com/foretoken/foretoken/internal/topk"
)

// A Need is the part of a row of logits that a Sampler requires. Most chains read a few of the
// highest; a device need not move the rest.
type Need struct {
	Whole bool    // every logit is needed; the other fields are unused
	Vocab int     // ids from there on do not count
	Best  int     // how many of the highest logits are needed
	Also  []int32 // ids whose logits bias and penalties change, ascending
	Sum   bool    // Certainty needs the row's Sum
}

// A Row is the known part of a row of logits: the whole of it, or the logits of a Need
// and maybe more.
type Row struct {
	All []float32 // every logit; nil: the following fields are known

	IDs        []int32   // ascending: all ids with a logit of at least Low, and no others
	Logits     []float32 // theirs
	Low        float32   // -math.MaxFloat32: every number above -Inf is listed
	Sum        float32   // of exp(logit - highest logit) over the whole row, for Certainty of greedy draws; 0: not known
	Also       []int32   // the ids of Need.Also
	AlsoLogits []float32 // theirs

	Drawn bool // ID is the result of Draw, and nothing else is known
	ID    int32
}

const (
	// nearBest is how many of the highest logits are requested if those near the highest are
	// needed, whose number is not known in advance.
	nearBest = 64
	// alsoShare is the part of a row beyond which listing ids is not worth it.
	alsoShare = 128
)

// Need is the part of a row of n logits that DistOf reads, for the token that follows once the tokens
// ahead have followed the text. Also is appended to buf.
func (s *Sampler) Need(n int, ahead, buf []int32) Need {
	n = s.vocab(n)
	k, byRank := s.rank()
	if !byRank {
		return Need{Whole: true}
	}
	if k == 0 {
		k = nearBest
	}
	also, few := s.changed(buf, n, ahead)
	slices.Sort(also[len(buf):])
	need := Need{Vocab: n, Best: k, Also: slices.Compact(also[len(buf):]), Sum: s.options.Temperature == 0}
	// Some of the highest may be lowered or forbidden. If there are too many, DistOf reports it.
	need.Best += min(len(need.Also), nearBest)
	if s.constraint != nil {
		need.Best += k + 30
	}
	if !few || need.Best > (n+topk.Block-1)/topk.Block {
		return Need{Whole: true}
	}
	return need
}

// changed appends the ids below n to ids whose logits bias and penalties change, in any order.
// It gives up if there are too many.
func (s *Sampler) changed(ids []int32, n int, ahead []int32) (list []int32, few bool) {
	most := len(ids) + n/alsoShare
	for _, b := range s.biases {
		if int(b.id) < n {
			ids = append(ids, b.id)
		}
	}
	if s.text == nil {
		return ids, len(ids) <= most
	}
	s.text.extend(ahead)
	for _, e := range s.text.entries {
		if len(ids) > most {
			break
		}
		if uint32(e.id) < uint32(n) && e.near+e.said > 0 {
			ids = append(ids, e.id)
		}
	}
	s.text.retract(ahead)
	return ids, len(ids) <= most
}

// DistOf is Dist of a partly known row; ok is false if more of it is
// needed: then call it again with all of it. The result does not depend on the known part.
func (s *Sampler) DistOf(r Row, ahead []int32) (_ Dist, ok bool) {
	if r.All != nil {
		return s.Dist(r.All, ahead), true
	}
	s.inside = true
	best, ok := s.narrow(&r, ahead)
	if !ok {
		s.inside = false
		return Dist{}, false
	}
	d := s.take()
	d.pos = s.position + len(ahead)
	s.choose(d, nil, best, true)
	s.inside = false
	return d.dist(useToken), true
}

// DrawOf is Draw of DistOf, or the draw that is known of a row.
func (s *Sampler) DrawOf(r Row, ahead []int32) (id int32, ok bool) {
	if r.Drawn {
		return r.ID, true
	}
	d, ok := s.DistOf(r, ahead)
	if !ok {
		return -1, false
	}
	return s.Draw(d), true
}

// Certainty is the probability of id, which was drawn from d, the Dist of r. A greedy Dist has no
// probabilities: there it is that of the row at temperature 1, without bias, penalties and
// constraint, and 0 if the row's Sum is not known.
func (s *Sampler) Certainty(d Dist, r Row, id int32) float32 {
	switch {
	case s.options.Temperature > 0:
		return d.Prob(id)
	case r.All != nil:
		p, _ := LogProbs(r.All[:s.vocab(len(r.All))], id, 0)
		return float32(exactmath.Exp(float64(p)))
	case r.Sum == 0:
		return 0
	}
	z := float32(math.Inf(-1))
	if i, ok := slices.BinarySearch(r.IDs, id); ok {
		z = r.Logits[i]
	} else if i, ok := slices.BinarySearch(r.Also, id); ok {
		z = r.AlsoLogits[i]
	}
	top := min(topk.Max(r.Logits), math.MaxFloat32)
	return min(float32(exactmath.Exp(float64(min(z, math.MaxFloat32)-top)))/r.Sum, 1)
}

// narrow lists the known part of a row in s.scratch.keys, and the greatest key, 0 if there is
// none. It reports whether that is all that the filters may keep.
func (s *Sampler) narrow(r *Row, ahead []int32) (best uint64, ok bool) {
	k, byRank := s.rank()
	if !byRank && r.Low > -math.MaxFloat32 {
		return 0, false
	}
	w := &s.scratch
	w.keys = s.merge(w.keys[:0], r, ahead)
	w.keys = within(w.keys, s.allowed(ahead))
	best = greatest(w.keys)
	switch {
	case r.Low <= -math.MaxFloat32:
		return best, true
	case k == 0:
		return best, best > 0 && newScale(topk.Logit(best), s.options.Temperature).lowest(s.minLevel+1) >= r.Low
	}
	cut, n := uint64(topk.Order(r.Low))<<32, 0
	for _, key := range w.keys {
		if key >= cut {
			n++
		}
	}
	return best, n >= k // all unknown ids are less likely than these
}

// merge appends the keys of a row to dst, ids ascending, with bias and penalties applied as if
// ahead had been generated.
func (s *Sampler) merge(dst []uint64, r *Row, ahead []int32) []uint64 {
	add := func(z float32, id int32) {
		if z = min(z, math.MaxFloat32); z >= -math.MaxFloat32 {
			dst = append(dst, topk.Key(z, id))
		}
	}
	if s.text != nil {
		s.text.extend(ahead)
		defer s.text.retract(ahead)
	}
	at, biases := 0, s.biases
	for i, id := range r.Also {
		for ; at < len(r.IDs) && r.IDs[at] < id; at++ {
			add(r.Logits[at], r.IDs[at])
		}
		if at < len(r.IDs) && r.IDs[at] == id {
			at++
		}
		z := r.AlsoLogits[i]
		for len(biases) > 0 && biases[0].id < id {
			biases = biases[1:]
		}
		if len(biases) > 0 && biases[0].id == id {
			z += biases[0].value
		}
		if s.text != nil {
			z = s.penalize(z, s.text.find(id))
		}
		add(z, id)
	}
	for ; at < len(r.IDs); at++ {
		add(r.Logits[at], r.IDs[at])
	}
	return dst
}
