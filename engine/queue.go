package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/foretoken/foretoken/backend"
	"github.com/foretoken/foretoken/model"
	"github.com/foretoken/foretoken/spec"
	"github.com/foretoken/foretoken/state"
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

// admit drops cancelled sequences and takes in waiting ones. It reports false when the
// engine is to end, and has ended all sequences then.
func (e *Engine) admit() bool {
	e.mu.Lock()
	closed := e.closed
	dropped := func(s *sequence) bool {
		if err := s.ctx.Err(); err != nil {
			s.fault = err
		} else if closed {
			s.fault = ErrClosed
		}
		return s.fault != nil
	}
	var ended []*sequence
	for _, list := range []*[]*sequence{&e.running, &e.waiting} {
		*list = slices.DeleteFunc(*list, func(s *sequence) bool {
			if !dropped(s) {
				return false
			}
			ended = append(ended, s)
			return true
		})
	}
	e.mu.Unlock()
	for _, s := range ended {
		e.end(s)
	}
	for e.admitNext() {
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Running = len(e.running)
	return !e.draining || len(e.running)+len(e.waiting) > 0
}

// admitNext takes the first of those that wait in, if there is room for it, and reports
// whether to look for another. One of higher priority may take the room of a running one.
func (e *Engine) admitNext() bool {
	s := e.first()
	if s == nil {
		return false
	}
	if e.fetch(s) {
		return true
	}
	for len(e.running) >= e.o.MaxBatch || !e.free(e.bytes(len(s.tokens)+spec.MaxDepth+1)) {
		if len(e.running) == 0 {
			break // nothing more can be freed, and it was found to fit
		}
		last := e.running[len(e.running)-1]
		if last.req.Priority >= s.req.Priority {
			return false
		}
		e.preempt(last)
	}
	e.mu.Lock()
	at := slices.Index(e.waiting, s)
	e.waiting = slices.Delete(e.waiting, at, at+1)
	e.mu.Unlock()
	if s.fault = e.open(s); s.fault != nil {
		e.end(s)
		return true
	}
	at, _ = slices.BinarySearchFunc(e.running, s, claims)
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
	pages := int64(tokens+backend.PageTokens-1) / backend.PageTokens
	n := int64(0)
	for _, l := range e.layouts() {
		n += l.RecurrentBytes() + pages*l.PageBytes()
	}
	return n
}

// layouts are the memories of a sequence.
func (e *Engine) layouts() []state.Layout {
	list := []state.Layout{e.model.Layout()}
	if e.o.Drafter != nil {
		list = append(list, e.o.Drafter.Layout())
	}
	return list
}

// fit refuses a request that could not be served if it were alone. One that names no number
// of tokens gets as many as there is memory for.
func (e *Engine) fit(s *sequence) error {
	budget := e.pool.Budget()
	most := min(s.limit, len(s.tokens)+1)
	if s.req.MaxTokens > 0 {
		most = s.limit
	}
	if need := e.bytes(most + spec.MaxDepth); need > budget {
		return fmt.Errorf("%w: %d tokens of prompt and answer need %d bytes of memory, and there are %d for all sequences", ErrTooLarge, most, need, budget)
	}
	for s.limit > most && e.bytes(s.limit+spec.MaxDepth) > budget {
		s.limit = max(most, s.limit-backend.PageTokens)
	}
	return nil
}

// free reports whether so many bytes are free, once the cache has given up what it must.
func (e *Engine) free(bytes int64) bool {
	missing := bytes - (e.pool.Budget() - e.pool.Used())
	return missing <= 0 || e.cache != nil && e.cache.Shrink(missing) >= missing
}

// open gives a sequence its memory.
func (e *Engine) open(s *sequence) error {
	if s.started.IsZero() {
		s.started = time.Now()
	}
	var err error
	if s.target, err = e.pool.Open(e.model.Layout()); err != nil {
		return err
	}
	room := 0
	if d := e.o.Drafter; d != nil && s.req.Depth != 0 {
		s.record.Drafter, s.record.Rule = d.Name(), s.req.Rule
		if s.memory, err = e.pool.Open(d.Layout()); err != nil {
			return err
		}
		if d.Layout() != (state.Layout{}) { // it is something that learns
			room = backlog
		}
	}
	s.backlog = e.pool.Rows(room)
	return e.restore(s)
}

// close gives a sequence's memory back.
func (e *Engine) close(s *sequence) {
	for _, m := range []*state.State{s.target, s.memory} {
		if m != nil {
			m.Close()
		}
	}
	if s.backlog != nil {
		s.backlog.Close()
	}
	s.target, s.memory, s.backlog, s.notes, s.span = nil, nil, nil, nil, model.Span{}
}

// preempt takes a running sequence's memory away and has it wait. When it is its turn again
// it reads its prompt and its answer so far anew: the same tokens give the same state, and
// the guesses that it has are still its guesses.
func (e *Engine) preempt(s *sequence) {
	e.running = slices.DeleteFunc(e.running, func(r *sequence) bool { return r == s })
	e.close(s)
	s.stream.wake()
	s.preempted++
	e.mu.Lock()
	e.stats.Preemptions++
	e.enqueue(s)
	e.mu.Unlock()
}

// reserve makes room for n more tokens of s, if need be at the cost of those with a lesser
// claim. It reports false if s has to wait itself, or cannot go on at all.
func (e *Engine) reserve(s *sequence, n int) bool {
	for {
		err := s.target.Reserve(n)
		if err == nil && s.memory != nil {
			err = s.memory.Reserve(n + s.backlog.Len() + spec.MaxDepth) // its guesses feed on guesses
		}
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

// end gives a sequence's memory back and closes its stream with its fault, if it has one.
func (e *Engine) end(s *sequence) {
	e.close(s)
	s.unwatch()
	e.draft.Settle(&s.record.Receipt)
	e.mu.Lock()
	e.stats.count(s)
	e.mu.Unlock()
	s.stream.close(s.result(), s.fault)
}
