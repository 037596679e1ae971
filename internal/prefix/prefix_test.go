package prefix

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/prefix/store"
	"github.com/foretoken/foretoken/internal/state"
)

func (n *toy) cache(d *store.Disk) *Cache {
	return New(n.pool, Options{Target: n.target, Drafts: []state.Layout{n.memory}, Tiers: store.Tiers{Disk: d}})
}

// story is n tokens that differ from those of other seeds.
func story(seed uint64, n int) []int32 {
	rng := rand.New(rand.NewPCG(seed, 9))
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(rng.IntN(500))
	}
	return tokens
}

// remember feeds a text and stores it at the lengths.
func (n *toy) remember(c *Cache, tokens []int32, lengths ...int) {
	n.t.Helper()
	x := n.open()
	defer x.close()
	for _, l := range lengths {
		if !x.feed(tokens[l], tokens[len(x.tokens):l]...) {
			n.t.Fatal("no memory")
		}
		if err := x.store(c); err != nil {
			n.t.Fatal(err)
		}
	}
}

// found is the length of the entry of a text, 0 if there is none.
func found(c *Cache, tokens []int32) int {
	h := c.Find(Salt{}, Text{Tokens: tokens}, true)
	if h == nil {
		return 0
	}
	defer h.Release()
	return h.Len()
}

func TestFindReturnsTheLongestBoundary(t *testing.T) {
	n := newToy(t, 1<<20)
	c := n.cache(nil)
	tokens := story(1, 300)
	lengths := []int{1, 2, 63, 64, 65, 66, 127, 128, 129, 200, 257}
	n.remember(c, tokens, lengths...)
	for l := range len(tokens) + 1 {
		want := 0
		for _, b := range lengths {
			if b < l { // a token is left to feed
				want = b
			}
		}
		if got := found(c, tokens[:l]); got != want {
			t.Errorf("%d tokens: found %d, want %d", l, got, want)
		}
	}
	other := slices.Clone(tokens)
	other[150]++
	if got := found(c, other); got != 129 {
		t.Errorf("a text that differs at 150: found %d, want 129", got)
	}
	other[0]++
	if got := found(c, other); got != 0 {
		t.Errorf("a text that differs at once: found %d", got)
	}
	c.Close()
	if x := n.pool.Stats(); x.Used != 0 || x.Pages != 0 || x.States != 0 {
		t.Errorf("after everything was closed: %+v", x)
	}
}

// TestStoreSharesPages stores one text of two sequences that were fed independently.
func TestStoreSharesPages(t *testing.T) {
	n := newToy(t, 1<<20)
	c := n.cache(nil)
	defer c.Close()
	tokens := story(1, 300)
	n.remember(c, tokens, 130, 200)
	once := c.Stats()
	if used := n.pool.Used(); used != once.Bytes {
		t.Errorf("the cache says it has %d bytes, the pool %d", once.Bytes, used)
	}
	n.remember(c, tokens, 130, 200)
	if again := c.Stats(); again != once {
		t.Errorf("the same text again: %+v, before %+v", again, once)
	}
	// Three pages and a part of a fourth of each model, the second boundary's with the
	// page that it shares with the first counted once.
	if got, want := n.pool.Stats().Pages, 2*(3+1+1); got != want {
		t.Errorf("%d pages, want %d", got, want)
	}
	// A whole page belongs to the boundary at its end and to the node after it, and is
	// counted once.
	n.remember(c, story(2, 300), 128, 129)
	if used, bytes := n.pool.Used(), c.Stats().Bytes; used != bytes {
		t.Errorf("the cache says it has %d bytes, the pool %d", bytes, used)
	}
}

func TestStoreWithoutDrafterIsCompletedLater(t *testing.T) {
	n := newToy(t, 1<<20)
	c := n.cache(nil)
	defer c.Close()
	tokens := story(1, 300)
	x := n.open()
	defer x.close()
	x.feed(tokens[200], tokens[:200]...)
	if err := c.Store(Salt{}, Text{Tokens: x.tokens}, x.target); err != nil {
		t.Fatal(err)
	}
	if h := c.Find(Salt{}, Text{Tokens: tokens}, true); h != nil {
		t.Errorf("found %d tokens with a drafter's memory that was not stored", h.Len())
	}
	h := c.Find(Salt{}, Text{Tokens: tokens}, false)
	if h == nil || h.Len() != 200 {
		t.Fatal("not found")
	}
	y := n.open()
	defer y.close()
	y.restore(h, tokens)
	if err := x.store(c); err != nil {
		t.Fatal(err)
	}
	h.Release()
	if got := found(c, tokens); got != 200 {
		t.Errorf("found %d tokens, want 200", got)
	}
	// A drafter that lags behind is left out.
	x.feed(tokens[220], tokens[200:220]...)
	x.memory.Truncate(218)
	if err := x.store(c); err != nil {
		t.Fatal(err)
	}
	if got := found(c, tokens); got != 200 {
		t.Errorf("found %d tokens with the drafter's memory, want 200", got)
	}
	if err := c.Store(Salt{}, Text{Tokens: tokens[:100]}, x.target); err == nil {
		t.Error("a state of other tokens was stored")
	}
}

func TestShrinkGivesUpTheLeastRecentlyUsed(t *testing.T) {
	n := newToy(t, 1<<20)
	c := n.cache(nil)
	for i := range uint64(4) {
		n.remember(c, story(i, 100), 90)
	}
	if got := found(c, story(0, 100)); got != 90 { // used again
		t.Fatalf("found %d", got)
	}
	h := c.Find(Salt{}, Text{Tokens: story(1, 100)}, true)                   // in use
	c.Fetch(Salt{}, Text{Tokens: story(2, 100)}, func() { t.Error("read") }) // about to be used
	one := c.Stats().Bytes / 4
	if freed := c.Shrink(one); freed != one {
		t.Errorf("%d bytes came back, want %d", freed, one)
	}
	for i, want := range []int{90, 90, 90, 0} {
		if got := c.longest(Salt{}, Text{Tokens: story(uint64(i), 100)}, true); (got != nil) != (want > 0) {
			t.Errorf("text %d: there %t, want %d tokens", i, got != nil, want)
		}
	}
	if freed := c.Shrink(1 << 40); freed != 2*one {
		t.Errorf("%d bytes came back, want %d", freed, 2*one)
	}
	if x := c.Stats(); x.Entries != 1 || x.Evictions != 3 || x.Bytes != one || x.Hits != 2 || x.HitTokens != 180 {
		t.Errorf("%+v", x)
	}
	h.Release()
	c.Shrink(1)
	if x := c.Stats(); x.Entries != 0 || x.Bytes != 0 || n.pool.Used() != 0 || len(c.roots) != 0 {
		t.Errorf("%+v, %d bytes, %d roots", x, n.pool.Used(), len(c.roots))
	}
	c.Close()
}

// TestPoolTakesFromTheCache fills the budget with entries and then opens a sequence.
func TestPoolTakesFromTheCache(t *testing.T) {
	page := toyTarget.PageBytes() + toyMemory.PageBytes()
	n := newToy(t, 12*page)
	c := n.cache(nil)
	for i := range uint64(40) {
		n.remember(c, story(i, 100), 90)
	}
	if x := c.Stats(); x.Evictions == 0 || x.Entries == 0 {
		t.Fatalf("%+v", x)
	}
	x := n.open()
	tokens := story(99, 11*backend.PageTokens)
	for i := 0; i+1 < len(tokens)-20; i += 20 {
		if !x.feed(tokens[i+20], tokens[i:i+20]...) {
			t.Fatalf("no memory after %d tokens although the cache could give some: %+v", i, c.Stats())
		}
	}
	x.check("alone in the end", tokens[len(x.tokens)])
	// If evictions are not enough, memory is refused and nothing is stored.
	if err := x.store(c); err != nil && !errors.Is(err, state.ErrFull) {
		t.Error(err)
	}
	x.close()
	c.Close()
	if s := n.pool.Stats(); s.Used != 0 || s.Pages != 0 || s.States != 0 {
		t.Errorf("after everything was closed: %+v", s)
	}
}

// TestStoreLeavesOutWhatCannotBeCut has a drafter with recurrent memory, with one pair more than may be stored, and then
// without it.
func TestStoreLeavesOutWhatCannotBeCut(t *testing.T) {
	n := newToy(t, 1<<20)
	n.memory = state.Layout{Layers: []state.Layer{state.Delta{KeyHeads: 1, ValueHeads: 1, KeyDim: 1, ValueDim: 1, Kernel: 1}}}
	c := n.cache(nil)
	defer c.Close()
	tokens := story(1, 100)
	x := n.open()
	defer x.close()
	feed := func(s *state.State, count int) {
		t.Helper()
		if err := s.Reserve(count); err != nil {
			t.Fatal(err)
		}
		s.Seq(0, count, 0, nil)
		s.Fed(count, 0)
	}
	store := func() {
		t.Helper()
		if err := c.Store(Salt{}, Text{Tokens: tokens[:x.target.Len()]}, x.target, Draft{x.memory, n.row}); err != nil {
			t.Fatal(err)
		}
	}
	feed(x.target, 70)
	feed(x.memory, 70)
	store()
	if h := c.Find(Salt{}, Text{Tokens: tokens}, true); h != nil {
		t.Errorf("found %d tokens with a drafter that is ahead", h.Len())
	}
	if h := c.Find(Salt{}, Text{Tokens: tokens}, false); h == nil || h.Len() != 70 {
		t.Error("the target's state is not found")
	} else {
		h.Release()
	}
	feed(x.target, 1)
	store()
	h := c.Find(Salt{}, Text{Tokens: tokens}, true)
	if h == nil || h.Len() != 71 {
		t.Fatal("not found")
	}
	defer h.Release()
	y := n.open()
	defer y.close()
	if err := h.Restore(y.target, y.memory); err != nil || y.memory.Len() != 70 {
		t.Errorf("%d pairs, error %v", y.memory.Len(), err)
	}
}

// TestCacheEqualsDeepCopies opens and closes sequences with common prefixes at random, in a pool that is often full, and
// checks their states.
func TestCacheEqualsDeepCopies(t *testing.T) {
	for seed := range uint64(2 * len(mixtures)) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 3))
			n := newMixture(t, int(seed)%len(mixtures), 16, 6)
			c := n.cache(nil)
			var open []*text
			hits := 0
			for range 300 {
				if len(open) < 4 && rng.IntN(3) == 0 {
					if x := n.open(); x != nil {
						hits += x.begin(c, rng)
						open = append(open, x)
					}
					continue
				}
				if len(open) == 0 {
					continue
				}
				i := rng.IntN(len(open))
				x := open[i]
				more := x.more(rng)
				next := more[len(more)-1]
				if rng.IntN(6) == 0 || !x.feed(next, more[:len(more)-1]...) {
					x.close()
					open = slices.Delete(open, i, i+1)
					continue
				}
				x.check("after feeding", next)
				memory := x.memory
				switch rng.IntN(5) {
				case 0:
					memory = nil
				case 1, 2:
					continue
				}
				if err := x.storeWith(c, memory); err != nil && !errors.Is(err, state.ErrFull) {
					t.Fatal(err)
				}
			}
			for _, x := range open {
				x.close()
			}
			x := c.Stats()
			t.Logf("%d hits used, %+v", hits, x)
			if hits == 0 || x.Evictions == 0 {
				t.Errorf("%d hits, %d evictions: nothing was tried", hits, x.Evictions)
			}
			if used := n.pool.Used(); used != x.Bytes {
				t.Errorf("the cache says it has %d bytes, the pool %d", x.Bytes, used)
			}
			c.Close()
			if s := n.pool.Stats(); s.Used != 0 || s.Pages != 0 || s.States != 0 || c.Stats().Bytes != 0 {
				t.Errorf("after everything was closed: %+v", s)
			}
		})
	}
}

// begin restores the longest entry of a text of many similar prefixes, and reports whether there was one.
func (x *text) begin(c *Cache, rng *rand.Rand) int {
	x.t.Helper()
	tokens := append(story(uint64(rng.IntN(3)), 20+rng.IntN(150)), 501)
	h := c.Find(Salt{}, Text{Tokens: tokens}, rng.IntN(2) == 0)
	if h == nil {
		return 0
	}
	x.restore(h, tokens)
	h.Release()
	if x.memory.Len() == len(x.tokens) {
		return 1
	}
	if err := x.memory.Reserve(1); err != nil {
		x.t.Fatal(err) // the budget has room for four texts of such prefixes
	}
	x.catchUp(tokens[len(x.tokens)])
	x.check("after catching up", x.next)
	return 1
}

// more is the continuation of a text, and a token after it: of its story, or random tokens.
func (x *text) more(rng *rand.Rand) []int32 {
	at, count := len(x.tokens), 2+rng.IntN(40)
	tokens := make([]int32, count)
	for i := range tokens {
		tokens[i] = int32(rng.IntN(3))
	}
	for i := range uint64(3) {
		s := story((i+rng.Uint64N(3))%3, at+count)
		if at < 200 && slices.Equal(s[:at], x.tokens) && rng.IntN(6) > 0 {
			tokens = s[at:]
		}
	}
	if at > 0 {
		tokens[0] = x.next // which the drafter has
	}
	return tokens
}
