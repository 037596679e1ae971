package prefix

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
)

// share counts a use of an entry, and has it written to the shared store once it was used often
// enough. An entry that is computed faster than fetched is not written. Errors are as those
// of spill.
func (c *Cache) share(salt Salt, text Text, e *entry) (err error) {
	s := c.o.Shared
	if s == nil {
		return nil
	}
	if e.uses++; e.shared || e.uses < s.o.Uses {
		return nil
	}
	pages := depth(len(text.Tokens))
	bytes := e.bytes() + int64(pages)*c.pageBytes()
	token := 0.0
	if c.o.TokenTime != nil {
		token = c.o.TokenTime()
	}
	if !worth(s.speed.now(s.o.now()), token, len(text.Tokens), pages+1, bytes) {
		return nil
	}
	e.shared, err = c.spill(s, salt, text, e)
	return err
}

// promising reports whether to ask the shared store for more of a text than the tree and the disk
// have; x is the disk's entry.
func (c *Cache) promising(q *query, x *image) bool {
	s := c.o.Shared
	if s == nil || !s.usable() {
		return false
	}
	more := len(q.text.Tokens) - 1 - q.best(x)
	if more < backend.PageTokens {
		return false
	}
	// Two exchanges at least, a lookup and a fetch.
	return worth(s.speed.now(s.o.now()), q.token, more, 2*parallel, 0)
}

// best is the number of tokens without the shared store.
func (q *query) best(x *image) int {
	if x == nil {
		return q.have
	}
	return len(x.text.Tokens)
}

// fetchShared looks a text up in the shared store, and fetches the longest entry if that is
// expected to be faster than computing its tokens beyond x, which the disk has. It reports false
// if there is nothing, or fetching is slower, or it fails.
func (c *Cache) fetchShared(q *query, x *image, limit int64) bool {
	s := c.o.Shared
	ctx, cancel := context.WithTimeout(s.life, s.budget(q))
	defer cancel()
	have := q.best(x)
	if err := c.lookUp(ctx, q, have); err != nil {
		return false // counted
	}
	y := c.plan(q, true)
	if y == nil || len(y.text.Tokens) <= have {
		return false
	}
	bytes, requests := int64(0), 0
	for _, n := range y.names {
		if !c.local(n) {
			bytes += s.size(n)
			requests++
		}
	}
	if !worth(s.speed.now(s.o.now()), q.token, len(y.text.Tokens)-have, requests, bytes) {
		s.count(func(t *SharedStats) { t.Refused++ })
		return false
	}
	if !s.begin(ctx, y.end()) {
		return x == nil // the next call of Find has it, if it came
	}
	defer s.finish(y.end())
	start := time.Now()
	err := c.gather(ctx, y, limit)
	took := time.Since(start)
	late := errors.Is(err, context.DeadlineExceeded)
	if err == nil || late {
		s.speed.fetched(s.o.now(), requests, bytes, took) // at most that fast, if it was abandoned
	}
	switch {
	case late:
		s.count(func(t *SharedStats) { t.Late++ })
		return false
	case err != nil:
		s.fails(&s.reading, err)
		return false
	}
	s.answers(&s.reading, true)
	s.count(func(t *SharedStats) { t.Fetched++; t.FetchedBytes += bytes })
	c.arrive(y) // before other waiting requests are woken
	return true
}

// end is the name of the entry.
func (x *image) end() name { return x.names[len(x.names)-1] }

// coming is an entry that is being fetched.
type coming struct {
	done    chan struct{} // closed when it is not any more
	waiting int           // other requests that wait for it
}

// begin reports whether the entry is to be fetched now. If another request is fetching it, begin waits
// for that and reports false.
func (s *Shared) begin(ctx context.Context, n name) bool {
	s.mu.Lock()
	other := s.coming[n]
	if other == nil {
		s.coming[n] = &coming{done: make(chan struct{})}
	} else {
		other.waiting++
	}
	s.mu.Unlock()
	if other == nil {
		return true
	}
	select {
	case <-other.done:
	case <-ctx.Done():
	}
	return false
}

// finish wakes the requests that wait for an entry.
func (s *Shared) finish(n name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.coming[n].done)
	delete(s.coming, n)
}

// budget is how long looking for a text and fetching it may take: as long as computing all of it.
func (s *Shared) budget(q *query) time.Duration {
	switch {
	case s.o.patience > 0:
		return s.o.patience
	case q.token > 0:
		return max(leastFetch, time.Duration(q.token*float64(len(q.text.Tokens))*float64(time.Second)))
	}
	return unknownFetch
}

// lookUp asks the shared store for the nodes of a text, from behind the first have
// tokens on.
func (c *Cache) lookUp(ctx context.Context, q *query, have int) error {
	fed, at := len(q.text.Tokens)-1, 1
	nodes := []key{c.root(q.salt).next(&q.text, 0, 1)}
	for ; at+backend.PageTokens <= fed; at += backend.PageTokens {
		nodes = append(nodes, nodes[len(nodes)-1].next(&q.text, at, at+backend.PageTokens))
	}
	from := 0
	if have > 0 {
		from = depth(have)
	}
	return c.o.Shared.find(ctx, nodes, from, func(i int) bool {
		at := 1 + i*backend.PageTokens
		for _, n := range c.o.Shared.entries(nodes[i]) {
			if end := at + n.rest; end <= fed && end > have && nodes[i].next(&q.text, at, end) == n.end {
				return true
			}
		}
		return false
	})
}

// local reports whether a file is on the disk.
func (c *Cache) local(n name) bool { return c.o.Disk != nil && c.o.Disk.has(n, true) }

// gather reads the files of an image: existing ones from the disk, the rest from the shared
// store, several at a time.
func (c *Cache) gather(ctx context.Context, x *image, limit int64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	files := make([][][]byte, len(x.names))
	var group sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for i, n := range x.names {
		if c.local(n) {
			if files[i] = c.o.Disk.read(n, c.sections(i == len(x.names)-1), limit); files[i] == nil {
				cancel(errGone)
			}
			continue
		}
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			if ctx.Err() != nil {
				return
			}
			var err error
			fault := errGone // unless it returns
			guard(c.o.Shared.o.Log, "reading", func() {
				files[i], _, err = c.o.Shared.read(ctx, n, c.sections(i == len(x.names)-1), limit)
				fault = err
			})
			if fault != nil {
				cancel(fault)
			}
		})
	}
	group.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	x.files, x.remote = files, true
	if c.o.Disk != nil {
		c.o.Disk.touch(x.used)
	}
	return nil
}

// errGone is the error of an image that lacks a file.
var errGone = errForeign
