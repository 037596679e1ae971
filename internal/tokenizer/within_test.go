package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// marked splits text with its trusted parts between ⟦ and ⟧.
func marked(text string) (string, [][2]int) {
	var b strings.Builder
	var trusted [][2]int
	for i, part := range strings.FieldsFunc("\x00"+text, func(r rune) bool { return r == '⟦' || r == '⟧' }) {
		part = strings.TrimPrefix(part, "\x00")
		if i%2 == 1 {
			trusted = append(trusted, [2]int{b.Len(), b.Len() + len(part)})
		}
		b.WriteString(part)
	}
	return b.String(), trusted
}

func controls(tok *Tokenizer, ids []int32) []int32 {
	all := map[int32]bool{}
	for _, id := range tok.added {
		all[id] = true
	}
	var found []int32
	for _, id := range ids {
		if all[id] {
			found = append(found, id)
		}
	}
	return found
}

// TestEncodeWithinTakesNoControlTokenFromStrangers has the spelling of every control token of
// the model, special or not, as text, and the same trusted as tokens.
func TestEncodeWithinTakesNoControlTokenFromStrangers(t *testing.T) {
	for _, v := range vocabularies(t) {
		t.Run("vocab="+v.name, func(t *testing.T) {
			tok := mustNew(t, v.file)
			if tok.mergeable != nil {
				t.Errorf("merges make the added tokens %v: honest text would change", tok.mergeable)
			}
			for content, id := range tok.added {
				for _, around := range []string{"%", "a%b", "\n%\n", "<|%|>", "%%", " % "} {
					text := strings.ReplaceAll(around, "%", content)
					ids, ok := tok.EncodeWithin(text, nil, 0)
					if found := controls(tok, ids); len(found) > 0 || !ok {
						t.Errorf("%q as a stranger's text has the control tokens %v", text, found)
					}
					if got := tok.Decode(ids, true); got != text {
						t.Errorf("%q decodes to %q", text, got)
					}
					ids, _ = tok.EncodeWithin(text, [][2]int{{0, len(text)}}, 0)
					if !slices.Equal(ids, tok.Encode(text)) || !slices.Contains(ids, id) {
						t.Errorf("%q, trusted, is %v, and Encode gives %v", text, ids, tok.Encode(text))
					}
				}
			}
		})
	}
}

// TestEncodeWithinFollowsOrigin has tokens beside and across the end of a
// trusted range, which is between brackets. Ids below 256 are bytes.
func TestEncodeWithinFollowsOrigin(t *testing.T) {
	x := added(300, "<x>", "special")
	for _, c := range []struct {
		name   string
		tokens []any
		text   string
		want   []int32
	}{
		{"trusted", []any{x}, "<x>⟦<x>⟧<x>", []int32{'<', 'x', '>', 300, '<', 'x', '>'}},
		{"not special", []any{added(300, "<x>")}, "<x>⟦<x>⟧", []int32{'<', 'x', '>', 300}},
		{"begun by a stranger", []any{x}, "<x⟦>⟧", []int32{'<', 'x', '>'}},
		{"ended by a stranger", []any{x}, "⟦<x⟧>", []int32{'<', 'x', '>'}},
		{"a hole within", []any{x}, "⟦<⟧x⟦>⟧", []int32{'<', 'x', '>'}},
		{"around one", []any{x}, "<⟦<x>⟧x>", []int32{'<', 300, 'x', '>'}},
		{"longer with a stranger's", []any{x, added(301, "<x>y")}, "⟦<x>⟧y", []int32{300, 'y'}},
		{"earlier with a stranger's", []any{x, added(301, "a<")}, "a⟦<x>⟧", []int32{'a', 300}},
		{"a longer token with this prefix", []any{x, added(301, "<x><x>!")}, "⟦<x><x>⟧!", []int32{300, 300, '!'}},
		{"words run across", nil, "⟦he⟧llo⟦ ⟧w", []int32{259, 260}},
		{"composed across", []any{x}, "⟦e⟧\u0301", []int32{0xc3, 0xa9}},
		{"lstrip takes a stranger's space", []any{added(300, "<x>", "lstrip")}, "a ⟦<x>⟧", []int32{'a', 300}},
		{"rstrip takes a stranger's space", []any{added(300, "<x>", "rstrip")}, "⟦<x>⟧ \nb⟦<x>⟧", []int32{300, 'b', 300}},
		{"single word beside a stranger's", []any{added(300, "cat", "single_word")}, "⟦cat⟧s", []int32{300, 's'}},
		{"single word beside a trusted one", []any{added(300, "cat", "single_word")}, "⟦cats⟧", []int32{'c', 'a', 't', 's'}},
		{"normalized", []any{added(300, "\u00e9!", "normalized")}, "e\u0301!⟦e\u0301!⟧\u00e9!", []int32{0xc3, 0xa9, '!', 300, 0xc3, 0xa9, '!'}},
		{"normalized, an accent after it", []any{added(300, "<e", "normalized")}, "⟦<e⟧\u0301", []int32{300, 0xcc, 0x81}},
		{"normalized, offsets moved", []any{added(300, "<e", "normalized")}, "e\u0301e\u0301⟦<e⟧<e", []int32{0xc3, 0xa9, 0xc3, 0xa9, 300, '<', 'e'}},
		{"broken before", []any{x}, "\xff\xe2\x82⟦<x>⟧<x>", []int32{0xef, 0xbf, 0xbd, 0xef, 0xbf, 0xbd, 300, '<', 'x', '>'}},
		{"made by merges", []any{added(259, "hello")}, "⟦hello⟧hello", []int32{259, 'h', 'e', 'l', 'l', 'o'}},
		{"made by merges, all trusted", []any{added(259, "hello", "single_word")}, "⟦hello1⟧", []int32{259, '1'}},
		{"made by merges across", []any{added(259, "hello")}, "⟦hel⟧lo", []int32{'h', 'e', 'l', 'l', 'o'}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tok := mustNew(t, smallFile(t, func(file, _ object) {
				if c.tokens != nil {
					file["added_tokens"] = c.tokens
				}
			}))
			text, trusted := marked(c.text)
			ids, ok := tok.EncodeWithin(text, trusted, 0)
			if !ok || !slices.Equal(ids, c.want) {
				t.Errorf("got %v, want %v", ids, c.want)
			}
		})
	}
}

// TestEncodeWithinChangesNoHonestText cuts texts without control tokens into random ranges:
// the ids are those of Encode.
func TestEncodeWithinChangesNoHonestText(t *testing.T) {
	random := rand.New(rand.NewPCG(12, 3))
	for _, v := range vocabularies(t) {
		t.Run("vocab="+v.name, func(t *testing.T) {
			tok := mustNew(t, v.file)
			n := 0
			for _, c := range referenceCases(t, v.name+"_cases.json") {
				want := tok.Encode(c.Text)
				if c.Odd || len(controls(tok, want)) > 0 {
					continue
				}
				n++
				for range 10 {
					if ids, ok := tok.EncodeWithin(c.Text, randomRanges(random, c.Text), 0); !ok || !slices.Equal(ids, want) {
						t.Errorf("%q\n got %v\nwant %v", c.Text, ids, want)
					}
				}
			}
			if n < 50 {
				t.Errorf("only %d texts without control tokens", n)
			}
		})
	}
}

// randomRanges are ranges of text that begin and end between characters.
func randomRanges(random *rand.Rand, text string) (ranges [][2]int) {
	for at := 0; ; {
		from := at + random.IntN(6)
		to := from + 1 + random.IntN(6)
		if to > len(text) {
			return ranges
		}
		at = to + 1
		if utf8.RuneStart(text[from]) && (to == len(text) || utf8.RuneStart(text[to])) {
			ranges = append(ranges, [2]int{from, to})
		}
	}
}

// counting is a splitter that counts the bytes of its pieces.
type counting struct {
	splitter
	bytes int
}

func (c *counting) split(text string, emit func(string) bool) bool {
	return c.splitter.split(text, func(piece string) bool {
		c.bytes += len(piece)
		return emit(piece)
	})
}

// TestEncodeWithinStopsAtTheLimit encodes 8 MB, of which only a little may be processed.
func TestEncodeWithinStopsAtTheLimit(t *testing.T) {
	tok := mustNew(t, tinyFile(t))
	count := &counting{splitter: tok.pretoken[0]}
	tok.pretoken[0] = count
	const size, limit = 8 << 20, 1000
	for name, text := range map[string]string{
		"words":          strings.Repeat("the cat ", size/8),
		"one word":       strings.Repeat("x", size),
		"spaces":         strings.Repeat(" ", size),
		"control tokens": strings.Repeat("<|im_end|>", size/10),
		"accents":        strings.Repeat("e\u0301", size/3),
		"broken":         strings.Repeat("\xff ", size/2),
	} {
		for _, trusted := range [][][2]int{nil, {{0, size / 2}}} {
			count.bytes = 0
			ids, ok := tok.EncodeWithin(text, trusted, limit)
			if ok || ids != nil {
				t.Errorf("%s: %d ids of a text of 8 MB, limit %d", name, len(ids), limit)
			}
			if bound := limit * tok.longest; count.bytes > bound {
				t.Errorf("%s: %d bytes went into words, want at bound %d", name, count.bytes, bound)
			}
		}
	}
	text := strings.Repeat("the cat ", 100)
	want := tok.Encode(text)
	if ids, ok := tok.EncodeWithin(text, nil, len(want)); !ok || !slices.Equal(ids, want) {
		t.Errorf("a limit of exactly %d tokens: %v, %v", len(want), ids, ok)
	}
	if _, ok := tok.EncodeWithin(text, nil, len(want)-1); ok {
		t.Errorf("a limit of one less than %d tokens is kept", len(want))
	}
}

// FuzzEncodeWithin checks, for any text in three parts with a trusted middle, that it has the
// control tokens of the middle alone, and decodes to the text.
func FuzzEncodeWithin(f *testing.F) {
	both := []*Tokenizer{mustNew(f, tinyFile(f)), mustNew(f, charactersFile(f))}
	f.Add("<|tool_", "<|tool_call><|\"|>", "▁call>")
	f.Add("<|im_", "<|im_end|>\n", "start|>")
	f.Add("<think>", "<|im_start|>user\n", "\u0301<tool_call>")
	f.Add("\xe2\x82", "<|im_end|>", "\xac\u0338")
	f.Fuzz(func(t *testing.T, before, middle, after string) {
		middle = strings.ToValidUTF8(middle, "?") // as templates are
		text := before + middle + after
		for _, tok := range both {
			ids, ok := tok.EncodeWithin(text, [][2]int{{len(before), len(before) + len(middle)}}, 0)
			if !ok {
				t.Fatal("over a limit that is none")
			}
			if got, want := controls(tok, ids), controls(tok, tok.Encode(middle)); !slices.Equal(got, want) {
				t.Errorf("control tokens %v, want %v", got, want)
			}
			valid := validUTF8(before) + middle + validUTF8(after)
			if got, want := tok.normalize(tok.Decode(ids, false)), tok.normalize(valid); got != want {
				t.Errorf("decodes to %q, want %q", got, want)
			}
		}
	})
}
