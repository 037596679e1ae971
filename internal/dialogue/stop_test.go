package dialogue

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestStopperStops(t *testing.T) {
	for _, c := range []struct {
		stops   []string
		text    string
		want    string
		stopped bool
	}{
		{nil, "abc", "abc", false},
		{[]string{""}, "abc", "abc", false},
		{[]string{"b"}, "abc", "a", true},
		{[]string{"a"}, "abc", "", true},
		{[]string{"cd"}, "abc", "abc", false},
		{[]string{"c", "b"}, "abc", "a", true},
		{[]string{"abcd", "bc"}, "abcd", "a", true}, // bc is complete first
		{[]string{"c", "abc"}, "xabc", "x", true},   // both at once: the longer
		{[]string{"aab"}, "aaab", "a", true},        // overlaps itself
		{[]string{"abab"}, "abaabab", "aba", true},  // falls back twice
		{[]string{"\n\n"}, "a\nb\n\nc", "a\nb", true},
		{[]string{"é"}, "caè é", "caè ", true}, // same first byte
		{[]string{"stop", "stoop"}, "a stostoop", "a sto", true},
	} {
		for _, chunks := range everySplit(c.text) {
			s := NewStopper(c.stops)
			got, stopped := "", false
			for _, chunk := range chunks {
				var emit string
				emit, stopped = s.Write(chunk)
				got += emit
			}
			if got += s.Flush(); got != c.want || stopped != c.stopped {
				t.Errorf("stops %q, chunks %q: got %q, %v, want %q, %v", c.stops, chunks, got, stopped, c.want, c.stopped)
			}
		}
	}
}

// TestStopperHoldsBackOnlyPartialMatches checks that each byte is emitted as soon as it cannot be
// part of a stop string.
func TestStopperHoldsBackOnlyPartialMatches(t *testing.T) {
	s := NewStopper([]string{"END"})
	for _, c := range []struct{ chunk, want string }{
		{"a", "a"}, {"E", ""}, {"E", "E"}, {"N", ""}, {"x", "ENx"}, {"EN", ""}, {"E", "EN"}, {"ND", ""},
	} {
		if got, _ := s.Write(c.chunk); got != c.want {
			t.Errorf("after %q: got %q, want %q", c.chunk, got, c.want)
		}
	}
	if got, stopped := s.Write("more"); got != "" || !stopped {
		t.Errorf("after the end: got %q, %v", got, stopped)
	}
	if got := s.Flush(); got != "" {
		t.Errorf("Flush after the end: %q", got)
	}
}

// TestStopperEqualsSearch compares with a search of the whole text for the first
// stop string to be complete.
func TestStopperEqualsSearch(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	word := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteByte("ab"[rng.IntN(2)])
		}
		return b.String()
	}
	for range 3000 {
		stops := []string{word(1 + rng.IntN(6)), word(1 + rng.IntN(6)), word(3)}
		text := word(rng.IntN(20))
		want, found := text, false
		for end := 1; end <= len(text) && !found; end++ {
			for _, stop := range stops {
				if before, ok := strings.CutSuffix(text[:end], stop); ok && len(before) < len(want) {
					want, found = before, true
				}
			}
		}
		s := NewStopper(stops)
		got, stopped := "", false
		for _, chunk := range randomSplit(rng, text) {
			var emit string
			emit, stopped = s.Write(chunk)
			got += emit
		}
		if got += s.Flush(); got != want || stopped != found {
			t.Fatalf("stops %q in %q: got %q, %v, want %q, %v", stops, text, got, stopped, want, found)
		}
	}
}

// everySplit returns text whole, byte by byte, and cut at each place in two.
func everySplit(text string) [][]string {
	splits := [][]string{{text}, strings.Split(text, "")}
	bytewise := make([]string, len(text))
	for i := range len(text) {
		bytewise[i] = text[i : i+1]
		splits = append(splits, []string{text[:i], text[i:]})
	}
	return append(splits, bytewise)
}

func randomSplit(rng *rand.Rand, text string) []string {
	var chunks []string
	for text != "" {
		n := 1 + rng.IntN(min(len(text), 9))
		chunks = append(chunks, text[:n])
		text = text[n:]
	}
	return chunks
}

func BenchmarkStopper(b *testing.B) {
	text := strings.Repeat("The cat sat on the mat. ", 1000)
	s := NewStopper([]string{"<|im_end|>", "\n\nUser:", "the end"})
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		for i := 0; i+4 <= len(text); i += 4 {
			s.Write(text[i : i+4])
		}
	}
}
