package engine

import (
	"slices"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/spec"
)

// drafting is the part of a round that prepares the next one's drafts.
type drafting struct {
	device     backend.Backend
	controller spec.Controller
	seqs       []*sequence
	runs       []spec.Run
	records    []*spec.Record
	late       []spec.Run       // backlogs that are fed in this round
	busy       bool             // there are rows to feed or tokens to draft in this round
	depths     []int            // of the head's drafts
	eager      int              // runs, the first, of sequences that are not limited to a share of the round
	to, from   []backend.Tensor // rows that go to backlogs
}

// add puts a sequence on the list, with the hidden rows of the tokens that it has kept. One
// that has ended is there only for the cache to store. plain is true for one that is to have no
// drafts.
func (d *drafting) add(s *sequence, hidden backend.Tensor, plain bool) {
	if s.target.Len() == len(s.tokens) { // the last row's pair is for another request
		hidden = hidden.RowRange(0, hidden.Rows-1)
	}
	known := s.tokens[:min(s.target.Len()+1, len(s.tokens))]
	// A draft beyond the limit is not made, and before the first token there are
	// none, wherever the prompt was cut.
	depth := s.limit - len(s.tokens) - 1
	forced := 0
	if !s.current() {
		depth = 0
	} else if forced = len(s.draft.Tokens); forced > 0 && slices.Contains(s.stop, s.draft.Tokens[forced-1]) {
		depth = forced
	}
	if plain {
		depth = 0
	}
	d.seqs = append(d.seqs, s)
	d.records = append(d.records, &s.record)
	d.runs = append(d.runs, spec.Run{
		State: s.draftState, HostState: &s.hostState, Text: known, Prompt: len(s.req.Prompt),
		Hidden: hidden, Depth: depth, Known: forced,
		Sampler: s.sampler, Dists: s.req.Rule == spec.Ratio,
	})
}

// run chooses depths and hands the drafts out.
func (d *drafting) run(drafter spec.Drafter) error {
	spec.Plan(drafter, d.runs)
	d.controller.Choose(d.runs[:d.eager], d.records[:d.eager])
	d.controller.Follow(d.runs[d.eager:], d.records[d.eager:])
	if err := d.catchUp(drafter); err != nil || !d.busy {
		return err
	}
	start, prepared := time.Now(), backend.PreparedBy(d.device)
	drafts, err := d.draft(drafter)
	if err != nil {
		return err
	}
	d.observe(drafts, time.Since(start), backend.PreparedBy(d.device) == prepared)
	d.controller.Trim(d.runs[:d.eager], d.records[:d.eager], drafts[:d.eager])
	for i, s := range d.seqs {
		if len(drafts[i].Tokens) == 0 {
			continue // forced tokens stay; so do drafts of one that is prefilled
		}
		// The sequence may be left out of rounds while the drafter continues with others.
		s.draft.Tokens = append(s.draft.Tokens[:0], drafts[i].Tokens...)
		s.draft.Dists = append(s.draft.Dists[:0], drafts[i].Dists...)
		s.draft.Probs = append(s.draft.Probs[:0], drafts[i].Probs...)
		s.force(len(s.draft.Tokens))
		if n := drafts[i].Vocab; n > 0 {
			s.record.DraftVocab = n
		}
	}
	return nil
}

// idleRounds is the number of rounds without its drafts after which a head is idle: then rows are fed to it only if it is
// to draft again.
const idleRounds = 8

// waits reports whether the drafter need not be fed the rows of a run now. It is fed rows of prompts at once, unless no
// sequence has had drafts for a while. Drafts of the ratio rule shape the text, so there it is fed all rows. It is fed the
// whole prompt of a fixed depth, since equal requests then have equal drafts; with images, whose rows are released after
// the round; and in the background.
func (d *drafting) waits(s *sequence, r *spec.Run) bool {
	switch {
	case r.Depth > 0 && r.Source == spec.Computed:
		s.idle = 0
		return false
	case s.req.Rule == spec.Ratio:
		return false
	case s.outcome.Prefill && (s.record.Fixed != spec.DepthAuto || len(s.inputs.parts) > 0 || s.background != nil):
		return false
	case s.outcome.Prefill:
		s.idle = d.controller.Idle()
		return s.idle > idleRounds
	}
	s.idle++
	return s.finish == "" || s.idle > idleRounds // the cache stores the drafter's state if it is complete
}

// catchUp feeds the drafter the backlogs of sequences that do not wait any more, and has the hidden rows of those that
// wait go to their backlogs. If a backlog has no space left, it is fed too, unless the head is idle: then older rows are
// dropped, half of the backlog at least. A head that lacks rows drafts nearly as well: see docs/speculation.md.
func (d *drafting) catchUp(drafter spec.Drafter) error {
	d.late, d.to, d.from, d.busy = d.late[:0], d.to[:0], d.from[:0], false
	for i, s := range d.seqs {
		if s.drafted() {
			d.keepRows(s, &d.runs[i])
		}
		d.busy = d.busy || d.runs[i].Depth > 0 || d.runs[i].Hidden.Rows > 0
	}
	if len(d.late) > 0 {
		start := time.Now()
		if _, err := drafter.Draft(d.late); err != nil {
			return err
		}
		d.spread(time.Since(start))
	}
	backend.CopyEach(d.device, d.to, d.from) // after the old contents have been fed
	return nil
}

// keepRows has the rows of a run wait, and puts a backlog that does not wait any more on the list.
func (d *drafting) keepRows(s *sequence, r *spec.Run) {
	waits, rows := d.waits(s, r), r.Hidden.Rows
	if waits && s.idle > idleRounds && rows > s.backlog.Free() {
		rows = min(rows, spec.Backlog)
		r.Hidden = r.Hidden.RowRange(r.Hidden.Rows-rows, r.Hidden.Rows)
		s.backlog.Keep(min(s.backlog.Len()/2, spec.Backlog-rows))
	}
	if s.backlog.Len() > 0 && (!waits || rows > s.backlog.Free()) {
		late := *r
		late.Text, late.Hidden, late.Depth = r.Text[:len(r.Text)-rows], s.backlog.Tensor(), 0
		s.pair(&late)
		d.late = append(d.late, late)
		s.backlog.Keep(0)
	}
	if !waits || rows > s.backlog.Free() {
		return
	}
	if to, err := s.backlog.Add(r.Hidden); err == nil { // without memory for them they are fed now
		d.to, d.from = append(d.to, to), append(d.from, r.Hidden)
		r.Hidden = r.Hidden.RowRange(0, 0)
	}
}

// draft feeds the drafter the rows that do not wait, and has it draft.
func (d *drafting) draft(drafter spec.Drafter) ([]spec.Draft, error) {
	for i, s := range d.seqs {
		s.pair(&d.runs[i])
	}
	return drafter.Draft(d.runs)
}

// spread divides the time of drafting among all runs of the round.
func (d *drafting) spread(took time.Duration) {
	for _, r := range d.records {
		r.Draft += took / time.Duration(len(d.records))
	}
}

// observe reports the time of drafting to the controller, unless rows of prompts were fed with it,
// or none at all, or it is not typical: the next call of the kind will take less, or the device was still
// busy with backlogs.
func (d *drafting) observe(drafts []spec.Draft, took time.Duration, typical bool) {
	d.depths = d.depths[:0]
	rows := 0
	for i := range d.runs {
		r := &d.runs[i]
		if r.Hidden.Rows > spec.MaxDepth+1 {
			return
		}
		rows += r.Hidden.Rows
		depth := 0
		if r.Source == spec.Computed && r.Depth > 0 {
			depth = len(drafts[i].Tokens)
		}
		d.depths = append(d.depths, depth)
	}
	if rows == 0 {
		return
	}
	if d.spread(took); typical && len(d.late) == 0 {
		d.controller.ObserveDraft(spec.Computed, d.depths, took)
	}
}
