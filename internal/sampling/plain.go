package sampling

import (
	"cmp"
	"math"
	"math/bits"

	"github.com/foretoken/foretoken/internal/exactmath"
	"github.com/foretoken/foretoken/internal/topk"
	"github.com/foretoken/foretoken/sample"
)

// A Plain is a draw that depends only on a row of logits: no bias, penalty or
// constraint. A device that has the row can make it.
//
// Its filters are coarse. Ids are counted by level, a sixteenth of an octave of probability, and
// those of a level stay or go together: the filters keep the ids of exact ones, and the rest of
// the last level.
type Plain struct {
	Temperature float64 // 0: the most likely id
	Noise       uint64  // of the position (see randomVersion: stream)
	Vocab       int     // ids from there on do not count; 0: all do
	TopK        int     // as in sample.Options
	TopP        float64 // as in sample.Options
	Levels      int     // how many levels min-p leaves; 0: all
}

// Plain is the draw of the token that follows ahead more tokens after the text. ok is false if
// the draw that Draw makes of the Dist there depends on more than the row.
func (s *Sampler) Plain(ahead int) (p Plain, ok bool) {
	o := &s.options
	p = Plain{Temperature: o.Temperature, Noise: stream(o.Seed, useToken, s.position+ahead), Vocab: o.Vocab}
	if o.Temperature > 0 {
		p.TopK, p.TopP = o.TopK, o.TopP
		if o.MinP > 0 {
			p.Levels = int(s.minLevel>>coarseShift) + 1
		}
	}
	return p, (o.XTCProbability == 0 || o.Temperature == 0) && len(s.biases) == 0 && s.text == nil && s.constraint == nil
}

// A Drawer makes plain draws. The zero value is one; one goroutine uses it at a time.
type Drawer struct {
	s      Sampler
	counts [topk.Levels]int    // ids of each level
	shares [topk.Levels]uint64 // the sum of their shares of its weight
}

// A Drawn is the result of a Drawer.
type Drawn struct {
	ID    int32   // -1 if the row has no number
	Prob  float32 // of ID among the ids that the filters keep: at temperature 1 if the draw is greedy
	Exact bool    // exact filters give the same ID
}

// Draw is the id that p chooses from a row of logits.
func (w *Drawer) Draw(p Plain, logits []float32) Drawn {
	w.s.options = sample.Options{Temperature: cmp.Or(p.Temperature, 1), Vocab: p.Vocab}
	d := w.s.Dist(logits, nil).open()
	defer w.s.release()
	if d.len() == 0 {
		return Drawn{ID: -1}
	}
	clear(w.counts[:])
	clear(w.shares[:])
	for _, z := range d.z {
		if level, share := d.scale.share(z); level < topk.Levels {
			w.counts[level]++
			w.shares[level] += share
		}
	}
	end := w.cut(&p)
	var id int32
	if p.Temperature == 0 {
		id = int32(first(d.z, d.maxima, topk.Max(d.maxima)))
	} else {
		d.low = d.scale.lowest(uint64(end.last+1) << coarseShift)
		id = d.gumbelMax(p.Noise)
	}
	level, share := d.scale.share(d.z[id])
	return Drawn{ID: id, Prob: float32(float64(mass(level, share)) / float64(end.kept)), Exact: level < end.partial}
}

// share is the level of a logit, topk.Levels if it has none, and 2^19 times its weight relative to
// that of the level.
func (s scale) share(z float32) (level int, share uint64) {
	x := (s.top - float64(z)) * s.steps
	if !(x < floorLevel) {
		return topk.Levels, 0
	}
	level = int(x) >> coarseShift
	down := float64(x-float64(level<<coarseShift)) * (-math.Ln2 / octave)
	return level, uint64(exactmath.Exp32(float32(down)) * (1 << 19))
}

// mass is the weight of shares of a level.
func mass(level int, shares uint64) uint64 {
	hi, _ := bits.Mul64(shares<<23, topk.LevelWeights[level%16]>>(level/16)<<21)
	return hi
}

// A cut is where filters end: the last level of which they may leave something, the first of
// which they may leave something out, and the weight of all ids up to the last.
type cut struct {
	last, partial int
	kept          uint64
}

// cut finds where the filters of p end. The relative error of the weights is less than 2^-16. The result of
// top-k is not refined further.
func (w *Drawer) cut(p *Plain) cut {
	c := cut{last: topk.Levels - 1, partial: topk.Levels}
	most, low, high := math.MaxInt, uint64(math.MaxUint64), uint64(math.MaxUint64)
	if p.TopK > 0 {
		most, c.partial = p.TopK, 0
	}
	if p.TopP > 0 && p.TopP < 1 {
		total, left := uint64(0), most
		for i, n := range w.counts {
			if left >= n {
				total += mass(i, w.shares[i])
			} else {
				total += mass(i, uint64(left)<<19)
			}
			left -= min(n, left)
		}
		goal := share(p.TopP, total)
		low, high = goal-min(goal, total>>16), goal+total>>16
	}
	for i, n := range w.counts {
		most -= n
		c.kept += mass(i, w.shares[i])
		least := i+1 == p.Levels && p.Levels < topk.Levels
		if c.kept >= low || least {
			c.partial = min(c.partial, i)
		}
		if most <= 0 || c.kept >= high || least {
			c.last = i
			break
		}
	}
	return c
}
