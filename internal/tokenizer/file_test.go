package tokenizer

import (
	"maps"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
)

// object is JSON to be changed by a test.
type object = map[string]any

// smallFile returns a tokenizer.json with all bytes, a few merges and no added
// tokens, after change has been applied to it. Token ids: bytes are their own
// ids; "he" 256, "ll" 257, "hell" 258, "hello" 259, " w" 260, "ello" 261.
func smallFile(tb testing.TB, change func(file, model object)) []byte {
	tb.Helper()
	vocab := object{}
	for r, b := range byteOf {
		if b >= 0 {
			vocab[string(rune(r))] = int(b)
		}
	}
	maps.Copy(vocab, object{"he": 256, "ll": 257, "hell": 258, "hello": 259, "Ġw": 260, "ello": 261})
	model := object{
		"type":  "BPE",
		"vocab": vocab,
		"merges": []any{
			[]string{"h", "e"},
			[]string{"l", "l"},
			[]string{"he", "ll"},
			[]string{"hell", "o"},
			[]string{"Ġ", "w"},
		},
	}
	file := object{
		"version":       "1.0",
		"truncation":    nil,
		"added_tokens":  []any{},
		"normalizer":    object{"type": "NFC"},
		"pre_tokenizer": sequence(split(qwen35Pattern), byteLevel(false, false)),
		"decoder":       object{"type": "ByteLevel"},
		"model":         model,
	}
	if change != nil {
		change(file, model)
	}
	return filetest.Encode(tb, file)
}

func sequence(steps ...any) object {
	return object{"type": "Sequence", "pretokenizers": steps}
}

func split(regex string) object {
	return object{"type": "Split", "pattern": object{"Regex": regex}, "behavior": "Isolated", "invert": false}
}

func byteLevel(prefixSpace, useRegex bool) object {
	return object{"type": "ByteLevel", "add_prefix_space": prefixSpace, "use_regex": useRegex}
}

// added returns an entry of added_tokens with the given flags set.
func added(id int, content string, flags ...string) object {
	token := object{
		"id": id, "content": content,
		"single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": false,
	}
	for _, flag := range flags {
		token[flag] = true
	}
	return token
}
