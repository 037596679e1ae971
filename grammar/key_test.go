package grammar

import "testing"

// TestKeysTellSourcesApart checks similar sources: compiled grammars are found by
// their keys.
func TestKeysTellSourcesApart(t *testing.T) {
	lark := func(text string) Source {
		s, err := Lark(text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	a, b := Literal("a"), Literal("b")
	seen := map[Key]int{}
	for i, s := range []Source{
		{},
		Choice("a\x00b"), Choice("a", "b"), Choice("a", "", "b"), Choice("a\x00\x01\x00\x00\x00\x00\x00\x00\x00b"), Choice(""), Choice(), a, b,
		Regexp("a"), Schema([]byte("a")), TextWithout("a"), lark("start: \"a\""), JSON(), Object(), Schema([]byte("object")),
		Sequence(), Sequence(a), Sequence(a, b), Sequence(b, a), Sequence(Sequence(a), b), Sequence(a, Sequence(b)), Either(), Either(a, b), Prefer(a, b),
		InString(a), Without("a", a), Without("b", a), Without("a", b), Repeat(a, 0, 1), Repeat(a, 1, 0), Repeat(a, 11, 1), Repeat(a, 1, 11), Repeat(b, 0, 1),
		Bare([]byte("a"), "b"), Bare([]byte("a"), "b", "c"), Bare([]byte("a"), "b", "c", "d"), Bare([]byte("ab"), "", "c"), Bare([]byte("a"), "b\x00c"),
	} {
		if other, ok := seen[s.Key()]; ok {
			t.Errorf("sources %d and %d have the same key", other, i)
		}
		seen[s.Key()] = i
	}
	if Literal("x").Key() != Choice("x").Key() || JSON().Key() != Schema([]byte(`true`)).Key() {
		t.Error("equal sources have different keys")
	}
}

// TestZeroSourceIsNone checks the zero value.
func TestZeroSourceIsNone(t *testing.T) {
	var s Source
	if !s.IsZero() || Literal("").IsZero() {
		t.Error("the zero Source is not told from others")
	}
	for _, s := range []Source{s, Sequence(s), Prefer(s, s)} {
		if _, err := Compile(s, nil); err == nil {
			t.Error("an empty source is compiled")
		}
	}
}
