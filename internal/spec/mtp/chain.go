package mtp

import (
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
)

// chained is chain in one call of the head, where the head and its device can do that and every
// run draws in a way that a device can: then the host is not asked between two tokens of a
// draft. The tokens are the same. done is false if nothing was done.
func (d *Drafter) chained(batch []spec.Run, out []spec.Draft, only []int32) (done bool, err error) {
	head, ok := d.head.(model.Chainer)
	if !ok {
		return false, nil
	}
	draws := d.plan(batch)
	if draws == nil {
		return false, nil
	}
	ids, ok, err := head.Chain(d.spans, only, draws)
	if !ok || err != nil {
		return ok, err
	}
	for j, i := range d.who {
		for depth := 0; depth < len(ids) && ids[depth][j] >= 0; depth++ {
			out[i].Tokens = append(out[i].Tokens, ids[depth][j])
			out[i].Vocab = d.vocab.size(&batch[i])
		}
	}
	return true, nil
}

// plan is how all tokens are drawn, more than one of every span. It is nil if a device could not
// do it: where a run draws in another way, wants distributions, has another depth than the
// others, or a draft vocabulary of its own.
func (d *Drafter) plan(batch []spec.Run) [][]backend.Draw {
	depth := batch[d.who[0]].Depth
	d.draws = slices.Grow(d.draws[:0], depth)[:depth]
	draws := d.draws
	for k := range draws {
		draws[k] = draws[k][:0]
	}
	for _, i := range d.who {
		r := &batch[i]
		if r.Depth != depth || depth < 2 || r.Dists || d.vocab.foreign(r) > 0 {
			return nil
		}
		for k := range draws {
			p, ok := r.Sampler.Plain(k)
			if !ok {
				return nil
			}
			draws[k] = append(draws[k], backend.Draw{Cols: p.Vocab, Temperature: p.Temperature, Noise: p.Noise})
		}
	}
	return draws
}
