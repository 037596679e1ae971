package sampling

import (
	"math"
	"slices"

	"github.com/foretoken/foretoken/internal/topk"
)

// scratch is the filters' working memory; nothing in it outlives a call.
type scratch struct {
	keys  []uint64 // the ids still in, ascending
	spare []uint64 // keys that reach permutes
	sums  [coarseCount]uint64
}

// filter fills d with the result of the truncation steps for the row, whose maxima
// are in d.maxima and which d.mask may restrict, or for w.keys if the ids are
// listed there.
func (s *Sampler) filter(d *dist, row []float32, listed bool) {
	o := &s.options
	w := &s.scratch
	d.low = d.scale.lowest(floorLevel)
	whole := !listed // otherwise w.keys has the rest
	if listed {
		w.keys = topk.Retain(w.keys, uint64(topk.Order(d.low))<<32)
		w.best(o.TopK)
	} else if o.TopK > 0 {
		w.topK(row, d.maxima, o.TopK, d.low)
		whole = false
	}
	if o.TopP > 0 && o.TopP < 1 {
		if whole {
			w.topPOfRow(d, row, o.TopP)
		} else {
			w.topP(d.scale, o.TopP)
		}
		whole = false
	}
	if o.MinP > 0 {
		low := d.scale.lowest(s.minLevel + 1)
		if whole {
			w.keys = within(topk.Gather(w.keys[:0], row, d.maxima, low), d.mask)
		} else {
			w.keys = topk.Retain(w.keys, uint64(topk.Order(low))<<32)
		}
		whole = false
	}
	if unit(noise(stream(o.Seed, useXTC, d.pos), 0)) < o.XTCProbability {
		if whole {
			w.keys = within(topk.Gather(w.keys[:0], row, d.maxima, d.low), d.mask)
		}
		w.xtc(d.scale, o.XTCThreshold, s.exempt)
		whole = false
	}
	if whole {
		d.z = row
		return
	}
	d.list(w.keys)
}

// topK keeps the keys of the k highest logits, of those that are at least low.
func (w *scratch) topK(row, maxima []float32, k int, low float32) {
	// The k-th highest maximum bounds the k-th highest logit from below, since k
	// blocks have a logit that high.
	low, w.spare = topk.Kth(maxima, k, low, w.spare)
	w.keys = topk.Gather(w.keys[:0], row, maxima, low)
	w.best(k)
}

// best leaves the k greatest of w.keys; 0 leaves all.
func (w *scratch) best(k int) {
	if k > 0 && len(w.keys) > k {
		w.spare = append(w.spare[:0], w.keys...)
		w.keys = topk.Retain(w.keys, topk.Cut(w.spare, k))
	}
}

// topP leaves the fewest most likely of w.keys whose weights reach the share p.
func (w *scratch) topP(sc scale, p float64) {
	weigh := func(k uint64) uint64 { return weight(sc.level(topk.Logit(k))) }
	var total uint64
	for _, k := range w.keys {
		total += weigh(k)
	}
	w.spare = append(w.spare[:0], w.keys...)
	w.keys = topk.Retain(w.keys, topk.Reach(w.spare, share(p, total), weigh))
}

// topPOfRow is topP of a whole row. The sums of masses tell in which sixteenth of
// an octave the share is reached; only the ids there have to be ordered.
func (w *scratch) topPOfRow(d *dist, row []float32, p float64) {
	sc := d.scale
	goal := share(p, sc.masses(&w.sums, row, d.maxima, d.low, d.mask))
	part := uint64(0)
	for ; w.sums[part] < goal; part++ {
		goal -= w.sums[part]
	}
	w.keys = within(topk.Gather(w.keys[:0], row, d.maxima, max(d.low, sc.lowest((part+1)<<coarseShift))), d.mask)
	w.spare = w.spare[:0]
	for _, k := range w.keys {
		if sc.level(topk.Logit(k))>>coarseShift == part {
			w.spare = append(w.spare, k)
		}
	}
	weigh := func(k uint64) uint64 { return weight(sc.level(topk.Logit(k))) }
	w.keys = topk.Retain(w.keys, topk.Reach(w.spare, goal, weigh))
}

// xtc drops all keys above the least likely of those with at least the share
// threshold, except the exempt.
func (w *scratch) xtc(sc scale, threshold float64, exempt []int32) {
	var total uint64
	for _, k := range w.keys {
		total += weight(sc.level(topk.Logit(k)))
	}
	least := uint64(math.MaxUint64)
	for _, k := range w.keys {
		if float64(weight(sc.level(topk.Logit(k)))) >= threshold*float64(total) {
			least = min(least, k)
		}
	}
	kept := w.keys[:0]
	for _, k := range w.keys {
		if k <= least {
			kept = append(kept, k)
		} else if _, found := slices.BinarySearch(exempt, topk.ID(k)); found {
			kept = append(kept, k)
		}
	}
	w.keys = kept
}

// share is p, which is below 1, of the total, cut to an integer. It is not above the total, also
// where that has more than 53 bits and is rounded up: the product rounds down again.
func share(p float64, total uint64) uint64 {
	return uint64(p * float64(total))
}
