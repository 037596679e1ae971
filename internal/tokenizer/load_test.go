package tokenizer

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestNewRejects(t *testing.T) {
	edit := func(change func(file, model object)) []byte { return smallFile(t, change) }
	pre := func(step any) []byte {
		return edit(func(file, _ object) { file["pre_tokenizer"] = step })
	}
	merge := func(merges ...any) []byte {
		return edit(func(_, model object) { model["merges"] = merges })
	}
	model := func(key string, value any) []byte {
		return edit(func(_, model object) { model[key] = value })
	}
	token := func(name string, id any) []byte {
		return edit(func(_, model object) { model["vocab"].(object)[name] = id })
	}
	addedTokens := func(tokens ...any) []byte {
		return edit(func(file, _ object) { file["added_tokens"] = tokens })
	}
	for _, c := range []struct {
		name string
		file []byte
		want string // part of the error
	}{
		{"empty", nil, "unexpected EOF where '{' was expected"},
		{"not UTF-8", []byte("{\"a\xff\":1}"), "not UTF-8"},
		{"array", []byte("[]"), "'[' where '{' was expected"},
		{"trailing", append(edit(nil), " x"...), "'x' after the end"},
		{"truncated", edit(nil)[:1500], "unexpected EOF"},
		{"no model", []byte("{}"), "model: no vocab"},
		{"broken other part", []byte(`{"post_processor": [1,]}`), "']' where a value was expected"},
		{"unigram", model("type", "Unigram"), `model.type: "Unigram"`},
		{"type is a number", model("type", 5), "model.type"},
		{"no vocab", edit(func(_, m object) { delete(m, "vocab") }), "model: no vocab"},
		{"no merges", edit(func(_, m object) { delete(m, "merges") }), "model: no merges"},
		{"dropout", model("dropout", 0.1), "dropout"},
		{"prefix", model("continuing_subword_prefix", "##"), "continuing_subword_prefix"},
		{"suffix", model("end_of_word_suffix", "</w>"), "end_of_word_suffix"},
		{"vocab is an array", model("vocab", []int{1}), "model.vocab: at byte"},
		{"vocab is empty", model("vocab", object{}), "model.vocab: no tokens"},
		{"empty token", token("", 262), "empty token"},
		{"id is a string", token("x", "7"), "whole number"},
		{"id is negative", token("xx", -7), "whole number"},
		{"id is a fraction", token("xx", 7.5), "fraction"},
		{"id is absurd", token("xx", 1<<31-1), "nearly dense"},
		{"id beyond 64 bits", token("xx", json.Number("99999999999999999999999")), "nearly dense"},
		{"id is sparse", token("xx", 67000), "nearly dense"},
		{"id twice", token("xx", 259), "share id 259"},
		{"token twice", []byte(strings.Replace(string(edit(nil)), `"he":256`, `"he":256,"he":262`, 1)), "two ids, 256 and 262"},
		{"odd token twice", []byte(strings.Replace(string(edit(nil)), `"he":256`, `"he":256,"中":262,"中":263`, 1)), "two ids, 262 and 263"},
		{"byte missing", edit(func(_, m object) { delete(m["vocab"].(object), "Ġ") }), "no token for byte 0x20"},
		{"merge of one", merge([]string{"h"}), "merge 0: a merge must name two"},
		{"merge of three", merge("h e", []string{"h", "e", "l"}), "merge 1: a merge must name two"},
		{"merge without space", merge("he"), "merge 0"},
		{"merge with two spaces", merge("h e l"), "merge 0"},
		{"merge is a number", merge(5), "merge 0: at byte"},
		{"merge with unknown left", merge("hx e"), `"hx" is not in`},
		{"merge with unknown right", merge("h ex"), `"ex" is not in`},
		{"merge with unknown product", merge("e h"), `"e" and "h" make`},
		{"merge of unknown odd", merge("中 e"), `"中" is not in`},
		{"normalizer", edit(func(f, _ object) { f["normalizer"] = object{"type": "NFKC"} }), `normalizer: type "NFKC"`},
		{"normalizer in sequence", edit(func(f, _ object) {
			f["normalizer"] = object{"type": "Sequence", "normalizers": []any{object{"type": "Lowercase"}}}
		}), `normalizer: type "Lowercase"`},
		{"no pre-tokenizer", pre(nil), "pre_tokenizer: null"},
		{"unknown pre-tokenizer", pre(object{"type": "Metaspace"}), `"Metaspace"`},
		{"no byte level", pre(split(`\s+`)), "ByteLevel is missing"},
		{"split after byte level", pre(sequence(byteLevel(false, false), split("a"))), "must come last"},
		{"byte level twice", pre(sequence(byteLevel(false, false), byteLevel(false, false))), "must come last"},
		{"broken pattern", pre(sequence(split(`(a`), byteLevel(false, false))), "pattern"},
		{"empty pattern", pre(sequence(split(""), byteLevel(false, false))), "empty pattern"},
		{"endless pattern", pre(sequence(split(strings.Repeat("(", 5000)), byteLevel(false, false))), "pattern of 5000 bytes"},
		{"removed", pre(sequence(object{"type": "Split", "pattern": object{"Regex": "a"}, "behavior": "Removed"})), `"Removed"`},
		{"many splits", pre(sequence(repeat(split("a"), 20)...)), "more than 16"},
		{"no decoder", edit(func(f, _ object) { f["decoder"] = nil }), "decoder: type"},
		{"decoder", edit(func(f, _ object) { f["decoder"] = object{"type": "WordPiece"} }), `decoder: type "WordPiece"`},
		{"added is an object", edit(func(f, _ object) { f["added_tokens"] = object{} }), "added_tokens: at byte"},
		{"added id taken", addedTokens(added(259, "<x>")), `id 259 belongs to "hello"`},
		{"added id taken by added", addedTokens(added(262, "<x>"), added(262, "<y>")), `id 262 belongs to "<x>"`},
		{"added twice", addedTokens(added(262, "<x>"), added(263, "<x>")), `"<x>" is listed twice`},
		{"added id differs", addedTokens(added(262, "hello")), "262 here and 259 in"},
		{"added id negative", addedTokens(added(-1, "<x>")), "out of range"},
		{"added id absurd", addedTokens(added(1<<31-1, "<x>")), "out of range"},
		{"added id too large", addedTokens(added(1<<40, "<x>")), "added_tokens"},
		{"added too long", addedTokens(added(262, strings.Repeat("x", 300))), "longer than 256"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tok, err := New(c.file)
			if err == nil || tok != nil {
				t.Fatal("no error")
			}
			if !strings.HasPrefix(err.Error(), "tokenizer: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %q, want one about %q", err, c.want)
			}
		})
	}
}

func repeat(v any, n int) []any {
	all := make([]any, n)
	for i := range all {
		all[i] = v
	}
	return all
}

func TestNewAccepts(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(file, model object)
	}{
		{"as is", nil},
		{"old merges", func(_, m object) { m["merges"] = []string{"h e", "l l", "he ll", "hell o", "Ġ w"} }},
		{"no type", func(_, m object) { delete(m, "type") }},
		{"no normalizer", func(f, _ object) { f["normalizer"] = nil }},
		{"normalizers", func(f, _ object) {
			f["normalizer"] = object{"type": "Sequence", "normalizers": []any{object{"type": "NFC"}, object{"type": "NFC"}}}
		}},
		{"no added tokens", func(f, _ object) { delete(f, "added_tokens") }},
		{"empty added token", func(f, _ object) { f["added_tokens"] = []any{added(262, "")} }},
		{"post-processor", func(f, _ object) { f["post_processor"] = object{"type": "TemplateProcessing"} }},
		{"decoders", func(f, _ object) {
			f["decoder"] = object{"type": "Sequence", "decoders": []any{object{"type": "ByteLevel"}}}
		}},
		{"unknown token", func(_, m object) { m["unk_token"], m["byte_fallback"] = "hello", true }},
		{"odd tokens", func(_, m object) {
			m["vocab"].(object)["中"], m["vocab"].(object)["文"], m["vocab"].(object)["中文"] = 262, 263, 264
			m["merges"] = append(m["merges"].([]any), "中 文")
		}},
		{"nested sequence", func(f, _ object) { f["pre_tokenizer"] = sequence(f["pre_tokenizer"]) }},
		{"other pattern", func(f, _ object) { f["pre_tokenizer"] = sequence(split(gpt2Pattern), byteLevel(false, false)) }},
		{"byte level alone", func(f, _ object) { f["pre_tokenizer"] = byteLevel(false, true) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			tok := mustNew(t, smallFile(t, c.change))
			checkIDs(t, tok, "hello world", 259, 260, 'o', 'r', 'l', 'd')
		})
	}
}

func TestNewReadsEscapes(t *testing.T) {
	var indented bytes.Buffer
	if err := json.Indent(&indented, smallFile(t, nil), "\r", "\t"); err != nil {
		t.Fatal(err)
	}
	escaped := strings.NewReplacer(`"he"`, `"h\u0065"`, `"Ġw"`, `"\u0120w"`, `"/"`, `"\/"`).Replace(indented.String())
	tok := mustNew(t, []byte(escaped))
	checkIDs(t, tok, "hello world/", 259, 260, 'o', 'r', 'l', 'd', '/')
}

func checkIDs(t *testing.T, tok *Tokenizer, text string, want ...int32) {
	t.Helper()
	if got := tok.Encode(text); !slices.Equal(got, want) {
		t.Errorf("Encode(%q) = %v, want %v", text, got, want)
	}
}

// everythingFile uses every part of a file that is read.
func everythingFile(tb testing.TB) []byte {
	tb.Helper()
	return smallFile(tb, func(file, model object) {
		model["merges"] = []any{"h e", []string{"l", "l"}}
		model["ignore_merges"] = true
		model["vocab"].(object)["中"] = 262
		file["pre_tokenizer"] = sequence(split(`\d`), byteLevel(true, true))
		file["added_tokens"] = []any{
			added(263, "<a>", "special", "lstrip"),
			added(264, "\u00e9 ", "normalized", "rstrip"),
			added(300, "ab", "single_word"),
		}
	})
}

// exercise uses a tokenizer in every way.
func exercise(tok *Tokenizer) {
	const text = "<a> hello  w\u00f6rld \u00e9 a b ab\r\n\n 12 \xff"
	plain, _ := tok.EncodeWithin(text, nil, 0)
	tok.Decode(append(tok.Encode(text), plain...), true)
}

// TestNewSurvivesDamage changes a few bytes of a good file at a time. Random
// damage as FuzzNew does it seldom leaves JSON; this does.
func TestNewSurvivesDamage(t *testing.T) {
	good := everythingFile(t)
	exercise(mustNew(t, good))
	rng := rand.New(rand.NewPCG(11, 12))
	accepted := 0
	n := 4000
	if testing.Short() {
		n = 500
	}
	for range n {
		data := slices.Clone(good)
		for range 1 + rng.IntN(2) {
			at := rng.IntN(len(data) - 8)
			switch rng.IntN(4) {
			case 0:
				data[at] = `"\{}[]:,0179-ae `[rng.IntN(16)]
			case 1:
				data = slices.Delete(data, at, at+1+rng.IntN(6))
			case 2:
				data = slices.Insert(data, at, data[at:at+1+rng.IntN(7)]...)
			case 3: // swap values or keys at large
				from := rng.IntN(len(data) - 8)
				copy(data[at:at+4], data[from:])
			}
		}
		if tok, err := New(data); err == nil {
			accepted++
			exercise(tok)
		}
	}
	if accepted == 0 || accepted == n {
		t.Errorf("%d of %d damaged files were accepted; the damage tests nothing", accepted, n)
	}
}

// FuzzNew reads broken files without panic, and accepted ones encode
// and decode without panic.
func FuzzNew(f *testing.F) {
	f.Add(smallFile(f, nil))
	f.Add(everythingFile(f))
	f.Add([]byte(`{"model":{"vocab":{"\ud83d\ude00":0},"merges":[]}}`))
	f.Fuzz(func(_ *testing.T, data []byte) {
		if tok, err := New(data); err == nil {
			exercise(tok)
		}
	})
}

func TestPrefixIsThePostProcessors(t *testing.T) {
	special := object{"SpecialToken": object{"id": "<s>", "type_id": 0}}
	text := object{"Sequence": object{"id": "A", "type_id": 0}}
	template := func(ids []int, single ...any) object {
		return object{"type": "TemplateProcessing", "single": single, "pair": []any{}, "special_tokens": object{"<s>": object{"id": "<s>", "ids": ids, "tokens": []string{"<s>"}}}}
	}
	for name, c := range map[string]struct {
		post any
		want []int32
		err  string
	}{
		"none":     {nil, nil, ""},
		"bytes":    {object{"type": "ByteLevel", "trim_offsets": false}, nil, ""},
		"template": {template([]int{1, 2}, special, text, special), []int32{1, 2}, ""},
		"twice":    {template([]int{1}, special, special, text), []int32{1, 1}, ""},
		"behind":   {template([]int{1}, text, special), nil, ""},
		"sequence": {object{"type": "Sequence", "processors": []any{object{"type": "ByteLevel"}, template([]int{3}, special, text)}}, []int32{3}, ""},
		"no ids":   {template(nil, special, text), nil, "no ids"},
		"no token": {template([]int{1 << 20}, special, text), nil, "no id 1048576"},
	} {
		t.Run(name, func(t *testing.T) {
			tok, err := New(smallFile(t, func(file, _ object) { file["post_processor"] = c.post }))
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), "post_processor") || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want one about %s", err, c.err)
				}
				return
			}
			if err != nil || !slices.Equal(tok.Prefix(), c.want) {
				t.Errorf("%v, %v, want %v", tok.Prefix(), err, c.want)
			}
		})
	}
}
