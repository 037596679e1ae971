package engine

import (
	"errors"
	"slices"
	"time"

	"github.com/foretoken/foretoken/internal/model"
)

// errNoNumber is what comes of damaged weights.
var errNoNumber = errors.New("engine: the network's output is not a number; the weights or the memory are damaged")

// round feeds every sequence once: a prompt's chunk, a token, a token with guesses differ
// only in the span.
func (e *Engine) round() {
	start := time.Now()
	e.gather()
	if len(e.spans) > 0 {
		if err := e.forward(); err != nil {
			e.suspect(err)
		} else {
			e.keep()
			e.observe(time.Since(start))
		}
	}
	e.running = slices.DeleteFunc(e.running, func(s *sequence) bool {
		over := s.fault != nil || s.finish != ""
		if over {
			e.end(s)
		}
		return over
	})
}

// gather chooses what every sequence is fed. Those that generate come first, so that no
// prompt takes their place; what the round's time leaves is for prompts, in the order of
// their claims.
func (e *Engine) gather() {
	e.fed, e.spans = e.fed[:0], e.spans[:0]
	budget, generating := e.o.RoundTokens, 0
	feed := func(s *sequence, budget int) int {
		s.span, s.accepted = s.next(budget, e.o.RoundTokens), 0
		if n := len(s.span.Tokens); n == 0 || !e.reserve(s, n) {
			s.span = model.Span{}
		}
		return len(s.span.Tokens)
	}
	for _, s := range e.running {
		s.span = model.Span{}
	}
	e.order = append(e.order[:0], e.running...) // which reserving memory may shorten
	order := e.order
	if i := slices.IndexFunc(order, func(s *sequence) bool { return s.alone }); i >= 0 {
		order = order[i : i+1]
	}
	for _, s := range order {
		if s.target != nil && !s.reading() {
			budget -= feed(s, budget)
			generating++
		}
	}
	if generating > 0 {
		budget = min(budget, e.pace.room(e.o.MaxRound))
	}
	for _, s := range order {
		if s.target != nil && s.reading() {
			budget -= feed(s, budget)
		}
	}
	for _, s := range e.running {
		if len(s.span.Tokens) > 0 {
			e.fed, e.spans = append(e.fed, s), append(e.spans, s.span)
		} else {
			s.stream.wake()
		}
	}
}

// forward feeds the spans and verifies what came out. A panic below becomes an error.
func (e *Engine) forward() (err error) {
	defer caught(&err)
	start := time.Now()
	out, err := e.model.Forward(e.spans)
	if err != nil {
		return err
	}
	e.hidden = out.Hidden
	e.draft.begin()
	first := 0
	for i, s := range e.fed {
		n := len(e.spans[i].Tokens) - e.spans[i].Drafts
		if e.spans[i].Want > 0 {
			n += s.advance(out.Logits[i])
			e.blame(s.fault)
			e.draft.Held(&s.record, e.spans[i].Drafts, s.accepted)
			s.record.Count(e.spans[i].Drafts, s.accepted)
			s.alone = false
		} else if s.ahead != nil && s.target.Len() == len(s.tokens) {
			s.finish = finishRead
		}
		s.row = first + n - 1
		e.draft.add(s, out.Hidden, first, n, e.cache != nil)
		first += len(e.spans[i].Tokens)
	}
	e.draft.verified(e.fed, e.spans, time.Since(start))
	if e.lane.reading {
		return e.draft.learn(e.o.Drafter)
	}
	return e.draft.run(e.o.Drafter)
}

// advance takes the guesses that hold and the token after them into the text. It returns
// how many of them the state keeps: those before the last token, which is fed next or, if it
// ends the text, never. A panic, as of a constraint, ends this sequence and no other.
func (s *sequence) advance(logits [][]float32) (kept int) {
	defer func() {
		if p := recover(); p != nil {
			s.fault, kept = newFault(p), 0
		}
	}()
	accepted, next := s.req.Rule.Verify(s.sampler, s.draft, logits)
	if next < 0 {
		s.fault = errNoNumber
		return 0
	}
	for ; kept <= accepted; kept++ {
		t := Token{ID: next}
		if kept < accepted {
			t.ID, t.Draft = s.draft.Tokens[kept], kept+1
			s.accepted++
		} else if s.req.Trace {
			t.Rejected = slices.Clone(s.draft.Tokens[accepted:])
		}
		if !s.append(t, logits[kept]) || kept == accepted {
			break
		}
	}
	s.announce()
	s.target.Commit(kept)
	return kept
}
