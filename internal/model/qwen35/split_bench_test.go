package qwen35

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/split"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/modeltest"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/state"
)

// counting counts the bytes copied to a device.
type counting struct {
	backend.Backend
	writes int
}

func (c *counting) Write(dst backend.Tensor, src []float32) error {
	c.writes++
	return c.Backend.Write(dst, src)
}

// BenchmarkBorder is the overhead of two devices, both of which are the processor:
// the time of a pass as a multiple of one device's, alternating, and copies between the two.
func BenchmarkBorder(b *testing.B) {
	const shape, bits = "0.8b", 4
	type subject struct {
		r     *rig
		s     *state.State
		sides [2]*counting
		took  []time.Duration
	}
	load := func(onHost func(backend.Part) bool) *subject {
		x := &subject{}
		dev := backendtest.Open(b, backend.Options{Threads: 1})
		if onHost != nil {
			for i := range x.sides {
				x.sides[i] = &counting{Backend: dev}
			}
			var err error
			if dev, err = split.New(second(onHost), x.sides[0], x.sides[1]); err != nil {
				b.Fatal(err)
			}
		}
		m, err := model.Generate(shape, weights.BitsForm(bits), dev, model.Options{MaxDrafts: 4, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			b.Fatal(err)
		}
		x.r = modeltest.New(b, m, dev)
		return x
	}
	for name, onHost := range map[string]func(p backend.Part) bool{
		"one border":          func(p backend.Part) bool { return p.Kind == backend.LayerPart && p.Layer < 12 },
		"a border each layer": func(p backend.Part) bool { return p.Kind == backend.LayerPart && p.Layer%2 == 0 },
	} {
		for _, rows := range []int{1, 4} {
			b.Run(fmt.Sprintf("%s/rows=%d", name, rows), func(b *testing.B) {
				list := []*subject{load(nil), load(onHost)}
				for _, x := range list {
					s, err := x.r.Pool.Open(x.r.Layout())
					if err != nil {
						b.Fatal(err)
					}
					x.s = s
				}
				tokens := slices.Repeat([]int32{17}, rows)
				step := func(x *subject) {
					start := time.Now()
					out, err := x.r.Forward([]model.Span{{State: x.s, Tokens: tokens, Want: 1}})
					if err == nil {
						err = out.Wait()
					}
					if err != nil {
						b.Fatal(err)
					}
					x.took = append(x.took, time.Since(start))
				}
				for _, x := range list {
					step(x)
					x.took = nil
				}
				before := list[1].sides[0].writes + list[1].sides[1].writes
				for b.Loop() {
					for _, x := range list {
						step(x)
					}
				}
				median := func(x *subject) float64 {
					slices.Sort(x.took)
					return x.took[len(x.took)/2].Seconds()
				}
				one, two := median(list[0]), median(list[1])
				b.ReportMetric(two/one, "of-one-device")
				b.ReportMetric((two-one)*1e6, "µs-more")
				b.ReportMetric(float64(list[1].sides[0].writes+list[1].sides[1].writes-before)/float64(len(list[1].took)), "copies/pass")
			})
		}
	}
}
