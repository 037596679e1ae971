package engine

import (
	"errors"
	"slices"

	"github.com/foretoken/foretoken/internal/engine/schedule"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
)

// admit drops canceled sequences and admits waiting ones. It reports false when the
// engine is to end, and has ended all sequences then.
func (e *Engine) admit() bool {
	for _, s := range e.leaving() {
		e.end(s)
	}
	e.tidyBackground()
	for e.admitNext() {
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Running, e.stats.Tower = len(e.running), e.vision.stats
	return !e.draining || len(e.running)+e.waiting.Len() > 0
}

// leaving removes the sequences that are to end from the lists. Contexts are code of the caller:
// they are called without the mutex, so that they may call the engine.
func (e *Engine) leaving() (ended []*sequence) {
	var over error
	e.locked(func() {
		e.asked = append(e.asked[:0], e.running...)
		e.asked = slices.AppendSeq(e.asked, e.waiting.Each)
		if over = e.broken; e.closed {
			over = ErrClosed
		}
	})
	for _, s := range e.asked {
		if err := s.canceled(); err != nil {
			s.fault = err
		} else if over != nil {
			s.fault = over
		}
		if s.fault != nil && s.flying == 0 {
			ended = append(ended, s)
		}
	}
	clear(e.asked)
	if len(ended) > 0 {
		ends := func(s *sequence) bool { return s.fault != nil && s.flying == 0 }
		e.running = slices.DeleteFunc(e.running, ends)
		e.locked(func() { e.waiting.Remove(ends) })
	}
	return ended
}

// canceled is the error of the request's context, which is the caller's code: it may panic.
func (s *sequence) canceled() (err error) {
	defer caught(&err)
	return s.ctx.Err()
}

// admitNext starts the first waiting request, if there is capacity for it, and reports
// whether to try another. One of higher priority may preempt a running one.
func (e *Engine) admitNext() bool {
	s := e.first()
	if s == nil {
		return false
	}
	e.candidate = s
	again := e.place(s)
	e.candidate = nil
	return again && (!s.req.Offline || schedule.Offline(e.running)) // one at a time beside others: opening a state takes time
}

// place is admitNext for s, the first waiting request.
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
		if len(e.pipeline.flying) > 0 {
			e.pipeline.settling = true
			return false
		}
		e.preempt(last)
	}
	err := e.open(s)
	if err != nil {
		s.release()
	}
	switch {
	case errors.Is(err, state.ErrFull) && len(e.running) > 0: // it will fit when others have ended
		return false
	case errors.Is(err, state.ErrFailed) && e.renew():
		return true
	case errors.Is(err, state.ErrFailed) && !s.isolated:
		s.isolated = true
		e.o.Log.Warn("the device failed; all sequences are restarted, one by one", "error", err)
		e.restartAll(true)
		return true
	}
	e.locked(func() { e.waiting.Take(s) })
	if err != nil {
		s.fault = err
		e.blame(err)
		e.end(s)
		return true
	}
	if s.claim.Admitted == 0 {
		e.admissions++
		s.claim.Admitted = e.admissions
	}
	at, _ := slices.BinarySearchFunc(e.running, &s.claim, func(r *sequence, c *schedule.Claim) int { return r.claim.Compare(c) })
	e.running = slices.Insert(e.running, at, s)
	return true
}

// first is the first waiting request whose prefix is not being fetched, or nil.
// A request behind more requests than there is capacity for is skipped: its
// prefix would occupy memory meanwhile.
func (e *Engine) first() *sequence {
	e.mu.Lock()
	defer e.mu.Unlock()
	before := 0
	for s := range e.waiting.All {
		switch {
		case s.fetching.Load():
			before++
		case before > 0 && !s.prefixAsked && before+len(e.running) >= e.o.MaxBatch:
			return nil
		default:
			return s
		}
	}
	return nil
}
