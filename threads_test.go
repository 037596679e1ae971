package foretoken

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/foretoken/foretoken/sample"
)

// TestModelsComputeAtOnce has models with different numbers of threads generate at the same time, while
// others are opened and closed. Each answer has the bits of a run without other models.
func TestModelsComputeAtOnce(t *testing.T) {
	slots := runtime.GOMAXPROCS(0)
	requests := func(m *Model) []Request {
		var list []Request
		for i := range 3 {
			list = append(list, Request{
				Prompt: m.TextPrompt(fmt.Sprintf("Once upon a time there were %d cats", i+2)), MaxTokens: 24, Hash: true, IgnoreEnd: true,
				Sampling: &sample.Options{Seed: uint64(i), Temperature: 0.7},
			})
		}
		return list
	}
	alone := openTiny(t, Options{Threads: 1})
	want := make([]uint64, 0, 3)
	for _, r := range requests(alone) {
		want = append(want, collect(t, alone, r).LogitsHash())
	}
	var all sync.WaitGroup
	for _, threads := range []int{2, 3, 1, 2} {
		all.Go(func() {
			m, err := Open(t.Context(), Tiny, Options{Threads: threads, Log: silent})
			if err != nil {
				t.Error(err)
				return
			}
			for i, r := range requests(m) {
				a, err := m.Generate(t.Context(), r)
				if err != nil {
					t.Error(err)
					break
				}
				for _, err := range a.Pieces() {
					if err != nil {
						t.Error(err)
					}
				}
				if got := a.LogitsHash(); got != want[i] {
					t.Errorf("%d threads beside others, request %d: logits %x, alone %x", threads, i, got, want[i])
				}
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := runtime.GOMAXPROCS(0); got != slots {
		t.Errorf("GOMAXPROCS is %d after models were open, and was %d", got, slots)
	}
}
