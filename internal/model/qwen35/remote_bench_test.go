package qwen35

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/remote"
	"github.com/foretoken/foretoken/internal/backend/split"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/modeltest"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/state"
)

// BenchmarkNodes is the speed of a model whose layers are on a leader and nodes, as a share of that on one device, over
// connections that delay everything in each direction. All have one thread. Passes alternate, and times are medians.
func BenchmarkNodes(b *testing.B) {
	const shape, bits = "0.8b", 4
	load := func(b *testing.B, nodes int, delay time.Duration) *rig {
		dev := backendtest.CPU(b, backend.Options{Threads: 1})
		const layers = 24 // of the shape
		if nodes > 1 {
			list := []backend.Backend{dev}
			for len(list) < nodes {
				n := backendtest.StartNode(b, backend.Options{Threads: 1})
				list = append(list, backendtest.Remote(b, backend.Options{}, remote.Options{Dial: n.Dial(delay)}))
			}
			var err error
			dev, err = split.New(func(p backend.Part) int { // the last layers are beside the output
				if p.Kind == backend.LayerPart {
					return (p.Layer*nodes/layers + 1) % nodes
				}
				return 0
			}, list...)
			if err != nil {
				b.Fatal(err)
			}
		}
		m, err := model.Generate(shape, weights.BitsForm(bits), dev, model.Options{MaxDrafts: 4, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			b.Fatal(err)
		}
		return modeltest.New(b, m, dev)
	}
	for _, nodes := range []int{2, 4} {
		for _, delay := range []time.Duration{0, 100 * time.Microsecond, 800 * time.Microsecond} {
			b.Run(fmt.Sprintf("nodes=%d/delay=%v", nodes, delay), func(b *testing.B) {
				rigs := []*rig{load(b, 1, 0), load(b, nodes, delay)}
				var states [2]*state.State
				for i, r := range rigs {
					var err error
					if states[i], err = r.Pool.Open(r.Layout()); err != nil {
						b.Fatal(err)
					}
				}
				took := map[[2]int][]float64{}
				for first := true; b.Loop(); first = false {
					for _, rows := range []int{1, 2, 4} {
						for i, r := range rigs {
							start := time.Now()
							out, err := r.Forward([]model.Span{{State: states[i], Tokens: slices.Repeat([]int32{17}, rows), Want: rows}})
							if err == nil {
								err = out.Wait()
							}
							if err != nil {
								b.Fatal(err)
							}
							if key := [2]int{rows, i}; !first { // which is recorded
								took[key] = append(took[key], time.Since(start).Seconds())
							}
						}
					}
				}
				for _, rows := range []int{1, 2, 4} {
					var median [2]float64
					for i := range median {
						list := took[[2]int{rows, i}]
						slices.Sort(list)
						median[i] = list[len(list)/2]
					}
					b.ReportMetric(median[0]/median[1], fmt.Sprintf("share/rows=%d", rows))
				}
			})
		}
	}
}
