package engine

import (
	"fmt"
	"testing"

	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/model"
)

// BenchmarkDecode generates greedy text with the trained model, by depth of guessing.
func BenchmarkDecode(b *testing.B) {
	m, pool := openModel(b, golden.Dir(b, "tiny"), model.Options{})
	prompts := golden.Load(b, "tiny").Cases
	for _, depth := range []int{0, 1, 2, 3, 4, -1} {
		b.Run(fmt.Sprintf("depth=%d", depth), func(b *testing.B) {
			e, err := New(m, pool, Options{Drafter: m.Drafter()})
			if err != nil {
				b.Fatal(err)
			}
			defer e.Close()
			tokens, seconds, rounds := 0, 0.0, 0
			for i := 0; b.Loop(); i++ {
				r := Request{Prompt: prompts[i%len(prompts)].Prompt, MaxTokens: 160, IgnoreEnd: true, LogProbs: -1, Depth: depth}
				_, res, err := collect(e, r)
				if err != nil {
					b.Fatal(err)
				}
				tokens += res.Tokens - 1
				seconds += res.Decode.Seconds()
				rounds += res.Receipt.Rounds - 1
			}
			b.ReportMetric(float64(tokens)/seconds, "tok/s")
			b.ReportMetric(float64(tokens)/float64(rounds), "tok/round")
		})
	}
}
