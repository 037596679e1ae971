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

// byPriority orders sequences by who is served first: the higher priority, then the earlier
// arrival.
func byPriority(a, b *sequence) int {
	return cmp.Or(cmp.Compare(b.req.Priority, a.req.Priority), cmp.Compare(a.arrival, b.arrival))
}

// byUse orders running sequences by who keeps memory: likewise, but offline ones come after others
// of their priority. One that was preempted before does not, for it must end sometime.
func byUse(a, b *sequence) int {
	yields := func(s *sequence) int {
		if s.req.Offline && s.preempted == 0 {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(b.req.Priority, a.req.Priority), cmp.Compare(yields(a), yields(b)), cmp.Compare(a.arrival, b.arrival))
}

// enqueue has a sequence wait. The mutex is held.
func (e *Engine) enqueue(s *sequence) {
	at, _ := slices.BinarySearchFunc(e.waiting, s, byPriority)
	e.waiting = slices.Insert(e.waiting, at, s)
}

// admit drops canceled sequences and takes in waiting ones. It reports false when the
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
	e.stats.Running, e.stats.Tower = len(e.running), e.sight.stats
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

// admitNext starts the first of those that wait, if there is capacity for it, and reports
// whether to look for another. One of higher priority may preempt a running one.
func (e *Engine) admitNext() bool {
	s := e.first()
	if s == nil {
		return false
	}
	e.candidate = s
	again := e.place(s)
	e.candidate = nil
	return again && (!s.req.Offline || e.offline()) // one at a time beside others: to open a state takes time
}

// place is admitNext for s, the first of those that wait.
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
		s.release()
		e.locked(func() { e.enqueue(s) })
		return false
	case errors.Is(err, state.ErrFailed) && !s.isolated:
		s.release()
		s.isolated = true
		e.locked(func() { e.enqueue(s) })
		e.o.Log.Warn("the device has failed; all sequences begin again, one by one", "error", err)
		e.restartAll(true)
		return true
	case err != nil:
		s.fault = err
		e.blame(err)
		e.end(s)
		return true
	}
	at, _ := slices.BinarySearchFunc(e.running, s, byUse)
	e.running = slices.Insert(e.running, at, s)
	return true
}

// first is the first of those that wait and whose prefix is not being fetched, nil if there
// is none. One that will wait longer, for those before it take all places, is not looked at: its
// prefix would lie in memory meanwhile.
func (e *Engine) first() *sequence {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, s := range e.waiting {
		switch {
		case s.fetching.Load():
		case i > 0 && !s.looked && i+len(e.running) >= e.o.MaxBatch:
			return nil
		default:
			return s
		}
	}
	return nil
}

// bytes is the memory of a sequence of n tokens.
func (e *Engine) bytes(n int) int64 {
	need := e.need()
	return need.Bytes(n)
}

// need is the maximum memory of a sequence. It does not depend on the draft depth, for the limit
// of an answer that is as long as there is memory for must not.
func (e *Engine) need() state.Need {
	var draft state.Layout
	if e.o.Drafter != nil {
		draft = e.o.Drafter.Layout()
	}
	return spec.Need(e.model.Layout(), draft, e.model.Info().Width)
}

// fit refuses a request that could not be served even alone. One without MaxTokens gets as
// many as there is memory for.
func (e *Engine) fit(s *sequence) error {
	need, budget := e.need(), e.pool.Budget()
	wanted := min(s.limit, len(s.tokens)+1)
	if s.req.MaxTokens > 0 {
		wanted = s.limit
	}
	limit := need.Tokens(budget, s.limit)
	if limit < wanted {
		return fmt.Errorf("%w: %d tokens of prompt and answer need %d bytes of memory, and there are %d for all sequences", ErrTooLarge, wanted, need.Bytes(wanted), budget)
	}
	s.limit = limit
	return nil
}

// free reports whether bytes are free, once the background and the cache have given up what they must.
// The cache keeps what it has if all of it would not be enough: whoever waits may begin with it.
func (e *Engine) free(bytes int64) bool {
	missing := func() int64 { return bytes - (e.pool.Budget() - e.pool.Used()) }
	if s := e.background.current; s != nil && missing() > 0 {
		s.release() // it restarts behind what the cache has
	}
	if n := missing(); n > 0 && e.cache != nil && e.cache.CanShrink(n) {
		e.cache.Shrink(n)
	}
	return missing() <= 0
}

// open gives a sequence its memory, and the longest prefix of its tokens that the cache has.
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
		// The entry stays in the cache while it is copied, and there is no memory for both.
		s.release()
		s.cached = 0
		return e.allot(s)
	}
	return err
}

// allot gives a sequence empty states.
func (e *Engine) allot(s *sequence) error {
	var err error
	if s.target, err = e.pool.Open(e.model.Layout()); err != nil {
		return err
	}
	backlog := 0
	if d := e.o.Drafter; d != nil && s.req.Depth != spec.DepthOff {
		s.record.Drafter, s.record.Rule = d.Name(), s.req.Rule
		if s.draftState, err = e.pool.Open(d.Layout()); err != nil {
			return err
		}
		if !d.Layout().Empty() && s.background == nil { // it has a KV cache to fill
			backlog = spec.Backlog
		}
	}
	s.backlog = e.pool.Rows(backlog)
	return nil
}

// release gives a sequence's memory back to the pool.
func (s *sequence) release() {
	for _, m := range []*state.State{s.target, s.draftState} {
		if m != nil {
			m.Close()
		}
	}
	if s.backlog != nil {
		s.backlog.Close()
	}
	s.joint.Release()
	for i := range s.inputs.parts {
		s.inputs.parts[i].close()
	}
	s.joint, s.blind, s.gap = nil, false, false
	s.target, s.draftState, s.backlog, s.hostState, s.span = nil, nil, nil, nil, model.Span{}
}

// preempt takes a running sequence's memory away and has it wait. Once it is admitted again its
// prompt and its answer so far are prefilled: the same tokens give the same state, and its
// drafts are still its drafts.
func (e *Engine) preempt(s *sequence) {
	e.running = slices.DeleteFunc(e.running, func(r *sequence) bool { return r == s })
	s.release()
	s.stream.wake()
	s.preempted++
	e.locked(func() {
		e.stats.Preemptions++
		e.enqueue(s)
	})
}

// reserve makes space for n more tokens of s, if need be by preempting those of lower
// priority. It reports false if s has to wait itself, or cannot go on at all.
func (e *Engine) reserve(s *sequence, n int) bool {
	for {
		err := s.grow(n)
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

// grow makes space for n more tokens in the sequence's states.
func (s *sequence) grow(n int) error {
	if err := s.target.Reserve(n); err != nil || s.draftState == nil {
		return err
	}
	return s.draftState.Reserve(n + s.backlog.Len() + spec.MaxDepth) // drafts are fed to the drafter too
}

// end releases a sequence's memory and closes its stream with its fault, if it has one.
// Whatever goes wrong meanwhile, its reader is told, and only once.
func (e *Engine) end(s *sequence) {
	if s.ended {
		return
	}
	s.ended = true
	err := errors.Join(
		try(s.release), // memory that is not given back is not used again
		try(func() { s.unwatch() }),
		try(func() { e.drafting.controller.Settle(&s.record.Stats) }),
	)
	e.blame(err)
	e.locked(func() {
		e.stats.count(s)
		if key := s.req.Conversation; key != "" {
			if e.conversations[key]--; e.conversations[key] == 0 {
				delete(e.conversations, key)
			}
		}
	})
	s.stream.close(s.result(), s.fault)
}
