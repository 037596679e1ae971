package engine

import (
	"context"
	"errors"
	"time"

	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
)

// Round is what happened in one round.
type Round struct {
	Took      time.Duration
	Sequences int // fed
	Rows      int // of all of them: tokens and guesses
	Prompt    int // among Rows, those of prompts
	Tokens    int // generated
	Drafted   int
	Accepted  int // of the guesses
}

// Stats is what an engine has done so far, and what it is doing.
type Stats struct {
	Running, Waiting int // requests

	Rounds            int64
	Finished          map[Finish]int64 // requests that ended by themselves, by reason
	Canceled          int64            // requests whose context ended
	Faults            int64            // requests that ended with another error
	PromptTokens      int64            // of ended requests
	CachedTokens      int64            // among them, those that were not computed anew
	Tokens            int64            // generated
	Preemptions       int64
	Drafted, Accepted [spec.MaxDepth]int64 // guesses by position, made after right ones only, and how many were right

	Background BackgroundStats
	Memory     state.Stats
	Cache      prefix.Stats // of Memory.Used; zero without a cache
}

// AheadStats is what was done about prompts to be read in advance. None of them is a request,
// and none of their rounds counts among Rounds.
type BackgroundStats struct {
	Waiting int   // conversations, the one included that is being read
	Tokens  int64 // computed
	Read    int64 // prompts, to their end
	Dropped int64 // prompts, for something better to do or for want of memory
}

// Stats is the engine's account at this moment. Any goroutine may ask.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	s := e.stats
	s.Waiting = len(e.waiting)
	s.Finished = map[Finish]int64{}
	for reason, n := range e.stats.Finished {
		s.Finished[reason] = n
	}
	if s.Background.Waiting = len(e.lane.waiting); e.lane.current != nil {
		s.Background.Waiting++
	}
	cache := e.cache
	e.mu.Unlock()
	s.Memory = e.pool.Stats()
	if cache != nil {
		s.Cache = cache.Stats()
	}
	return s
}

// count takes in a request that ends. The mutex is held.
func (t *Stats) count(s *sequence) {
	t.PromptTokens += int64(len(s.req.Prompt))
	t.CachedTokens += int64(s.cached)
	switch {
	case s.fault == nil:
		if t.Finished == nil {
			t.Finished = map[Finish]int64{}
		}
		t.Finished[s.finish]++
	case errors.Is(s.fault, context.Canceled) || errors.Is(s.fault, context.DeadlineExceeded):
		t.Canceled++
	default:
		t.Faults++
	}
}

// observe takes in a round that went well.
func (e *Engine) observe(took time.Duration) {
	r := Round{Took: took, Sequences: len(e.fed)}
	generating := false
	for i, s := range e.fed {
		span := &e.spans[i]
		r.Rows += len(span.Tokens)
		r.Drafted += span.Drafts
		if reads(span) {
			r.Prompt += len(span.Tokens)
		} else {
			generating = true
		}
		if span.Want > 0 {
			r.Accepted += s.accepted
			r.Tokens += s.accepted + 1
		}
		s.rounds++
		s.batchSum += len(e.fed)
	}
	e.pace.round(took, r.Prompt, generating)
	e.locked(func() {
		e.stats.Rounds++
		e.stats.Tokens += int64(r.Tokens)
		for i, s := range e.fed {
			for j := range min(e.spans[i].Drafts, s.accepted+1) {
				e.stats.Drafted[j]++
			}
			for j := range s.accepted {
				e.stats.Accepted[j]++
			}
		}
	})
	if e.o.Observe == nil {
		return
	}
	var f *Fault
	if err := e.tell(r); errors.As(err, &f) && !e.unseen {
		e.unseen = true // once will do
		e.o.Log.Error("the observer of rounds fails", "error", f, "stack", string(f.Stack))
	}
}

// tell calls the observer. A panic is its own affair.
func (e *Engine) tell(r Round) (err error) {
	defer caught(&err)
	e.o.Observe(r)
	return nil
}
