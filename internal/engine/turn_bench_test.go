package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
)

// BenchmarkSecondTurn has the next turn of a short and of a long conversation, of which all but 24
// tokens are in the prefix cache, with a generated model of the 2B shape and 4-bit weights: the
// time to its first token, and that without the rounds that feed its own tokens, which a longer
// context makes slower.
func BenchmarkSecondTurn(b *testing.B) {
	const own = 24
	m, pool := openGenerated(b, backendtest.Open(b, backend.Options{}), "2b")
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			var rounds time.Duration
			e, err := New(m, pool, Options{Cache: true, Context: 16384, Drafter: m.Drafter(), Observe: func(r Round) { rounds += r.Took }})
			if err != nil {
				b.Fatal(err)
			}
			defer e.Close()
			talk := prompt(n, 1)
			if _, _, err := collect(e, Request{Prompt: talk, MaxTokens: 1, Boundaries: []int{n}}); err != nil {
				b.Fatal(err)
			}
			var first, rest []float64
			for i := 0; b.Loop(); i++ {
				rounds = 0
				turn := slices.Concat(talk, prompt(own, 2+i))
				start := time.Now()
				s, err := e.Generate(b.Context(), Request{Prompt: turn, MaxTokens: 1, Boundaries: []int{n}})
				if err != nil {
					b.Fatal(err)
				}
				r := s.Result()
				took := time.Since(start)
				if r.Cached < n {
					b.Fatalf("%d of %d tokens from the cache", r.Cached, n)
				}
				first, rest = append(first, took.Seconds()*1e3), append(rest, (took-rounds).Seconds()*1e3)
			}
			middle := func(list []float64) float64 { return slices.Sorted(slices.Values(list))[len(list)/2] }
			b.ReportMetric(middle(first), "first-ms")
			b.ReportMetric(middle(rest), "rest-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}
