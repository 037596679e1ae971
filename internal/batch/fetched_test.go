package batch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// conversation is a line with some messages.
func conversation(id int, messages ...string) string {
	var list []string
	for _, m := range messages {
		list = append(list, fmt.Sprintf(`{"role":"user","content":%q}`, m))
	}
	return request(fmt.Sprint(id), fmt.Sprintf(`{"messages":[%s]}`, strings.Join(list, ",")))
}

func TestArrangeFindsCommonPrefixes(t *testing.T) {
	long := strings.Repeat("a ", cutEvery)
	lines := []string{
		conversation(0, "s", "x"), conversation(1, "s", "y"), // 0, 1, 2 and 3 have their first message in common
		conversation(2, "s", "d", "p"), conversation(3, "s", "d", "q"), // and these the second one
		conversation(4, "alone"),
		conversation(5, long+"x"), conversation(6, long+"y"), // a text
		conversation(7, "same"), conversation(8, "same"), // all of it
	}
	p, faults, err := validate(strings.NewReader(strings.Join(lines, "\n")), chatEndpoint)
	if err != nil || faults != nil {
		t.Fatal(faults, err)
	}
	common := func(i, j int) (n int) {
		for _, x := range p.Lines[i].prefixes {
			if slices.Contains(p.Lines[j].prefixes, x) {
				n++
			}
		}
		return n
	}
	for _, c := range []struct{ i, j, want int }{{0, 1, 1}, {0, 2, 1}, {2, 3, 2}, {0, 4, 0}, {4, 4, 0}, {5, 6, 1}, {5, 7, 0}, {7, 8, 1}, {7, 7, 1}, {0, 0, 1}} {
		if n := common(c.i, c.j); n != c.want {
			t.Errorf("lines %d and %d have %d prefixes in common, want %d", c.i, c.j, n, c.want)
		}
	}
	mine, yours := p.Lines[0].hint(&Record{Owner: "me"}), p.Lines[0].hint(&Record{Owner: "you"})
	if mine.Prefixes == "" || mine.Prefixes == yours.Prefixes {
		t.Errorf("prefixes %q of one owner, %q of another", mine.Prefixes, yours.Prefixes)
	}
}

// TestFetchedLinesLetsOneGoAhead plays at random with lines that have common prefixes: no two lines compute
// the same prefix, no line that may run waits beside a free slot, and all of them end.
func TestFetchedLinesLetsOneGoAhead(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		slots, lines := 1+random.IntN(6), random.IntN(40)
		h := newFetchedLines(slots)
		queue := NewMemory()
		for i := range lines {
			hint := Hint{Batch: "b", Line: i}
			for depth := range random.IntN(3) {
				hint.Prefixes += fmt.Sprintf(" %d.%d", depth, i/(1+random.IntN(8)))
			}
			if err := queue.Publish(t.Context(), []Hint{hint}); err != nil {
				t.Fatal(err)
			}
		}
		running := map[*fetchedLine]bool{} // whether their prompt was processed
		ready := func(p string) bool {
			for l, prompted := range running {
				if prompted && slices.Contains(l.prefixes, p) {
					return true
				}
			}
			return false
		}
		left, ended := lines, 0
		for ended < lines {
			if n, _ := h.room(); n > 0 && left > 0 {
				n = min(left, 1+random.IntN(n))
				list, err := queue.Fetch(t.Context(), "", n)
				if err != nil {
					t.Fatal(err)
				}
				left -= len(list)
				h.add(list)
			}
			for l, _ := h.next(); l != nil; l, _ = h.next() {
				for other, prompted := range running {
					for _, p := range l.prefixes {
						if !prompted && slices.Contains(other.prefixes, p) && !ready(p) && h.prefixes[p].ahead != l && !h.prefixes[p].ready {
							t.Fatalf("seed %d: two lines compute %s", seed, p)
						}
					}
				}
				running[l] = false
			}
			if len(running) == 0 && len(h.waiting) > 0 || len(running) > slots || 2*len(h.waiting) > slots+1 {
				t.Fatalf("seed %d: %d lines run and %d wait, with %d slots", seed, len(running), len(h.waiting), slots)
			}
			for l := range running { // any of them
				if !running[l] && random.IntN(4) > 0 {
					running[l] = true
					h.prompted(l)
				} else {
					delete(running, l)
					h.done(l)
					ended++
				}
				break
			}
		}
		if len(h.free) != slots || len(h.prefixes) > 0 || len(h.waiting) > 0 {
			t.Fatalf("seed %d: at the end %+v", seed, h)
		}
	}
}

// A fetch that found no free slot because a line was about to start is woken when it has started: there
// may be slots left, and lines in the queue.
func TestFetchedLinesHasRoomWhenALineStarts(t *testing.T) {
	h, queue := newFetchedLines(4), NewMemory()
	if err := queue.Publish(t.Context(), []Hint{{Line: 1}}); err != nil {
		t.Fatal(err)
	}
	list, err := queue.Fetch(t.Context(), "", 1)
	if err != nil {
		t.Fatal(err)
	}
	h.add(list)
	n, changed := h.room()
	if n != 0 {
		t.Fatalf("room for %d beside a line that can start", n)
	}
	h.next()
	select {
	case <-changed:
	default:
		t.Error("the start of the line is not announced")
	}
	if n, _ := h.room(); n != 2 {
		t.Errorf("room for %d, want 2", n)
	}
}

// The line that goes ahead may be starved by other requests; the line in the first slot does not wait
// for it forever.
func TestFetchedLinesGoesOnWithoutWhoIsAhead(t *testing.T) {
	h, queue := newFetchedLines(2), NewMemory()
	if err := queue.Publish(t.Context(), []Hint{{Line: 1, Prefixes: "a"}, {Line: 2, Prefixes: "b"}, {Line: 3, Prefixes: "b"}}); err != nil {
		t.Fatal(err)
	}
	list, err := queue.Fetch(t.Context(), "", 3)
	if err != nil {
		t.Fatal(err)
	}
	h.add(list)
	first, _ := h.next()
	ahead, _ := h.next()
	h.done(first)
	for look := range 3 {
		l, _ := h.next()
		if (l != nil) != (look == 2) {
			t.Fatalf("found waiting %d times, the line is %v", look, l)
		}
		if l != nil && (l.slot != 0 || l.Hint().Line != 3 || ahead.slot != 1) {
			t.Errorf("line %d runs in slot %d", l.Hint().Line, l.slot)
		}
		h.reviewWaiting()
	}
}

// cacheRun answers like a model with a cache of first messages, and counts misses.
type cacheRun struct {
	mu     sync.Mutex
	known  map[string]bool
	misses int
}

func (c *cacheRun) run(_ context.Context, call Call, _ string, request []byte) (*Result, error) {
	first, _, _ := strings.Cut(string(request), "},")
	c.mu.Lock()
	if !c.known[first] {
		c.misses++
	}
	c.mu.Unlock()
	for range 100 { // lines that are to run beside it have begun by then
		runtime.Gosched()
	}
	c.mu.Lock()
	c.known[first] = true
	c.mu.Unlock()
	call.Prompted()
	return &Result{Status: 200, Body: []byte(`{"choices":[]}`)}, nil
}

// A worker with a real queue computes each prefix once, whatever lines run concurrently.
func TestWorkerComputesPrefixesOnce(t *testing.T) {
	const groups, size = 20, 8
	var content strings.Builder
	for i := range groups * size {
		fmt.Fprintln(&content, conversation(i, fmt.Sprint("system ", i%groups), fmt.Sprint("question ", i)))
	}
	x := newSite(t, lazyFolder(t, t.TempDir()), newClock())
	c := &cacheRun{known: map[string]bool{}}
	b := x.submit(t, content.String())
	x.step(t)
	ctx, stop := context.WithCancel(t.Context())
	var stored atomic.Int64
	w := &Worker{Store: x.store, Queue: x.queue, Model: "fingerprint of ", Run: c.run, Concurrent: 16, Log: slog.New(slog.DiscardHandler), Stored: func(string) {
		if stored.Add(1) == groups*size {
			stop()
		}
	}}
	if err := w.Work(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	x.step(t)
	if b = x.status(t, b.ID); b.Status != Completed {
		t.Errorf("%s, %+v", b.Status, b.Counts)
	}
	if c.misses != groups {
		t.Errorf("%d computations of %d prefixes", c.misses, groups)
	}
}
