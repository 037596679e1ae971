package engine

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/spec/mtp"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/sample"
)

// watched is a device that counts the rows of a width that leave it.
type watched struct {
	*backendtest.Opaque
	width, rows int
}

func (w *watched) Host(src backend.Tensor) ([]float32, error) {
	if src.Cols == w.width {
		w.rows += src.Rows
	}
	return w.Opaque.Host(src)
}

// odd allows every second id.
type odd struct{ mask []uint64 }

func (odd) Accept(int32)               {}
func (o odd) Allowed([]int32) []uint64 { return o.mask }

// TestTokensDoNotDependOnWhatIsRead generates a batch twice, with drafts: once with whole rows of logits, which the hash
// needs, and once with the logits that its samplers need. The tokens are the same. If samplers need only the highest logits,
// no row leaves the device.
func TestTokensDoNotDependOnWhatIsRead(t *testing.T) {
	device := &watched{Opaque: backendtest.NewOpaque(backendtest.Open(t, backend.Options{Threads: 1}))}
	m := load(t, golden.Dir(t, "tiny"), model.Options{}, device)
	t.Cleanup(func() { _ = m.Close() })
	device.width = m.Info().Vocab
	mask := slices.Repeat([]uint64{0x5555555555555555}, device.width/64)
	staying := []sample.Options{
		{},
		{Temperature: 0.7, TopK: 20, TopP: 0.8},
		{Temperature: 1, TopK: 10, XTCProbability: 0.5, XTCThreshold: 0.1},
		{Temperature: 1, TopK: 10, RepetitionPenalty: 1.1, RepetitionWindow: 12, LogitBias: map[int32]float32{300: 2}},
		{PresencePenalty: 0.5, FrequencyPenalty: 0.5},
		{Temperature: 0.8, TopK: 5, Constraint: func() sample.Constraint { return odd{mask} }},
	}
	moving := []sample.Options{{Temperature: 0.8}, {Temperature: 0.8, TopP: 0.9}, {Temperature: 1, MinP: 0.05}, {Temperature: 1, RepetitionPenalty: 1.2}}
	prompts := golden.Load(t, "tiny").Cases
	generate := func(options []sample.Options, vocab int, whole bool) (texts []string, rows int) {
		d := mtp.New(m.Head(), mtp.Options{Vocab: device.width, DraftVocab: vocab})
		e, err := New(m, state.NewPool(device, 1<<28), Options{Drafter: d})
		if err != nil {
			t.Fatal(err)
		}
		texts = make([]string, len(options))
		device.rows = 0
		var all sync.WaitGroup
		for i, o := range options {
			o.Seed = uint64(i)
			r := Request{Prompt: prompts[i%len(prompts)].Tokens[:20], MaxTokens: 24, IgnoreEnd: true, Sampling: o, Depth: 3, Hash: whole}
			if i%2 == 1 {
				r.Rule = spec.Ratio
			}
			all.Go(func() {
				ids, result, err := collect(e, r)
				texts[i] = fmt.Sprint(ids, result.Speculation.Drafted > 0, err)
			})
		}
		all.Wait()
		e.Close()
		return texts, device.rows
	}
	all := slices.Concat(moving, staying)
	want, _ := generate(all, 0, true)
	if got, rows := generate(all, 0, false); !slices.Equal(got, want) || rows == 0 {
		t.Errorf("%v, by whole rows %v; %d have left the device", got, want, rows)
	}
	want, _ = generate(staying, -1, true)
	if got, rows := generate(staying, -1, false); !slices.Equal(got, want) || rows > 0 {
		t.Errorf("%v, by whole rows %v; %d have left the device", got, want, rows)
	}
}
