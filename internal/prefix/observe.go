package prefix

import (
	"slices"
	"sync"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/prefix/store"
)

// Observer is told which prefixes a cache can resume, so that for example a gateway
// can send requests to the server that has their prefixes.
//
// It is told of boundaries that any request under the exact rule may resume at: those at the end of a page, of texts
// without a salt. An entry that was evicted but can be read from the disk is still reported; one that only
// a shared store has is not: the store may drop it without notice, and every other cache has it as well. A
// boundary is reported once, until it is removed.
//
// Its methods are called one at a time, by the users of the cache or by the disk's background
// goroutine, which wait for them. They must not call the cache, nor change tokens and rows.
type Observer interface {
	// Stored reports that a text which begins with these tokens can be resumed after them. Some of
	// them may be placeholders of rows.
	Stored(tokens []int32, rows []Rows)
	// Removed reports that it no longer can.
	Removed(tokens []int32, rows []Rows)
	// Cleared reports that no text of this cache can.
	Cleared()
}

// shown is the boundaries that an observer was told of. The cache and the disk's background use it.
type shown struct {
	to   Observer
	disk *store.Disk

	mu     sync.Mutex // protects what follows, and the order of calls of the observer
	texts  map[store.Key]*boundary
	files  map[store.Name][]*boundary // boundaries that only the disk has, by the files they need
	closed bool
}

// boundary is a text that the observer has heard of.
type boundary struct {
	key   store.Key
	text  Text
	files []store.Name // its files; nil: it is in memory
}

// newShown is the record for a cache of these options, nil without an observer.
func newShown(o *Options) *shown {
	if o.Observer == nil {
		return nil
	}
	s := &shown{to: o.Observer, disk: o.Disk, texts: map[store.Key]*boundary{}, files: map[store.Name][]*boundary{}}
	if s.disk != nil {
		s.disk.Listen(s.dropped)
	}
	return s
}

// show reports an entry to the observer, unless that is done or not wanted.
func (c *Cache) show(salt Salt, text *Text, e *entry) {
	n := len(text.Tokens)
	if c.shown != nil && e.shown == nil && salt == (Salt{}) && n%backend.PageTokens == 0 {
		e.shown = c.shown.add(text)
	}
}

// hide records that an entry leaves memory.
func (c *Cache) hide(e *entry) {
	if e.shown == nil {
		return
	}
	var files []store.Name
	if c.o.Disk != nil {
		files = c.names(Salt{}, &e.shown.text)
	}
	c.shown.evict(e.shown, files)
	e.shown = nil
}

// add adds a text that is in memory.
func (s *shown) add(text *Text) *boundary {
	k := text.key(store.Key{}, 0, len(text.Tokens))
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.texts[k]
	if b == nil {
		b = &boundary{key: k, text: Text{slices.Clone(text.Tokens), text.Inputs}}
		s.texts[k] = b
		s.to.Stored(b.text.ids())
	}
	s.forget(b)
	return b
}

// evict records that a text is no longer in memory. If the disk has all of its files, it can
// still be resumed.
func (s *shown) evict(b *boundary, files []store.Name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.has(files) {
		s.remove(b)
		return
	}
	b.files = files
	for _, n := range files {
		s.files[n] = append(s.files[n], b)
	}
}

// has reports whether the disk has files, all of them; mu is held. One that is queued counts: if
// it is not written after all, it is dropped.
func (s *shown) has(files []store.Name) bool {
	return len(files) > 0 && !slices.ContainsFunc(files, func(n store.Name) bool { return !s.disk.Has(n) })
}

// dropped records that the disk no longer has a file.
func (s *shown) dropped(n store.Name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range slices.Clone(s.files[n]) {
		if !s.has(b.files) { // it may have come back
			s.remove(b)
		}
	}
}

// remove reports to the observer that a text is gone; mu is held.
func (s *shown) remove(b *boundary) {
	s.forget(b)
	delete(s.texts, b.key)
	if !s.closed {
		s.to.Removed(b.text.ids())
	}
}

// forget takes a text's files off the list; mu is held.
func (s *shown) forget(b *boundary) {
	for _, n := range b.files {
		if s.files[n] = slices.DeleteFunc(s.files[n], func(x *boundary) bool { return x == b }); len(s.files[n]) == 0 {
			delete(s.files, n)
		}
	}
	b.files = nil
}

// close reports to the observer that everything is gone.
func (s *shown) close() {
	if s == nil {
		return
	}
	if s.disk != nil {
		s.disk.Listen(nil)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		s.to.Cleared()
	}
}
