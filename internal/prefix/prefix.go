// Package prefix keeps what networks remember of the beginnings of texts, so that a text
// with the same beginning starts behind it: the pages of keys and values in a tree of
// tokens, and at chosen boundaries the recurrent memory, which cannot be cut elsewhere. It
// knows tokens and memories; what is worth a boundary is for others to say.
package prefix

import (
	"container/list"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/state"
)

// Salt keeps texts apart that must not share what was read of them, such as those of different
// tenants. Each salt has a tree, and files, of its own; memory and the bound of the folder are
// shared. The zero value is a salt as well.
type Salt [16]byte

// Options say what a cache is for.
type Options struct {
	Target state.Layout // of the network
	Memory state.Layout // of its drafter; zero: it remembers nothing on the device
	Disk   *Disk        // where entries go too; nil: nowhere
}

// Cache is the beginnings of texts that one network has read. Like the pool whose memory it
// takes, it is used by one goroutine at a time; only Stats may be asked by others.
//
// Whatever the pool has to spare may be in use here: it asks the cache to shrink before it
// refuses memory to a sequence.
type Cache struct {
	pool   *state.Pool
	o      Options
	roots  map[root]*node
	recent *list.List // of *entry, the last used in front
	held   map[*state.Block]int
	clock  atomic.Uint64 // counts uses of entries

	mu      sync.Mutex // protects what follows
	stats   Stats
	arrived []*image
	closed  bool
}

// Stats is what a cache holds and has done.
type Stats struct {
	Entries   int   // boundaries that can be found
	Bytes     int64 // held, whether or not sequences share it
	Hits      int64 // of Find
	Misses    int64
	HitTokens int64 // sum of the hits' lengths
	Evictions int64 // entries given up for want of memory
}

// New returns an empty cache with memory of p, which asks it for memory from now on.
func New(p *state.Pool, o Options) *Cache {
	c := &Cache{pool: p, o: o, roots: map[root]*node{}, recent: list.New(), held: map[*state.Block]int{}}
	p.OnFull(func(n int64) { c.Shrink(n) })
	return c
}

// Find returns the salt's entry with the longest beginning of tokens, nil if there is none. At
// least one token is left to be fed, for without that there are no logits. drafts says
// that the drafter's memory is wanted too. The hit must be released.
func (c *Cache) Find(salt Salt, tokens []int32, drafts bool) *Hit {
	c.settle()
	e := c.longest(salt, tokens, c.drafts(drafts))
	c.mu.Lock()
	defer c.mu.Unlock()
	if e == nil {
		c.stats.Misses++
		return nil
	}
	e.hits++
	c.touch(e)
	c.stats.Hits++
	c.stats.HitTokens += int64(e.target.Len())
	return &Hit{e}
}

// Store keeps what target and memory remember after tokens, which are all that target was
// fed, for texts of the salt. memory may be nil; it is left out, too, if it has not learned all pairs of a hidden
// row and the token after it that lie within tokens, which are one less. hidden is the
// target's hidden row of the last token, which the next pair begins with.
//
// Pages are shared with the states, which go on. An error means that there was no memory
// and nothing is stored.
func (c *Cache) Store(salt Salt, tokens []int32, target, memory *state.State, hidden backend.Tensor) error {
	n := len(tokens)
	if n == 0 || target.Len() != n {
		return fmt.Errorf("prefix: %d tokens for a state of %d", n, target.Len())
	}
	if memory == nil || !c.drafts(true) || memory.Len() < n-1 || hidden.Rows != 1 {
		memory = nil
	}
	if e := c.exact(salt, tokens); e != nil && (memory == nil || e.memory != nil) {
		c.touch(e)
		return nil
	}
	// Taking memory may shrink the tree, so it comes before looking for a place there.
	x, err := c.parts(target, memory, hidden)
	if err != nil {
		return fmt.Errorf("prefix: %d tokens: %w", n, err)
	}
	e := c.insert(salt, tokens, x)
	c.spill(salt, tokens, e)
	return nil
}

// drafts reports whether a drafter's memory is wanted and there is such a thing.
func (c *Cache) drafts(wanted bool) bool { return wanted && c.o.Memory != state.Layout{} }

// parts saves what an entry is made of.
func (c *Cache) parts(target, memory *state.State, hidden backend.Tensor) (x parts, err error) {
	n := target.Len()
	if x.target, err = target.Save(); err != nil {
		return x, err
	}
	x.pages[0] = x.target.Detach(depth(n))
	if memory == nil {
		return x, nil
	}
	if x.memory, err = memory.Save(); err == nil {
		x.hidden, err = c.pool.CopyOf(hidden)
	}
	if err != nil {
		x.release()
		return x, err
	}
	x.memory.Cut(n - 1)
	x.pages[1] = x.memory.Detach(depth(n))
	return x, nil
}

// Shrink gives up entries, those not used for the longest time first, until so many bytes
// have come back to the pool, and returns how many have. Entries whose hits are not released
// stay.
func (c *Cache) Shrink(bytes int64) int64 { return c.ShrinkOlder(bytes, c.Clock()) }

// ShrinkOlder is Shrink that gives up no entry used after the clock showed that time.
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

// Clock is the time in uses of entries. Any goroutine may ask.
func (c *Cache) Clock() uint64 { return c.clock.Load() }

// touch notes that an entry is used now.
func (c *Cache) touch(e *entry) {
	e.used = c.clock.Add(1)
	c.recent.MoveToFront(e.place)
}

// Stats is the account at this moment. Any goroutine may ask.
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

// Close gives all memory back. Hits must have been released. The disk is its owner's to
// close.
func (c *Cache) Close() {
	c.pool.OnFull(nil)
	for c.recent.Len() > 0 {
		e := c.recent.Back().Value.(*entry)
		if e.hits > 0 {
			panic(fmt.Sprintf("prefix: closed with %d hits on an entry of %d tokens", e.hits, e.target.Len()))
		}
		c.remove(e)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed, c.arrived = true, nil
}

// Hit is an entry that was found. It stays in the cache until it is released.
type Hit struct{ e *entry }

// Len is the number of tokens that need not be fed.
func (h *Hit) Len() int { return h.e.target.Len() }

// Restore makes the states remember the entry's tokens, in place of what they did: target
// Len of them, memory one pair less, whose last token is not known here. The pair of Hidden
// and the token at Len is then to be learned. memory may be nil, and must be if Find was not
// asked for it. After an error both states must be closed.
func (h *Hit) Restore(target, memory *state.State) error {
	if err := target.Load(h.e.target, h.e.at.path(0)...); err != nil {
		return fmt.Errorf("prefix: target: %w", err)
	}
	if memory == nil || memory.Layout() == (state.Layout{}) {
		return nil
	}
	if h.e.memory == nil {
		return fmt.Errorf("prefix: the entry of %d tokens has no memory of the drafter", h.Len())
	}
	if err := memory.Load(h.e.memory, h.e.at.path(1)...); err != nil {
		return fmt.Errorf("prefix: drafter: %w", err)
	}
	return nil
}

// Hidden is the target's hidden row of the last token, [1, width], valid until Release. It
// is empty if the entry has no memory of the drafter.
func (h *Hit) Hidden() backend.Tensor {
	if h.e.hidden == nil {
		return backend.Tensor{}
	}
	return h.e.hidden.Tensor()
}

// Release lets the entry go. The hit must not be used after it.
func (h *Hit) Release() {
	h.e.hits--
	h.e = nil
}
