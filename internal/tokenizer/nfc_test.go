package tokenizer

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// nfcParts decompose, compose, reorder or do none of it; Hangul in all forms,
// composition exclusions, marks of many classes, and pairs of starters that
// compose.
var nfcParts = strings.Split("a e A o q é Å \u212b \u1e69 \u1f82 \u0344 \u0958 \u2126 \ufb1d \u09c7 \u09be \u0b47 \u0b56 "+
	"\u1100 \u1161 \u11a8 가 각 \uac00 中 \uf900 \U0001d15e \U0001d165 \u0f71 \u0f72 \u0f73 \u0f81 "+
	"\u0300 \u0301 \u0302 \u0307 \u0308 \u030a \u0323 \u0327 \u0331 \u0345 \u05b0 \u093c \u3099 \u0338 < =", " ")

// TestComposeMarksEqualsNorm compares our normalization with norm's where that
// one has no limit.
func TestComposeMarksEqualsNorm(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 20000 {
		var b strings.Builder
		for range rng.IntN(8) {
			b.WriteString(nfcParts[rng.IntN(len(nfcParts))])
		}
		text := b.String()
		want := norm.NFC.String(text)
		if got := composeMarks(text); got != want {
			t.Fatalf("composeMarks(%+q) = %+q, want %+q", text, got, want)
		}
		if got := composeNFC(text); got != want {
			t.Fatalf("composeNFC(%+q) = %+q, want %+q", text, got, want)
		}
	}
}

// TestComposeNFCHasNoMarkLimit checks that no U+034F appears among many marks,
// and that they are put in order across the whole run.
func TestComposeNFCHasNoMarkLimit(t *testing.T) {
	acute, below := strings.Repeat("\u0301", 40), strings.Repeat("\u0323", 40)
	for _, c := range []struct{ in, want string }{
		{"a" + acute, "á" + acute[2:]},
		{"a" + acute + below, "\u1ea1" + below[2:] + acute},
		{acute + "a", acute + "a"},
		{"q" + acute + "e\u0301", "q" + acute + "é"},
		{"é" + acute + "!", "é" + acute + "!"},
		{"\u1100" + strings.Repeat("\u1161", 40), "\uac00" + strings.Repeat("\u1161", 39)},
	} {
		if got := composeNFC(c.in); got != c.want {
			t.Errorf("composeNFC(%+q)\n got %+q\nwant %+q", c.in, got, c.want)
		}
	}
}

// TestMaxShrinkHolds checks every character and its decomposition.
func TestMaxShrinkHolds(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		for _, text := range []string{string(r), norm.NFD.String(string(r))} {
			if n := len(composeNFC(text)); len(text) >= maxShrink*n {
				t.Errorf("%U: %d bytes become %d", r, len(text), n)
			}
		}
	}
}
