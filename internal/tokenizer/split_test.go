package tokenizer

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlclark/regexp2"
)

func TestPretokenizerSplits(t *testing.T) {
	for _, c := range []struct {
		name string
		step object
		text string
		want []string
	}{
		{"qwen3.5", sequence(split(qwen35Pattern), byteLevel(false, false)), "I've  9\n", []string{"I", "'ve", " ", " ", "9", "\n"}},
		{"gpt2", byteLevel(false, true), "Hello there       dear 42", []string{"Hello", " there", "      ", " dear", " 42"}},
		{"gpt2 with prefix", byteLevel(true, true), "Hi you", []string{" Hi", " you"}},
		{"prefix is there", byteLevel(true, true), " Hi", []string{" Hi"}},
		{"no split", byteLevel(false, false), "Hi you", []string{"Hi you"}},
		{"gaps are pieces", sequence(split(`\d+`), byteLevel(false, false)), "é12ü中3", []string{"é", "12", "ü中", "3"}},
		{"empty matches cut", sequence(split(`(?=[A-Z])`), byteLevel(false, false)), "aBcÉD", []string{"a", "BcÉ", "D"}},
		{"no match", sequence(split(`x`), byteLevel(false, false)), "aéb", []string{"aéb"}},
		{"two splits", sequence(split(`\d`), split(`[a-c]+`), byteLevel(false, false)), "ab1xc", []string{"ab", "1", "x", "c"}},
		{"literal", sequence(object{"type": "Split", "pattern": object{"String": "a.c"}, "behavior": "Isolated"}, byteLevel(false, false)), "abca.c", []string{"abc", "a.c"}},
		{"prefix on each piece", sequence(split(`,`), byteLevel(true, false)), "a,b", []string{" a", " ,", " b"}},
		{"lines", sequence(split(`^-`), byteLevel(false, false)), "-a-\n-b", []string{"-", "a-\n", "-", "b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tok := mustNew(t, smallFile(t, func(file, _ object) { file["pre_tokenizer"] = c.step }))
			var got []string
			tok.pretoken.run(c.text, func(piece string) bool { got = append(got, piece); return true })
			if !slices.Equal(got, c.want) {
				t.Errorf("%q splits into %q, want %q", c.text, got, c.want)
			}
		})
	}
}

// FuzzPatternLosesNothing splits by any expression: one that compiles
// may cut text anywhere, but all of it must be emitted.
func FuzzPatternLosesNothing(f *testing.F) {
	for _, expr := range []string{
		gpt2Pattern, qwen2Pattern, `(?r)a`, `\p{Lu}?[a-z-[aeiou]]+(?<x>l)\k<x>`, `(?<=b)|(?!\S)|(?>d)\b`, `(?i)(?x) a # b`,
	} {
		f.Add(expr)
	}
	f.Fuzz(func(t *testing.T, expr string) {
		s, err := newPattern(expr)
		if err != nil {
			return
		}
		if p, ok := s.(pattern); ok {
			p.re.MatchTimeout = 50 * time.Millisecond
		}
		const text = "Hello w\u00f6rld\n a 12 ab'll  \u00e9\u4e2d x"
		if got := strings.Join(pieces(s, text), ""); got != text {
			t.Errorf("%q cuts %q into %q", expr, text, got)
		}
	})
}

// TestPatternEndsHopelessMatch has an expression that would backtrack for
// years: the call must return, and no text may be lost. Only that match has
// a limit, so that a slow machine does not fail earlier ones.
func TestPatternEndsHopelessMatch(t *testing.T) {
	s, err := newPattern(`(a+)+b|\d`)
	if err != nil {
		t.Fatal(err)
	}
	p, ok := s.(pattern)
	if !ok || p.re.MatchTimeout != matchTimeout {
		t.Fatalf("%T without the time limit", s)
	}
	p.re.MatchTimeout = regexp2.DefaultMatchTimeout
	rest := strings.Repeat("a", 60) + "c"
	var got []string
	p.split("12"+rest, func(piece string) bool {
		if got = append(got, piece); piece == "2" {
			p.re.MatchTimeout = time.Nanosecond
		}
		return true
	})
	if want := []string{"1", "2", rest}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
