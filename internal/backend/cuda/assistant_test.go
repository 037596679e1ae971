package cuda

import (
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/drafter"
	_ "github.com/foretoken/foretoken/internal/model/gemma"
	"github.com/foretoken/foretoken/internal/model/modeltest"
	"github.com/foretoken/foretoken/internal/sampling"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/spec/mtp"
	"github.com/foretoken/foretoken/sample"
)

// TestAssistantsHaveTheDraftsOfTheCPU has an assistant draft on both devices behind memory of the model, on the GPU in one call, twice: the
// second one replays the passes of the first.
func TestAssistantsHaveTheDraftsOfTheCPU(t *testing.T) {
	const name = "gemma4_unified"
	drafts := func(b backend.Backend) (all [][]int32) {
		r := modeltest.OpenOn(t, b, golden.Dir(t, name), model.Options{MaxDrafts: 4})
		d, err := drafter.Open(golden.Open(t, golden.Dir(t, name+"/assistant")), r.Model.(model.Lender), b, model.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close() //nolint:errcheck // frees memory
		policy := mtp.New(d.Head, mtp.Options{Vocab: r.Info().Vocab, DraftVocab: -1})
		c, s := golden.Load(t, name).Cases[0], r.Sequence(t)
		for n := len(c.Prompt); n < len(c.Prompt)+2; n++ {
			out, err := r.Forward([]model.Span{{State: s, Tokens: c.Tokens[s.Len():n]}})
			if err != nil {
				t.Fatal(err)
			}
			sampler, err := sampling.New(sample.Options{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			list, err := policy.Draft([]spec.Run{{Target: s, Text: c.Tokens[:n+1], Hidden: out.Hidden, Depth: 3, Sampler: sampler}})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, slices.Clone(list[0].Tokens))
		}
		return all
	}
	want, got := drafts(backendtest.CPU(t, backend.Options{Threads: 1})), drafts(open(t, Options{}))
	if len(want) != 2 || len(want[0]) != 3 || !slices.EqualFunc(got, want, slices.Equal[[]int32]) {
		t.Errorf("drafts %v, want %v", got, want)
	}
}

// TestShortSpansHaveTheBitsOfTheCPU has rows of prompts end before layers without memory: recorded passes are two, and are replayed.
func TestShortSpansHaveTheBitsOfTheCPU(t *testing.T) {
	var want [][]float32
	for i, b := range []backend.Backend{backendtest.CPU(t, backend.Options{Threads: 1}), open(t, Options{})} {
		r := modeltest.OpenOn(t, b, golden.Dir(t, "gemma4_ple"), model.Options{Quantize: 8, MaxDrafts: 4})
		s := r.Sequence(t)
		var rows [][]float32
		for _, short := range []bool{true, true} {
			tokens := make([]int32, 10)
			for j := range tokens {
				tokens[j] = int32(5 + (s.Len()+j)%50)
			}
			out, hidden := r.Feed(t, model.Span{State: s, Tokens: tokens, Want: 2, Short: short && i > 0})
			rows = append(append(rows, out...), hidden[len(hidden)-2*r.Info().Width:])
		}
		if i == 0 {
			want = rows
		} else {
			modeltest.Same(t, "rows", rows, want)
		}
	}
}
