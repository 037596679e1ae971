package tokenizer

import "testing"

// TestAddedTokensFollowFlags has the behavior of the reference, flag by flag.
// Ids below 256 are bytes.
func TestAddedTokensFollowFlags(t *testing.T) {
	for _, c := range []struct {
		name   string
		tokens []any
		text   string
		want   []int32
	}{
		{"plain", []any{added(300, "<x>")}, "a<x>b", []int32{'a', 300, 'b'}},
		{"alone", []any{added(300, "<x>")}, "<x>", []int32{300}},
		{"in a row", []any{added(300, "<x>")}, "<x><x>", []int32{300, 300}},
		{"cut off", []any{added(300, "<x>")}, "<x<x>", []int32{'<', 'x', 300}},
		{"cut off at the end", []any{added(300, "<x>")}, "a<x", []int32{'a', '<', 'x'}},
		{"longest", []any{added(300, "<x>"), added(301, "<x>y")}, "<x>y<x>z", []int32{301, 300, 'z'}},
		{"longest falls back", []any{added(300, "ab"), added(301, "abcd")}, "abcab", []int32{300, 'c', 300}},
		{"leftmost", []any{added(300, "bcd"), added(301, "ab")}, "abcd", []int32{301, 'c', 'd'}},
		{"many first bytes", []any{added(300, "qq"), added(301, "zz")}, "zqqzz", []int32{'z', 300, 301}},
		{"splits words", []any{added(300, "ell")}, "hello", []int32{'h', 300, 'o'}},
		{"of the vocabulary", []any{added(259, "hello")}, "ahellob", []int32{'a', 259, 'b'}},

		{"lstrip", []any{added(300, "<x>", "lstrip")}, "a \t\n<x> b", []int32{'a', 300, ' ', 'b'}},
		{"rstrip", []any{added(300, "<x>", "rstrip")}, "a <x>\u00a0\n b", []int32{'a', ' ', 300, 'b'}},
		{"both", []any{added(300, "<x>", "lstrip", "rstrip")}, "  <x>  <x>  ", []int32{300, 300}},
		{"strip for two", []any{added(300, "<x>", "rstrip"), added(301, "<y>", "lstrip")}, "<x> <y>", []int32{300, 301}},
		{"strip into the next", []any{added(300, "<x>", "rstrip"), added(301, " y")}, "<x> yz", []int32{300, 301, 'z'}},
		{"strip space tokens", []any{added(300, "\t", "rstrip")}, "\t\t\tb", []int32{300, 300, 300, 'b'}},

		{"single word", []any{added(300, "cat", "single_word")}, "cat, a cat", []int32{300, ',', ' ', 'a', ' ', 300}},
		{"not a single word", []any{added(300, "cat", "single_word")}, "cats", []int32{'c', 'a', 't', 's'}},
		{"single word, digit", []any{added(300, "cat", "single_word")}, "1cat", []int32{'1', 'c', 'a', 't'}},
		{"single word, underscore", []any{added(300, "cat", "single_word")}, "cat_", []int32{'c', 'a', 't', '_'}},
		{"single word, mark", []any{added(300, "cc", "single_word")}, "cc\u0323", []int32{'c', 'c', 0xcc, 0xa3}},

		{
			"normalized token in composed text",
			[]any{added(300, "e\u0301!", "normalized")},
			"a\u00e9!",
			[]int32{'a', 300},
		},
		{
			"normalized token in decomposed text",
			[]any{added(300, "\u00e9!", "normalized")},
			"ae\u0301!",
			[]int32{'a', 300},
		},
		{
			"raw token in decomposed text",
			[]any{added(300, "\u00e9!")},
			"e\u0301!",
			[]int32{0xc3, 0xa9, '!'},
		},
		{
			"raw before normalized",
			[]any{added(300, "ab", "normalized"), added(301, "bc")},
			"abc",
			[]int32{'a', 301},
		},
		{
			"composition stops at tokens",
			[]any{added(300, "<x>")},
			"e<x>\u0301",
			[]int32{'e', 300, 0xcc, 0x81},
		},
		{
			"special first of equals",
			[]any{added(300, "\u00e9!", "normalized"), added(301, "e\u0301!", "normalized", "special")},
			"\u00e9!",
			[]int32{301},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			tok := mustNew(t, smallFile(t, func(file, _ object) { file["added_tokens"] = c.tokens }))
			checkIDs(t, tok, c.text, c.want...)
		})
	}
}

// TestAddedTokensDecode has the decoder's treatment of tokens in and outside
// the byte alphabet, which is the reference's.
func TestAddedTokensDecode(t *testing.T) {
	tok := mustNew(t, smallFile(t, func(file, _ object) {
		file["added_tokens"] = []any{
			added(300, "<｜x｜>", "special"), added(301, "Ġy"), added(302, "a b"), added(303, "éé"),
		}
	}))
	if got, want := tok.Decode([]int32{300, 301, 302, 303}, false), "<｜x｜> ya b\ufffd\ufffd"; got != want {
		t.Errorf("Decode = %q, want %q", got, want)
	}
	if got, want := tok.Decode([]int32{300, 301, 299, 302}, true), " ya b"; got != want {
		t.Errorf("Decode without special tokens = %q, want %q", got, want)
	}
	if tok.Size() != 304 {
		t.Errorf("Size = %d, want 304", tok.Size())
	}
}

func TestShownTokensAreText(t *testing.T) {
	tok := mustNew(t, smallFile(t, func(file, _ object) {
		file["added_tokens"] = []object{{"id": 900, "content": "<a>", "special": true}, {"id": 901, "content": "<b>", "special": true}}
	}))
	tok.Show("<a>", "<c>")
	if got := tok.Decode([]int32{900, 901}, true); got != "<a>" || tok.Special(900) || !tok.Special(901) {
		t.Errorf("%q", got)
	}
}
