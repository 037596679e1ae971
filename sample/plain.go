package sample

import (
	"cmp"
	"math"

	"github.com/foretoken/foretoken/internal/topk"
)

// A Plain is a draw that looks at a row of logits and nothing else: no bias, penalty or
// constraint. A device that has the row can make it.
//
// Its filters are coarse. Ids are counted by level, a sixteenth of an octave of probability, and
// all ids of a level count as equally likely: they stay or go together. Without filters the draw
// is that of a Sampler; with filters it nearly always is.
type Plain struct {
	Temperature float64 // 0: the most likely id
	Noise       uint64  // of the position (see RandomVersion: stream)
	Vocab       int     // ids from there on do not count; 0: all do
	TopK        int     // as in Options
	TopP        float64 // as in Options
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
	counts [topk.Levels]int // ids of each level
}

// Draw is the id that p chooses from a row of logits, -1 if the row has no number, and its
// probability among the ids that the filters leave: that of temperature 1 if p has none.
func (w *Drawer) Draw(p Plain, logits []float32) (id int32, prob float32) {
	w.s.options = Options{Temperature: cmp.Or(p.Temperature, 1), Vocab: p.Vocab}
	d := w.s.Dist(logits, nil).open()
	defer w.s.release()
	if d.len() == 0 {
		return -1, 0
	}
	clear(w.counts[:])
	for _, z := range d.z {
		if level := d.scale.level(z); level < floorLevel {
			w.counts[level>>coarseShift]++
		}
	}
	last, kept := p.cut(&w.counts)
	if p.Temperature == 0 {
		id = int32(first(d.z, d.maxima, topk.Max(d.maxima)))
	} else {
		d.low = d.scale.lowest(uint64(last+1) << coarseShift)
		id = d.gumbelMax(p.Noise)
	}
	level := d.scale.level(d.z[id]) >> coarseShift
	return id, float32(float64(topk.LevelWeight(int(level))) / float64(kept))
}

// cut is the last level that the filters leave, and the weight of all ids up to it.
func (p *Plain) cut(counts *[topk.Levels]int) (last int, kept uint64) {
	most, goal := math.MaxInt, uint64(math.MaxUint64)
	if p.TopK > 0 {
		most = p.TopK
	}
	if p.TopP > 0 && p.TopP < 1 {
		total, left := uint64(0), most
		for i, n := range counts {
			n = min(n, left)
			left -= n
			total += uint64(n) * topk.LevelWeight(i)
		}
		goal = share(p.TopP, total)
	}
	for i, n := range counts {
		last = i
		most -= n
		kept += uint64(n) * topk.LevelWeight(i)
		if most <= 0 || kept >= goal || i+1 == p.Levels {
			break
		}
	}
	return last, kept
}
