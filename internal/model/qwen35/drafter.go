package qwen35

import (
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
)

// drafter drafts with the head. Its KV cache of a sequence has exactly the pairs of a hidden
// state and the token after it that the target has confirmed: what it writes while it drafts
// further than one token comes from its own output and is cut off again.
type drafter struct {
	head  *Head
	vocab draftVocab
	out   []spec.Draft
	sizes []int        // of the draft vocabulary to choose from
	catch []model.Span // of runs that only catch up and want no draft token
	spans []model.Span
	who   []int // run of each span
	pairs []int // true ones in each run's KV cache
}

var _ spec.VocabLimiter = (*drafter)(nil)

// Drafter is the model's own drafter, nil if it has no head.
func (m *Model) Drafter() spec.Drafter {
	if m.head == nil {
		return nil
	}
	d := &drafter{head: m.head, vocab: m.draftVocab(draftVocabSize(m.cfg.vocab, m.loaded.o.DraftVocab))}
	if m.loaded.o.DraftVocab == 0 {
		d.sizes = draftVocabSizes(m.cfg.vocab)
	}
	return d
}

// VocabSizes are the sizes that the draft vocabulary may have.
func (d *drafter) VocabSizes() []int { return d.sizes }

// LimitVocab sets the size of the draft vocabulary.
func (d *drafter) LimitVocab(size int) { d.vocab.frequent = size }

// Name is what a user calls the head.
func (d *drafter) Name() string { return "mtp" }

// Layout is the head's state of a sequence.
func (d *drafter) Layout() state.Layout { return d.head.Layout() }

// Draft lets the runs that want no draft token catch up in one call, which is cheap. Then it
// feeds the new pairs of the others, and drafts one token of each of them at a time.
func (d *drafter) Draft(batch []spec.Run) ([]spec.Draft, error) {
	for len(d.out) < len(batch) {
		d.out = append(d.out, spec.Draft{})
	}
	out := d.out[:len(batch)]
	d.catch, d.spans, d.who, d.pairs = d.catch[:0], d.spans[:0], d.who[:0], d.pairs[:0]
	for i, r := range batch {
		out[i].Tokens, out[i].Dists, out[i].Vocab = out[i].Tokens[:0], out[i].Dists[:0], 0
		n := r.Hidden.Rows
		d.pairs = append(d.pairs, r.State.Len()+n)
		if n == 0 {
			continue
		}
		span := model.Span{State: r.State, Tokens: r.Text[len(r.Text)-n:], Want: min(r.Depth, 1), Hidden: r.Hidden}
		if r.Depth == 0 {
			d.catch = append(d.catch, span)
			continue
		}
		d.spans = append(d.spans, span)
		d.who = append(d.who, i)
	}
	if len(d.catch) > 0 {
		if _, err := d.head.Forward(d.catch); err != nil {
			return nil, err
		}
	}
	if len(d.spans) == 0 {
		return out, nil
	}
	d.head.only = d.vocab.of(batch)
	err := d.chain(batch, out)
	// Every pass but the first has fed a draft token, also where nothing could be drawn from
	// its result.
	for i, r := range batch {
		if r.State.Len() > d.pairs[i] {
			r.State.Truncate(d.pairs[i])
		}
	}
	return out, err
}

// chain runs the head until no run wants another token.
func (d *drafter) chain(batch []spec.Run, out []spec.Draft) error {
	for depth := 0; len(d.spans) > 0; depth++ {
		res, err := d.head.Forward(d.spans)
		if err != nil {
			return err
		}
		d.draw(batch, out, res, depth)
	}
	return nil
}

// draw draws a token for every run that wants one from the last call's result, and sets
// up the next call for those that want another.
func (d *drafter) draw(batch []spec.Run, out []spec.Draft, res model.Output, depth int) {
	spans, row := d.spans, 0
	d.spans = d.spans[:0]
	for j, span := range spans {
		i := d.who[j]
		r, draft := &batch[i], &out[i]
		row += len(span.Tokens)
		if depth >= r.Depth {
			continue
		}
		own := d.vocab.confine(res.Logits[j][0], r)
		dist := r.Sampler.Dist(res.Logits[j][0], draft.Tokens)
		id := r.Sampler.Draw(dist)
		if id < 0 {
			continue // no number, or nothing that is allowed is in the draft vocabulary
		}
		if r.Dists {
			draft.Dists = append(draft.Dists, dist.Detach())
		}
		draft.Tokens = append(draft.Tokens, id)
		draft.Vocab = own
		if depth+1 < r.Depth {
			n := len(d.spans)
			d.who[n] = i
			d.spans = append(d.spans, model.Span{
				State: r.State, Tokens: draft.Tokens[depth:], Want: 1, Hidden: res.Hidden.RowRange(row-1, row),
			})
		}
	}
}
