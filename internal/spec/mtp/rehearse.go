package mtp

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
)

var _ spec.Rehearser = (*Drafter)(nil)

// manyRuns is up to how many runs any number of new rows is rehearsed. More than four for each are rare: the more runs
// there are, the shallower are their drafts.
const manyRuns = 8

// Rehearse implements spec.Rehearser: the calls of heads that catch up, of those that draft a token from any
// number of new rows, and of those that continue from draws on the device. A text adds some blocks to the draft
// vocabulary, or none.
func (d *Drafter) Rehearse(p *state.Pool, hidden backend.Tensor, usual, runs int) error {
	if d.lent { // there is no memory to lend yet
		return nil
	}
	x := rehearsal{d: d, pool: p, hidden: hidden, tokens: make([]int32, hidden.Rows)}
	x.forward(hidden.Rows, 0, nil)
	for n := min(runs*spec.Backlog, hidden.Rows); n > usual; n -= spec.Backlog {
		x.forward(n, 0, nil)
	}
	for n := range usual {
		x.forward(n+1, 0, nil)
	}
	for _, text := range [][]int32{{int32(d.last)}, nil} {
		only := d.vocab.After(d.vocab.Frequent(), text)
		for want := min(runs, usual); want > 0; want-- {
			x.chain(want, only)
			for n := want; want <= manyRuns && n <= min(want*(1+spec.MaxDepth), max(2*(1+spec.MaxDepth), 4*want), usual); n++ {
				x.forward(n, want, only)
			}
		}
	}
	return x.err
}

// rehearsal makes calls whose drafts are not used.
type rehearsal struct {
	d      *Drafter
	pool   *state.Pool
	hidden backend.Tensor
	tokens []int32
	err    error // the first
}

// spans are n sequences with rows new ones each, until done is called.
func (x *rehearsal) spans(n, rows, want int) (spans []model.Span, done func()) {
	for range n {
		s, err := x.pool.Open(x.d.Layout())
		if err != nil {
			x.err = err
			break
		}
		spans = append(spans, model.Span{State: s, Tokens: x.tokens[:rows], Want: want, Hidden: x.hidden.RowRange(0, rows)})
	}
	return spans, func() {
		for _, s := range spans {
			s.State.Close()
		}
	}
}

// forward is a call over rows, of which some are drafted from.
func (x *rehearsal) forward(rows, want int, only []int32) {
	if x.err != nil {
		return
	}
	spans, done := x.spans(1, rows, want)
	defer done()
	if x.err == nil {
		_, x.err = x.d.head.Forward(spans, only)
	}
}

// chain is two tokens for each of n sequences in one call.
func (x *rehearsal) chain(n int, only []int32) {
	head, ok := x.d.head.(model.Chainer)
	if !ok || x.err != nil {
		return
	}
	spans, done := x.spans(n, 1, 1)
	defer done()
	if x.err == nil {
		draws := make([]backend.Draw, n)
		_, _, x.err = head.Chain(spans, only, [][]backend.Draw{draws, draws})
	}
}
