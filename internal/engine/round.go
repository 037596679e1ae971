package engine

import (
	"errors"
	"slices"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/sample"
)

// errForced is what comes of a constraint that is none.
var errForced = errors.New("engine: the constraint is not deterministic: it changed its answer for the same position")

// errNoNumber is what comes of damaged weights.
var errNoNumber = errors.New("engine: the model's output is not a number; the weights or the memory are damaged")

// round is a round of speculative decoding for all running sequences.
func (e *Engine) round() {
	start := time.Now()
	e.gather()
	if len(e.batch) > 0 {
		if err := e.decode(); err != nil {
			e.isolate(err)
		} else if err := e.store(); err != nil {
			e.isolate(err)
		} else {
			e.spend()
			e.observe(time.Since(start))
		}
	}
	e.retire()
}

// decode is algorithm 1 of Leviathan, Kalman and Matias (2023) for a batch. Every sequence
// is behind its tokens: a chunk of a prompt, one token, one token with drafts differ only in
// the span. A panic of the model or the drafter becomes an error.
func (e *Engine) decode() (err error) {
	defer caught(&err)
	start, prepared := time.Now(), e.prepared()
	out, err := e.model.Forward(e.spans)
	if err != nil {
		return err
	}
	queued := time.Since(start)
	if err := e.verify(out); err != nil {
		return err
	}
	took := time.Since(start)
	forward := queued + e.logits.Waited()
	e.phases = Phases{Forward: forward, Sample: took - forward}
	e.report(took, e.prepared() == prepared)
	start = time.Now()
	err = e.draft(out.Hidden)
	e.phases.Draft = time.Since(start)
	return err
}

// verify has every sequence of the batch that wants tokens choose them, and commits them in
// order.
func (e *Engine) verify(out model.Output) error {
	e.choosing = e.choosing[:0]
	e.logits.Begin(out.Device, out.Logits)
	for i, s := range e.batch {
		n := e.spans[i].Want
		if n == 0 {
			continue
		}
		e.choosing = append(e.choosing, s)
		if s.req.Hash || s.req.LogProbs {
			e.logits.AskWhole(n)
		} else {
			e.logits.Draw = s.req.Rule == spec.Exact
			e.logits.Ask(s.sampler, s.draft.Tokens, n)
		}
	}
	if err := e.logits.Resolve(e.chooseTokens); err != nil {
		return err
	}
	for i, s := range e.choosing {
		if s.fault == nil {
			s.guard(func() { s.commit(s.accepted, s.following, e.logits.Rows(i)) })
		}
		e.blame(s.fault)
	}
	return nil
}

// chooseTokens verifies the draft of a sequence, maybe beside others, and reports whether enough
// of its rows is known.
func (e *Engine) chooseTokens(i int, rows []sample.Row) bool {
	s, ok := e.choosing[i], true // a fault ends it, whatever is known
	s.guard(func() { s.accepted, s.following, ok = s.req.Rule.Verify(s.sampler, s.draft, rows) })
	return ok
}

// commit appends the accepted drafts and the next token to the text, as far as it goes, and
// rolls the state back to what comes before the last of them: that one is fed next, or, if
// it ends the text, never.
func (s *sequence) commit(accepted int, next int32, logits []sample.Row) {
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
	s.isolated = false // it has caught up
}

// gather chooses what every sequence is fed. The round is that of the online sequences, beside
// whom offline ones get their share, and theirs if there is nobody else.
func (e *Engine) gather() {
	for _, s := range e.running {
		s.span = model.Span{}
	}
	order := e.eligible()
	e.left, e.share.round = e.o.RoundTokens, sharedRound{}
	if e.feedAll(order, false) {
		e.feedBeside(order)
	} else {
		e.feedAll(order, true)
	}
	e.batch, e.spans = e.batch[:0], e.spans[:0]
	for _, s := range e.running {
		if len(s.span.Tokens) > 0 {
			e.batch, e.spans = append(e.batch, s), append(e.spans, s.span)
		} else {
			s.pass()
		}
	}
}

// feedAll feeds all sequences that are offline, or all that are not. Those that generate come
// first, so that no prompt takes their place; what the round's time leaves is for prompts, in order
// of priority. It reports whether one is fed or waits for the tower.
func (e *Engine) feedAll(order []*sequence, offline bool) (any bool) {
	r := &e.share.round
	r.rows, r.prompt = 0, 0
	generating := false
	for _, s := range order {
		if s.target != nil && s.req.Offline == offline && !s.prefilling() {
			r.rows += e.feed(s, e.left)
			any, generating = any || s.blind, true
		}
	}
	most := e.left
	if generating {
		most = min(most, e.pace.chunk(r.rows, e.o.MaxRound, e.sight.spent))
	}
	if !offline && slices.ContainsFunc(order, isOffline) {
		most = min(most, max(e.left-e.o.RoundTokens/8, minChunk)) // no prompt takes their share
	}
	for _, s := range order {
		if s.target != nil && s.req.Offline == offline && s.prefilling() {
			r.prompt += e.feed(s, most-r.prompt)
			any = any || s.blind
		}
	}
	return any || r.rows+r.prompt > 0
}

// feed makes at most n tokens of a sequence part of the round, and reports how many.
func (e *Engine) feed(s *sequence, n int) int {
	if len(s.draft.Tokens)-s.draft.Certain(s.stop) > s.target.Drafts() {
		e.deepen(s)
	}
	span := s.next(min(n, e.left), e.o.RoundTokens)
	n = len(span.Tokens)
	if n == 0 || !e.ready(s, &span) || !e.reserve(s, n) || !e.join(s) {
		return 0
	}
	s.attach(&span)
	s.feed(span)
	e.left -= n
	return n
}

// eligible are the sequences that may be fed: all that run, or the first that is isolated.
// It is a copy, since reserving memory may preempt some.
func (e *Engine) eligible() []*sequence {
	e.order = append(e.order[:0], e.running...)
	if i := slices.IndexFunc(e.order, func(s *sequence) bool { return s.isolated }); i >= 0 {
		return e.order[i : i+1]
	}
	return e.order
}

// report gives the outcome of each sequence, once, to the controller, to the sequence's
// account and to the engine's tally. A sequence bears the share of its rows of the time that
// the pass took. A pass is typical if the next of its shape will take as long.
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
		e.cost().ObservePass(e.tally.Rows, e.tally.Drafted, took)
	} else if !e.background.active {
		e.cost().ObservePrompt(e.tally.Rows-n, n, took)
	}
}

// prepared is how many passes have taken longer so far than others of their shape will.
func (e *Engine) prepared() int64 { return backend.PreparedBy(e.pool.Device()) }

// retire ends the sequences that are over.
func (e *Engine) retire() {
	e.running = slices.DeleteFunc(e.running, func(s *sequence) bool {
		over := s.fault != nil || s.finish != ""
		if over {
			e.end(s)
		}
		return over
	})
}
