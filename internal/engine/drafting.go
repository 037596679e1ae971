package engine

import (
	"slices"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
)

// drafting is the part of a round that prepares the next one's drafts.
type drafting struct {
	device     backend.Backend
	controller spec.Controller
	parts      []drafterPart
	seqs       []*sequence
	runs       []spec.Run // as they are chosen for: without what a part reads
	records    []*spec.Record
	drafts     []spec.Draft // of the runs
	eager      int          // runs, the first, of sequences that are not limited to a share of the round
}

// drafterPart is a part of the drafter: see spec.Parts.
type drafterPart struct {
	spec.Drafter
	tapped   bool       // it reads rows that are tapped in the model, and not hidden rows
	keeps    bool       // it has a state of each sequence, and has to be fed all rows
	runs     []spec.Run // of the round, as the part is called with them
	late     []spec.Run // backlogs that are fed in this round
	fed      int        // rows of them
	depths   []int
	to, from []backend.Tensor // rows that go to backlogs
}

// newParts are the parts of a drafter.
func newParts(d spec.Drafter) (list []drafterPart) {
	for _, x := range spec.Parts(d) {
		list = append(list, drafterPart{Drafter: x, tapped: len(spec.TapsOf(x)) > 0, keeps: !x.Layout().Empty()})
	}
	return list
}

// readsAll reports whether a part has to be fed all rows. Others read those of the last token and of drafts, if any.
func (d *drafting) readsAll() bool {
	return slices.ContainsFunc(d.parts, func(p drafterPart) bool { return p.keeps })
}

// rows are the rows of a pass that the part reads.
func (p *drafterPart) rows(out model.Output) backend.Tensor {
	if p.tapped {
		return out.Taps
	}
	return out.Hidden
}

// begin empties the lists.
func (d *drafting) begin() {
	d.seqs, d.runs, d.records = d.seqs[:0], d.runs[:0], d.records[:0]
	for k := range d.parts {
		d.parts[k].runs = d.parts[k].runs[:0]
	}
}

// add puts a sequence on the list, which has kept n tokens of the pass, from row first on. One
// that has ended is there only for the cache to store. plain is true for one that is to have no
// drafts.
func (d *drafting) add(s *sequence, out model.Output, first, n int, plain bool) {
	known := s.tokens[:min(s.landed()+1, len(s.tokens))]
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
	run := spec.Run{
		Text: known, Prompt: len(s.req.Prompt), Depth: depth, Known: forced, Sampler: s.sampler, Dists: s.req.Rule == spec.Ratio,
	}
	d.seqs, d.records, d.runs = append(d.seqs, s), append(d.records, &s.record), append(d.runs, run)
	fed := n
	if s.landed() == len(s.tokens) { // the last row's pair is for another request
		fed--
	}
	for k := range d.parts {
		p, m := &d.parts[k], &s.drafts[k]
		rows := p.rows(out).RowRange(first, first+n)
		m.hidden = rows.RowRange(n-1, n)
		run.State, run.Target, run.HostState, run.Hidden = m.state, s.target, &m.host, rows.RowRange(0, fed)
		p.runs = append(p.runs, run)
	}
}

// run chooses sources and depths and hands the drafts out.
func (d *drafting) run() error {
	for k := range d.parts {
		p := &d.parts[k]
		spec.Plan(k, p.Drafter, p.runs)
		for i := range p.runs {
			d.runs[i].Sources |= p.runs[i].Sources
		}
	}
	d.controller.Choose(d.runs[:d.eager], d.records[:d.eager])
	d.controller.Follow(d.runs[d.eager:], d.records[d.eager:])
	if err := d.draft(true); err != nil {
		return err
	}
	d.controller.Trim(d.runs[:d.eager], d.records[:d.eager], d.drafts[:d.eager])
	for i, s := range d.seqs {
		from := &d.drafts[i]
		if len(from.Tokens) == 0 {
			continue // forced tokens stay; so do drafts of one that is prefilled
		}
		// The sequence may be left out of rounds while the drafter continues with others.
		s.draft.Tokens = append(s.draft.Tokens[:0], from.Tokens...)
		s.draft.Dists = append(s.draft.Dists[:0], from.Dists...)
		s.draft.Probs = append(s.draft.Probs[:0], from.Probs...)
		s.force(len(s.draft.Tokens))
		if from.Vocab > 0 {
			s.record.DraftVocab = from.Vocab
		}
	}
	return nil
}

// draft has each part catch up, and draft for the runs that it was chosen for. If costs is set, times are noted.
func (d *drafting) draft(costs bool) error {
	d.drafts = slices.Grow(d.drafts[:0], len(d.runs))[:len(d.runs)]
	clear(d.drafts)
	for k := range d.parts {
		p, busy := &d.parts[k], false
		for i := range p.runs {
			r, chosen := &p.runs[i], &d.runs[i]
			if r.Depth, r.Source, r.More = 0, chosen.Source, chosen.More; spec.PartOf(chosen.Source, len(d.parts)) == k {
				r.Depth = chosen.Depth
			}
		}
		start, prepared := time.Now(), backend.PreparedBy(d.device)
		if err := d.catchUp(k); err != nil {
			return err
		}
		for i := range p.runs { // a lookup beside others is called for copies only
			r := &p.runs[i]
			busy = busy || r.Depth > 0 || (p.keeps || len(d.parts) == 1) && r.Hidden.Rows > 0
		}
		if !busy {
			if costs {
				d.spread(time.Since(start))
			}
			continue
		}
		drafts, err := p.draft(d.seqs)
		if err != nil {
			return err
		}
		if costs {
			d.observe(k, drafts, time.Since(start), backend.PreparedBy(d.device) == prepared)
		}
		for i := range p.runs {
			if p.runs[i].Depth > 0 {
				d.drafts[i] = drafts[i]
			}
		}
	}
	return nil
}

// idleRounds is the number of rounds without its drafts after which a drafter is idle: then rows are fed to it only if it is
// to draft again.
const idleRounds = 8

// waits reports whether part k need not be fed the rows of a run now. It is fed rows of prompts at once, unless no
// sequence has had drafts of it for a while. Drafts of the ratio rule shape the text, so there it is fed all rows. It is fed the
// whole prompt of a fixed depth, since equal requests then have equal drafts; with images, whose rows are released after
// the round; and in the background.
func (d *drafting) waits(k int, s *sequence, r *spec.Run) bool {
	m := &s.drafts[k]
	switch {
	case r.Depth > 0:
		m.idle = 0
		return false
	case s.req.Rule == spec.Ratio:
		return false
	case len(r.Text)-r.Hidden.Rows-m.backlog.Len() < s.inputs.end():
		return false
	case s.outcome.Prefill && (s.record.Fixed != spec.DepthAuto || len(s.inputs.parts) > 0 || s.background != nil):
		return false
	case s.outcome.Prefill:
		m.idle = d.controller.Idle(spec.Source(k))
		return m.idle > idleRounds
	}
	m.idle++
	return s.finish == "" || m.idle > idleRounds // the cache stores the drafter's state if it is complete
}

// catchUp feeds part k the backlogs of sequences that do not wait any more, and has the rows of those that
// wait go to their backlogs. If a backlog has no space left, it is fed too, unless the part is idle: then older rows are
// dropped, half of the backlog at least. A head that lacks rows drafts nearly as well: see docs/speculation.md.
func (d *drafting) catchUp(k int) error {
	p := &d.parts[k]
	p.late, p.to, p.from, p.fed = p.late[:0], p.to[:0], p.from[:0], 0
	if !p.keeps {
		return nil
	}
	for i, s := range d.seqs {
		d.keepRows(k, s, &p.runs[i])
	}
	if len(p.late) > 0 {
		if _, err := p.Draft(p.late); err != nil {
			return err
		}
	}
	backend.CopyEach(d.device, p.to, p.from) // after the old contents have been fed
	return nil
}

// keepRows has the rows of a run wait, and puts a backlog that does not wait any more on the list.
func (d *drafting) keepRows(k int, s *sequence, r *spec.Run) {
	p, m := &d.parts[k], &s.drafts[k]
	waits, rows := d.waits(k, s, r), r.Hidden.Rows
	if waits && m.idle > idleRounds && rows > m.backlog.Free() {
		rows = min(rows, spec.Backlog)
		r.Hidden = r.Hidden.RowRange(r.Hidden.Rows-rows, r.Hidden.Rows)
		m.backlog.Keep(min(m.backlog.Len()/2, spec.Backlog-rows))
	}
	if m.backlog.Len() > 0 && (!waits || rows > m.backlog.Free()) {
		late := *r
		late.Text, late.Hidden, late.Depth = r.Text[:len(r.Text)-rows], m.backlog.Tensor(), 0
		s.pair(&late)
		p.late, p.fed = append(p.late, late), p.fed+late.Hidden.Rows
		m.backlog.Keep(0)
	}
	if !waits || rows > m.backlog.Free() {
		return
	}
	if to, err := m.backlog.Add(r.Hidden); err == nil { // without memory for them they are fed now
		p.to, p.from = append(p.to, to), append(p.from, r.Hidden)
		r.Hidden = r.Hidden.RowRange(0, 0)
	}
}

// draft feeds the part the rows that do not wait, and has it draft.
func (p *drafterPart) draft(seqs []*sequence) ([]spec.Draft, error) {
	for i, s := range seqs {
		if p.keeps {
			s.pair(&p.runs[i])
		}
	}
	return p.Draft(p.runs)
}

// spread divides the time of drafting among all runs of the round.
func (d *drafting) spread(took time.Duration) {
	for _, r := range d.records {
		r.Draft += took / time.Duration(len(d.records))
	}
}

// observe reports the time of drafting and of feeding backlogs to the controller, unless rows of prompts were fed with it,
// or none at all, or it is not typical: the next call of the kind will take less.
func (d *drafting) observe(k int, drafts []spec.Draft, took time.Duration, typical bool) {
	p := &d.parts[k]
	p.depths = p.depths[:0]
	rows := 0
	for i := range p.runs {
		r := &p.runs[i]
		if r.Hidden.Rows > spec.MaxDepth+1 {
			return
		}
		rows += r.Hidden.Rows
		depth := 0
		if r.Depth > 0 {
			depth = len(drafts[i].Tokens)
		}
		p.depths = append(p.depths, depth)
	}
	if rows == 0 {
		return
	}
	if d.spread(took); typical && spec.Source(k).Computed() {
		d.controller.ObserveDraft(spec.Source(k), p.depths, p.fed, took)
	}
}
