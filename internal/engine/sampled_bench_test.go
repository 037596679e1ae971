package engine

import (
	"cmp"
	"fmt"
	"os"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/sample"
)

// BenchmarkSampled decodes with four drafts a round under several sampling options, one sequence
// and four, and reports the time of drafting and of verifying in a round. FORETOKEN_SHAPE names a
// generated model; its distributions are flat, the worst case for top-p and bare temperature.
func BenchmarkSampled(b *testing.B) {
	m, pool := openGenerated(b, backendtest.Open(b, backend.Options{}), cmp.Or(os.Getenv("FORETOKEN_SHAPE"), "2b"))
	for _, batch := range []int{1, 4} {
		for _, c := range []struct {
			name string
			o    sample.Options
		}{
			{"greedy", sample.Options{}},
			{"top-k=20,top-p=0.95", sample.Options{Temperature: 0.7, TopK: 20, TopP: 0.95}},
			{"top-p=0.95", sample.Options{Temperature: 0.7, TopP: 0.95}},
			{"min-p=0.05", sample.Options{Temperature: 0.7, MinP: 0.05}},
			{"temperature=0.7", sample.Options{Temperature: 0.7}},
		} {
			b.Run(fmt.Sprintf("batch=%d/%s", batch, c.name), func(b *testing.B) {
				e, err := New(m, pool, Options{Drafter: m.Drafter(), Log: quiet, MaxBatch: batch})
				if err != nil {
					b.Fatal(err)
				}
				defer e.Close()
				var draft, verify, rounds float64
				for first := true; b.Loop(); first = false {
					results := make(chan Result, batch)
					for i := range batch {
						go func() {
							o := c.o
							o.Seed = uint64(i)
							_, res, err := collect(e, Request{
								Prompt: []int32{int32(i), 2, 3, 4, 5, 6, 7, 8}, MaxTokens: 120, IgnoreEnd: true, Depth: spec.FixedDepth(4), Sampling: o,
							})
							if err != nil {
								b.Error(err)
							}
							results <- res
						}()
					}
					for range batch {
						s := (<-results).Speculation
						if !first { // the first prepares passes
							draft, verify, rounds = draft+s.Draft.Seconds(), verify+s.Verify.Seconds(), rounds+float64(s.Rounds)/float64(batch)
						}
					}
				}
				b.ReportMetric(1e3*draft/rounds, "draft-ms")
				b.ReportMetric(1e3*verify/rounds, "verify-ms")
			})
		}
	}
}
