package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
)

// Tiers are where the files of a cache are. Both may be nil.
type Tiers struct {
	Disk   *Disk
	Shared *Shared
}

// Root is the key of no tokens at all, given everything that numbers depend on besides tokens and the
// fingerprint of the model. Files of another version are never found.
func (t Tiers) Root(identity string) Key {
	fingerprint := ""
	if t.Disk != nil {
		fingerprint = t.Disk.o.Fingerprint
	} else {
		fingerprint = t.Shared.o.Fingerprint
	}
	return Key(sum([]byte(magic), []byte{version}, fmt.Appendf(nil, "%q %s", fingerprint, identity)))
}

// Query is the search for a prefix of a text.
type Query struct {
	Nodes    []Key                    // Nodes[i] is that of the first 1+i*PageTokens tokens
	End      func(node, rest int) Key // the key of rest tokens behind a node
	Tokens   int                      // that may come from a tier
	Have     int                      // tokens that are there without one
	Known    int                      // pages that are, from the first one on
	Token    float64                  // seconds to compute one; 0: not known
	Limit    int64                    // bytes of a file
	Drafters int                      // whose states files have
	Windows  int                      // of the target and of the drafters
	Ends     int                      // nodes among which an entry ends, if none was removed
	First    func(tokens int) int     // the first page of windows that an entry of that many tokens needs
}

// Found is an entry with its files.
type Found struct {
	Len    int        // tokens
	Skip   int        // pages that the query knew
	Names  []Name     // of the other pages, then of the entry
	Files  [][][]byte // their sections
	Remote bool       // some came from a shared store
	used   []Name     // all files that the entry needs
}

// names are the files of the entry n behind node i.
func (q *Query) names(i int, n Name) []Name {
	return Names(q.Nodes[:i+1], q.First(1+i*backend.PageTokens+n.rest), n.rest, n.end)
}

// end is the length of the text's prefix whose entry n is, which ends behind node i. It is 0 if n belongs to
// another text.
func (q *Query) end(i int, n Name) int {
	if end := 1 + i*backend.PageTokens + n.rest; end <= q.Tokens && q.End(i, n.rest) == n.end {
		return end
	}
	return 0
}

// Fetch searches for an entry with more than the query has. If there may be one, it is read in the background
// and passed to arrive, and then, in any case, done is called. Fetch reports whether it will be.
func (t Tiers) Fetch(q *Query, arrive func(*Found), done func()) bool {
	x := q.plan(t.Disk, nil)
	local := func() {
		if x != nil && t.Disk.fetch(q, x) {
			arrive(x)
		}
	}
	if t.promising(q, x) && t.Shared.later(func() {
		defer done() // in any case: the request waits
		if !t.fetch(q, x, arrive) {
			local()
		}
	}) {
		return true
	}
	return x != nil && t.Disk.later(func() {
		defer done()
		local()
	})
}

// Ignore records that a file with a right checksum is useless.
func (t Tiers) Ignore(n Name, err error) {
	if t.Disk.readable(n) {
		t.Disk.ignore(n, err)
	} else if t.Shared != nil {
		t.Shared.ignore(n, fmt.Errorf("%w: %w", errForeign, err))
	}
}

// plan finds the longest entry on the disk, or with s also among the known ones of the shared store,
// nil if it is not longer than the query has.
func (q *Query) plan(d *Disk, s *Shared) (best *Found) {
	have := q.Have
	for i, k := range q.Nodes {
		if i > 0 && !d.readable(page(k)) && (s == nil || !s.readable(page(k)) && i > q.Known) {
			break
		}
		list := d.entries(k)
		if s != nil {
			list = append(list, s.entries(k)...)
		}
		for _, n := range list {
			if end := q.end(i, n); end > have {
				// The pages before the node are there.
				if used := q.names(i, n); !slices.ContainsFunc(used[i:], func(n Name) bool { return !d.readable(n) && (s == nil || !s.readable(n)) }) {
					have, best = end, &Found{Len: end, used: used}
				}
			}
		}
	}
	if best != nil {
		best.Skip = min(q.Known, (best.Len-1)/backend.PageTokens)
		best.Names = best.used[best.Skip:]
	}
	return best
}

// best is the number of tokens without the shared store; x is the disk's entry.
func (q *Query) best(x *Found) int {
	if x == nil {
		return q.Have
	}
	return x.Len
}

// promising reports whether to ask the shared store for more of a text than the tree and the disk have.
func (t Tiers) promising(q *Query, x *Found) bool {
	s := t.Shared
	if s == nil || !s.usable() {
		return false
	}
	more := q.Tokens - q.best(x)
	// Two exchanges at least, a lookup and a fetch.
	return more >= backend.PageTokens && worth(s.speed.now(time.Now()), q.Token, more, 2*parallel, 0)
}

// fetch looks a text up in the shared store, and fetches the longest entry if that is expected to be faster
// than computing its tokens beyond x, which the disk has. It reports false if there is nothing, or fetching is
// slower, or it fails.
func (t Tiers) fetch(q *Query, x *Found, arrive func(*Found)) bool {
	s := t.Shared
	ctx, cancel := context.WithTimeout(s.life, budget(q))
	defer cancel()
	have := q.best(x)
	if err := s.find(ctx, q, have); err != nil {
		return false // counted
	}
	y := q.plan(t.Disk, s)
	if y == nil || y.Len <= have {
		return false
	}
	bytes, requests := int64(0), 0
	for _, n := range y.Names {
		if !t.Disk.readable(n) {
			bytes += s.sizeOf(n)
			requests++
		}
	}
	if !worth(s.speed.now(time.Now()), q.Token, y.Len-have, requests, bytes) {
		s.count(func(t *SharedStats) { t.Refused++ })
		return false
	}
	end := y.Names[len(y.Names)-1]
	if !s.claim(ctx, end) {
		return x == nil // the next search has it, if it came
	}
	defer s.release(end)
	start := time.Now()
	err := t.gather(ctx, q, y)
	late := errors.Is(err, context.DeadlineExceeded)
	if err == nil || late {
		s.speed.fetched(time.Now(), requests, bytes, time.Since(start)) // at most that fast, if it was abandoned
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
	arrive(y) // before other waiting requests are woken
	return true
}

// claim reports whether the entry is to be fetched now. If another request is fetching it, claim waits
// for that and reports false.
func (s *Shared) claim(ctx context.Context, n Name) bool {
	s.mu.Lock()
	other := s.coming[n]
	if other == nil {
		s.coming[n] = make(chan struct{})
	}
	s.mu.Unlock()
	if other == nil {
		return true
	}
	select {
	case <-other:
	case <-ctx.Done():
	}
	return false
}

// release wakes the requests that wait for an entry.
func (s *Shared) release(n Name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.coming[n])
	delete(s.coming, n)
}

// budget is how long looking for a text and fetching it may take: as long as computing all of it.
func budget(q *Query) time.Duration {
	if q.Token > 0 {
		return max(leastFetch, time.Duration(q.Token*float64(q.Tokens+1)*float64(time.Second)))
	}
	return unknownFetch
}

// gather reads the files of an entry: existing ones from the disk, the rest from the shared
// store, several at a time.
func (t Tiers) gather(ctx context.Context, q *Query, x *Found) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	x.Files, x.Remote = make([][][]byte, len(x.Names)), true
	var group sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for i, n := range x.Names {
		if t.Disk.readable(n) {
			if x.Files[i] = t.Disk.read(q, n); x.Files[i] == nil {
				cancel(errForeign)
			}
			continue
		}
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			if ctx.Err() != nil {
				return
			}
			err := errForeign // unless read returns
			t.Shared.guard("reading", func() { x.Files[i], err = t.Shared.read(ctx, q, n) })
			if err != nil {
				cancel(err)
			}
		})
	}
	group.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if t.Disk != nil {
		t.Disk.touch(x.used)
	}
	return nil
}
