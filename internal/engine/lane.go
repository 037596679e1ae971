package engine

import (
	"slices"
	"sync"

	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/spec"
)

// maxAhead is how many conversations may wait for a prompt to be read in advance. Of more
// the oldest is dropped: its turn has been due for longest.
const maxAhead = 32

// Prefill is a prompt to read in the background, for a request that will begin with it.
type Prefill struct {
	// Conversation is what it belongs to. There is one Prefill of a conversation at most: it
	// is replaced by the next, and dropped when a Request of the conversation comes.
	Conversation string
	Prompt       []int32
	Boundaries   []int       // as Request has them
	Salt         prefix.Salt // likewise
	Depth        spec.Depth  // likewise; spec.DepthOff: not for the drafter
}

// lane is the prompts that are read in advance. They are no requests: none of them counts
// against the queue or the batch, and none is fed in a round that anybody waits for. The
// one that was begun keeps its memory until somebody needs it.
type lane struct {
	waiting []*sequence // oldest first; the engine's mutex protects it
	current *sequence   // that was begun; likewise, and only the loop changes it
	reading bool        // it is being fed
}

// ahead is what a sequence of the lane has beside others.
type ahead struct {
	age     uint64 // when it came, by the cache's clock
	dropped bool   // the engine's mutex protects it
	done    chan struct{}
	once    sync.Once
}

// end tells those who wait.
func (a *ahead) end() { a.once.Do(func() { close(a.done) }) }

// Prefill has a prompt read when the engine has nothing else to do, and keeps what was read
// in the prefix cache. done is closed when it was read or dropped.
func (e *Engine) Prefill(p Prefill) (done <-chan struct{}, err error) {
	a := &ahead{done: make(chan struct{})}
	if !e.o.Cache { // there is nowhere to keep it
		a.end()
		return a.done, nil
	}
	s, err := newSequence(Request{
		Conversation: p.Conversation, Prompt: p.Prompt, Boundaries: p.Boundaries, Salt: p.Salt, Depth: p.Depth,
	}, e.model.Info(), e.o.Context)
	if err != nil {
		return nil, err
	}
	if err := e.fit(s); err != nil {
		return nil, err
	}
	s.ahead, s.asked = a, true
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.draining || e.broken != nil {
		return nil, ErrClosed
	}
	if e.talks[p.Conversation] > 0 { // its next turn is here already
		e.stats.Background.Dropped++
		a.end()
		return a.done, nil
	}
	a.age = e.cache.Clock()
	e.dropAhead(p.Conversation)
	if e.lane.waiting = append(e.lane.waiting, s); len(e.lane.waiting) > maxAhead {
		e.lane.waiting[0].ahead.end()
		e.lane.waiting = slices.Delete(e.lane.waiting, 0, 1)
		e.stats.Background.Dropped++
	}
	e.nudge()
	return a.done, nil
}

// dropAhead drops what is to be read in advance for a conversation. What the cache has of it
// stays. The mutex is held.
func (e *Engine) dropAhead(conversation string) {
	e.lane.waiting = slices.DeleteFunc(e.lane.waiting, func(s *sequence) bool {
		if s.req.Conversation != conversation {
			return false
		}
		s.ahead.end()
		e.stats.Background.Dropped++
		return true
	})
	if s := e.lane.current; s != nil && s.req.Conversation == conversation {
		s.ahead.dropped = true
	}
}

// tidyAhead ends the one that is being read if it was dropped, and all of the lane when the
// engine is to end.
func (e *Engine) tidyAhead() {
	current, over := e.lane.current, false
	e.locked(func() {
		if over = e.draining || e.broken != nil; over {
			for _, s := range e.lane.waiting {
				s.ahead.end()
			}
			e.stats.Background.Dropped += int64(len(e.lane.waiting))
			e.lane.waiting = nil
		}
		over = over || current != nil && current.ahead.dropped
	})
	if current != nil && over {
		e.endAhead(current)
	}
}

// readAhead feeds the lane one chunk. It reports false if there is nothing to read or
// anybody waits for something else. No request runs.
//
// The chunk is as long as that of a prompt beside a text that is being generated: a request
// that comes meanwhile waits as long as it would there. What it costs says nothing about
// rounds of requests and is not learned from.
func (e *Engine) readAhead() bool {
	s := e.nextAhead()
	if s == nil {
		return false
	}
	e.lane.reading = true
	defer func() { e.lane.reading = false }()
	if s.target == nil {
		if err := e.open(s); err != nil {
			s.fault = err
			e.blame(err)
			e.endAhead(s)
			return true
		}
	}
	s.span, s.accepted = s.next(min(e.o.RoundTokens, e.pace.room(e.o.MaxRound)), e.o.RoundTokens), 0
	if s.fault = e.hold(s, len(s.span.Tokens)); s.fault == nil {
		e.fed, e.spans = append(e.fed[:0], s), append(e.spans[:0], s.span)
		if err := e.forward(); err != nil {
			e.suspect(err)
		} else {
			e.keep()
			e.locked(func() { e.stats.Background.Tokens += int64(len(s.span.Tokens)) })
		}
	}
	if s.fault != nil || s.finish != "" {
		e.endAhead(s)
	}
	return true
}

// nextAhead is the sequence to read in advance, nil if there is none or a request waits.
func (e *Engine) nextAhead() *sequence {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.waiting) > 0 {
		return nil
	}
	if e.lane.current == nil && len(e.lane.waiting) > 0 {
		e.lane.current = e.lane.waiting[0]
		e.lane.waiting = slices.Delete(e.lane.waiting, 0, 1)
	}
	return e.lane.current
}

// endAhead ends the one that was being read.
func (e *Engine) endAhead(s *sequence) {
	if err := try(func() { e.close(s) }); err != nil {
		e.blame(err)
	}
	e.locked(func() {
		e.lane.current = nil
		if s.finish != "" && s.fault == nil {
			e.stats.Background.Read++
		} else {
			e.stats.Background.Dropped++
		}
	})
	s.ahead.end()
}

// reclaim gives memory up that is of no use at this moment: that of the lane, for which
// it is no more than a hint, then entries of the cache. While the lane is being read, only
// entries that were last used before it came: those that came after are worth more.
func (e *Engine) reclaim(bytes int64) {
	if e.lane.reading {
		e.cache.ShrinkOlder(bytes, e.lane.current.ahead.age)
		return
	}
	before := e.pool.Used()
	if s := e.lane.current; s != nil {
		e.close(s) // it begins anew, behind what the cache has
	}
	if missing := bytes - (before - e.pool.Used()); missing > 0 {
		e.cache.Shrink(missing)
	}
}

// openCache opens the cache of beginnings, if there is to be one.
func (e *Engine) openCache() {
	c := newCache(e.pool, &e.o, e.model.Layout())
	e.locked(func() { e.cache = c })
	if c != nil {
		e.pool.OnFull(e.reclaim)
	}
}
