package engine

import (
	"errors"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
)

// cacheEvery is the distance of the boundaries that every prompt has.
const cacheEvery = 1024

// newCache opens the prefix cache, if there is to be one. token says how many seconds a token of a
// prompt takes.
func newCache(p *state.Pool, o *Options, target state.Layout, token func() float64) *prefix.Cache {
	if !o.Cache {
		return nil
	}
	c := prefix.Options{Target: target, Disk: o.Disk, Shared: o.Shared, TokenTime: token, Observer: o.Observer}
	if o.Drafter != nil {
		c.Draft = o.Drafter.Layout()
	}
	return prefix.New(p, c)
}

// fetch has the prefix of a sequence's tokens read from disk, if it is there. It reports
// whether the sequence has to wait for it.
func (e *Engine) fetch(s *sequence) bool {
	if e.cache == nil || s.looked {
		return false
	}
	s.looked = true
	s.fetching.Store(true)
	if e.cache.Fetch(s.req.Salt, s.fedText(len(s.tokens)), e.o.Drafter != nil && s.req.Depth != spec.DepthOff, func() {
		s.fetching.Store(false)
		e.signal()
	}) {
		return true
	}
	s.fetching.Store(false)
	return false
}

// restore gives a new sequence the longest prefix of its tokens that the cache has.
func (e *Engine) restore(s *sequence) (err error) {
	hit := e.cache.Find(s.req.Salt, s.fedText(len(s.tokens)), s.draftState != nil)
	if hit == nil {
		return nil
	}
	defer hit.Release()
	if err = hit.Restore(s.target, s.draftState); err != nil {
		return err
	}
	if s.target.Drafts() > s.target.Layout().MaxDrafts && !e.affords(s) {
		return state.ErrFull
	}
	if s.preempted == 0 {
		s.cached = hit.Len()
	}
	if s.draftState == nil || hit.Hidden().Rows == 0 {
		return nil
	}
	if s.tokens[hit.Len()] == model.NoToken { // a row, which the tower may have to make first
		s.joint, err = e.pool.CopyOf(hit.Hidden())
		return err
	}
	return e.joinPair(s, hit.Hidden(), hit.Len())
}

// joinPair feeds the drafter the pair that the boundary at n parted: its first half is in the
// cache, its second half is known only now. A panic is the sequence's fault.
func (e *Engine) joinPair(s *sequence, hidden backend.Tensor, n int) (err error) {
	defer caught(&err)
	runs := []spec.Run{{
		State: s.draftState, HostState: &s.hostState, Text: s.tokens[:n+1], Hidden: hidden, Sampler: s.sampler,
	}}
	s.pair(&runs[0])
	_, err = e.o.Drafter.Draft(runs)
	return err
}

// boundaries are the lengths at which a prompt is worth storing, ascending: those that the
// request names, every cacheEvery tokens, and the last whole page.
func boundaries(s *sequence) []int {
	list := slices.Clone(s.req.Boundaries)
	n := len(s.req.Prompt)
	for at := cacheEvery; at < n; at += cacheEvery {
		list = append(list, at)
	}
	if s.background != nil {
		list = append(list, n)
	} else {
		list = append(list, (n-1)/backend.PageTokens*backend.PageTokens)
	}
	slices.Sort(list)
	list = slices.Compact(list)
	return slices.DeleteFunc(list, func(at int) bool { return at <= 0 || at > n })
}

// toBoundary cuts n tokens to be fed at the next boundary.
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

// store puts the sequences of a round that are at a boundary or at their end into the cache.
// Of a text that ends all but the last token has been fed, which is what the next turn's
// prompt begins with. Without memory for it the prefix is simply not stored. An error is that of
// what was queued on the device, by the round or before it.
func (e *Engine) store() error {
	if e.cache == nil {
		return nil
	}
	for _, s := range e.batch {
		if s.fault != nil || !s.atBoundary() {
			continue
		}
		err := e.cache.Store(s.req.Salt, s.fedText(s.target.Len()), s.target, s.draftState, s.hidden)
		if errors.Is(err, state.ErrFailed) {
			return err
		}
	}
	return nil
}

// atBoundary reports whether what has been fed is worth storing: it is at a boundary or at the
// end of the text.
func (s *sequence) atBoundary() bool {
	_, at := slices.BinarySearch(s.boundaries, s.target.Len())
	return at || s.finish != ""
}
