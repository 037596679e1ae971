package engine

import (
	"errors"
	"time"

	"github.com/foretoken/foretoken/internal/spec"
)

// addPhases adds the total time of a round to the phases.
func (e *Engine) addPhases(took time.Duration) {
	p := &e.phases
	p.Other = took - p.Forward - p.Sample - p.Draft
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Phases.add(*p)
}

// Stats are the current statistics. Any goroutine may call it.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	s := e.stats
	s.Waiting = e.waiting.Len()
	s.Finished = map[Finish]int64{}
	for reason, n := range e.stats.Finished {
		s.Finished[reason] = n
	}
	if s.Background.Waiting = len(e.background.waiting); e.background.current != nil {
		s.Background.Waiting++
	}
	cache := e.cache
	e.mu.Unlock()
	s.Memory = e.pool.Stats()
	if cache != nil {
		s.Cache = cache.Stats()
	}
	if e.o.Shared != nil {
		s.Shared = e.o.Shared.Stats()
	}
	return s
}

// observe records a successful round and its time, drafting included.
func (e *Engine) observe(took time.Duration) {
	e.tally.Took = took
	e.addPhases(took)
	for _, s := range e.batch {
		s.rounds++
		s.batchSum += len(e.batch)
	}
	e.sched.Last = took
	if e.tally.Prompt == 0 {
		e.cost().ObserveRest(took - e.phases.Forward - e.phases.Sample)
	}
	e.locked(func() {
		e.stats.Rounds++
		e.stats.TokenTime = time.Duration(e.cost().PromptRow() * float64(time.Second))
		e.stats.Tokens += int64(e.tally.Tokens)
		e.stats.Forced += int64(e.tally.Forced)
		for j := range spec.MaxDepth {
			e.stats.Drafted[j] += e.tally.draftedAt[j]
			e.stats.Accepted[j] += e.tally.acceptedAt[j]
		}
	})
	if e.o.Observe == nil {
		return
	}
	var f *Fault
	if err := e.tell(e.tally.Round); errors.As(err, &f) && !e.observerFailed {
		e.observerFailed = true // once will do
		e.o.Log.Error("the observer of rounds panicked", "error", f, "stack", string(f.Stack))
	}
}

// tell calls the observer. A panic there is only logged.
func (e *Engine) tell(r Round) (err error) {
	defer caught(&err)
	e.o.Observe(r)
	return nil
}
