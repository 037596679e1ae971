package engine

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/spec/ngram"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/sample"
)

// BenchmarkBatch generates texts with the trained model: several at a time without drafts, several
// with drafts, and one after the other without, alternating. The ratios are those of one run;
// their median is reported.
func BenchmarkBatch(b *testing.B) {
	m, pool := openModel(b, golden.Dir(b, "tiny"), model.Options{})
	defer slot()()
	prompts := golden.Load(b, "tiny").Cases
	e, err := New(m, pool, Options{Drafter: m.Drafter()})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	run := func(width int, depth spec.Depth, first int, temperature float64, together bool) float64 {
		start, tokens := time.Now(), 0
		var all sync.WaitGroup
		for i := range width {
			r := Request{
				Prompt: prompts[(first+i)%len(prompts)].Prompt, MaxTokens: 128, IgnoreEnd: true, Depth: depth,
				Sampling: sample.Options{Temperature: temperature, Seed: uint64(i)},
			}
			one := func() {
				if _, _, err := collect(e, r); err != nil {
					b.Error(err)
				}
			}
			if tokens += 128; together {
				all.Go(one)
			} else {
				one()
			}
		}
		all.Wait()
		return float64(tokens) / time.Since(start).Seconds()
	}
	for _, temperature := range []float64{0, 1} {
		for _, width := range []int{1, 2, 4, 8} {
			b.Run(fmt.Sprintf("temperature=%v/batch=%d", temperature, width), func(b *testing.B) {
				var plain, drafted, ratio, alone []float64
				run(width, spec.DepthAuto, 0, temperature, true) // warm up
				for i := 0; b.Loop(); i++ {
					p := run(width, spec.DepthOff, i, temperature, true)
					g := run(width, spec.DepthAuto, i, temperature, true)
					a := run(width, spec.DepthOff, i, temperature, false)
					plain, drafted = append(plain, p), append(drafted, g)
					ratio, alone = append(ratio, g/p), append(alone, g/a)
				}
				b.ReportMetric(middle(plain), "plain-tok/s")
				b.ReportMetric(middle(drafted), "mtp-tok/s")
				b.ReportMetric(middle(ratio), "mtp/plain")
				b.ReportMetric(middle(alone), "mtp/one-by-one")
			})
		}
	}
}

// slot gives readers a slot of Go's scheduler beside the compute threads, as Open does, until
// the function that it returns is called.
func slot() func() {
	former := runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
	return func() { runtime.GOMAXPROCS(former) }
}

// middle is the median.
func middle(list []float64) float64 { return slices.Sorted(slices.Values(list))[len(list)/2] }

// BenchmarkLatency measures the time between two rounds of four running streams, in each of
// which every stream gets text, while nothing else happens and while a long prompt is read.
func BenchmarkLatency(b *testing.B) {
	m, pool := openModel(b, golden.Dir(b, "tiny"), model.Options{})
	defer slot()()
	prompts := golden.Load(b, "tiny").Cases
	long := make([]int32, 3000)
	for i := range long {
		long[i] = prompts[i/100%len(prompts)].Prompt[i%8]
	}
	for _, depth := range []spec.Depth{spec.DepthOff, spec.DepthAuto} {
		b.Run(fmt.Sprintf("depth=%v", depth), func(b *testing.B) {
			var p50, plain99, p99 []float64
			for b.Loop() {
				plain, prefill := rounds(b, m, pool, prompts[0].Prompt, long, depth)
				p50 = append(p50, plain[len(plain)/2])
				plain99 = append(plain99, plain[len(plain)*99/100])
				p99 = append(p99, prefill[len(prefill)*99/100])
			}
			b.ReportMetric(middle(p50)*1e3, "plain-p50-ms")
			b.ReportMetric(middle(plain99)*1e3, "plain-p99-ms")
			b.ReportMetric(middle(p99)*1e3, "prefill-p99-ms")
			b.ReportMetric(middle(p99)/middle(p50), "ratio")
		})
	}
}

// rounds are the sorted times from one round to the next, before a long prompt comes and
// while it is read.
func rounds(b *testing.B, m *headed, pool *state.Pool, prompt, long []int32, depth spec.Depth) (plain, prefill []float64) {
	b.Helper()
	var last time.Time // of the engine's goroutine, as are the lists until it has ended
	enough := make(chan struct{})
	e, err := New(m, pool, Options{Drafter: m.Drafter(), Observe: func(r Round) {
		now := time.Now()
		gap := now.Sub(last).Seconds()
		switch last = now; {
		case r.Sequences == 5 && r.Prompt > 0:
			prefill = append(prefill, gap)
		case r.Sequences == 4 && r.Prompt == 0 && len(prefill) == 0:
			if plain = append(plain, gap); len(plain) == 200 {
				close(enough)
			}
		}
	}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	for i := range 4 {
		r := Request{Prompt: prompt, IgnoreEnd: true, Depth: depth, Sampling: sample.Options{Temperature: 0.8, Seed: uint64(i)}}
		if _, err := e.Generate(ctx, r); err != nil {
			b.Fatal(err)
		}
	}
	<-enough
	s, err := e.Generate(ctx, Request{Prompt: long, MaxTokens: 1, Depth: depth})
	if err != nil {
		b.Fatal(err)
	}
	s.Result()
	cancel()
	e.Close()
	slices.Sort(plain)
	slices.Sort(prefill)
	return plain, prefill
}

// silent is a drafter that never drafts.
type silent struct{ spec.Drafter }

func (d silent) Plan(batch []spec.Run) {
	spec.Plan(0, d.Drafter, batch)
	for i := range batch {
		batch[i].Sources = 0
	}
}

// BenchmarkPlainRounds measures what a drafter costs in rounds without drafts: the time of texts with a drafter that
// never drafts over that of texts without one, as the median of alternating runs.
func BenchmarkPlainRounds(b *testing.B) {
	m, pool := openModel(b, golden.Dir(b, "tiny"), model.Options{})
	defer slot()()
	lookup, err := ngram.New(ngram.Options{})
	if err != nil {
		b.Fatal(err)
	}
	prompts := golden.Load(b, "tiny").Cases
	for _, width := range []int{8, 16} {
		b.Run(fmt.Sprintf("batch=%d", width), func(b *testing.B) {
			e, err := New(m, pool, Options{Drafter: spec.Auto(silent{m.Drafter()}, silent{lookup}), Cache: true})
			if err != nil {
				b.Fatal(err)
			}
			defer e.Close()
			run := func(depth spec.Depth, first int) float64 {
				start := time.Now()
				var all sync.WaitGroup
				for i := range width {
					all.Go(func() {
						r := Request{
							Prompt: prompts[(first+i)%len(prompts)].Prompt, MaxTokens: 64, IgnoreEnd: true, Depth: depth,
							Sampling: sample.Options{Temperature: 1, Seed: uint64(first + i)}, Salt: prefix.Salt{byte(first), byte(first >> 8), byte(depth)},
						}
						if _, _, err := collect(e, r); err != nil {
							b.Error(err)
						}
					})
				}
				all.Wait()
				return time.Since(start).Seconds()
			}
			run(spec.DepthAuto, 0)
			var plain, ratio []float64
			for i := 1; b.Loop(); i++ {
				p := run(spec.DepthOff, i)
				plain, ratio = append(plain, p), append(ratio, run(spec.DepthAuto, i)/p)
			}
			b.ReportMetric(middle(plain)/64*1e6, "plain-µs/round")
			b.ReportMetric(middle(ratio), "silent/plain")
		})
	}
}
