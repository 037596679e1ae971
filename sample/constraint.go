package sample

import (
	"math"
	"math/bits"
)

// A Constraint says which ids may come next, such as those that keep a text in the form of
// a grammar. It follows the text of one Sampler and belongs to it.
type Constraint interface {
	// Allowed is the set of ids that may follow once the tokens ahead have followed the
	// text: bit id%64 of word id/64, and no id beyond the words. nil allows everything. The
	// Sampler is done with it before it makes another call.
	Allowed(ahead []int32) []uint64
	// Accept makes id part of the text.
	Accept(id int32)
}

// allowed is the set of ids that may come next; nil: all.
func (s *Sampler) allowed(ahead []int32) []uint64 {
	if s.constraint == nil {
		return nil
	}
	return s.constraint.Allowed(ahead)
}

// hold works out the maxima of a row and leaves out what is not in the mask, nil for all: it
// returns the row to go on with, or that s.scratch.keys lists all that the filters may keep.
func (s *Sampler) hold(d *dist, row []float32, mask []uint64) (held []float32, listed bool) {
	if mask != nil && s.scratch.few(row, mask) {
		return row, true
	}
	d.maxima = maxima(d.maxima, row)
	if math.IsInf(float64(plainMax(d.maxima)), 1) {
		s.row = finite(s.row[:0], row)
		row = s.row
		d.maxima = maxima(d.maxima[:0], row)
	}
	if mask == nil {
		return row, false
	}
	if s.ranked(d, row, mask) {
		return row, true
	}
	row = s.blot(row, mask)
	d.maxima = maxima(d.maxima[:0], row)
	return row, false
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
				w.keys = append(w.keys, key(z, int32(id)))
			}
		}
	}
	return true
}

// ranked lists all keys in the mask that the filters may keep, if the filters need no more
// than the highest logits of a row: more of these are taken than are needed, and those
// outside of the mask dropped.
func (s *Sampler) ranked(d *dist, row []float32, mask []uint64) bool {
	o, w := &s.options, &s.scratch
	byShare := o.TopP > 0 && o.TopP < 1
	k := o.TopK
	switch {
	case o.Temperature == 0:
		k = 1
	case k > 0:
	case o.MinP > 0 && !byShare:
		if !w.highest(row, d.maxima, 1, mask) || len(w.keys) == 0 {
			return false
		}
		low := newScale(highestOf(w.keys), o.Temperature).lowest(s.minLevel + 1)
		w.keys = within(gather(w.keys[:0], row, d.maxima, low), mask)
		return true
	default:
		return false
	}
	return w.highest(row, d.maxima, k, mask)
}

// highest lists at least the k highest of the keys in the mask, if that can be had by
// looking at a part of the row.
func (w *scratch) highest(row, maxima []float32, k int, mask []uint64) bool {
	for take := 2*k + 30; take < len(row)/4; take *= 4 {
		w.topK(row, maxima, take, -math.MaxFloat32)
		n := len(w.keys)
		if w.keys = within(w.keys, mask); len(w.keys) >= k || n < take {
			return true
		}
	}
	return false
}

// within keeps the keys in the mask, in their order.
func within(keys []uint64, mask []uint64) []uint64 {
	kept := keys[:0]
	for _, k := range keys {
		if id := uint32(keyID(k)); int(id>>6) < len(mask) && mask[id>>6]>>(id&63)&1 != 0 {
			kept = append(kept, k)
		}
	}
	return kept
}

// greatest is the greatest of some keys.
func greatest(keys []uint64) (top uint64) {
	for _, k := range keys {
		top = max(top, k)
	}
	return top
}

// highestOf is the highest logit of some keys, -Inf if there are none.
func highestOf(keys []uint64) float32 {
	if len(keys) == 0 {
		return float32(math.Inf(-1))
	}
	return keyLogit(greatest(keys))
}

// blot returns the row with -Inf for every id outside of the mask: a copy in s.row.
func (s *Sampler) blot(row []float32, mask []uint64) []float32 {
	if len(row) > 0 && (len(s.row) != len(row) || &s.row[0] != &row[0]) {
		s.row = append(s.row[:0], row...)
	}
	gone := float32(math.Inf(-1))
	for i := 0; i*64 < len(s.row); i++ {
		block := s.row[i*64 : min(i*64+64, len(s.row))]
		var word uint64
		if i < len(mask) {
			word = mask[i]
		}
		for out := ^word; out != 0; out &= out - 1 {
			if j := bits.TrailingZeros64(out); j < len(block) {
				block[j] = gone
			}
		}
	}
	return s.row
}
