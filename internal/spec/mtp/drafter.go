// Package mtp drafts with a multi-token-prediction head, that of any family: a head is
// something that can be called (model.Head). It knows hidden rows, tokens and the draft
// vocabulary that they are drawn from. It knows no family, file or text.
package mtp

import (
	"cmp"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/sampling"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
)

// Options configure a Drafter. The zero value, but for Vocab, is the default.
type Options struct {
	Name       string  // "": mtp
	Vocab      int     // tokens, padding included
	DraftVocab int     // frequent tokens in the draft vocabulary; 0: auto (fastest), -1: all
	Taps       []int   // of the model that the rows are made of; nil: they are those of a head
	Tokens     []int32 // of the columns of the head's logits, ascending; nil: columns are tokens
	Control    []int32 // ids that are always in it: those that open and close parts of a text
}

// Drafter drafts with a head. Its KV cache of a sequence has exactly the pairs of a hidden
// state and the token after it that the target has confirmed: what it writes while it drafts
// further than one token comes from its own output and is cut off again. A model.Borrower
// has no cache: it has nothing to catch up with, and drafts from the last pair alone.
type Drafter struct {
	head  model.Head
	name  string
	taps  []int
	vocab spec.DraftVocab
	last  int  // token of the vocabulary
	lent  bool // the head reads the target's memory
	out   []spec.Draft
	catch []model.Span // of runs that only catch up and want no draft token
	spans []model.Span
	who   []int // run of each span, the deepest first
	pairs []int // true ones in each run's KV cache

	// Of the running call.
	batch  []spec.Run
	logits spec.Logits
	drawn  []draw           // of each span
	draws  [][]backend.Draw // of each call and span
}

// draw is the drafted token of a span.
type draw struct {
	id   int32 // negative: none
	prob float32
	dist sampling.Dist
	own  int // tokens that it was drawn from
}

var _ spec.VocabLimiter = (*Drafter)(nil)

// New returns a drafter that calls h. The model of h must have no other users meanwhile.
func New(h model.Head, o Options) *Drafter {
	if o.Tokens != nil {
		o.DraftVocab = -1 // the head has a vocabulary of its own
	}
	d := &Drafter{head: h, name: cmp.Or(o.Name, "mtp"), taps: o.Taps, last: o.Vocab - 1, vocab: spec.NewDraftVocab(o.Vocab, o.DraftVocab, o.Control)}
	d.logits.Tokens, d.logits.Vocab = o.Tokens, o.Vocab
	_, d.lent = h.(model.Borrower)
	return d
}

// VocabSizes are the sizes that the draft vocabulary may have.
func (d *Drafter) VocabSizes() []int { return d.vocab.VocabSizes() }

// LimitVocab sets the size of the draft vocabulary.
func (d *Drafter) LimitVocab(size int) { d.vocab.LimitVocab(size) }

// Blocks is the draft vocabulary after a text, with the given number of frequent tokens: see spec.DraftVocab.
func (d *Drafter) Blocks(frequent int, text []int32) []int32 { return d.vocab.After(frequent, text) }

// Taps implements spec.Tapper.
func (d *Drafter) Taps() []int { return d.taps }

// Name is what a user calls the head.
func (d *Drafter) Name() string { return d.name }

// Layout is the head's state of a sequence.
func (d *Drafter) Layout() state.Layout { return d.head.Layout() }

// Draft lets the runs that want no draft token catch up in one call, which is cheap. Then it
// feeds the new pairs of the others, and drafts one token of each of them at a time.
func (d *Drafter) Draft(batch []spec.Run) ([]spec.Draft, error) {
	d.out = slices.Grow(d.out[:0], len(batch))[:len(batch)]
	out := d.out
	d.catch, d.spans, d.who, d.pairs = d.catch[:0], d.spans[:0], d.who[:0], d.pairs[:0]
	for i := range batch {
		r := &batch[i]
		out[i].Cut(0)
		out[i].Vocab = 0
		if !d.lent {
			d.pairs = append(d.pairs, r.State.Len()+r.Hidden.Rows)
		}
		switch {
		case r.Hidden.Rows == 0, d.lent && r.Depth == 0:
		case r.Depth == 0:
			d.catch = append(d.catch, d.span(r))
		default:
			d.who = append(d.who, i)
		}
	}
	slices.SortStableFunc(d.who, func(a, b int) int { return batch[b].Depth - batch[a].Depth })
	for _, i := range d.who {
		d.spans = append(d.spans, d.span(&batch[i]))
	}
	if len(d.catch) > 0 {
		if _, err := d.head.Forward(d.catch, nil); err != nil {
			return nil, err
		}
	}
	if len(d.spans) == 0 {
		return out, nil
	}
	only := d.vocab.Of(batch)
	done, err := d.chained(batch, out, only)
	if !done {
		err = d.chain(batch, out, only)
	}
	// Every pass but the first has fed a draft token, also where nothing could be drawn from
	// its result.
	for i, pairs := range d.pairs {
		if s := batch[i].State; s.Len() > pairs {
			s.Truncate(pairs)
		}
	}
	return out, err
}

// span is what is new in a run.
func (d *Drafter) span(r *spec.Run) model.Span {
	if d.lent {
		at, rows := len(r.Text)-1, r.Hidden.Rows
		return model.Span{Lender: r.Target, At: at, Tokens: r.Text[at:], Want: 1, Hidden: r.Hidden.RowRange(rows-1, rows)}
	}
	tokens := r.Text[len(r.Text)-r.Hidden.Rows:]
	return model.Span{State: r.State, Tokens: tokens, Want: min(r.Depth, 1), Hidden: r.Hidden, Inputs: r.Inputs, Positions: r.Positions}
}

// chain runs the head until no run wants another token. only is the blocks of the
// vocabulary that logits are computed of.
func (d *Drafter) chain(batch []spec.Run, out []spec.Draft, only []int32) error {
	for depth := 0; len(d.spans) > 0; depth++ {
		res, err := d.head.Forward(d.spans, only)
		if err != nil {
			return err
		}
		if err := d.draw(batch, out, res); err != nil {
			return err
		}
		d.extend(batch, out, res, depth)
	}
	return nil
}

// draw draws a token for every span from the last call's result. It is the only place where
// logits are read.
func (d *Drafter) draw(batch []spec.Run, out []spec.Draft, res model.Output) error {
	d.drawn = d.drawn[:0]
	d.logits.Begin(res.Device, res.Logits)
	d.logits.Certain = true
	for j := range d.spans {
		i := d.who[j]
		d.drawn = append(d.drawn, draw{})
		d.logits.Extra = d.vocab.Foreign(&batch[i])
		d.logits.Ask(batch[i].Sampler, out[i].Tokens, 1)
	}
	d.batch = batch
	defer func() { d.batch = nil }()
	return d.logits.Resolve(d.chooseToken)
}

// chooseToken draws the token of a span, maybe beside others, and reports whether enough of its
// row is known.
func (d *Drafter) chooseToken(j int, rows []sampling.Row) (ok bool) {
	i, x := d.who[j], &d.drawn[j]
	r := &d.batch[i]
	x.own = d.vocab.Confine(&rows[0], r)
	if x.dist, ok = r.Sampler.DistOf(rows[0], d.out[i].Tokens); !ok {
		return false
	}
	if x.id = r.Sampler.Draw(x.dist); x.id >= 0 {
		x.prob = r.Sampler.Certainty(x.dist, rows[0], x.id)
	}
	if r.Dists {
		x.dist = x.dist.Detach()
	}
	return true
}

// extend adds what was drawn to the drafts, and sets up the next call for the runs that want
// another token: at most Depth, and as long as More reports true.
func (d *Drafter) extend(batch []spec.Run, out []spec.Draft, res model.Output, depth int) {
	spans, row := d.spans, 0
	d.spans = d.spans[:0]
	for j, span := range spans {
		i, x := d.who[j], d.drawn[j]
		r, draft := &batch[i], &out[i]
		row += len(span.Tokens)
		if x.id < 0 {
			continue // no number, or nothing that is allowed is in the draft vocabulary
		}
		if r.Dists {
			draft.Dists = append(draft.Dists, x.dist)
		}
		if depth < r.Known {
			x.prob = 1 // whatever the head says
		}
		draft.Tokens = append(draft.Tokens, x.id)
		draft.Probs = append(draft.Probs, x.prob)
		draft.Vocab = x.own
		if depth+1 < r.Depth && (r.More == nil || r.More(draft.Probs)) {
			n := len(d.spans)
			d.who[n] = i
			d.spans = append(d.spans, model.Span{
				State: r.State, Lender: span.Lender, At: span.At, Tokens: draft.Tokens[depth:], Want: 1, Hidden: res.Hidden.RowRange(row-1, row),
			})
		}
	}
}
