package engine

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/remote"
	"github.com/foretoken/foretoken/internal/backend/split"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
)

// BenchmarkRoundsInFlight is the throughput of a 2b shape over a leader and nodes, with one thread each, with as many rounds in
// flight as there are stages. gain is over one round with all sequences, gain-group over one with the sequences of a group. All
// alternate, and figures are medians. It needs a core for each stage.
func BenchmarkRoundsInFlight(b *testing.B) {
	const shape, layers, output, tokens = "2b", 24, 8, 8 // the output matrix is as large as 8 layers
	for _, stages := range []int{2, 4} {
		for _, delay := range []time.Duration{100 * time.Microsecond, 800 * time.Microsecond} {
			list := []backend.Backend{backendtest.CPU(b, backend.Options{Threads: 1})}
			for len(list) < stages {
				n := backendtest.StartNode(b, backend.Options{Threads: 1})
				list = append(list, backendtest.Remote(b, backend.Options{}, remote.Options{Dial: n.Dial(delay)}))
			}
			first := max((layers+output)/stages-output, 0) // layers of the leader
			dev, err := split.New(func(p backend.Part) int {
				if p.Kind != backend.LayerPart || p.Layer < first {
					return 0
				}
				return 1 + (p.Layer-first)*(stages-1)/(layers-first)
			}, list...)
			if err != nil {
				b.Fatal(err)
			}
			m, err := model.Generate(shape, weights.BitsForm(4), dev, model.Options{Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			rate := func(b *testing.B, groups, sequences int) float64 {
				e, err := New(m, state.NewPool(dev, 1<<30), Options{Groups: groups, MaxBatch: sequences})
				if err != nil {
					b.Fatal(err)
				}
				defer e.Close()
				start := time.Now()
				var all sync.WaitGroup
				for i := range sequences {
					all.Go(func() {
						r := Request{Prompt: prompt(2, i), MaxTokens: tokens, IgnoreEnd: true, Depth: spec.DepthOff}
						if _, _, err := collect(e, r); err != nil {
							b.Error(err)
						}
					})
				}
				all.Wait()
				return float64(sequences*tokens) / time.Since(start).Seconds()
			}
			for _, each := range []int{1, 4, 16} {
				b.Run(fmt.Sprintf("stages=%d/delay=%v/group=%d", stages, delay, each), func(b *testing.B) {
					var one, small, flying []float64
					for first := true; b.Loop(); first = false {
						x, y, z := rate(b, 1, each*stages), rate(b, 1, each), rate(b, stages, each*stages)
						if !first { // passes are recorded
							one, small, flying = append(one, x), append(small, y), append(flying, z)
						}
					}
					median := func(list []float64) float64 { slices.Sort(list); return list[len(list)/2] }
					if len(one) > 0 {
						b.ReportMetric(median(flying)/median(one), "gain")
						b.ReportMetric(median(flying)/median(small), "gain-group")
						b.ReportMetric(median(flying), "tokens/s")
					}
				})
			}
		}
	}
}
