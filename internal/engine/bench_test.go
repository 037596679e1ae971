package engine

import (
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
)

// BenchmarkDecode generates greedy text with the trained model, by draft depth.
func BenchmarkDecode(b *testing.B) {
	m, pool := openModel(b, golden.Dir(b, "tiny"), model.Options{})
	prompts := golden.Load(b, "tiny").Cases
	for _, depth := range []spec.Depth{spec.DepthOff, 1, 2, 3, 4, spec.DepthAuto} {
		b.Run(fmt.Sprintf("depth=%v", depth), func(b *testing.B) {
			e, err := New(m, pool, Options{Drafter: m.Drafter()})
			if err != nil {
				b.Fatal(err)
			}
			defer e.Close()
			tokens, seconds, rounds := 0, 0.0, 0
			for i := 0; b.Loop(); i++ {
				r := Request{Prompt: prompts[i%len(prompts)].Prompt, MaxTokens: 160, IgnoreEnd: true, Depth: depth}
				_, res, err := collect(e, r)
				if err != nil {
					b.Fatal(err)
				}
				tokens += res.Tokens - 1
				seconds += res.Decode.Seconds()
				rounds += res.Speculation.Rounds - 1
			}
			b.ReportMetric(float64(tokens)/seconds, "tok/s")
			b.ReportMetric(float64(tokens)/float64(rounds), "tok/round")
		})
	}
}

// BenchmarkTimers measures how late other goroutines run while text is generated on all
// processors: a goroutine that sleeps for two milliseconds at a time stands for a server's.
// The process has one scheduler slot more than compute threads, as the command arranges.
func BenchmarkTimers(b *testing.B) {
	m, pool := openModel(b, golden.Dir(b, "tiny"), model.Options{})
	threads := runtime.GOMAXPROCS(0)
	for _, slots := range []int{threads, threads + 1} {
		b.Run(fmt.Sprintf("slots=threads+%d", slots-threads), func(b *testing.B) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(slots))
			e, err := New(m, pool, Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer e.Close()
			var late []float64
			var stop atomic.Bool
			done := make(chan struct{})
			go func() {
				defer close(done)
				for !stop.Load() {
					const nap = 2 * time.Millisecond
					start := time.Now()
					time.Sleep(nap)
					late = append(late, (time.Since(start)-nap).Seconds()*1e3)
				}
			}()
			for b.Loop() {
				if _, _, err := collect(e, Request{Prompt: []int32{1, 2, 3}, MaxTokens: 200, IgnoreEnd: true}); err != nil {
					b.Fatal(err)
				}
			}
			stop.Store(true)
			<-done
			slices.Sort(late)
			b.ReportMetric(late[len(late)/2], "late-p50-ms")
			b.ReportMetric(late[len(late)*99/100], "late-p99-ms")
		})
	}
}
