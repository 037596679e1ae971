package prefix

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/prefix/store"
	"github.com/foretoken/foretoken/internal/state"
)

// listener is an observer that keeps the reported boundaries.
type listener struct {
	t       *testing.T
	has     map[string]bool
	stored  int
	removed int
	cleared int
}

func newListener(t *testing.T) *listener { return &listener{t: t, has: map[string]bool{}} }

func (l *listener) Stored(tokens []int32, rows []Rows) {
	if x := fmt.Sprint(tokens, rows); l.has[x] {
		l.t.Errorf("%d tokens were stored twice", len(tokens))
	} else {
		l.has[x] = true
	}
	l.stored++
}

func (l *listener) Removed(tokens []int32, rows []Rows) {
	if x := fmt.Sprint(tokens, rows); !l.has[x] {
		l.t.Errorf("%d tokens were removed that had not been stored", len(tokens))
	} else {
		delete(l.has, x)
	}
	l.removed++
}

func (l *listener) Cleared() {
	clear(l.has)
	l.cleared++
}

func (n *toy) observed(d *store.Disk, l *listener) *Cache {
	return New(n.pool, Options{Target: n.target, Drafts: []state.Layout{n.memory}, Tiers: store.Tiers{Disk: d}, Observer: l})
}

// await waits until the disk has written everything that was queued, and has told the observer.
func await(t *testing.T, d *store.Disk) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); d.Stats().Queued > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the disk is not idle")
		}
	}
}

// heard reports whether tokens were reported to the listener.
func (c *Cache) heard(l *listener, tokens []int32) bool {
	c.shown.mu.Lock() // the background of the disk may call the listener
	defer c.shown.mu.Unlock()
	return l.has[fmt.Sprint(tokens, []Rows(nil))]
}

// TestObserverHearsWhatCanBeResumed stores texts at random in a pool that is often full, without a disk, and with full and
// empty ones. Then it searches every prefix of whole pages: exactly the reported ones are found.
func TestObserverHearsWhatCanBeResumed(t *testing.T) {
	const stories, pages = 5, 4
	disks := []int64{0, 1 << 15, 1 << 18} // bytes: none, one that is often full, one that is not
	for seed := range uint64(len(disks) * len(mixtures)) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 4))
			n := newMixture(t, int(seed)%len(mixtures), 16, 7)
			var d *store.Disk
			size := disks[seed/uint64(len(mixtures))]
			if size > 0 {
				d = openDisk(t, t.TempDir(), store.DiskOptions{Bytes: size})
			}
			l := newListener(t)
			c := n.observed(d, l)
			for range 25 {
				tokens := story(rng.Uint64N(stories), pages*backend.PageTokens+1)
				x := n.open()
				if x == nil {
					continue
				}
				for len(x.tokens) < len(tokens)-1 && rng.IntN(6) > 0 { // or it is canceled
					// Most pieces end at pages.
					to := min(len(x.tokens)+1+rng.IntN(100), len(tokens)-1)
					if rng.IntN(3) > 0 {
						to = (to + backend.PageTokens - 1) / backend.PageTokens * backend.PageTokens
					}
					if !x.feed(tokens[to], tokens[len(x.tokens):to]...) {
						break
					}
					salt, draft := Salt{}, x.memory
					switch rng.IntN(8) {
					case 0:
						salt[0] = 1
					case 1:
						draft = nil
					}
					if err := c.Store(salt, Text{Tokens: x.tokens}, x.target, Draft{draft, n.row}); err != nil && !errors.Is(err, state.ErrFull) {
						t.Fatal(err)
					}
				}
				x.close()
			}
			known, both := 0, 0
			for i := range uint64(stories) {
				for p := range pages {
					tokens := story(i, pages*backend.PageTokens+1)[:(p+1)*backend.PageTokens+1]
					if d != nil {
						await(t, d)
					}
					heard := c.heard(l, tokens[:len(tokens)-1])
					fetched(c, tokens)
					h := c.Find(Salt{}, Text{Tokens: tokens}, false)
					got := h != nil && h.Len() == len(tokens)-1
					if h != nil {
						h.Release()
					}
					if heard != got {
						t.Errorf("story %d, %d pages: the observer knows of it: %t; it is found: %t", i, p+1, heard, got)
						if d != nil {
							t.Logf("used %d bytes of the pool, %+v", n.pool.Used(), d.Stats())
						}
					}
					if both++; heard {
						known++
					}
				}
			}
			t.Logf("%d of %d known, %d stored, %d removed, %+v", known, both, l.stored, l.removed, c.Stats())
			if known == 0 || l.removed == 0 && size < 1<<18 || c.Stats().Evictions == 0 {
				t.Errorf("%d boundaries known, %d removed, %d entries evicted: nothing was tried", known, l.removed, c.Stats().Evictions)
			}
			c.Close()
			if l.cleared != 1 || len(l.has) > 0 {
				t.Errorf("after the end: cleared %d times, %d boundaries known", l.cleared, len(l.has))
			}
		})
	}
}

// TestObserverHearsOnlyWhatAnyRequestResumes stores texts with salts, images and without the drafter.
func TestObserverHearsOnlyWhatAnyRequestResumes(t *testing.T) {
	n := newToy(t, 1<<20)
	l := newListener(t)
	c := n.observed(nil, l)
	defer c.Close()
	tokens := story(1, 2*backend.PageTokens+1)
	x := n.open()
	defer x.close()
	x.feed(tokens[len(tokens)-1], tokens[:len(tokens)-1]...)
	whole := Text{Tokens: x.tokens}
	// Rows up to the middle of the last page, and some that go on behind it.
	drawn := func(hash byte) Text {
		text := Text{Tokens: slices.Clone(x.tokens), Inputs: []Input{{At: 70, N: 3, Hash: [32]byte{hash}, Token: 1007}, {At: 126, N: 5, Hash: [32]byte{9}, Token: 1008}}}
		for _, i := range []int{70, 71, 72, 126, 127} {
			text.Tokens[i] = -1
		}
		return text
	}
	for _, s := range []struct {
		why   string
		salt  Salt
		text  Text
		draft *state.State
		heard int
	}{
		{"a salt", Salt{1}, whole, x.memory, 0},
		{"no state of the drafter", Salt{}, whole, nil, 1},
		{"again, with it", Salt{}, whole, x.memory, 1},
		{"an image behind it", Salt{}, Text{Tokens: whole.Tokens, Inputs: []Input{{At: 200, N: 3}}}, x.memory, 1},
		{"an image", Salt{}, drawn(1), x.memory, 2},
		{"another one", Salt{}, drawn(2), x.memory, 3},
		{"it again", Salt{}, drawn(1), x.memory, 3},
		{"it with a salt", Salt{1}, drawn(3), x.memory, 3},
	} {
		if err := c.Store(s.salt, s.text, x.target, Draft{s.draft, n.row}); err != nil {
			t.Fatal(err)
		}
		if l.stored != s.heard {
			t.Errorf("%s: the observer heard of %d boundaries, want %d", s.why, l.stored, s.heard)
		}
	}
	ids := slices.Clone(x.tokens)
	ids[70], ids[71], ids[72], ids[126], ids[127] = 1007, 1007, 1007, 1008, 1008
	if rows := []Rows{{70, 3, [32]byte{2}}, {126, 2, [32]byte{9}}}; !l.has[fmt.Sprint(ids, rows)] {
		t.Error("the observer does not know what the images are")
	}
	c.Shrink(1 << 20)
	if l.removed != 3 || len(l.has) > 0 {
		t.Errorf("after eviction: %d removed, %d known", l.removed, len(l.has))
	}
}
