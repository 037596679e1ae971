package engine

import (
	"slices"
	"time"

	"github.com/foretoken/foretoken/internal/model"
)

// gather lets the scheduler choose the tokens of every sequence that is not in flight, or of one of several groups, and of prompts.
func (e *Engine) gather(groups, rounds int) {
	e.sched.Beside, e.sched.Rounds = 0, rounds
	for _, g := range e.pipeline.flying {
		for _, span := range g.spans {
			if len(span.Tokens) <= span.Want {
				e.sched.Beside += span.Want
			}
		}
	}
	for _, s := range e.running {
		s.span = model.Span{}
	}
	e.sched.Plan(e.eligible(groups), e.towerTook, e.feed)
	for _, s := range e.running {
		if len(s.span.Tokens) > 0 {
			e.batch, e.spans = append(e.batch, s), append(e.spans, s.span)
		} else if s.flying == 0 {
			s.skipRound()
		}
	}
}

// feed makes at most n tokens of a sequence part of the round, and reports how many.
func (e *Engine) feed(s *sequence, n int) int {
	if len(s.draft.Tokens)-s.draft.Certain(s.stop) > s.target.Drafts() {
		e.deepen(s)
	}
	span := s.next(n, e.o.RoundTokens)
	n = len(span.Tokens)
	if n == 0 || !e.ready(s, &span) || !e.reserve(s, n) {
		return 0
	}
	if e.pipeline.Pipeline != nil && s.flying == 0 && s.prefilling() && len(s.target.Layout().Windows()) == 0 {
		// To allocate pages is to wait for every stage, so it is done before chunks are in flight. Without memory for all of the prompt,
		// chunks get theirs one by one.
		s.target.Reserve(len(s.tokens) - s.target.Len()) //nolint:errcheck // see above
	}
	e.attach(s, &span)
	s.span = span
	return n
}

// attach gives a span what does not depend on the scheduler.
func (e *Engine) attach(s *sequence, span *model.Span) {
	s.attach(span)
	span.Short = e.pipeline.Pipeline == nil && !e.drafting.readsAll()
}

// eligible are the sequences that may be fed in a round of one of n groups: the first of those that are not in flight, at most
// an n-th of all, and prompts in flight that go on. If one of them is isolated, it is fed alone. The list is a copy, since
// reserving memory may preempt some.
func (e *Engine) eligible(n int) []*sequence {
	e.order = e.order[:0]
	most := (len(e.running) + n - 1) / n
	for _, s := range e.running {
		if s.flying == 0 {
			most--
		}
		if s.flying == 0 && most >= 0 || s.follows() {
			e.order = append(e.order, s)
		}
	}
	if i := slices.IndexFunc(e.order, func(s *sequence) bool { return s.isolated }); i >= 0 {
		return e.order[i : i+1]
	}
	return e.order
}

// ready reports whether all inputs of a span are available. The drafter will be fed one token more, whose
// inputs are requested here as well, where an error is the sequence's own.
func (e *Engine) ready(s *sequence, span *model.Span) bool {
	if s.waitingForVision = false; len(s.inputs.parts) == 0 {
		return true
	}
	from := s.target.Len()
	to := from + len(span.Tokens)
	if s.drafted() {
		to++
	}
	ready, err := s.inputs.need(&e.vision, s.req.Salt, s.req.Priority, from, to, from+e.o.RoundTokens)
	if err != nil {
		s.fault = err
		e.blame(err)
		return false
	}
	s.waitingForVision = !ready
	return ready
}

// releaseInputs is called after a round that went well.
func (e *Engine) releaseInputs() {
	for _, s := range e.batch {
		s.releaseInputs()
	}
}

// runTower has the tower go on before a round, as long as the scheduler allows.
func (e *Engine) runTower() {
	if e.towerTook = 0; e.vision.busy() {
		e.towerTook = e.sched.Tower(e.running, e.stepTower)
	}
}

// stepTower runs the tower for a time, and one step at least, and returns how long it took.
func (e *Engine) stepTower(limit time.Duration) (took time.Duration) {
	for start := time.Now(); e.vision.busy(); {
		if err := e.vision.step(); err != nil && !e.suspectAll(err) {
			e.vision.fail(err)
		}
		if took = time.Since(start); took >= limit {
			break
		}
	}
	return took
}
