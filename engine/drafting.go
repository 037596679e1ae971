package engine

import (
	"time"

	"github.com/foretoken/foretoken/backend"
	"github.com/foretoken/foretoken/model"
	"github.com/foretoken/foretoken/spec"
)

// drafting is the part of a round that prepares the next one's guesses.
type drafting struct {
	spec.Controller
	seqs    []*sequence
	runs    []spec.Run
	records []*spec.Record
	depths  []int
	limits  []int
}

// verified takes in what a pass cost and begins a new list of sequences. Passes with a
// part of a prompt say nothing about guesses.
func (d *drafting) verified(spans []model.Span, took time.Duration) {
	d.seqs, d.runs, d.records, d.limits = d.seqs[:0], d.runs[:0], d.records[:0], d.limits[:0]
	rows := 0
	for _, s := range spans {
		if s.Want == 0 || len(s.Tokens) > s.Guesses+1 {
			return
		}
		rows += len(s.Tokens)
	}
	d.Verified(rows, took)
}

// add puts a sequence that goes on on the list, with the n hidden rows of this round's
// result, from first on, that belong to tokens it has kept.
func (d *drafting) add(s *sequence, hidden backend.Tensor, first, n int) {
	if s.memory == nil || s.finish != "" || s.fault != nil {
		return
	}
	// A guess that the limit would cut off is not made, and a prompt that is not yet read
	// has no guesses: its chunks are only learnt.
	text := s.tokens[:s.target.Len()+1]
	limit := s.limit - len(s.tokens) - 1
	if len(text) < len(s.tokens) {
		limit = 0
	}
	d.seqs = append(d.seqs, s)
	d.records = append(d.records, &s.record)
	d.limits = append(d.limits, limit)
	d.runs = append(d.runs, spec.Run{
		State: s.memory, Text: text, Hidden: hidden.RowRange(first, first+n), Sampler: s.sampler, Dists: s.req.Rule == spec.Ratio,
	})
}

// run chooses depths, lets the drafter learn and guess, and hands out the drafts.
func (d *drafting) run(drafter spec.Drafter) error {
	if len(d.runs) == 0 {
		return nil
	}
	for len(d.depths) < len(d.runs) {
		d.depths = append(d.depths, 0)
	}
	depths := d.depths[:len(d.runs)]
	d.Choose(depths, d.records, d.limits)
	rows := 0
	for i := range d.runs {
		d.runs[i].Depth = depths[i]
		rows = max(rows, d.runs[i].Hidden.Rows)
	}
	start := time.Now()
	drafts, err := drafter.Draft(d.runs)
	if err != nil {
		return err
	}
	if rows <= spec.MaxDepth+1 { // no prompt among them
		d.Drafted(depths, time.Since(start))
	}
	for i, s := range d.seqs {
		s.draft = drafts[i]
	}
	return nil
}
