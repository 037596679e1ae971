package foretoken

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/sample"
)

// prefixes is an observer that records the prefixes reported to it.
type prefixes struct {
	mu      sync.Mutex // protects what follows
	known   map[string]bool
	removed int
	cleared int
}

func (p *prefixes) Stored(tokens []int32, rows []prefix.Rows) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known[fmt.Sprint(tokens, rows)] = true
}

func (p *prefixes) Removed(tokens []int32, rows []prefix.Rows) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, fmt.Sprint(tokens, rows))
	p.removed++
}

func (p *prefixes) Cleared() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.known)
	p.cleared++
}

func (p *prefixes) knows(tokens []int32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known[fmt.Sprint(tokens, []prefix.Rows(nil))]
}

// TestObserverKnowsWhatIsCached has models answer random prompts, many at a time, with little memory,
// some of them canceled, some with a salt or without drafts, and then asks for every prefix of
// whole pages. A prefix comes from the cache if and only if the observer has it.
func TestObserverKnowsWhatIsCached(t *testing.T) {
	const stories, pages = 4, 4
	for name, path := range map[string]string{"recurrent": Tiny, "attention": writeGLM(t, "calls_lines.jinja")} {
		for _, dir := range []string{"", t.TempDir()} {
			t.Run(fmt.Sprintf("%s/disk=%t", name, dir != ""), func(t *testing.T) {
				p := &prefixes{known: map[string]bool{}}
				o := Options{Threads: 1, Log: silent, Context: 512, Speculation: Speculation{NoSelfTest: true}}
				o.KVMemory = 4 * least(t, path, o) // for some entries of the cache
				o.observer, o.PrefixCache = p, PrefixCache{Dir: dir, MaxDisk: 64 << 20}
				m, err := Open(t.Context(), path, o)
				if err != nil {
					t.Fatal(err)
				}
				rng := rand.New(rand.NewPCG(1, 5))
				story := func(i int) []int32 {
					rng := rand.New(rand.NewPCG(uint64(i), 6))
					ids := make([]int32, pages*PageTokens+1)
					for i := range ids {
						ids[i] = int32(rng.IntN(200))
					}
					return ids
				}
				answerAtRandom(t, m, rng, func() []int32 { return story(rng.IntN(stories))[:2+rng.IntN(pages*PageTokens-2)] })
				finish(t, m, story(0)[:2*PageTokens+1]) // which is there, whatever else is
				known := 0
				for i := range stories {
					for n := range pages {
						ids := story(i)[:(n+1)*PageTokens+1]
						settle(t, m)
						heard := p.knows(ids[:len(ids)-1])
						if heard {
							known++
						}
						if cached := finish(t, m, ids).Result.Cached; (cached == len(ids)-1) != heard {
							t.Errorf("story %d, %d pages: %d tokens were cached, and the observer knows of it: %t", i, n+1, cached, heard)
						}
					}
				}
				t.Logf("%d of %d known, %d removed, %d evicted", known, stories*pages, p.removed, m.Stats().PrefixCache.Evictions)
				if known == 0 || m.Stats().PrefixCache.Evictions == 0 {
					t.Errorf("%d known, %d evicted: nothing was tried", known, m.Stats().PrefixCache.Evictions)
				}
				if err := m.Close(); err != nil {
					t.Fatal(err)
				}
				if p.cleared != 1 || len(p.known) > 0 {
					t.Errorf("after the end: cleared %d times, %d known", p.cleared, len(p.known))
				}
			})
		}
	}
}

// least is the smallest budget of a model.
func least(t *testing.T, path string, o Options) int64 {
	t.Helper()
	m, err := Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	return m.Stats().KVBudget
}

// answerAtRandom has a model answer prompts, four at a time.
func answerAtRandom(t *testing.T, m *Model, rng *rand.Rand, prompt func() []int32) {
	t.Helper()
	var group sync.WaitGroup
	places := make(chan struct{}, 4)
	for i := range 20 {
		r := Request{Prompt: &Prompt{IDs: slices.Clone(prompt())}, MaxTokens: 1 + rng.IntN(30), IgnoreEnd: true, Sampling: &sample.Options{Seed: uint64(i)}}
		switch rng.IntN(8) {
		case 0:
			r.CacheSalt = "mine"
		case 1:
			r.Depth = DepthOff
		}
		stop := rng.IntN(40) // pieces, then it is canceled
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			a, err := m.Generate(ctx, r)
			if err != nil {
				t.Error(err)
				return
			}
			n := 0
			for _, err := range a.Pieces() {
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				if n++; n == stop {
					cancel()
				}
			}
		})
	}
	group.Wait()
}

// settle waits until nothing runs, and nothing is on its way to the disk.
func settle(t *testing.T, m *Model) {
	t.Helper()
	idle := func() bool {
		s := m.Stats()
		return s.Running == 0 && s.Waiting == 0 && s.KVUsed <= s.PrefixCache.Bytes && (m.disk == nil || m.disk.Stats().Queued == 0)
	}
	for end := time.Now().Add(5 * time.Minute); !idle(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the model is not idle")
		}
	}
}

// finish has a prompt answered by one token.
func finish(t *testing.T, m *Model, ids []int32) *Answer {
	t.Helper()
	a, err := m.Generate(t.Context(), Request{Prompt: &Prompt{IDs: ids}, MaxTokens: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range a.Pieces() {
		if err != nil {
			t.Fatal(err)
		}
	}
	return a
}
