package sampling

import (
	"slices"

	"github.com/foretoken/foretoken/internal/topk"
)

// maxLive is how many Dists of one Sampler may be in use at once: draft and target
// of a round of speculation at the greatest depth, their differences, and some more.
const maxLive = 64

// A Dist is the distribution of the token at one position: the result of truncation,
// or the whole vocabulary without truncation. Greedy is a point. It may be
// empty, if no logit was a number above -Inf.
//
// A Dist belongs to its Sampler and is valid until that Sampler's next Accept, or
// until 64 newer Dists were made of it, Minus included. Using it later is an
// error of the caller and panics. An untruncated Dist reads its logits:
// they must not change as long as it is used, or be copied by Detach.
type Dist struct {
	at    *dist
	stamp uint64 // at.stamp when this was made
	use   use    // which noise Draw takes
}

// dist is the memory of a Dist, which is reused.
type dist struct {
	owner *Sampler
	stamp uint64
	pos   int

	// The result: the logits, and their ids in ascending order; id is nil if
	// z is the whole row, and then logits below low are excluded.
	z   []float32
	id  []int32
	low float32
	// p is the probabilities instead, after Minus.
	p []float64

	// mask, if not nil, is the remaining part of a whole row, one word for each block. The
	// maxima are then no less than those of the remaining ids, and best is the index of their
	// highest logit.
	mask []uint64
	best int

	scale  scale
	maxima []float32 // of z, by blocks
	total  uint64    // weight of all; 0: not computed yet

	logits []float32 // backs z for a list
	ids    []int32
	row    []float32 // backs z for a whole row of our own
	probs  []float64
	words  []uint64 // backs mask
}

// take returns unused memory and makes the Dists that used it before invalid.
func (s *Sampler) take() *dist {
	i := s.live % maxLive
	if i == len(s.dists) {
		s.dists = append(s.dists, &dist{owner: s})
	}
	s.live++
	d := s.dists[i]
	d.stamp++
	d.z, d.id, d.p, d.mask, d.total = nil, nil, nil, nil, 0
	d.maxima = d.maxima[:0]
	return d
}

// release makes all Dists invalid.
func (s *Sampler) release() {
	for _, d := range s.dists[:min(s.live, len(s.dists))] {
		d.stamp++
	}
	s.live = 0
}

func (d *dist) dist(u use) Dist { return Dist{at: d, stamp: d.stamp, use: u} }

func (d Dist) open() *dist {
	if d.at == nil {
		panic("sample: use of a zero Dist")
	}
	if d.stamp != d.at.stamp {
		panic("sample: Dist used after Accept, or after 64 newer ones")
	}
	return d.at
}

// list makes d the listed keys, ids ascending.
func (d *dist) list(keys []uint64) {
	d.z, d.id = slices.Grow(d.logits[:0], len(keys)), slices.Grow(d.ids[:0], len(keys))
	for _, k := range keys {
		d.z = append(d.z, topk.Logit(k))
		d.id = append(d.id, topk.ID(k))
	}
	d.logits, d.ids = d.z, d.id
	d.mask = nil
	d.maxima = topk.Maxima(d.maxima[:0], d.z)
}

// len counts entries; those of a whole row may have no probability.
func (d *dist) len() int {
	if d.p != nil {
		return len(d.p)
	}
	return len(d.z)
}

// tokenAt is the id of entry i.
func (d *dist) tokenAt(i int) int32 {
	if d.id == nil {
		return int32(i)
	}
	return d.id[i]
}

// probAt is the probability of entry i.
func (d *dist) probAt(i int) float64 {
	switch {
	case d.p != nil:
		return d.p[i]
	case len(d.z) == 1:
		return 1
	case d.mask != nil && d.mask[i/topk.Block]>>(i%topk.Block)&1 == 0:
		return 0
	}
	if d.total == 0 {
		d.total = d.scale.masses(&d.owner.scratch.sums, d.z, d.maxima, d.low, d.mask)
	}
	return likelihood(d.scale.level(d.z[i])) / float64(d.total)
}

// prob is the probability of id.
func (d *dist) prob(id int32) float64 {
	i := int(id)
	if d.id != nil {
		var found bool
		if i, found = slices.BinarySearch(d.id, id); !found {
			return 0
		}
	}
	if i < 0 || i >= d.len() {
		return 0
	}
	return d.probAt(i)
}

// Point is the certainty that id follows once ahead more tokens have followed the text:
// the distribution of a draft token that was not drawn.
func (s *Sampler) Point(id int32, ahead int) Dist {
	d := s.take()
	d.pos = s.position + ahead
	s.scratch.keys = append(s.scratch.keys[:0], topk.Key(0, id))
	d.list(s.scratch.keys)
	return d.dist(useToken)
}

// Prob is the probability of id, 0 for an id that truncation removed or that the
// vocabulary does not have. The first call for an untruncated Dist sums up the row.
func (d Dist) Prob(id int32) float32 {
	return float32(d.open().prob(id))
}

// Minus is max(0, d-q), normalized: the distribution after a draft drawn from q
// was rejected (Leviathan, Kalman and Matias, 2023). If q is nowhere below d, it is
// d itself. In both cases Draw takes separate noise, independent of the noise
// of the draft. Both must be of the same Sampler and position.
func (d Dist) Minus(q Dist) Dist {
	r := d.open().owner.take()
	a, b := d.open(), q.open()
	r.pos, r.id, r.p = a.pos, r.ids[:0], r.probs[:0]
	var total float64
	for i := range a.len() {
		id := a.tokenAt(i)
		if x := a.probAt(i) - b.prob(id); x > 0 {
			r.id = append(r.id, id)
			r.p = append(r.p, x)
			total += x
		}
	}
	r.ids, r.probs = r.id, r.p
	if len(r.p) == 0 {
		return Dist{at: a, stamp: a.stamp, use: useResidual}
	}
	for i := range r.p {
		r.p[i] /= total
	}
	return r.dist(useResidual)
}

// Detach copies the logits that d reads, if it does, so that the caller may
// overwrite them. It returns d.
func (d Dist) Detach() Dist {
	at := d.open()
	if at.id == nil {
		at.row = append(at.row[:0], at.z...)
		at.z = at.row
	}
	return d
}
