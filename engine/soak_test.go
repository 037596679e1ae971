package engine

import (
	"flag"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/model"
	"github.com/foretoken/foretoken/spec"
	"github.com/foretoken/foretoken/state"
)

// soak is how long TestSoak runs in make soak and make nightly. Otherwise each client has a
// number of workloads, the same in every run.
var soak = flag.Duration("soak", 0, "how long the soak test loads an engine; 0: a few workloads")

const soakWorkloads = 2

// TestSoak loads one engine with random requests from several clients, which come, leave and
// break off as they like, and checks every answer. In the end nothing may be left of it.
func TestSoak(t *testing.T) {
	m, b := openOn(t, golden.Dir(t, "dense"), model.Options{Quantise: 8})
	pieces := repertoire(t, m, state.NewPool(b, 1<<30), 40)
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	goroutines := runtime.NumGoroutine()

	probe := &Engine{model: m, o: Options{Drafter: m.Drafter()}}
	pool := state.NewPool(b, 6*probe.bytes(264+spec.MaxDepth))
	e, err := New(m, pool, Options{Drafter: m.Drafter(), Cache: true, MaxBatch: 6, RoundTokens: 96, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(*soak)
	var clients sync.WaitGroup
	for i := range 10 {
		rng := rand.New(rand.NewPCG(uint64(i), 11))
		clients.Go(func() {
			for n := 0; !t.Failed() && (n < soakWorkloads || time.Now().Before(end)); n++ {
				w := newWorkload(rng, m, pieces, 0)
				w.run(t, e)
			}
		})
	}
	clients.Wait()
	s := e.Stats()
	e.Close()
	t.Logf("%d rounds, %d tokens, %d requests ended by themselves, %d were cancelled, %d preemptions, %d tokens from the cache",
		s.Rounds, s.Tokens, s.Finished[FinishStop]+s.Finished[FinishLength], s.Cancelled, s.Preemptions, s.CachedTokens)
	if s.Faults != 0 || s.Cancelled == 0 || s.CachedTokens == 0 {
		t.Errorf("%d faults, %d cancelled, %d tokens from the cache", s.Faults, s.Cancelled, s.CachedTokens)
	}
	if left := pool.Stats(); left.Used != 0 || left.Pages != 0 || left.States != 0 {
		t.Errorf("left behind %+v", left)
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines, %d before", n, goroutines)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 16<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
}
