package engine

import (
	"flag"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
)

// soak is how long TestSoak runs in make soak and make nightly. Otherwise each client has a
// number of workloads, the same in every run.
var soak = flag.Duration("soak", 0, "how long the soak test loads an engine; 0: a few workloads")

// TestSoak loads engines with random requests from several clients, some of them canceled, and checks every answer. In the
// end all memory is released.
func TestSoak(t *testing.T) {
	const engines = 4 // one after another
	m, b := openEmbedding(t, "dense", backend.Options{}, false)
	pieces := repertoire(t, m, b, 40)
	goroutines := runtime.NumGoroutine()
	probe := &Engine{model: m, o: Options{Drafter: m.Drafter()}}
	pool := state.NewPool(b, 6*probe.bytes(264+spec.MaxDepth)) // which keeps its memory for the next
	var heap []int64
	canceled, cached := int64(0), int64(0)
	for i := range engines {
		s := soakOne(t, m, b, pool, pieces, uint64(i), *soak/engines)
		canceled, cached = canceled+s.Canceled, cached+s.CachedTokens
		heap = append(heap, settled())
	}
	if canceled == 0 || cached == 0 { // of the first workloads alone there are several: the seeds are fixed
		t.Errorf("%d canceled, %d tokens from the cache", canceled, cached)
	}
	awaitGoroutines(t, goroutines)
	t.Logf("the heap after each engine: %d", heap)
	if n := leaked(heap); n > 1<<20 {
		t.Errorf("every engine leaves %d bytes or more: %d", n, heap)
	}
}

// soakOne loads one engine for a time, with one workload of each client at least.
func soakOne(t *testing.T, m *headed, b *embedding, pool *state.Pool, pieces []piece, seed uint64, atLeast time.Duration) Stats {
	t.Helper()
	e, err := New(m, pool, Options{Drafter: m.Drafter(), Cache: true, MaxBatch: 6, RoundTokens: 96, Log: quiet, Tower: b})
	if err != nil {
		t.Fatal(err)
	}
	workloads := 1
	if long {
		workloads = 4
	}
	end := time.Now().Add(atLeast)
	var clients sync.WaitGroup
	for i := range uint64(10) {
		rng := rand.New(rand.NewPCG(10*seed+i, 11))
		clients.Go(func() {
			for n := 0; !t.Failed() && (n < workloads || time.Now().Before(end)); n++ {
				w := newWorkload(rng, m, b, pieces, 0)
				w.run(t, e)
			}
		})
	}
	clients.Wait()
	s := e.Stats()
	e.Close()
	t.Logf("%d rounds, %d tokens, %d requests ended by themselves, %d were canceled, %d preemptions, %d tokens from the cache",
		s.Rounds, s.Tokens, s.Finished[FinishStop]+s.Finished[FinishLength], s.Canceled, s.Preemptions, s.CachedTokens)
	if s.Faults != 0 {
		t.Errorf("%d faults", s.Faults)
	}
	if _, alive, open := b.counts(); alive+open > 0 {
		t.Errorf("left behind rows of %d images, %d passes", alive, open)
	}
	if left := pool.Stats(); left.Used != 0 || left.Pages != 0 || left.States != 0 {
		t.Errorf("left behind %+v", left)
	}
	return s
}

// awaitGoroutines waits until at most n are left. A goroutine may return a moment after its result.
func awaitGoroutines(t *testing.T, n int) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); runtime.NumGoroutine() > n; runtime.Gosched() {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<16)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), n, stacks[:runtime.Stack(stacks, true)])
		}
	}
}
