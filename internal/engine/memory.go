package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
)

// bytes is the memory of a sequence of n tokens.
func (e *Engine) bytes(n int) int64 {
	need := e.need()
	return need.Bytes(n)
}

// need is the maximum memory of a sequence. It does not depend on the draft depth, because the
// maximum length of an answer must not.
func (e *Engine) need() state.Need {
	need := spec.Needs(e.model.Layout(), e.o.Drafter, e.model.Info().Width)
	need.Round = e.o.RoundTokens
	return need
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
		return fmt.Errorf("%w: %d tokens of prompt and answer need %d bytes of memory, but all sequences together have %d", ErrTooLarge, wanted, need.Bytes(wanted), budget)
	}
	s.limit = limit
	return nil
}

// free reports whether bytes are free, after it has taken what is needed from the background and the cache.
// If all of the cache would not be enough, the cache keeps its entries: the request may resume from one.
func (e *Engine) free(bytes int64) bool {
	missing := func() int64 { return bytes - (e.pool.Budget() - e.pool.Used()) }
	if s := e.background.current; s != nil && missing() > 0 {
		s.release() // it restarts behind the cached prefix
	}
	if n := missing(); n > 0 && e.cache != nil && e.cache.CanShrink(n) {
		e.cache.Shrink(n)
	}
	return missing() <= 0
}

// affords reports whether a sequence fits into the memory up to its end if its state is deepened.
func (e *Engine) affords(s *sequence) bool {
	need := e.need()
	return need.Budget(1, s.limit) <= e.pool.Budget()
}

// deepen makes space for a long copy if there is memory for it. Otherwise the copy is cut. A device that has failed
// is noticed by the pass.
func (e *Engine) deepen(s *sequence) {
	if e.affords(s) && e.free(e.model.Layout().DeepBytes()) {
		s.target.Deepen() //nolint:errcheck // see above
	}
}

// open gives a sequence its memory, and the longest cached prefix of its tokens.
func (e *Engine) open(s *sequence) error {
	if s.started.IsZero() {
		s.started = time.Now()
	}
	if err := e.allot(s); err != nil || e.cache == nil {
		return err
	}
	s.boundaries = boundaries(s, e.model.Layout().Boundary())
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
	if d := e.o.Drafter; d != nil && s.req.Depth != spec.DepthOff {
		s.record.Drafter, s.record.Rule = d.Name(), s.req.Rule
		s.drafts = make([]draftMemory, len(e.drafting.parts))
		for k := range s.drafts {
			if p, m := &e.drafting.parts[k], &s.drafts[k]; p.keeps {
				if m.state, err = e.pool.Open(p.Layout()); err != nil {
					return err
				}
				m.backlog = e.pool.Rows(spec.Backlog)
			}
		}
	}
	return nil
}

// release returns a sequence's memory to the pool.
func (s *sequence) release() {
	if s.target != nil {
		s.target.Close()
	}
	for _, m := range s.drafts {
		if m.state != nil {
			m.state.Close()
		}
		if m.backlog != nil {
			m.backlog.Close()
		}
	}
	for i := range s.inputs.parts {
		s.inputs.parts[i].close()
	}
	s.target, s.drafts, s.span, s.waitingForVision = nil, nil, model.Span{}, false
}

// preempt releases a running sequence's memory and puts it into the queue. Once it is admitted again its
// prompt and its answer so far are prefilled: the same tokens give the same state, and its
// drafts stay valid.
func (e *Engine) preempt(s *sequence) {
	e.running = slices.DeleteFunc(e.running, func(r *sequence) bool { return r == s })
	s.release()
	s.stream.wake()
	s.claim.Preempted++
	e.locked(func() {
		e.stats.Preemptions++
		e.waiting.Add(s)
	})
}

// reserve makes space for n more tokens of s, if necessary by preempting sequences of lower
// priority. It reports false if s has to wait itself, or cannot continue at all.
func (e *Engine) reserve(s *sequence, n int) bool {
	for {
		err := s.grow(n)
		switch {
		case err == nil:
			return true
		case errors.Is(err, state.ErrFull) && len(e.pipeline.flying) > 0: // none in flight is preempted
			e.pipeline.settling = true
			return false
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

// grow makes space for n more tokens in the sequence's states. The drafter has not been fed those in flight.
func (s *sequence) grow(n int) error {
	err := s.target.Reserve(n)
	for _, m := range s.drafts {
		if m.state != nil && err == nil {
			err = m.state.Reserve(s.ahead + n + m.backlog.Len() + spec.Ahead(m.state.Layout())) // drafts are fed to the drafter too
		}
	}
	return err
}

// end releases a sequence's memory and closes its stream with its fault, if it has one.
// The reader is told exactly once, also after a panic here.
func (e *Engine) end(s *sequence) {
	if s.ended {
		return
	}
	s.ended = true
	e.blame(errors.Join(
		try(s.release), // memory that is not returned is not used again
		try(func() { s.unwatch() }),
		try(func() { e.drafting.controller.Settle(&s.record.Stats) }),
	))
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

// reclaim frees spare bytes: the memory of the current background prefill, then
// entries of the cache. For that prefill itself, only entries are freed that were last used
// before it came: those used since are worth more.
func (e *Engine) reclaim(bytes int64) {
	if e.background.active {
		e.cache.ShrinkOlder(bytes, e.background.current.background.age)
		return
	}
	before := e.pool.Used()
	if s := e.background.current; s != nil {
		s.release() // it restarts behind the cached prefix
	}
	if missing := bytes - (before - e.pool.Used()); missing > 0 {
		e.cache.Shrink(missing)
	}
}

// openCache opens the prefix cache, if there is to be one.
func (e *Engine) openCache() {
	c := newCache(e.pool, &e.o, e.model.Layout(), e.cost().PromptRow)
	e.locked(func() { e.cache = c })
	if c != nil {
		e.pool.OnFull(e.reclaim)
	}
}

// accept is the sequence of a request that can be served.
func (e *Engine) accept(r Request) (*sequence, error) {
	s, err := newSequence(r, e.model.Info(), e.o.Context)
	if err == nil && len(r.Inputs) > 0 && e.o.Tower == nil {
		err = errNoTower
	}
	if err == nil {
		err = e.fit(s)
	}
	return s, err
}

// endBackground ends the current background prefill.
func (e *Engine) endBackground(s *sequence) {
	e.blame(try(s.release))
	e.locked(func() {
		e.background.current = nil
		if s.finish != "" && s.fault == nil {
			e.stats.Background.Completed++
		} else {
			e.stats.Background.Dropped++
		}
	})
	s.background.end()
}

// restore gives a new sequence the longest cached prefix of its tokens. Drafts of the ratio rule affect the
// text, so the drafter must know the whole prefix. Otherwise it may begin behind the prefix.
func (e *Engine) restore(s *sequence) (err error) {
	hit := e.cache.Find(s.req.Salt, s.fedText(len(s.tokens)), s.drafted() && s.req.Rule == spec.Ratio)
	if hit == nil {
		return nil
	}
	defer hit.Release()
	var kept []*draftMemory // in the order of the cache
	var states []*state.State
	for k := range s.drafts {
		if m := &s.drafts[k]; m.state != nil {
			kept, states = append(kept, m), append(states, m.state)
		}
	}
	if err = hit.Restore(s.target, states...); err != nil {
		return err
	}
	if s.target.Drafts() > s.target.Layout().MaxDrafts && !e.affords(s) {
		return state.ErrFull
	}
	if s.claim.Preempted == 0 {
		s.cached = hit.Len()
	}
	for i, m := range kept {
		if row := hit.Hidden(i); row.Rows > 0 { // the first half of a pair; the second half is fed next
			to, err := m.backlog.Add(row)
			if err != nil {
				return err
			}
			e.pool.Device().Copy(to, row)
		}
	}
	return nil
}
