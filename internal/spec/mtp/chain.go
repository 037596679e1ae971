package mtp

import (
	"slices"

	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
)

// chained is chain in one call of the head, if the head and its device can do that and a device can
// make the draws of every run: then there is no exchange with the host between two tokens of a
// draft, and Run.More is not called. Without filters the tokens are the same. done is false if
// nothing was done.
func (d *Drafter) chained(batch []spec.Run, out []spec.Draft, only []int32) (done bool, err error) {
	head, ok := d.head.(model.Chainer)
	if !ok || d.logits.Tokens != nil || !d.plan(batch) {
		return false, nil
	}
	drawn, ok, err := head.Chain(d.spans, only, d.draws)
	if !ok || err != nil {
		return ok, err
	}
	for _, list := range drawn {
		for j, x := range list {
			i := d.who[j]
			if d.drawn[j].id < 0 || x.ID < 0 {
				d.drawn[j].id = -1
				continue
			}
			out[i].Tokens, out[i].Probs = append(out[i].Tokens, x.ID), append(out[i].Probs, x.Prob)
			out[i].Vocab = d.vocab.Size(&batch[i])
		}
	}
	return true, nil
}

// plan sets the draws of all tokens, for the spans in order of depth, the deepest first. It reports
// false if a device could not make them: a run draws in another way or needs distributions.
func (d *Drafter) plan(batch []spec.Run) bool {
	for _, i := range d.who {
		r := &batch[i]
		if _, ok := r.Sampler.Plain(0); !ok || r.Dists {
			return false
		}
	}
	depth := batch[d.who[0]].Depth
	d.draws = slices.Grow(d.draws[:0], depth)[:depth]
	d.drawn = d.drawn[:0]
	for k := range d.draws {
		d.draws[k] = d.draws[k][:0]
	}
	for _, i := range d.who {
		d.drawn = append(d.drawn, draw{})
		first, own := d.vocab.Own(&batch[i])
		for k := range batch[i].Depth {
			p, _ := batch[i].Sampler.Plain(k)
			how := spec.PlainDraw(p)
			how.First, how.Own = first, own
			d.draws[k] = append(d.draws[k], how)
		}
	}
	return true
}
