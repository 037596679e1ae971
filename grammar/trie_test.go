package grammar

import (
	"slices"
	"strings"
	"testing"
)

// TestTrieReadsItsTexts checks the automata of lists of texts, and of all texts but those of a
// list, with every text that is close to one of the list.
func TestTrieReadsItsTexts(t *testing.T) {
	for _, list := range [][]string{
		{}, {""}, {"a"}, {"", "a"}, {"ab", "a", "abc", "b", "a"}, {"nüll", "nü", "日本", "日"}, {`a\n`, `a\"`, `\\`}, {"xab", "yab", "xb"},
	} {
		one, err := new(work).choice(list)
		if err != nil {
			t.Fatal(err)
		}
		others, err := new(work).but(ours()[anyInside], list)
		if err != nil {
			t.Fatal(err)
		}
		near := append(slices.Clone(list), "", "q", "qq")
		for _, text := range list {
			near = append(near, text+"a", text+"日", text+`\n`, "a"+text, strings.ToUpper(text))
			if len(text) > 0 && text[len(text)-1] < 0x80 && !strings.Contains(text, `\`) {
				near = append(near, text[:len(text)-1])
			}
		}
		for _, text := range near {
			in := slices.Contains(list, text)
			if one.matches(text) != in || others.matches(text) != (!in && ours()[anyInside].matches(text)) {
				t.Errorf("%q: %q: in the list %v, of the list %v, of the others %v", list, text, in, one.matches(text), others.matches(text))
			}
		}
	}
}
