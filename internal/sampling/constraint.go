package sampling

import (
	"math"
	"math/bits"
	"slices"

	"github.com/foretoken/foretoken/internal/topk"
)

// allowed is the set of ids that may come next; nil: all.
func (s *Sampler) allowed(ahead []int32) []uint64 {
	if s.constraint == nil {
		return nil
	}
	return s.constraint.Allowed(ahead)
}

// Forced is the only id that the constraint allows once the tokens ahead have followed the text:
// Draw gives it for any logits that are numbers. ok is false if there is
// no such id.
func (s *Sampler) Forced(ahead []int32) (id int32, ok bool) {
	if s.constraint == nil {
		return 0, false
	}
	s.inside = true
	id, ok = single(s.constraint.Allowed(ahead))
	s.inside = false
	return id, ok && int(id) < s.vocab(maxVocab)
}

// Allows reports whether the constraint leaves id once the tokens ahead have followed the text.
func (s *Sampler) Allows(ahead []int32, id int32) bool {
	s.inside = true
	mask := s.allowed(ahead)
	s.inside = false
	return mask == nil || id >= 0 && int(id>>6) < len(mask) && mask[id>>6]>>(id&63)&1 != 0
}

// single is the only id in a mask; ok is false if there are more or none.
func single(mask []uint64) (id int32, ok bool) {
	for i, word := range mask {
		if word == 0 {
			continue
		}
		if ok || word&(word-1) != 0 {
			return 0, false
		}
		id, ok = int32(i*64+bits.TrailingZeros64(word)), true
	}
	return id, ok
}

// hold computes the maxima of a row and applies the mask, nil for all. It returns the row
// to continue with, restricted by d.mask, or that s.scratch.keys lists all ids that the filters may
// keep; and the greatest key, 0 if there is none.
func (s *Sampler) hold(d *dist, row []float32, mask []uint64) (held []float32, best uint64, listed bool) {
	w := &s.scratch
	if mask != nil && w.few(row, mask) {
		return row, greatest(w.keys), true
	}
	row, top := s.measure(d, row)
	if mask == nil {
		if top >= -math.MaxFloat32 {
			id := 0
			if s.options.Temperature == 0 { // only greedy requests need it
				id = first(row, d.maxima, top)
			}
			best = topk.Key(top, int32(id))
		}
		return row, best, false
	}
	k, byRank := s.rank()
	w.highest(row, d.maxima, max(k, 1), mask)
	best = greatest(w.keys)
	if byRank {
		if k == 0 && best > 0 { // min-p alone
			low := newScale(topk.Logit(best), s.options.Temperature).lowest(s.minLevel + 1)
			w.keys = within(topk.Gather(w.keys[:0], row, d.maxima, low), mask)
		}
		return row, best, true
	}
	d.words = slices.Grow(d.words[:0], len(d.maxima))[:len(d.maxima)]
	clear(d.words[copy(d.words, mask):])
	d.mask, d.best = d.words, int(topk.ID(best))
	return row, best, false
}

// rank is the number of the highest logits that the filters need; 0 is those near the highest. ok
// is false if they need the whole row.
func (s *Sampler) rank() (k int, ok bool) {
	o := &s.options
	switch {
	case o.Temperature == 0:
		return 1, true
	case o.TopK > 0:
		return o.TopK, true
	}
	return 0, o.MinP > 0 && (o.TopP == 0 || o.TopP == 1)
}

// measure works out the maxima of a row. It returns the row, with the largest number for
// +Inf, and the highest of all.
func (s *Sampler) measure(d *dist, row []float32) (measured []float32, top float32) {
	d.maxima = topk.Maxima(d.maxima[:0], row)
	if top = topk.Max(d.maxima); math.IsInf(float64(top), 1) {
		s.row = finite(s.row[:0], row)
		row, top = s.row, math.MaxFloat32
		d.maxima = topk.Maxima(d.maxima[:0], row)
	}
	return row, top
}

// fewShare is the part of a row below which the ids in a mask are looked at one by one.
const fewShare = 16

// few lists the keys of the ids in the mask, if they are few.
func (w *scratch) few(row []float32, mask []uint64) bool {
	n := 0
	for _, word := range mask {
		n += bits.OnesCount64(word)
	}
	if n*fewShare > len(row) {
		return false
	}
	w.keys = w.keys[:0]
	for i, word := range mask {
		for ; word != 0; word &= word - 1 {
			id := i*64 + bits.TrailingZeros64(word)
			if id >= len(row) {
				return true
			}
			if z := min(row[id], math.MaxFloat32); z >= -math.MaxFloat32 {
				w.keys = append(w.keys, topk.Key(z, int32(id)))
			}
		}
	}
	return true
}

// highest lists at least the k highest of the keys in the mask, all of them if they are fewer:
// it takes more than needed, and drops those outside of the mask.
func (w *scratch) highest(row, maxima []float32, k int, mask []uint64) {
	for take := 2*k + 30; ; take *= 4 {
		w.topK(row, maxima, take, -math.MaxFloat32)
		n := len(w.keys)
		if w.keys = within(w.keys, mask); len(w.keys) >= k || n < take {
			return
		}
	}
}

// within keeps the keys in the mask, nil for all, in their order.
func within(keys []uint64, mask []uint64) []uint64 {
	if mask == nil {
		return keys
	}
	kept := keys[:0]
	for _, k := range keys {
		if id := uint32(topk.ID(k)); int(id>>6) < len(mask) && mask[id>>6]>>(id&63)&1 != 0 {
			kept = append(kept, k)
		}
	}
	return kept
}

// greatest is the greatest of some keys, 0 if there are none.
func greatest(keys []uint64) (top uint64) {
	for _, k := range keys {
		top = max(top, k)
	}
	return top
}

// blot copies a block into held, with a logit of weight zero for ids outside of the
// word of the mask.
func (s scale) blot(held *[topk.Block]float32, block []float32, word uint64) []float32 {
	copied := held[:copy(held[:], block)]
	// A number just below those with a weight, unless the scale is extreme: it takes
	// the same branches in the sum as most others, where -Inf would take another one each time.
	gone := float32(s.top - 1.25*floorLevel/s.steps)
	if x := (s.top - float64(gone)) * s.steps; !(x > floorLevel && x < 1<<62) {
		gone = float32(math.Inf(-1))
	}
	for out := ^word; out != 0; out &= out - 1 {
		if j := bits.TrailingZeros64(out); j < len(copied) {
			copied[j] = gone
		}
	}
	return copied
}
