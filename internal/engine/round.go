package engine

import (
	"errors"
	"slices"
	"time"

	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/sampling"
	"github.com/foretoken/foretoken/internal/spec"
)

// errForced reports a constraint that changed its answer between two calls for the same position.
var errForced = errors.New("engine: the constraint is not deterministic: it changed its answer for the same position")

// errNoNumber reports logits that are not numbers.
var errNoNumber = errors.New("engine: the model's output is not a number; the weights or the memory are damaged")

// round is a round of speculative decoding: for all running sequences, or for a group of them or a chunk of a prompt while other
// rounds are in flight.
func (e *Engine) round() {
	p := &e.pipeline
	for groups, n := e.groups(); len(p.flying) < n && !p.settling && (len(p.flying) == 0 || !e.shadow.due()) && e.launch(groups, n); {
		continue
	}
	if e.called() {
		return
	}
	if len(p.flying) > 0 {
		e.land()
		took, err := e.decode()
		start := time.Now()
		if err == nil {
			err = e.store()
		}
		if err != nil {
			e.isolate(err)
		} else {
			e.releaseInputs()
			e.observe(took + time.Since(start))
		}
	}
	e.retire()
}

// decode is algorithm 1 of Leviathan, Kalman and Matias (2023) for a batch whose pass has begun. Every sequence
// is behind its tokens: a chunk of a prompt, one token, one token with drafts differ only in
// the span. A panic of the model or the drafter becomes an error. took is the time of the round, without that of others.
func (e *Engine) decode() (took time.Duration, err error) {
	defer caught(&err)
	defer e.shadow.drop()
	if e.err != nil {
		if e.flight != nil {
			e.pipeline.withdraw(e.o.Log, e.err)
		}
		return 0, e.err
	}
	typical, err := e.landed()
	if err != nil {
		return 0, err
	}
	if err := e.compare(); err != nil {
		return 0, err
	}
	start := time.Now()
	if err := e.verify(e.out, len(e.shadow.spans) > 0); err != nil {
		return 0, err
	}
	verified, waited := time.Since(start), e.logits.Waited()
	if e.flight != nil { // it has waited for the passes of others
		verified, waited = verified-waited, 0
	}
	took = e.queued + verified
	e.phases = Phases{Forward: e.queued + waited, Sample: verified - waited}
	e.report(took, typical)
	start = time.Now()
	err = e.draft(e.out)
	e.phases.Draft = time.Since(start)
	return e.spent + took + time.Since(start), err
}

// verify chooses tokens for every sequence of the batch that needs them, and commits them in
// order. From rows that were compared with those of another device, the host chooses.
func (e *Engine) verify(out model.Output, compared bool) error {
	e.choosing = e.choosing[:0]
	e.logits.Begin(out.Device, out.Logits)
	for i, s := range e.batch {
		n := e.spans[i].Want
		if n == 0 {
			continue
		}
		e.choosing = append(e.choosing, s)
		if s.req.Hash || s.req.LogProbs || compared {
			e.logits.AskWhole(n)
		} else {
			e.logits.Draw = s.req.Rule == spec.Exact
			e.logits.Ask(s.sampler, s.draft.Tokens, n)
		}
	}
	if e.flight != nil && len(e.choosing) == 0 { // there is nothing to wait for
		return nil
	}
	if err := e.logits.Resolve(e.chooseTokens); err != nil {
		return err
	}
	for i, s := range e.choosing {
		s.isolated, s.losses = false, 0 // it has caught up
		if s.fault == nil {
			s.guard(func() { s.commit(s.accepted, s.following, e.logits.Rows(i)) })
		}
		e.blame(s.fault)
	}
	return nil
}

// chooseTokens verifies the draft of a sequence, maybe concurrently with others, and reports whether enough
// of its rows is known.
func (e *Engine) chooseTokens(i int, rows []sampling.Row) bool {
	s, ok := e.choosing[i], true // a fault ends it in any case
	s.guard(func() { s.accepted, s.following, ok = s.req.Rule.Verify(s.sampler, s.draft, rows) })
	return ok
}

// commit appends the accepted drafts and the next token to the text, up to its end, and
// rolls the state back to before the last of them: that one is fed next, or, if
// it ends the text, never.
func (s *sequence) commit(accepted int, next int32, logits []sampling.Row) {
	if next < 0 {
		s.fault = errNoNumber
		return
	}
	kept := 0
	for s.append(s.token(kept, accepted, next), logits[kept].All) && kept < accepted {
		kept++
	}
	s.outcome.Accepted, s.outcome.Tokens = min(accepted, kept+1), kept+1
	s.announce()
	certain := s.outcome.Drafted - s.span.Drafts
	if kept < certain {
		s.fault = errForced
		return
	}
	s.target.Commit(kept - certain)
}

// token is token i of a round: one of the accepted drafts, or the one that follows them.
func (s *sequence) token(i, accepted int, next int32) Token {
	if i < accepted {
		return Token{ID: s.draft.Tokens[i], Draft: i + 1, Forced: i < len(s.draft.Forced) && s.draft.Forced[i]}
	}
	t := Token{ID: next}
	if s.req.Trace {
		for j := accepted; j < len(s.draft.Tokens); j++ {
			if j >= len(s.draft.Forced) || !s.draft.Forced[j] {
				t.Rejected = append(t.Rejected, s.draft.Tokens[j])
			}
		}
	}
	return t
}

// guard calls f, whose panic, as of a grammar, ends this sequence and no other.
func (s *sequence) guard(f func()) {
	if err := try(f); err != nil {
		s.fault = err
	}
}

// report gives the outcome of each sequence, once, to the controller, to the sequence's
// account and to the engine's tally. A sequence is charged the share of its rows of the time of
// the pass. A pass is typical if the next of its shape will take as long.
func (e *Engine) report(took time.Duration, typical bool) {
	e.tally = newTally(e.batch)
	for _, s := range e.batch {
		s.outcome.Batch = len(e.batch)
		s.outcome.Verify = took * time.Duration(s.outcome.Rows) / time.Duration(e.tally.Rows)
		e.drafting.controller.Report(&s.record, s.outcome)
	}
	if !typical {
		took = 0
	}
	if n := e.tally.Prompt; n == 0 {
		e.drafting.controller.ObservePass(e.tally.Rows, took)
	} else if !e.background.active {
		e.cost().ObservePrompt(e.tally.Rows-n, n, took)
	}
}

// retire ends the sequences that are over.
func (e *Engine) retire() {
	e.running = slices.DeleteFunc(e.running, func(s *sequence) bool {
		over := s.flying == 0 && (s.fault != nil || s.finish != "")
		if over {
			e.end(s)
		}
		return over
	})
}

// draft lets the drafter catch up with the batch, given the rows of the pass,
// and makes the drafts of the next round.
func (e *Engine) draft(out model.Output) error {
	d, start := &e.drafting, time.Now()
	d.begin()
	if e.rests() {
		return nil
	}
	e.addRuns(out, false)
	d.eager = len(d.runs)
	e.addRuns(out, true)
	switch {
	case len(d.runs) == 0:
		return nil
	case e.background.active: // no depth is chosen and no cost noted
		return d.draft(false)
	}
	err := d.run()
	for _, s := range d.seqs {
		e.blame(s.fault)
	}
	d.controller.Chosen(time.Since(start))
	return err
}

// rests reports whether the drafter has nothing to do in this round, since drafts have not paid for long. All sequences then
// decode, and the depth of each is the controller's choice. The drafter will lack the rows of this round.
func (e *Engine) rests() bool {
	runs := 0
	for _, s := range e.batch {
		if s.drafts == nil {
			continue
		}
		if s.outcome.Prefill || s.fault != nil || !s.current() || s.record.Fixed != spec.DepthAuto {
			return false
		}
		if !e.limited(s) {
			runs++
		}
	}
	if !e.drafting.controller.Rests(runs) {
		return false
	}
	for _, s := range e.batch {
		e.startDraft(s)
		for k := range s.drafts {
			s.drafts[k].skip()
		}
	}
	return true
}

// startDraft makes the tokens that a constraint forces the draft of a sequence's next round.
func (e *Engine) startDraft(s *sequence) {
	if s.fault == nil && s.current() {
		s.draft.Cut(0)
		s.force(0)
		e.blame(s.fault)
	}
}

// limited reports whether a sequence gets only a share of the round: then another sequence's row is
// worth more than a draft of this one, and its rows must not affect the drafts of others.
func (e *Engine) limited(s *sequence) bool { return e.sched.Shared && s.req.Offline }

// addRuns adds sequences of the batch, limited ones or others, to the runs of the
// drafter.
func (e *Engine) addRuns(out model.Output, limited bool) {
	first := 0
	for _, s := range e.batch {
		first += s.outcome.Rows
		if e.limited(s) != limited {
			continue
		}
		e.startDraft(s)
		if s.drafts != nil && s.fault == nil && (s.finish == "" || e.cache != nil) {
			e.drafting.add(s, out, first-s.outcome.Rows, s.outcome.Kept(), limited && s.req.Rule == spec.Exact)
		}
	}
}
