package server

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/foretoken/foretoken"
)

const benchStreams, benchTokens = 8, 256

// BenchmarkStreaming has eight answers come at the same time, by turns straight from the
// engine and through HTTP, and reports how much of the engine's speed arrives, in the median. Clients of
// the streams are in this process too and take their part of the processors.
func BenchmarkStreaming(b *testing.B) {
	r := start(b, func(o *Options) {
		o.Models[0].Options = foretoken.Options{KVMemory: 512 << 20, PrefixCache: foretoken.PrefixCache{Off: true}} // all processors
	})
	all := func(one func(b *testing.B, i int)) time.Duration {
		var wg sync.WaitGroup
		began := time.Now()
		for i := range benchStreams {
			wg.Go(func() { one(b, i) })
		}
		wg.Wait()
		return time.Since(began)
	}
	all(r.direct)
	all(r.streamed)
	var engines, streams, ratios []float64
	for b.Loop() {
		direct, streamed := all(r.direct).Seconds(), all(r.streamed).Seconds()
		engines, streams, ratios = append(engines, direct), append(streams, streamed), append(ratios, direct/streamed)
	}
	const tokens = benchStreams * benchTokens
	b.ReportMetric(tokens/middle(engines), "engine-tok/s")
	b.ReportMetric(tokens/middle(streams), "http-tok/s")
	b.ReportMetric(middle(ratios), "ratio")
	b.ReportMetric(0, "ns/op")
}

// middle is the median.
func middle(list []float64) float64 { return slices.Sorted(slices.Values(list))[len(list)/2] }

func benchPrompt(i int) string { return fmt.Sprintf("Once upon a time there were %d cats. They", i+2) }

// direct has an answer come from the library.
func (r *running) direct(b *testing.B, i int) {
	model := r.library.Status()[0].Model
	s := model.Sampling()
	s.Seed = uint64(i)
	answer, err := model.Generate(b.Context(), foretoken.Request{Prompt: model.TextPrompt(benchPrompt(i)), MaxTokens: benchTokens, Sampling: &s, IgnoreEnd: true})
	if err == nil {
		err = answer.Wait()
	}
	if err != nil {
		b.Error(err)
	}
}

// streamed has the same answer come as a stream of events.
func (r *running) streamed(b *testing.B, i int) {
	body := fmt.Sprintf(`{"prompt": %q, "max_tokens": %d, "seed": %d, "ignore_eos": true, "stream": true}`, benchPrompt(i), benchTokens, i)
	q, err := http.NewRequestWithContext(b.Context(), http.MethodPost, r.url+"/v1/completions", strings.NewReader(body))
	if err != nil {
		b.Error(err)
		return
	}
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		b.Error(err)
		return
	}
	defer func() { _ = a.Body.Close() }()
	data, err := io.ReadAll(a.Body)
	if err != nil || !bytes.HasSuffix(data, []byte("data: [DONE]\n\n")) {
		b.Errorf("%d %v %.200s", a.StatusCode, err, data)
	}
}
