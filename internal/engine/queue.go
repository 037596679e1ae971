package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
)

// claims orders sequences by who is served first: the higher priority, then the earlier
// arrival.
func claims(a, b *sequence) int {
	return cmp.Or(cmp.Compare(b.req.Priority, a.req.Priority), cmp.Compare(a.arrival, b.arrival))
}

// enqueue puts a sequence among those that wait. The mutex is held.
func (e *Engine) enqueue(s *sequence) {
	at, _ := slices.BinarySearchFunc(e.waiting, s, claims)
	e.waiting = slices.Insert(e.waiting, at, s)
}

// admit drops canceled sequences and takes in waiting ones. It reports false when the
// engine is to end, and has ended all sequences then.
func (e *Engine) admit() bool {
	for _, s := range e.leaving() {
		e.end(s)
	}
	e.tidyAhead()
	for e.admitNext() {
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Running = len(e.running)
	return !e.draining || len(e.running)+len(e.waiting) > 0
}

// leaving takes the sequences that are to end out of the lists.
func (e *Engine) leaving() (ended []*sequence) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, list := range []*[]*sequence{&e.running, &e.waiting} {
		*list = slices.DeleteFunc(*list, func(s *sequence) bool {
			if err := s.canceled(); err != nil {
				s.fault = err
			} else if e.closed {
				s.fault = ErrClosed
			} else if e.broken != nil {
				s.fault = e.broken
			}
			if s.fault == nil {
				return false
			}
			ended = append(ended, s)
			return true
		})
	}
	return ended
}

// canceled is the error of the request's context, which is not ours: it may panic.
func (s *sequence) canceled() (err error) {
	defer caught(&err)
	return s.ctx.Err()
}

// admitNext takes the first of those that wait in, if there is room for it, and reports
// whether to look for another. One of higher priority may take the room of a running one.
func (e *Engine) admitNext() bool {
	s := e.first()
	if s == nil {
		return false
	}
	e.candidate = s
	again := e.place(s)
	e.candidate = nil
	return again
}

// place is admitNext for the one whose turn it is.
func (e *Engine) place(s *sequence) bool {
	if e.fetch(s) {
		return true
	}
	for len(e.running) >= e.o.MaxBatch || !e.free(e.bytes(min(s.limit, len(s.tokens)+spec.MaxDepth+1))) {
		if len(e.running) == 0 {
			break // nothing more can be freed, and it was found to fit
		}
		last := e.running[len(e.running)-1]
		if last.req.Priority >= s.req.Priority {
			return false
		}
		e.preempt(last)
	}
	e.locked(func() {
		at := slices.Index(e.waiting, s)
		e.waiting = slices.Delete(e.waiting, at, at+1)
	})
	switch err := e.open(s); {
	case errors.Is(err, state.ErrFull) && len(e.running) > 0: // it will fit when others have ended
		e.close(s)
		e.locked(func() { e.enqueue(s) })
		return false
	case err != nil:
		s.fault = err
		e.blame(err)
		e.end(s)
		return true
	}
	at, _ := slices.BinarySearchFunc(e.running, s, claims)
	e.running = slices.Insert(e.running, at, s)
	return true
}

// first is the first of those that wait for nothing but their turn, nil if there is none.
func (e *Engine) first() *sequence {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.waiting {
		if !s.fetching.Load() {
			return s
		}
	}
	return nil
}

// bytes is the memory of a sequence of so many tokens.
func (e *Engine) bytes(tokens int) int64 {
	n := e.need()
	return n.Bytes(tokens)
}

// need is what a sequence takes at most. Nothing depends on how many tokens are guessed for
// it: the limit of an answer that is as long as there is memory for must not.
func (e *Engine) need() state.Need {
	var draft state.Layout
	if e.o.Drafter != nil {
		draft = e.o.Drafter.Layout()
	}
	return spec.Need(e.model.Layout(), draft, e.model.Info().Width)
}

// fit refuses a request that could not be served if it were alone. One that names no number
// of tokens gets as many as there is memory for.
func (e *Engine) fit(s *sequence) error {
	need, budget := e.need(), e.pool.Budget()
	least := min(s.limit, len(s.tokens)+1)
	if s.req.MaxTokens > 0 {
		least = s.limit
	}
	most := need.Tokens(budget, s.limit)
	if most < least {
		return fmt.Errorf("%w: %d tokens of prompt and answer need %d bytes of memory, and there are %d for all sequences", ErrTooLarge, least, need.Bytes(least), budget)
	}
	s.limit = most
	return nil
}

// free reports whether so many bytes are free, once the cache has given up what it must.
func (e *Engine) free(bytes int64) bool {
	missing := func() int64 { return bytes - (e.pool.Budget() - e.pool.Used()) }
	if n := missing(); n > 0 && e.cache != nil {
		e.reclaim(n)
	}
	return missing() <= 0
}

// open gives a sequence its memory, and what the cache knows of the beginning of its tokens.
func (e *Engine) open(s *sequence) error {
	if s.started.IsZero() {
		s.started = time.Now()
	}
	if err := e.allot(s); err != nil || e.cache == nil {
		return err
	}
	s.boundaries = boundaries(s)
	err := e.restore(s)
	if errors.Is(err, state.ErrFull) {
		// What was found is held while it is taken over, and there is no room for both.
		e.close(s)
		s.cached = 0
		return e.allot(s)
	}
	return err
}

// allot gives a sequence empty memory.
func (e *Engine) allot(s *sequence) error {
	var err error
	if s.target, err = e.pool.Open(e.model.Layout()); err != nil {
		return err
	}
	room := 0
	if d := e.o.Drafter; d != nil && s.req.Depth != spec.DepthOff {
		s.record.Drafter, s.record.Rule = d.Name(), s.req.Rule
		if s.draftState, err = e.pool.Open(d.Layout()); err != nil {
			return err
		}
		if d.Layout() != (state.Layout{}) && s.ahead == nil { // it is something that learns
			room = spec.Backlog
		}
	}
	s.backlog = e.pool.Rows(room)
	return nil
}

// close gives a sequence's memory back.
func (e *Engine) close(s *sequence) {
	for _, m := range []*state.State{s.target, s.draftState} {
		if m != nil {
			m.Close()
		}
	}
	if s.backlog != nil {
		s.backlog.Close()
	}
	s.target, s.draftState, s.backlog, s.hostState, s.span = nil, nil, nil, nil, model.Span{}
}

// preempt takes a running sequence's memory away and has it wait. When it is its turn again
// it reads its prompt and its answer so far anew: the same tokens give the same state, and
// the guesses that it has are still its guesses.
func (e *Engine) preempt(s *sequence) {
	e.running = slices.DeleteFunc(e.running, func(r *sequence) bool { return r == s })
	e.close(s)
	s.stream.wake()
	s.preempted++
	e.locked(func() {
		e.stats.Preemptions++
		e.enqueue(s)
	})
}

// reserve makes room for n more tokens of s, if need be at the cost of those with a lesser
// claim. It reports false if s has to wait itself, or cannot go on at all.
func (e *Engine) reserve(s *sequence, n int) bool {
	for {
		err := e.hold(s, n)
		switch {
		case err == nil:
			return true
		case !errors.Is(err, state.ErrFull) || len(e.running) == 1:
			s.fault = err
			return false
		}
		last := e.running[len(e.running)-1]
		e.preempt(last)
		if last == s {
			return false
		}
	}
}

// hold makes room for n more tokens of s.
func (e *Engine) hold(s *sequence, n int) error {
	if err := s.target.Reserve(n); err != nil || s.draftState == nil {
		return err
	}
	return s.draftState.Reserve(n + s.backlog.Len() + spec.MaxDepth) // its guesses feed on guesses
}

// end gives a sequence's memory back and closes its stream with its fault, if it has one.
// Whatever goes wrong meanwhile, its reader is told; and once is enough.
func (e *Engine) end(s *sequence) {
	if s.ended {
		return
	}
	s.ended = true
	err := errors.Join(
		try(func() { e.close(s) }), // memory that is not given back is not used again
		try(func() { s.unwatch() }),
		try(func() { e.draft.Settle(&s.record.Stats) }),
	)
	e.blame(err)
	e.locked(func() {
		e.stats.count(s)
		if key := s.req.Conversation; key != "" {
			if e.talks[key]--; e.talks[key] == 0 {
				delete(e.talks, key)
			}
		}
	})
	s.stream.close(s.result(), s.fault)
}
