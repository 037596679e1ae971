package foretoken

import (
	"slices"
	"testing"

	"github.com/foretoken/foretoken/sample"
)

// TestHeadIsLoadedForDraftsOnly opens a model in ways that do not use its head: the head takes no memory, and a request for
// drafts gets the text of plain decoding.
func TestHeadIsLoadedForDraftsOnly(t *testing.T) {
	whole := openTiny(t, Options{})
	ask := func(m *Model) []int32 {
		a := collect(t, m, Request{Prompt: m.TextPrompt("One day"), MaxTokens: 20, Depth: 3, Sampling: &sample.Options{Temperature: 0.7, Seed: 3}})
		var ids []int32
		for _, token := range a.Tokens {
			ids = append(ids, token.ID)
		}
		return ids
	}
	want := ask(whole)
	bytes := int64(0)
	for name, o := range map[string]Speculation{
		"head off":            {Head: HeadOff, NoLookup: true},
		"depth off":           {Depth: DepthOff},
		"required, depth off": {Head: HeadRequired, Depth: DepthOff},
		"n-grams":             {Head: HeadOff},
	} {
		m := openTiny(t, Options{Speculation: o})
		if m.model.Head() != nil || !m.Info().Head {
			t.Errorf("%s: head %v, in the checkpoint: %t", name, m.model.Head(), m.Info().Head)
		}
		if bytes == 0 {
			bytes = m.Info().Bytes
		}
		if less := whole.Info().Bytes - m.Info().Bytes; m.Info().Bytes != bytes || less < 1_600_000 {
			t.Errorf("%s: %d bytes, %d less than with the head", name, m.Info().Bytes, less)
		}
		if less := Size(Tiny, Options{}) - Size(Tiny, Options{Speculation: o}); less < 1_600_000 {
			t.Errorf("%s: the planned size is %d less than with the head", name, less)
		}
		if got := ask(m); !slices.Equal(got, want) {
			t.Errorf("%s: tokens %v, want %v", name, got, want)
		}
	}
}
