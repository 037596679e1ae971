package block

import (
	"cmp"
	"math"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/exactmath"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/sampling"
)

// candidates are the tokens that a selector chooses among: those with the highest logits of every row, found for all rows
// together.
type candidates struct {
	top    int
	asks   []backend.Ask
	ids    []int32   // top of each row, ascending; a row with fewer repeats the first
	logits []float32 // theirs
	counts []int     // of each row
	last   []int     // candidate that was drawn last for each span
	list   []candidate
	scores []float32
}

type candidate struct {
	id    int32
	logit float32
}

// begin finds the candidates of all rows and hands them to the selector.
func (c *candidates) begin(d *Drafter, s model.Selector, res model.Output) error {
	c.top = s.Candidates()
	c.asks, c.ids, c.logits, c.counts, c.last = c.asks[:0], c.ids[:0], c.logits[:0], c.counts[:0], c.last[:0]
	var runs []int // of each row
	for j := 0; d.computed(j) > 0; j++ {
		runs = append(runs, d.who[:d.computed(j)]...)
	}
	for range d.spans {
		c.last = append(c.last, 0)
	}
	for _, i := range runs {
		r := &d.batch[i]
		p, _ := r.Sampler.Plain(0)
		c.asks = append(c.asks, backend.Ask{Cols: p.Vocab, K: c.top + d.vocab.Foreign(r)})
	}
	answers, err := res.Device.Top(res.Logits, c.asks)
	if err != nil {
		return err
	}
	for row := range answers {
		a, r := &answers[row], &d.batch[runs[row]]
		known := sampling.Row{IDs: a.IDs, Logits: a.Logits}
		d.vocab.Confine(&known, r)
		c.add(known)
	}
	return s.Select(c.ids)
}

// add takes in the candidates of the next row: of equals the lower ids.
func (c *candidates) add(row sampling.Row) {
	c.list = c.list[:0]
	for i, id := range row.IDs {
		c.list = append(c.list, candidate{id, row.Logits[i]})
	}
	slices.SortFunc(c.list, func(a, b candidate) int { return cmp.Or(cmp.Compare(b.logit, a.logit), cmp.Compare(a.id, b.id)) })
	c.list = c.list[:min(c.top, len(c.list))]
	slices.SortFunc(c.list, func(a, b candidate) int { return cmp.Compare(a.id, b.id) })
	c.counts = append(c.counts, len(c.list))
	for len(c.list) < c.top {
		first := candidate{logit: float32(math.Inf(-1))}
		if len(c.list) > 0 {
			first = c.list[0]
		}
		c.list = append(c.list, first)
	}
	for _, x := range c.list {
		c.ids, c.logits = append(c.ids, x.id), append(c.logits, x.logit)
	}
}

// draw draws a token for each span, from the row of logits from row on.
func (c *candidates) draw(d *Drafter, s model.Selector, row int) {
	for k := range d.drawn {
		if d.ended[k] {
			d.drawn[k].id = -1
			continue
		}
		at, n := (row+k)*c.top, c.counts[row+k]
		ids := c.ids[at : at+n]
		c.scores = c.scores[:0]
		for i := range ids {
			c.scores = append(c.scores, c.logits[at+i]+s.Score(row+k, i, c.last[k]))
		}
		sum := float32(0)
		for _, x := range c.scores {
			sum += float32(exactmath.Exp(float64(x - slices.Max(c.scores))))
		}
		// Penalties are applied to what is listed as changed: all of them may be.
		known := sampling.Row{IDs: ids, Logits: c.scores, Low: -math.MaxFloat32, Sum: sum, Also: ids, AlsoLogits: c.scores}
		d.chooseFrom(k, known, d.vocab.Size(&d.batch[d.who[k]]))
		if at, ok := slices.BinarySearch(ids, d.drawn[k].id); ok {
			c.last[k] = at
		}
	}
}
