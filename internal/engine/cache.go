package engine

import (
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
)

// cacheEvery is how far apart the boundaries are that every prompt has.
const cacheEvery = 1024

// newCache opens the cache of beginnings, if there is to be one.
func newCache(p *state.Pool, o *Options, target state.Layout) *prefix.Cache {
	if !o.Cache {
		return nil
	}
	c := prefix.Options{Target: target, Disk: o.Disk}
	if o.Drafter != nil {
		c.Memory = o.Drafter.Layout()
	}
	return prefix.New(p, c)
}

// fetch has the beginning of a sequence's tokens read from the disk, if it is there. It
// reports whether the sequence has to wait for it.
func (e *Engine) fetch(s *sequence) bool {
	if e.cache == nil || s.asked {
		return false
	}
	s.asked = true
	s.fetching.Store(true)
	if e.cache.Fetch(s.req.Salt, s.tokens, e.o.Drafter != nil && s.req.Depth != spec.DepthOff, func() {
		s.fetching.Store(false)
		e.nudge()
	}) {
		return true
	}
	s.fetching.Store(false)
	return false
}

// restore gives a new sequence what is known of the beginning of its tokens.
func (e *Engine) restore(s *sequence) error {
	hit := e.cache.Find(s.req.Salt, s.tokens, s.draftState != nil)
	if hit == nil {
		return nil
	}
	defer hit.Release()
	if err := hit.Restore(s.target, s.draftState); err != nil {
		return err
	}
	if s.preempted == 0 {
		s.cached = hit.Len()
	}
	if s.draftState == nil || hit.Hidden().Rows == 0 {
		return nil
	}
	return e.learnPair(s, hit)
}

// learnPair has the drafter learn the pair that the boundary parted: its first half is in the
// cache, its second half is known only now. A panic is the sequence's fault.
func (e *Engine) learnPair(s *sequence, hit *prefix.Hit) (err error) {
	defer caught(&err)
	_, err = e.o.Drafter.Draft([]spec.Run{{
		State: s.draftState, HostState: &s.hostState, Text: s.tokens[:hit.Len()+1], Hidden: hit.Hidden(), Sampler: s.sampler,
	}})
	return err
}

// boundaries are the lengths at which a prompt is worth keeping, ascending: those that the
// request names, one every so many tokens, and the last whole page.
func boundaries(s *sequence) []int {
	list := slices.Clone(s.req.Boundaries)
	n := len(s.req.Prompt)
	for at := cacheEvery; at < n; at += cacheEvery {
		list = append(list, at)
	}
	if s.ahead != nil {
		list = append(list, n)
	} else {
		list = append(list, (n-1)/backend.PageTokens*backend.PageTokens)
	}
	slices.Sort(list)
	list = slices.Compact(list)
	return slices.DeleteFunc(list, func(at int) bool { return at <= 0 || at > n })
}

// toBoundary is how many tokens may be fed before the next boundary, n at most.
func (s *sequence) toBoundary(n int) int {
	at, found := slices.BinarySearch(s.boundaries, s.target.Len())
	if found {
		at++
	}
	if at < len(s.boundaries) {
		n = min(n, s.boundaries[at]-s.target.Len())
	}
	return n
}

// keep stores the sequences of a round that are at a boundary or at their end. Of a text
// that ends all but the last token has been fed, which is what an answer is followed by in
// the next turn's prompt.
func (e *Engine) keep() {
	if e.cache == nil {
		return
	}
	for _, s := range e.fed {
		if s.fault != nil {
			continue
		}
		if s.keeps() {
			// Without memory for it the beginning is simply not kept.
			_ = e.cache.Store(s.req.Salt, s.tokens[:s.target.Len()], s.target, s.draftState, e.hidden.RowRange(s.row, s.row+1))
		}
	}
}

// keeps reports whether what has been fed is worth keeping: it is at a boundary or at the
// end of the text.
func (s *sequence) keeps() bool {
	_, at := slices.BinarySearch(s.boundaries, s.target.Len())
	return at || s.finish != ""
}
