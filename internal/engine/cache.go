package engine

import (
	"errors"

	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/prefix/store"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
)

// newCache opens the prefix cache, if it is enabled. token returns the seconds of a token of a
// prompt.
func newCache(p *state.Pool, o *Options, target state.Layout, token func() float64) *prefix.Cache {
	if !o.Cache {
		return nil
	}
	c := prefix.Options{Target: target, Tiers: store.Tiers{Disk: o.Disk, Shared: o.Shared}, TokenTime: token, Observer: o.Observer}
	for _, d := range spec.Parts(o.Drafter) {
		if l := d.Layout(); !l.Empty() {
			c.Drafts = append(c.Drafts, l)
		}
	}
	return prefix.New(p, c)
}

// fetch has the prefix of a sequence's tokens read from disk, if it is there. It reports
// whether the sequence has to wait for it.
func (e *Engine) fetch(s *sequence) bool {
	if e.cache == nil || s.prefixAsked {
		return false
	}
	s.prefixAsked = true
	s.fetching.Store(true)
	if e.cache.Fetch(s.req.Salt, s.fedText(len(s.tokens)), func() {
		s.fetching.Store(false)
		e.signal()
	}) {
		return true
	}
	s.fetching.Store(false)
	return false
}

// store puts the sequences of a round that are at a boundary or at their end into the cache.
// All but the last token of an ended text has been fed, with which the next turn's
// prompt begins. Without memory the prefix is not stored. An error is that of
// work queued on the device, by the round or before it.
func (e *Engine) store() error {
	if e.cache == nil {
		return nil
	}
	for _, s := range e.batch {
		if s.fault != nil || !s.atBoundary() {
			continue
		}
		var drafts []prefix.Draft
		for _, m := range s.drafts {
			if m.state != nil {
				drafts = append(drafts, prefix.Draft{State: m.state, Hidden: m.hidden})
			}
		}
		err := e.cache.Store(s.req.Salt, s.fedText(s.target.Len()), s.target, drafts...)
		if errors.Is(err, state.ErrFailed) {
			return err
		}
	}
	return nil
}
