package measure

import (
	"context"
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/sampling"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/sample"
)

// Walk measures acceptance along given texts with a drafter of any kind, in a batch: at every row that counts it
// drafts depth tokens behind the text so far, among the first vocab ids. The model is fed the texts, since the
// drafter may read rows of it that the texts do not have.
func Walk(ctx context.Context, m model.Model, d spec.Drafter, pool *state.Pool, vocab int, texts []*Text, depth int) (*Agreement, error) {
	w := &walk{d: d, depth: depth, Agreement: Agreement{texts: texts, depth: depth, accepted: make([][]int, len(texts))}}
	if err := tap(m, d); err != nil {
		return nil, err
	}
	longest := 0
	for i, t := range texts {
		x := &walker{Text: t}
		x.from, x.to = t.Rows()
		w.accepted[i], longest = make([]int, len(t.IDs)), max(longest, x.to)
		var err error
		if x.sampler, err = sampling.New(sample.Options{Vocab: vocab}, nil); err != nil {
			return nil, err
		}
		if x.target, err = pool.Open(m.Layout()); err != nil {
			return nil, err
		}
		defer x.target.Close()
		if x.draft, err = pool.Open(d.Layout()); err != nil {
			return nil, err
		}
		defer x.draft.Close()
		w.walkers = append(w.walkers, x)
	}
	for at := 0; at < longest; at += Chunk {
		err := ctx.Err()
		if err == nil {
			err = w.chunk(m, at)
		}
		if err != nil {
			return nil, err
		}
	}
	return &w.Agreement, nil
}

// tap has the model return the rows that a drafter reads.
func tap(m model.Model, d spec.Drafter) error {
	taps := spec.TapsOf(d)
	if len(taps) == 0 {
		return nil
	}
	tapped, ok := m.(model.Tappable)
	if !ok {
		return fmt.Errorf("measure: the drafter %s reads rows between the layers, which the model does not hand out", d.Name())
	}
	return tapped.Tap(taps...)
}

// walk is a running Walk.
type walk struct {
	Agreement
	d       spec.Drafter
	depth   int
	walkers []*walker
	runs    []spec.Run
	who     []int // text of each run
}

// walker walks along one text.
type walker struct {
	*Text
	from, to      int // rows that count
	sampler       *sampling.Sampler
	target, draft *state.State
	host          any
	rows          backend.Tensor // of the chunk
}

// chunk walks along the rows of all texts from at on.
func (w *walk) chunk(m model.Model, at int) error {
	var spans []model.Span
	for _, x := range w.walkers {
		if at < x.to {
			spans = append(spans, model.Span{State: x.target, Tokens: x.IDs[at:min(at+Chunk, x.to)]})
		}
	}
	out, err := m.Forward(spans)
	if err != nil {
		return err
	}
	rows, first := out.Hidden, 0
	if len(spec.TapsOf(w.d)) > 0 {
		rows = out.Taps
	}
	for i, x := range w.walkers {
		n := max(min(at+Chunk, x.to)-at, 0)
		x.rows = rows.RowRange(first, first+n)
		first += n
		if prompt := min(x.from-at, n); prompt > 0 {
			w.add(i, at, 0, prompt, 0)
		}
	}
	for row := 0; row < Chunk; row++ {
		if err := w.draft(at + row - 1); err != nil {
			return err
		}
		for i, x := range w.walkers {
			if row < x.rows.Rows && at+row >= x.from {
				w.add(i, at, row, row+1, w.depth)
			}
		}
	}
	return w.draft(at + Chunk - 1)
}

// add adds a run over rows of a chunk.
func (w *walk) add(i, at, first, end, depth int) {
	x := w.walkers[i]
	w.runs = append(w.runs, spec.Run{
		State: x.draft, Target: x.target, HostState: &x.host, Text: x.IDs[:at+end+1], Hidden: x.rows.RowRange(first, end), Depth: depth, Sampler: x.sampler,
	})
	w.who = append(w.who, i)
}

// draft makes the drafts of the runs behind a row, and counts those that the text confirms.
func (w *walk) draft(row int) error {
	if len(w.runs) == 0 {
		return nil
	}
	drafts, err := w.d.Draft(w.runs)
	if err != nil {
		return err
	}
	for k, i := range w.who {
		for j, id := range drafts[k].Tokens {
			if id != w.texts[i].IDs[row+2+j] {
				break
			}
			w.accepted[i][row]++
		}
	}
	w.runs, w.who = w.runs[:0], w.who[:0]
	return nil
}
