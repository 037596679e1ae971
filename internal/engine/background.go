package engine

import (
	"slices"
	"time"

	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/spec"
)

// maxBackground is the maximum number of conversations that wait for a background prefill. The
// oldest is dropped first: its next turn has been due for longest.
const maxBackground = 32

// Prefill is a prompt to prefill in the background, for a request that will begin with it.
type Prefill struct {
	// Conversation is its conversation. There is at most one Prefill of a conversation: the
	// next replaces it, and a Request of the conversation drops it.
	Conversation string
	Prompt       []int32
	Inputs       []Input     // as Request has them
	Boundaries   []int       // likewise
	Salt         prefix.Salt // likewise
	Depth        spec.Depth  // likewise; spec.DepthOff: not for the drafter
}

// Prefill has a prompt prefilled when the engine has nothing else to do, and its state stored
// in the prefix cache. done is closed when that has happened or the prompt was dropped. An engine
// that accepts no requests returns the error that Generate returns.
func (e *Engine) Prefill(p Prefill) (done <-chan struct{}, err error) {
	j := &job{done: make(chan struct{})}
	if !e.o.Cache { // there is nowhere to store it
		j.end()
		return j.done, nil
	}
	s, err := e.accept(Request{
		Conversation: p.Conversation, Prompt: p.Prompt, Inputs: p.Inputs, Boundaries: p.Boundaries, Salt: p.Salt, Depth: p.Depth,
	})
	if err != nil {
		return nil, err
	}
	s.background, s.prefixAsked = j, true
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.refusal(); err != nil {
		return nil, err
	}
	if e.conversations[p.Conversation] > 0 { // its next turn is here already
		e.stats.Background.Dropped++
		j.end()
		return j.done, nil
	}
	j.age = e.cache.Clock()
	e.dropBackground(p.Conversation)
	if e.background.waiting = append(e.background.waiting, s); len(e.background.waiting) > maxBackground {
		e.background.waiting[0].background.end()
		e.background.waiting = slices.Delete(e.background.waiting, 0, 1)
		e.stats.Background.Dropped++
	}
	e.signal()
	return j.done, nil
}

// dropBackground drops the background prefill of a conversation. Its entries stay in the
// cache. The mutex is held.
func (e *Engine) dropBackground(conversation string) {
	e.background.waiting = slices.DeleteFunc(e.background.waiting, func(s *sequence) bool {
		if s.req.Conversation != conversation {
			return false
		}
		s.background.end()
		e.stats.Background.Dropped++
		return true
	})
	if s := e.background.current; s != nil && s.req.Conversation == conversation {
		s.background.dropped = true
	}
}

// tidyBackground ends the current background prefill if it was dropped, and all of them when
// the engine is to end.
func (e *Engine) tidyBackground() {
	current, over := e.background.current, false
	e.locked(func() {
		if over = e.draining || e.broken != nil; over {
			for _, s := range e.background.waiting {
				s.background.end()
			}
			e.stats.Background.Dropped += int64(len(e.background.waiting))
			e.background.waiting = nil
		}
		over = over || current != nil && current.background.dropped
	})
	if current != nil && over {
		e.endBackground(current)
	}
}

// prefillBackground feeds the current background prefill one chunk. It reports false if there
// is none or a request waits. No request runs.
//
// The chunk is as long as that of a prompt beside a text that is being generated: a request
// that comes meanwhile waits as long as it would there. Its time is not typical of
// rounds of requests, so neither the controller nor the cost model observes it.
func (e *Engine) prefillBackground() bool {
	s := e.nextBackground()
	if s == nil {
		return false
	}
	start := time.Now()
	e.background.active = true
	defer func() { e.background.active = false }()
	if s.target == nil {
		if err := e.open(s); err != nil {
			s.fault = err
			e.blame(err)
			e.endBackground(s)
			return true
		}
	}
	span := s.next(min(e.o.RoundTokens, e.sched.Chunk(0, 0)), e.o.RoundTokens)
	if !e.ready(s, &span) {
		if s.waitingForVision {
			e.stepTower(0)
			return true
		}
	} else if s.fault = s.grow(len(span.Tokens)); s.fault == nil {
		e.attach(s, &span)
		e.next()
		e.batch, e.spans = append(e.batch, s), append(e.spans, span)
		e.begin(false)
		e.land()
		if _, err := e.decode(); err != nil {
			e.isolate(err)
		} else if err := e.store(); err != nil {
			e.isolate(err)
		} else {
			s.releaseInputs()
			e.addPhases(time.Since(start))
			e.locked(func() { e.stats.Background.Tokens += int64(s.outcome.Rows) })
			if s.target.Len() == len(s.tokens) {
				s.finish = finishPrefill
			}
		}
	}
	if s.fault != nil || s.finish != "" {
		e.endBackground(s)
	}
	return true
}

// nextBackground is the sequence to prefill in the background, nil if there is none or a
// request waits.
func (e *Engine) nextBackground() *sequence {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waiting.Len() > 0 {
		return nil
	}
	if e.background.current == nil && len(e.background.waiting) > 0 {
		e.background.current = e.background.waiting[0]
		e.background.waiting = slices.Delete(e.background.waiting, 0, 1)
	}
	return e.background.current
}
