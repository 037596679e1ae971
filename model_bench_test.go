package foretoken

import (
	"slices"
	"testing"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/sample"
)

// BenchmarkTurns has conversations of ten turns with thinking, which the template leaves out
// of the history, and compares the time to the first token of the second and the last turn.
func BenchmarkTurns(b *testing.B) {
	m := openThinking(b, Options{KVMemory: 1 << 30})
	var second, tenth []float64
	for i := 0; b.Loop(); i++ {
		c := say("Tell me a story about a cat.", true)
		for turn := range 10 {
			a := collect(b, m, Request{
				Prompt: ask(b, m, c), MaxTokens: 40, MaxThinking: 10,
				Sampling: &sample.Options{Seed: uint64(100*i + turn), Temperature: 0.8},
			})
			m.warming.Wait()
			switch turn {
			case 1:
				second = append(second, a.Result.Prefill.Seconds()*1e3)
			case 9:
				tenth = append(tenth, a.Result.Prefill.Seconds()*1e3)
			}
			c.Messages = append(c.Messages, a.Message(), chat.Message{Role: "user", Content: chat.Text("And then? Say more.")})
		}
	}
	middle := func(list []float64) float64 { return slices.Sorted(slices.Values(list))[len(list)/2] }
	b.ReportMetric(middle(second), "turn-2-ms")
	b.ReportMetric(middle(tenth), "turn-10-ms")
	b.ReportMetric(middle(tenth)/middle(second), "ratio")
}
