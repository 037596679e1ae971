package engine

import (
	"fmt"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/spec/ngram"
)

// BenchmarkDrafters compares drafters, on stories that repeat nothing and on the same
// told twice over, with the trained model and draft depth auto. One turn is one
// request each, so that all see the machine in the same mood.
func BenchmarkDrafters(b *testing.B) {
	m, pool := openModel(b, golden.Dir(b, "tiny"), model.Options{})
	lookup, err := ngram.New(ngram.Options{})
	if err != nil {
		b.Fatal(err)
	}
	drafters := []spec.Drafter{nil, m.Drafter(), lookup, spec.Auto(m.Drafter(), lookup)}
	names := []string{"plain", "mtp", "ngram", "auto"}
	for _, text := range []string{"new", "repeated"} {
		b.Run("text="+text, func(b *testing.B) {
			engines := make([]*Engine, len(drafters))
			for i, d := range drafters {
				// One after another: they share the model, and only one works at a time.
				if engines[i], err = New(m, pool, Options{Drafter: d}); err != nil {
					b.Fatal(err)
				}
				defer engines[i].Close()
			}
			cases := golden.Load(b, "tiny").Cases
			tokens, seconds := make([]float64, len(engines)), make([]float64, len(engines))
			for i := 0; b.Loop(); i++ {
				c := cases[i%len(cases)]
				prompt := c.Prompt
				if text == "repeated" {
					prompt = slices.Concat(c.Tokens, c.Tokens[:len(c.Tokens)/2])
				}
				for j, e := range engines {
					r := Request{Prompt: prompt, MaxTokens: 120, IgnoreEnd: true}
					_, res, err := collect(e, r)
					if err != nil {
						b.Fatal(err)
					}
					tokens[j] += float64(res.Tokens - 1)
					seconds[j] += res.Decode.Seconds()
				}
			}
			for j, name := range names {
				b.ReportMetric(tokens[j]/seconds[j], fmt.Sprintf("%s-tok/s", name))
			}
		})
	}
}
