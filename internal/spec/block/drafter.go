// Package block drafts with block drafters, which compute all draft tokens of a round in one pass: a drafter is something that
// can be called (model.Block). It knows rows, tokens and the draft vocabulary. It knows no kind of drafter, file or text.
package block

import (
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/sampling"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
)

// Options configure a Drafter. The zero value, but for Vocab, is the default.
type Options struct {
	Vocab      int     // tokens, padding included
	DraftVocab int     // frequent tokens in the draft vocabulary; 0: auto (fastest), -1: all
	Taps       []int   // of the model that the rows are made of
	Tokens     []int32 // of the columns of the drafter's logits, ascending; nil: columns are tokens
	Control    []int32 // ids that are always in the draft vocabulary: those that open and close parts of a text
}

// Drafter drafts with a block drafter. Its KV cache of a sequence has the rows of the text that the target has processed, and
// nothing else. If it was fed all of them, it is a function of the text alone.
type Drafter struct {
	block model.Block
	taps  []int
	vocab spec.DraftVocab
	out   []spec.Draft

	// Of the running call.
	batch  []spec.Run
	rows   []model.Span // that are new
	spans  []model.Span // of blocks
	who    []int        // run of each span, the deepest first
	before []int32      // token before the next draft of each span
	ended  []bool       // nothing more is drafted for a span
	drawn  []drawn      // of each span
	logits spec.Logits
	draws  [][]backend.Draw // of each draft and span
	choice candidates
}

// drawn is a draft token.
type drawn struct {
	id   int32 // negative: none
	prob float32
	dist sampling.Dist
	own  int // tokens that it was drawn from
}

var (
	_ spec.VocabLimiter = (*Drafter)(nil)
	_ spec.Blocker      = (*Drafter)(nil)
)

// New returns a drafter that calls b, whose model is not used meanwhile.
func New(b model.Block, o Options) *Drafter {
	if o.Tokens != nil {
		o.DraftVocab = -1 // the drafter has a vocabulary of its own
	}
	d := &Drafter{block: b, taps: o.Taps, vocab: spec.NewDraftVocab(o.Vocab, o.DraftVocab, o.Control)}
	d.logits.Tokens, d.logits.Vocab = o.Tokens, o.Vocab
	return d
}

// VocabSizes are the sizes that the draft vocabulary may have.
func (d *Drafter) VocabSizes() []int { return d.vocab.VocabSizes() }

// LimitVocab sets the size of the draft vocabulary.
func (d *Drafter) LimitVocab(size int) { d.vocab.LimitVocab(size) }

// Taps implements spec.Tapper.
func (d *Drafter) Taps() []int { return d.taps }

// Name is what a user calls the drafter.
func (d *Drafter) Name() string { return "block" }

// Drafts implements spec.Blocker.
func (d *Drafter) Drafts() int { return d.block.Drafts() }

// Layout is the drafter's state of a sequence.
func (d *Drafter) Layout() state.Layout { return d.block.Layout() }

// Draft appends what is new in each run to its context, and then drafts for the runs that want draft tokens, in one pass. A run
// may want fewer tokens than a block has. More is not asked: a token less saves nothing here.
func (d *Drafter) Draft(batch []spec.Run) ([]spec.Draft, error) {
	d.out = slices.Grow(d.out[:0], len(batch))[:len(batch)]
	d.rows, d.spans, d.who = d.rows[:0], d.spans[:0], d.who[:0]
	for i := range batch {
		r := &batch[i]
		d.out[i].Cut(0)
		d.out[i].Vocab = 0
		if r.Hidden.Rows > 0 {
			d.rows = append(d.rows, model.Span{State: r.State, Hidden: r.Hidden, Positions: r.Positions})
		}
		if r.Hidden.Rows > 0 && r.Depth > 0 { // behind the last row is the last token of the text
			d.who = append(d.who, i)
		}
	}
	if len(d.rows) > 0 {
		if err := d.block.Append(d.rows); err != nil {
			return nil, err
		}
	}
	if len(d.who) == 0 {
		return d.out, nil
	}
	slices.SortStableFunc(d.who, func(a, b int) int { return batch[b].Depth - batch[a].Depth })
	for _, i := range d.who {
		r := &batch[i]
		d.spans = append(d.spans, model.Span{State: r.State, Tokens: r.Text[len(r.Text)-1:], Want: d.size(r)})
	}
	d.batch = batch
	defer func() { d.batch = nil }()
	res, err := d.block.Forward(d.spans, d.vocab.Of(batch))
	if err != nil {
		return nil, err
	}
	done, err := d.drawOnDevice()
	if !done && err == nil {
		err = d.draw(res)
	}
	if err == nil {
		err = d.trust()
	}
	return d.out, err
}

// drawOnDevice is draw without an exchange with the host between two tokens, if the device can do that for every run.
// Without filters the tokens are the same. done is false if nothing was done.
func (d *Drafter) drawOnDevice() (done bool, err error) {
	var ok bool
	if d.draws, ok = d.vocab.Draws(d.draws, &d.logits, d.batch, d.who, d.size); !ok {
		return false, nil
	}
	lists, ok, err := d.block.Draw(d.draws)
	if !ok || err != nil {
		return ok, err
	}
	d.begin()
	for j, list := range lists {
		d.drawn = d.drawn[:0]
		for k, x := range list {
			d.drawn = append(d.drawn, drawn{id: x.ID, prob: x.Prob, own: d.vocab.Size(&d.batch[d.who[k]])})
		}
		d.take(j)
	}
	return true, nil
}

// begin sets the last tokens of texts as those before the first drafts.
func (d *Drafter) begin() {
	d.before, d.ended = d.before[:0], d.ended[:0]
	for i := range d.spans {
		d.before, d.ended = append(d.before, d.spans[i].Tokens[0]), append(d.ended, false)
	}
}

// size is the number of draft tokens that are computed for a run, maybe more than it wants.
func (d *Drafter) size(r *spec.Run) int { return d.block.Size(min(r.Depth, d.block.Drafts())) }

// draw draws the tokens of all runs, one of each after another.
func (d *Drafter) draw(res model.Output) error {
	d.begin()
	selector, selects := d.block.(model.Selector)
	if selects {
		if err := d.choice.begin(d, selector, res); err != nil {
			return err
		}
	}
	row := 0
	for j := 0; ; j++ {
		n := 0
		for n < len(d.who) && d.batch[d.who[n]].Depth > j && d.spans[n].Want > j {
			n++
		}
		if n == 0 {
			break
		}
		d.drawn = slices.Grow(d.drawn[:0], n)[:n]
		clear(d.drawn)
		var err error
		if selects {
			d.choice.draw(d, selector, row)
		} else if err = d.block.Follow(j, d.before[:n]); err == nil {
			err = d.step(model.Output{Device: res.Device, Logits: res.Logits.RowRange(row, row+n)})
		}
		if err != nil {
			return err
		}
		d.take(j)
		row += d.computed(j)
	}
	return nil
}

// computed is how many spans, the first, have more than j computed drafts.
func (d *Drafter) computed(j int) int {
	n := 0
	for n < len(d.spans) && d.spans[n].Want > j {
		n++
	}
	return n
}

// step draws from one row of logits of each span.
func (d *Drafter) step(res model.Output) error {
	d.logits.Begin(res.Device, res.Logits)
	d.logits.Certain = true
	for k := range d.drawn {
		r := &d.batch[d.who[k]]
		d.logits.Extra = d.vocab.Foreign(r)
		d.logits.Ask(r.Sampler, d.out[d.who[k]].Tokens, 1)
	}
	return d.logits.Resolve(d.chooseToken)
}

// chooseToken draws the token of a span, maybe beside others, and reports whether enough of its row is known.
func (d *Drafter) chooseToken(k int, rows []sampling.Row) bool {
	i := d.who[k]
	own := d.vocab.Confine(&rows[0], &d.batch[i])
	return d.chooseFrom(k, rows[0], own)
}

// chooseFrom draws the token of a span from a row of own tokens.
func (d *Drafter) chooseFrom(k int, row sampling.Row, own int) (ok bool) {
	i, x := d.who[k], &d.drawn[k]
	r := &d.batch[i]
	if x.dist, ok = r.Sampler.DistOf(row, d.out[i].Tokens); !ok {
		return false
	}
	if x.own, x.id = own, r.Sampler.Draw(x.dist); x.id >= 0 {
		x.prob = r.Sampler.Certainty(x.dist, row, x.id)
	}
	if r.Dists {
		x.dist = x.dist.Detach()
	}
	return true
}

// take adds what was drawn as draft j to the drafts. After a row without a number nothing is drafted for a span.
func (d *Drafter) take(j int) {
	for k, x := range d.drawn {
		i := d.who[k]
		if d.ended[k] = d.ended[k] || x.id < 0; d.ended[k] {
			continue
		}
		r, draft := &d.batch[i], &d.out[i]
		if j >= r.Depth {
			continue
		}
		if r.Dists {
			draft.Dists = append(draft.Dists, x.dist)
		}
		if j < r.Known {
			x.prob = 1 // whatever the drafter says
		}
		draft.Tokens, draft.Probs, draft.Vocab = append(draft.Tokens, x.id), append(draft.Probs, x.prob), x.own
		d.before[k] = x.id
	}
}

// trust replaces the probabilities of draft tokens by what the drafter says of their acceptance, if it does.
func (d *Drafter) trust() error {
	probs, err := d.block.Confidences()
	if probs == nil || err != nil {
		return err
	}
	for j := 0; ; j++ {
		n := d.computed(j)
		if n == 0 {
			return nil
		}
		for k, p := range probs[:n] {
			i := d.who[k]
			if draft := &d.out[i]; j < len(draft.Probs) && j >= d.batch[i].Known {
				draft.Probs[j] = p
			}
		}
		probs = probs[n:]
	}
}
