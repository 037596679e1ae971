// Package prefix is the prefix cache: the states of models after prefixes of texts, so that a
// text with the same prefix starts behind it. The pages of the KV cache are in a tree of
// tokens; the recurrent state, which cannot be cut elsewhere, and pages of windows are at chosen boundaries. It knows
// tokens, hashes of inputs in their place, and states; its users choose the
// boundaries.
package prefix

import (
	"container/list"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/prefix/store"
	"github.com/foretoken/foretoken/internal/state"
)

// Salt separates texts that must not share prefixes, such as those of different tenants. Each
// salt has a separate tree and files; memory and the limit of the folder are shared. The
// zero value is a salt as well.
type Salt [16]byte

// Options configure a cache.
type Options struct {
	Target      state.Layout   // of the model
	Drafts      []state.Layout // of its drafters with a state on the device
	store.Tiers                // additional storage of entries
	// TokenTime is the time of computing a token of a prompt in seconds; nil or 0: not known. It
	// is called by the goroutine that uses the cache.
	TokenTime func() float64

	Observer Observer // is told what can be resumed; may be nil
}

// Cache is the prefix cache of one model. Like the pool whose memory it takes, it is used by
// one goroutine at a time; only Stats is safe for others.
//
// It may use all spare memory of the pool: the pool asks the cache to shrink before it
// refuses memory to a sequence.
type Cache struct {
	pool   *state.Pool
	o      Options
	roots  map[root]*node
	recent *list.List           // of *entry, the last used in front
	blocks map[*state.Block]int // references of entries and nodes
	clock  atomic.Uint64        // counts uses of entries
	shown  *shown               // nil: no observer

	mu      sync.Mutex // protects what follows
	stats   Stats
	arrived []*image
	closed  bool
}

// Stats are the state and the counters of a cache.
type Stats struct {
	Entries   int   // boundaries that can be found
	Bytes     int64 // of memory, whether or not sequences share it
	Hits      int64 // of Find
	Misses    int64
	HitTokens int64 // sum of the hits' lengths
	Evictions int64 // entries evicted for lack of memory
}

// New returns an empty cache with memory of p, which asks it for memory from now on.
func New(p *state.Pool, o Options) *Cache {
	c := &Cache{pool: p, o: o, roots: map[root]*node{}, recent: list.New(), blocks: map[*state.Block]int{}, shown: newShown(&o)}
	p.OnFull(func(n int64) { c.Shrink(n) })
	return c
}

// Find returns the salt's entry with the longest prefix of a text, or nil. At
// least one token is left to be fed, because logits need one. drafts limits the search to
// entries with the states of all drafters. The hit must be released.
func (c *Cache) Find(salt Salt, text Text, drafts bool) *Hit {
	c.settle()
	e := c.longest(salt, text, drafts)
	if e == nil {
		c.count(func(s *Stats) { s.Misses++ })
		return nil
	}
	e.hits++
	c.touch(e)
	c.count(func(s *Stats) {
		s.Hits++
		s.HitTokens += int64(e.target.Len())
	})
	return &Hit{c: c, e: e, salt: salt, text: text.until(e.target.Len())}
}

// Draft is a drafter's part of an entry: its state, nil if it has none, and the target's row of the last token that the
// drafter reads, which the next pair begins with.
type Draft struct {
	State  *state.State
	Hidden backend.Tensor
}

// complete reports whether a drafter has seen a text of n tokens: its state has each pair of a row and the token after it
// that lies within the text, which are one less than its tokens, and more of them only if it can be truncated.
func (d *Draft) complete(n int) bool {
	return d.State != nil && d.Hidden.Rows == 1 && (d.State.Len() == n-1 || d.State.CanTruncate(n-1))
}

// Store adds the state target after a text, which is all that target was fed, for texts of the salt, and those of the
// drafters in the order of Options.Drafts. There may be none; drafters that have not seen all of the text are left out.
//
// Pages are shared with the states, which go on. An error means that nothing is stored: there was no
// memory, or, if it is state.ErrFailed, the device has failed in something that was queued, and the
// states may be wrong. A wrong entry could not be detected later.
func (c *Cache) Store(salt Salt, text Text, target *state.State, drafts ...Draft) error {
	n := len(text.Tokens)
	if n == 0 || target.Len() != n {
		return fmt.Errorf("prefix: %d tokens for a state of %d", n, target.Len())
	}
	if e := c.exact(salt, text); e != nil && !e.lacks(drafts, n) {
		c.touch(e)
		return c.writeThrough(salt, text, e)
	}
	// Taking memory may shrink the tree, so it comes before looking for a place there.
	x, err := c.parts(target, drafts)
	if err != nil {
		return fmt.Errorf("prefix: %d tokens: %w", n, err)
	}
	if err := c.pool.Settle(); err != nil {
		x.release()
		return fmt.Errorf("prefix: %d tokens: %w", n, err)
	}
	return c.writeThrough(salt, text, c.insert(salt, text, x))
}

// parts saves the parts of an entry.
func (c *Cache) parts(target *state.State, drafts []Draft) (x parts, err error) {
	n := target.Len()
	x = c.noParts()
	if x.target, err = target.Save(); err != nil {
		return x, err
	}
	x.pages[0] = x.target.Detach(depth(n))
	for i := range min(len(drafts), len(x.drafts)) {
		if !drafts[i].complete(n) {
			continue
		}
		to := &x.drafts[i]
		if to.state, err = drafts[i].State.SaveFirst(n - 1); err == nil {
			to.hidden, err = c.pool.CopyOf(drafts[i].Hidden)
		}
		if err != nil {
			x.release()
			return x, err
		}
		x.pages[1+i] = to.state.Detach(depth(n))
	}
	return x, nil
}

// Shrink evicts entries, the least recently used first, until a number of bytes has come back to
// the pool, and returns how many have. Entries whose hits are not released stay.
func (c *Cache) Shrink(bytes int64) int64 { return c.ShrinkOlder(bytes, c.Clock()) }

// ShrinkOlder is Shrink that evicts no entry used after the clock showed that time.
func (c *Cache) ShrinkOlder(bytes int64, than uint64) int64 {
	before := c.pool.Used()
	for p := c.recent.Back(); p != nil && before-c.pool.Used() < bytes; {
		e := p.Value.(*entry)
		p = p.Prev()
		if e.used > than {
			break // and so are all that follow
		}
		if e.hits == 0 {
			c.remove(e)
			c.count(func(s *Stats) { s.Evictions++ })
		}
	}
	return before - c.pool.Used()
}

// CanShrink reports whether Shrink would free that many bytes, if all hits are released. Blocks that entries share with
// sequences are not freed.
func (c *Cache) CanShrink(bytes int64) bool {
	if bytes > c.Stats().Bytes {
		return false
	}
	own := int64(0)
	for b, refs := range c.blocks {
		if b.Refs() == refs {
			own += b.Bytes()
		}
	}
	return own >= bytes
}

// Clock is the time in uses of entries. Any goroutine may call it.
func (c *Cache) Clock() uint64 { return c.clock.Load() }

// touch notes that an entry is used now.
func (c *Cache) touch(e *entry) {
	e.used = c.clock.Add(1)
	c.recent.MoveToFront(e.place)
}

// Stats is the current account. Any goroutine may call it.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

func (c *Cache) count(change func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.stats)
}

// Close releases all memory. Hits must have been released. The owner of the disk
// closes it.
func (c *Cache) Close() {
	c.pool.OnFull(nil)
	for c.recent.Len() > 0 {
		e := c.recent.Back().Value.(*entry)
		if e.hits > 0 {
			panic(fmt.Sprintf("prefix: closed with %d hits on an entry of %d tokens", e.hits, e.target.Len()))
		}
		e.shown = nil // the observer is told once for all
		c.remove(e)
	}
	c.mu.Lock()
	c.closed, c.arrived = true, nil
	c.mu.Unlock()
	c.shown.close()
}

// Hit is an entry that was found. It stays in the cache until it is released.
type Hit struct {
	c    *Cache
	e    *entry
	salt Salt
	text Text
}

// Len is the number of tokens that need not be fed.
func (h *Hit) Len() int { return h.e.target.Len() }

// Restore sets the states to those of the entry: target after Len tokens, those of drafters after one pair
// less, whose second half is not known here. The pair of Hidden and the token at Len is then to
// be fed to the drafter. The state of a drafter that the entry lacks is unchanged. One may be
// nil. After an error all states must be closed; if it is state.ErrFailed, the device has failed in
// earlier queued work.
func (h *Hit) Restore(target *state.State, drafts ...*state.State) error {
	if err := h.c.writeThrough(h.salt, h.text, h.e); err != nil {
		return err
	}
	if err := target.Load(h.e.target, h.e.at.path(0)...); err != nil {
		return fmt.Errorf("prefix: target: %w", err)
	}
	for i := range min(len(drafts), len(h.e.drafts)) {
		if from := h.e.drafts[i].state; from != nil && drafts[i] != nil {
			if err := drafts[i].Load(from, h.e.at.path(1+i)...); err != nil {
				return fmt.Errorf("prefix: drafter: %w", err)
			}
		}
	}
	return nil
}

// Hidden is the target's row of the last token that drafter i reads, [1, width], valid until Release. It
// is empty if the entry has no state of the drafter.
func (h *Hit) Hidden(i int) backend.Tensor {
	if h.e.drafts[i].state == nil {
		return backend.Tensor{}
	}
	return h.e.drafts[i].hidden.Tensor()
}

// Release lets the entry go. The hit must not be used after it.
func (h *Hit) Release() {
	h.e.hits--
	h.e = nil
}
