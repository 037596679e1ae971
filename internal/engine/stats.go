package engine

import (
	"context"
	"errors"
	"time"

	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/prefix/store"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
)

// Round is the result of one round.
type Round struct {
	Took      time.Duration
	Sequences int // fed
	Rows      int // of all sequences: tokens and drafts
	Prompt    int // rows of prompts among Rows
	Offline   int // rows of offline requests among Rows
	Tokens    int // generated
	Drafted   int // drafts that could be rejected
	Accepted  int // of the drafts
	Forced    int // tokens fed as drafts because the constraint allows no other
}

// Stats are the counters of an engine, and its current state.
type Stats struct {
	Running, Waiting int // requests

	Rounds            int64
	Finished          map[Finish]int64 // requests that ended by themselves, by reason
	Canceled          int64            // requests whose context ended
	Faults            int64            // requests that ended with another error
	PromptTokens      int64            // of ended requests
	CachedTokens      int64            // found in the prefix cache among them
	Tokens            int64            // generated
	Forced            int64            // fed as drafts because the constraint allows no other, among them
	Preemptions       int64
	Drafted, Accepted [spec.MaxDepth]int64 // drafts by position, those after a rejected one left out, and how many were accepted

	Phases     Phases
	Tower      TowerStats
	Background BackgroundStats
	Memory     state.Stats
	Cache      prefix.Stats // of Memory.Used; zero without a cache
	Shared     store.SharedStats
	TokenTime  time.Duration // of a token of a prompt, lately; 0: not known
}

// Phases is where the time of rounds went, those of background prefills included. Queued work counts
// in the phase that waits for it.
type Phases struct {
	Forward time.Duration // the model's passes, until their logits are there
	Sample  time.Duration // choosing tokens: samplers, grammars, verification
	Draft   time.Duration // the drafter
	Other   time.Duration // scheduling, memory, the prefix cache
}

func (p *Phases) add(x Phases) {
	p.Forward, p.Sample = p.Forward+x.Forward, p.Sample+x.Sample
	p.Draft, p.Other = p.Draft+x.Draft, p.Other+x.Other
}

// BackgroundStats are the counters of background prefills. They are not requests, and their
// rounds do not count among Rounds.
type BackgroundStats struct {
	Waiting   int   // conversations, the one that is being prefilled included
	Tokens    int64 // computed
	Completed int64 // prompts, to their end
	Dropped   int64 // prompts, superseded or for want of memory
}

// count counts a request that ends. The mutex is held.
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

// tally is the outcomes of a round's sequences, added up.
type tally struct {
	Round
	draftedAt, acceptedAt [spec.MaxDepth]int64
}

// newTally adds the outcomes of a batch up.
func newTally(batch []*sequence) tally {
	t := tally{Round: Round{Sequences: len(batch)}}
	for _, s := range batch {
		o := &s.outcome
		t.Rows += o.Rows
		drafted, accepted, forced := o.Count()
		t.Drafted += drafted
		t.Accepted += accepted
		t.Forced += forced
		t.Tokens += o.Tokens
		if o.Prefill {
			t.Prompt += o.Rows
		}
		if s.req.Offline {
			t.Offline += o.Rows
		}
		o.Speculative(func(j int, accepted bool) {
			t.draftedAt[j]++
			if accepted {
				t.acceptedAt[j]++
			}
		})
	}
	return t
}
