package qwen35

import (
	"slices"
	"testing"

	"github.com/foretoken/foretoken/spec"
)

func TestShortlistLength(t *testing.T) {
	for _, c := range []struct{ vocab, want, length int }{
		{8192, 0, 2048},
		{8192, -1, 8192},
		{8192, 100, 100},
		{8192, 9000, 8192},
		{512, 0, 512},
		{248320, 0, 32768},
	} {
		if got := shortlistLength(c.vocab, c.want); got != c.length {
			t.Errorf("vocabulary of %d, %d wanted: %d, want %d", c.vocab, c.want, got, c.length)
		}
	}
}

func TestShortlistSizes(t *testing.T) {
	for vocab, want := range map[int][]int{8192: {1024, 2048, 4096, 8192}, 1500: {1500}} {
		if got := shortlistSizes(vocab); !slices.Equal(got, want) {
			t.Errorf("vocabulary of %d: sizes %v, want %v", vocab, got, want)
		}
	}
}

// TestShortlistHoldsWhatTheTextUsed checks that the list is the frequent blocks, then the
// rare ones of all texts of a batch, each once and in order.
func TestShortlistHoldsWhatTheTextUsed(t *testing.T) {
	s := shortlist{frequent: 40, vocab: 1000}
	run := func(text ...int32) spec.Run { return spec.Run{Notes: new(any), Text: text, Depth: 1} }
	a, b := run(3, 999, 500), run(501, 47, 48)
	if got, want := s.of([]spec.Run{a}), []int32{0, 1, 2, 31, 62}; !slices.Equal(got, want) {
		t.Errorf("blocks %v, want %v", got, want)
	}
	if got, want := s.of([]spec.Run{a, b}), []int32{0, 1, 2, 3, 31, 62}; !slices.Equal(got, want) {
		t.Errorf("blocks %v, want %v", got, want)
	}
	a.Text = append(a.Text, 700)
	if got, want := s.of([]spec.Run{a}), []int32{0, 1, 2, 31, 43, 62}; !slices.Equal(got, want) {
		t.Errorf("blocks %v, want %v", got, want)
	}
	a.Text = []int32{5} // another text
	if got, want := s.of([]spec.Run{a}), []int32{0, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("blocks %v, want %v", got, want)
	}
	if all := (&shortlist{frequent: 1000, vocab: 1000}).of([]spec.Run{a}); all != nil {
		t.Errorf("blocks %v of a whole vocabulary, want nil", all)
	}
}

func TestShortlistIsBounded(t *testing.T) {
	var x seen
	text := make([]int32, 20000)
	for i := range text {
		text[i] = int32(i * 16)
	}
	if x.learn(text, 1); len(x.blocks) != mostSeen || !slices.IsSorted(x.blocks) {
		t.Errorf("%d blocks", len(x.blocks))
	}
}
