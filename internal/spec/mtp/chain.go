package mtp

import (
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
)

// chained is chain in one call of the head, if the head and its device can do that and a device can
// make the draws of every run: then there is no exchange with the host between two tokens of a
// draft, and Run.More is not called. Without filters the tokens are the same. done is false if
// nothing was done.
func (d *Drafter) chained(batch []spec.Run, out []spec.Draft, only []int32) (done bool, err error) {
	head, ok := d.head.(model.Chainer)
	if !ok {
		return false, nil
	}
	if d.draws, ok = d.vocab.Draws(d.draws, &d.logits, batch, d.who, func(r *spec.Run) int { return r.Depth }); !ok {
		return false, nil
	}
	drawn, ok, err := head.Chain(d.spans, only, d.draws)
	if !ok || err != nil {
		return ok, err
	}
	for k, list := range drawn {
		for j, x := range list {
			i := d.who[j]
			if len(out[i].Tokens) < k || x.ID < 0 {
				continue // nothing follows a row without a number
			}
			out[i].Tokens, out[i].Probs = append(out[i].Tokens, x.ID), append(out[i].Probs, x.Prob)
			out[i].Vocab = d.vocab.Size(&batch[i])
		}
	}
	return true, nil
}
