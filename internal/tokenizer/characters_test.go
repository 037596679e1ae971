package tokenizer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
)

// smallCharacters returns a tokenizer.json of characters with a few merges, after change has been
// applied to it. Token ids: bytes are their own ids; "▁" 256, "a" 257, "b" 258, "é" 259, "ab" 260,
// "▁a" 261, "éé" 262, "▁▁" 263.
func smallCharacters(tb testing.TB, change func(file, model object)) []byte {
	tb.Helper()
	vocab := object{"▁": 256, "a": 257, "b": 258, "é": 259, "ab": 260, "▁a": 261, "éé": 262, "▁▁": 263}
	for i := range 256 {
		vocab[fmt.Sprintf("<0x%02X>", i)] = i
	}
	model := object{
		"type": "BPE", "vocab": vocab, "byte_fallback": true,
		"merges": []any{[]string{"a", "b"}, "▁ a", []string{"é", "é"}, "▁ ▁"},
	}
	file := object{
		"added_tokens":  []any{},
		"normalizer":    object{"type": "Replace", "pattern": object{"String": " "}, "content": "▁"},
		"pre_tokenizer": object{"type": "Split", "pattern": object{"String": " "}, "behavior": "MergedWithPrevious"},
		"decoder": object{"type": "Sequence", "decoders": []any{
			object{"type": "Replace", "pattern": object{"String": "▁"}, "content": " "}, object{"type": "ByteFallback"}, object{"type": "Fuse"},
		}},
		"model": model,
	}
	if change != nil {
		change(file, model)
	}
	return filetest.Encode(tb, file)
}

// plainCharacters is encoding by its definition, on the spelling of the file: the whole text is
// one word.
func plainCharacters(p *plainBPE, text string) []int32 {
	var parts []string
	for _, r := range strings.ReplaceAll(text, " ", blank) {
		if _, ok := p.vocab[string(r)]; ok {
			parts = append(parts, string(r))
			continue
		}
		for _, b := range []byte(string(r)) {
			parts = append(parts, fmt.Sprintf("<0x%02X>", b))
		}
	}
	return p.merge(parts)
}

// TestCharactersEqualDefinition encodes tokens and characters in any order. The tokens of the
// vocabulary cross spaces, so that most texts are few words.
func TestCharactersEqualDefinition(t *testing.T) {
	file := charactersFile(t)
	tok, plain := mustNew(t, file), newPlainBPE(t, file)
	rng := rand.New(rand.NewPCG(7, 9))
	n := 1500
	if testing.Short() {
		n = 200
	}
	for range n {
		var b strings.Builder
		for size := rng.IntN(3 * shortWord); b.Len() < size; {
			switch rng.IntN(4) {
			case 0:
				b.WriteByte("etaoinshr \n"[rng.IntN(11)])
			case 1:
				b.WriteRune([]rune("é漢🙂▁\u0301\x00<>")[rng.IntN(8)])
			default:
				text, _ := tok.Token(int32(276 + rng.IntN(tok.Size()-276)))
				b.WriteString(text)
			}
		}
		text := b.String()
		want := plainCharacters(plain, text)
		if got, _ := tok.EncodeWithin(text, nil, 0); !slices.Equal(got, want) {
			t.Fatalf("%q\n got %v\nwant %v", text, got, want)
		}
		if word := unblank(text); word != "" {
			if got := tok.bpe.appendLong(nil, word); !slices.Equal(got, want) {
				t.Fatalf("appendLong(%q)\n got %v\nwant %v", word, got, want)
			}
		}
	}
}

func TestCharactersFallBackToBytes(t *testing.T) {
	tok := mustNew(t, smallCharacters(t, nil))
	checkIDs(t, tok, "ab a", 260, 261)
	checkIDs(t, tok, "ab▁a", 260, 261)
	checkIDs(t, tok, "   ", 263, 256)
	checkIDs(t, tok, "x\n", 'x', '\n')
	checkIDs(t, tok, "ééé", 262, 259)
	checkIDs(t, tok, "日a", 0xe6, 0x97, 0xa5, 257)
	checkIDs(t, tok, "<0x41>", '<', '0', 'x', '4', '1', '>')
	checkIDs(t, tok, "a\xff", 257, 0xef, 0xbf, 0xbd)
	for id, want := range map[int32]string{256: " ", 257: "a", 'a': "a", 0xe6: "\xe6", 261: " a"} {
		if got, ok := tok.Token(id); got != want || !ok {
			t.Errorf("token %d is %q, want %q", id, got, want)
		}
	}
	for token, want := range map[string]int32{" ": 256, "a": 257, " a": 261} {
		if got, ok := tok.ID(token); got != want || !ok {
			t.Errorf("the id of %q is %d, want %d", token, got, want)
		}
	}
}

// TestCharactersWaitForBytes streams byte tokens: they come when another token shows that they are
// whole, or when there are too many to wait for.
func TestCharactersWaitForBytes(t *testing.T) {
	tok := mustNew(t, smallCharacters(t, func(file, _ object) {
		file["added_tokens"] = []any{added(264, "<end>", "special")}
	}))
	d := tok.Decoder(true)
	for i, step := range []struct {
		id   int32
		want string
	}{
		{257, "a"},
		{'A', ""},
		{0xe6, ""},
		{264, ""},
		{0x97, ""},
		{0xa5, ""},
		{-1, ""},
		{256, "A日 "},
		{'A', ""},
		{0xe6, ""},
		{258, "\ufffd\ufffdb"}, // not UTF-8 as a whole
		{0xe6, ""},
	} {
		if got := d.Next(step.id); got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
	if got := d.Flush(); got != "\ufffd" {
		t.Errorf("flushed %q", got)
	}
	long := []byte(strings.Repeat("日", 1000))
	out, most := "", 0
	for _, b := range long {
		out += d.Next(int32(b))
		most = max(most, len(d.pending))
	}
	if out += d.Flush(); out != string(long) || most > maxRun {
		t.Errorf("%d bytes of %d came, %d were held", len(out), len(long), most)
	}
}

// TestCharactersOpen cuts texts at every place: EncodeOpen of the first part returns the first ids
// of the whole.
func TestCharactersOpen(t *testing.T) {
	tok := mustNew(t, charactersFile(t))
	for _, c := range referenceCases(t, "characters_cases.json") {
		if c.Odd || len(c.Text) > 300 {
			continue
		}
		whole := tok.Encode(c.Text)
		for cut := range c.Text {
			if ids := tok.EncodeOpen(c.Text[:cut]); len(ids) > len(whole) || !slices.Equal(ids, whole[:len(ids)]) {
				t.Errorf("%q, then %q: %d, want the first of %d", c.Text[:cut], c.Text[cut:], ids, whole)
			}
		}
	}
	whole := tok.Encode("Tokens;\nbytes: 漢字🙂🙂 and\n\nwords.")
	if ids := tok.EncodeOpen("Tokens;\nbytes: 漢字🙂🙂 and\n\nwords."); len(ids) < len(whole)/2 {
		t.Errorf("%d of %d ids are known before the end", len(ids), len(whole))
	}
}

// TestCharactersMadeByMerges has an added token that merges can make of untrusted text.
func TestCharactersMadeByMerges(t *testing.T) {
	tok := mustNew(t, smallCharacters(t, func(file, _ object) {
		file["added_tokens"] = []any{added(261, "▁a", "special", "normalized")}
	}))
	for marked, want := range map[string][]int32{" a": {256, 257}, "▁a": {256, 257}} {
		if ids, ok := tok.EncodeWithin(marked, nil, 0); !ok || !slices.Equal(ids, want) {
			t.Errorf("%q: %v, want %v", marked, ids, want)
		}
	}
	checkIDs(t, tok, "b a", 258, 261)
}

// TestCharactersKeepWhiteSpace has added tokens of white space, one of which merges make too: they are found in
// untrusted text as well.
func TestCharactersKeepWhiteSpace(t *testing.T) {
	tok := mustNew(t, smallCharacters(t, func(file, model object) {
		model["vocab"].(object)["\n\n"] = 264
		model["vocab"].(object)["\n\n\n"] = 265
		file["added_tokens"] = []any{added(263, "▁▁"), added(264, "\n\n"), added(265, "\n\n\n"), added(266, "<x>")}
	}))
	text := "a  b\n\n\n\n\n<x>▁▁"
	want := []int32{257, 263, 258, 265, 264, '<', 'x', '>', 263}
	for _, trusted := range [][][2]int{nil, {{0, 3}, {4, 8}}} {
		if ids, ok := tok.EncodeWithin(text, trusted, 0); !ok || !slices.Equal(ids, want) {
			t.Errorf("trusted %v: %v, want %v", trusted, ids, want)
		}
	}
	checkIDs(t, tok, text, 257, 263, 258, 265, 264, 266, 263)
}

func TestCharactersRejects(t *testing.T) {
	edit := func(change func(file, model object)) []byte { return smallCharacters(t, change) }
	part := func(key string, value any) []byte {
		return edit(func(file, _ object) { file[key] = value })
	}
	merge := func(left, right, product string) []byte {
		return edit(func(_, model object) {
			model["vocab"].(object)[product] = 264
			model["merges"] = []any{[]string{left, right}}
		})
	}
	replace := func(from, to string) object {
		return object{"type": "Replace", "pattern": object{"String": from}, "content": to}
	}
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"no normalizer":       {part("normalizer", nil), "normalizer: none, want one Replace"},
		"another normalizer":  {part("normalizer", object{"type": "NFC"}), `normalizer: type "NFC"`},
		"another replacement": {part("normalizer", replace(" ", "_")), `normalizer: type "Replace" (from " " to "_")`},
		"two normalizers": {part("normalizer", object{"type": "Sequence", "normalizers": []any{
			object{"type": "Prepend", "prepend": "▁"}, replace(" ", "▁"),
		}}), `normalizer: type "Prepend"`},
		"regex split":        {part("pre_tokenizer", split(`\s+`)), `pre_tokenizer: type "Split"`},
		"other splits":       {part("pre_tokenizer", object{"type": "Metaspace"}), `pre_tokenizer: type "Metaspace"`},
		"decoder strips":     {part("decoder", object{"type": "Sequence", "decoders": []any{replace("▁", " "), object{"type": "ByteFallback"}, object{"type": "Fuse"}, object{"type": "Strip"}}}), "ByteFallback Fuse Strip"},
		"decoder replaces":   {part("decoder", object{"type": "Sequence", "decoders": []any{replace("_", " "), object{"type": "ByteFallback"}, object{"type": "Fuse"}}}), "of other texts"},
		"ignored merges":     {edit(func(_, model object) { model["ignore_merges"] = true }), "ignore_merges"},
		"byte missing":       {edit(func(_, model object) { delete(model["vocab"].(object), "<0xE9>") }), "no token <0xE9>"},
		"merge of a byte":    {merge("<0x41>", "a", "<0x41>a"), `"<0x41>" is a byte`},
		"merge into a byte":  {merge("<0x4", "1>", "x"), `"<0x4" is not in`},
		"added byte":         {part("added_tokens", []any{added('A', "<0x41>")}), `"<0x41>" is a byte`},
		"added with a strip": {part("added_tokens", []any{added(264, "<x>", "normalized", "lstrip")}), "normalized with lstrip"},
	} {
		if _, err := New(c.file); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	// In any order of its parts, and with a space in a token, the file is accepted.
	var file map[string]any
	filetest.Decode(t, edit(func(_, model object) { model["vocab"].(object)["a b"] = 264 }), &file)
	model := filetest.Encode(t, file["model"])
	delete(file, "model")
	rest := filetest.Encode(t, file)
	tok := mustNew(t, fmt.Appendf(nil, `{"model": %s, %s`, model, rest[1:]))
	checkIDs(t, tok, "a b", 257, 256, 258)
}
