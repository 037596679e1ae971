package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/sample"
)

// BenchmarkOffline has two streams run by turns alone and beside sixteen offline requests, and
// compares the time from one of their rounds to the next, the time from one text that a reader gets to the
// next, and their rates. Ratios are medians over the turns.
func BenchmarkOffline(b *testing.B) {
	b.Run("model=tiny", func(b *testing.B) {
		m, pool := openModel(b, golden.Dir(b, "tiny"), model.Options{})
		prompts := golden.Load(b, "tiny").Cases
		benchmarkOffline(b, m, pool, m.Drafter(), func(i, n int) []int32 {
			var ids []int32
			for ; len(ids) < n; i++ {
				ids = append(ids, prompts[i%len(prompts)].Prompt...)
			}
			return ids[:n]
		}, 400)
	})
	b.Run("model=2b", func(b *testing.B) {
		m, pool := openGenerated(b, backendtest.Open(b, backend.Options{}), "2b")
		benchmarkOffline(b, m, pool, nil, func(i, n int) []int32 { return prompt(n, i) }, 40)
	})
}

func benchmarkOffline(b *testing.B, m *headed, pool *state.Pool, d spec.Drafter, text func(i, n int) []int32, tokens int) {
	defer slot()()
	depths := []spec.Depth{spec.DepthOff}
	if d != nil {
		depths = append(depths, spec.DepthAuto)
	}
	for _, depth := range depths {
		b.Run(fmt.Sprintf("depth=%v", depth), func(b *testing.B) {
			x := &streams{text: text, tokens: tokens, depth: depth}
			e, err := New(m, pool, Options{Drafter: d, Observe: x.observe})
			if err != nil {
				b.Fatal(err)
			}
			defer e.Close()
			x.run(b, e, 0) // warm up
			x.run(b, e, 16)
			ratios := map[string][]float64{}
			for b.Loop() {
				alone, beside := x.run(b, e, 0), x.run(b, e, 16)
				for i := range alone {
					for name, q := range map[string]float64{"p50": 0.5, "p99": 0.99} {
						key := [...]string{"round", "text"}[i] + "-" + name
						ratios[key] = append(ratios[key], quantile(beside[i], q)/quantile(alone[i], q))
					}
				}
				ratios["time"] = append(ratios["time"], sum(beside[0])/sum(alone[0]))
				ratios["round-ms"] = append(ratios["round-ms"], 1e3*quantile(alone[0], 0.5))
				ratios["offline-rows/s"] = append(ratios["offline-rows/s"], float64(x.offline)/sum(beside[0]))
			}
			for name, list := range ratios {
				b.ReportMetric(middle(list), name)
			}
		})
	}
}

func quantile(list []float64, q float64) float64 {
	return slices.Sorted(slices.Values(list))[int(q*float64(len(list)-1))]
}

func sum(list []float64) (s float64) {
	for _, x := range list {
		s += x
	}
	return s
}

// streams are two requests of users, maybe beside others.
type streams struct {
	text   func(i, n int) []int32
	tokens int
	depth  spec.Depth
	turns  int

	mu      sync.Mutex // protects what follows
	last    time.Time  // round with both
	gaps    []float64
	offline int // rows beside them
}

func (x *streams) observe(r Round) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if r.Rows > r.Offline {
		now := time.Now()
		if !x.last.IsZero() {
			x.gaps = append(x.gaps, now.Sub(x.last).Seconds())
			x.offline += r.Offline
		}
		x.last = now
	}
}

// run returns the times between rounds and between texts of the streams, beside a number of
// offline requests at any time.
func (x *streams) run(b *testing.B, e *Engine, lines int) [2][]float64 {
	ctx, cancel := context.WithCancel(b.Context())
	var others, users sync.WaitGroup
	for i := range lines {
		others.Go(func() {
			for n := i; ctx.Err() == nil; n += lines {
				s, err := e.Generate(ctx, Request{Prompt: x.text(n, 60+n%7*20), MaxTokens: 48, IgnoreEnd: true, Depth: x.depth, Offline: true, Priority: -1})
				if err != nil {
					b.Error(err)
					return
				}
				s.Result()
			}
		})
	}
	for e.Stats().Running < lines {
		time.Sleep(time.Millisecond)
	}
	x.turns++
	var mu sync.Mutex
	var texts []float64
	x.mu.Lock()
	x.gaps, x.last, x.offline = nil, time.Time{}, 0
	x.mu.Unlock()
	for i := range 2 {
		r := Request{
			Prompt: x.text(i+x.turns, 30), MaxTokens: x.tokens, IgnoreEnd: true, Depth: x.depth,
			Sampling: sample.Options{Temperature: 0.8, Seed: uint64(x.turns)},
		}
		s, err := e.Generate(b.Context(), r)
		if err != nil {
			b.Fatal(err)
		}
		users.Go(func() {
			last := time.Time{}
			for range s.Tokens() { //nolint:errcheck // it is not canceled
				if s.Ready() > 0 {
					continue
				}
				now := time.Now()
				mu.Lock()
				if !last.IsZero() {
					texts = append(texts, now.Sub(last).Seconds())
				}
				last = now
				mu.Unlock()
			}
		})
	}
	users.Wait()
	cancel()
	others.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	return [2][]float64{x.gaps, texts}
}
