package engine

import (
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
)

// drafting is the part of a round that prepares the next one's guesses.
type drafting struct {
	spec.Controller
	seqs    []*sequence
	runs    []spec.Run
	records []*spec.Record
	late    []spec.Run // those whose backlog is learned in this round
	depths  []int      // of what a network guesses
}

// begin starts a new list of sequences.
func (d *drafting) begin() {
	d.seqs, d.runs, d.records = d.seqs[:0], d.runs[:0], d.records[:0]
}

// verified takes in what a pass cost, with the walk along its guesses. Each sequence bears
// the share of its rows. Passes with a part of a prompt say nothing about guesses.
func (d *drafting) verified(fed []*sequence, spans []model.Span, took time.Duration) {
	rows, drafts, reading := 0, 0, false
	for i := range spans {
		rows += len(spans[i].Tokens)
		drafts += spans[i].Drafts
		reading = reading || reads(&spans[i])
	}
	for i, s := range fed {
		if !reads(&spans[i]) {
			s.record.Spent(took*time.Duration(len(spans[i].Tokens))/time.Duration(rows), len(fed))
		}
	}
	if !reading {
		d.Verified(rows, drafts, took)
	}
}

// reads reports whether a span is not just the last token and guesses after it.
func reads(s *model.Span) bool { return s.Want == 0 || len(s.Tokens) > s.Drafts+1 }

// add puts a sequence on the list, with the n hidden rows of this round's result, from first
// on, that belong to tokens it has kept. One that has ended is only learned, if it is for the
// cache to keep.
func (d *drafting) add(s *sequence, hidden backend.Tensor, first, n int, cached bool) {
	if s.draftState == nil || s.fault != nil || s.finish != "" && !cached {
		return
	}
	if s.target.Len() == len(s.tokens) { // the last row's pair is for another request
		n--
	}
	text := s.tokens[:min(s.target.Len()+1, len(s.tokens))]
	// A guess that the limit would cut off is not made, and before the first token there are
	// none, wherever the prompt was cut: its chunks are only learned.
	limit := s.limit - len(s.tokens) - 1
	if len(text) < len(s.tokens) || len(s.tokens) == len(s.req.Prompt) || s.finish != "" {
		limit = 0
	}
	d.seqs = append(d.seqs, s)
	d.records = append(d.records, &s.record)
	d.runs = append(d.runs, spec.Run{
		State: s.draftState, HostState: &s.hostState, Text: text, Hidden: hidden.RowRange(first, first+n), Depth: limit,
		Sampler: s.sampler, Dists: s.req.Rule == spec.Ratio,
	})
}

// run chooses depths, lets the drafter learn and guess, and hands out the drafts.
func (d *drafting) run(drafter spec.Drafter) error {
	if len(d.runs) == 0 {
		return nil
	}
	spec.Plan(drafter, d.runs)
	d.Choose(d.runs, d.records)
	if err := d.catchUp(drafter); err != nil {
		return err
	}
	start := time.Now()
	d.postpone()
	drafts, err := drafter.Draft(d.runs)
	if err != nil {
		return err
	}
	d.drafted(time.Since(start))
	for i, s := range d.seqs {
		if s.target.Len()+1 < len(s.tokens) {
			continue // it is reading, and what it may have guessed before stands
		}
		// The sequence may be left out of rounds while the drafter goes on with others.
		s.draft.Tokens = append(s.draft.Tokens[:0], drafts[i].Tokens...)
		s.draft.Dists = append(s.draft.Dists[:0], drafts[i].Dists...)
		if n := drafts[i].Vocab; n > 0 {
			s.record.DraftVocab = n
		}
	}
	return nil
}

// learn lets the drafter learn and does nothing else: no depth is chosen and no cost noted.
func (d *drafting) learn(drafter spec.Drafter) error {
	if len(d.runs) == 0 {
		return nil
	}
	_, err := drafter.Draft(d.runs)
	return err
}

// catchUp learns the backlogs of sequences that need it: to guess, for the cache to keep, or
// because there is no more room.
func (d *drafting) catchUp(drafter spec.Drafter) error {
	d.late = d.late[:0]
	rows := 0
	for i, s := range d.seqs {
		r := d.runs[i]
		n := s.backlog.Len()
		if n == 0 || mayWait(s, &r) && r.Hidden.Rows <= s.backlog.Room() {
			continue
		}
		r.Text, r.Hidden, r.Depth = r.Text[:len(r.Text)-r.Hidden.Rows], s.backlog.Tensor(), 0
		d.late = append(d.late, r)
		s.backlog.Clear()
		rows += n
	}
	if rows == 0 {
		return nil
	}
	start := time.Now()
	_, err := drafter.Draft(d.late)
	took := time.Since(start)
	d.spread(took)
	// That made up for rounds in which a row was added to each run.
	d.depths = d.depths[:0]
	for range d.runs {
		d.depths = append(d.depths, 0)
	}
	d.Drafted(d.depths, took*time.Duration(len(d.runs))/time.Duration(rows))
	return err
}

// spread has all runs of the round bear what drafting took.
func (d *drafting) spread(took time.Duration) {
	for _, r := range d.records {
		r.Draft += took / time.Duration(len(d.records))
	}
}

// postpone puts the new rows of sequences for which a network guesses nothing on their
// backlogs.
func (d *drafting) postpone() {
	for i, s := range d.seqs {
		r := &d.runs[i]
		if !mayWait(s, r) || r.Hidden.Rows > s.backlog.Room() {
			continue
		}
		if s.backlog.Add(r.Hidden) == nil { // without memory for them they are learned now
			r.Hidden = r.Hidden.RowRange(0, 0)
		}
	}
}

// mayWait reports whether nobody needs to know a run's rows yet.
func mayWait(s *sequence, r *spec.Run) bool {
	return (r.Depth == 0 || r.Source != spec.Computed) && !s.keeps()
}

// drafted takes in what guessing cost, unless prompts were learned with it, or nothing was.
func (d *drafting) drafted(took time.Duration) {
	d.depths = d.depths[:0]
	rows := 0
	for i := range d.runs {
		r := &d.runs[i]
		if r.Hidden.Rows > spec.MaxDepth+1 {
			return
		}
		rows += r.Hidden.Rows
		depth := r.Depth
		if r.Source != spec.Computed {
			depth = 0
		}
		d.depths = append(d.depths, depth)
	}
	if rows > 0 {
		d.Drafted(d.depths, took)
		d.spread(took)
	}
}
