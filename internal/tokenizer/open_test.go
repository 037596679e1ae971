package tokenizer

import (
	"slices"
	"testing"
)

// TestEncodeOpenNeedsNoRest cuts texts at every place: EncodeOpen of the first part
// returns the first ids of the whole.
func TestEncodeOpenNeedsNoRest(t *testing.T) {
	tok := tiny(t)
	for _, text := range []string{
		`{"name": "Lily", "estimatedDeliveryDate": "2024-01-31", "tags": ["red", "blue"]}`,
		"<tool_call>\n{\"name\": \"weather\", \"arguments\": {}}\n</tool_call>\n",
		"She said: don't go! Tausend Grüße, 日本語. x = 3.14159;\nfor i in range(10):\n",
	} {
		whole := tok.Encode(text)
		known := 0
		for cut := range text {
			ids := tok.EncodeOpen(text[:cut])
			if len(ids) > len(whole) || !slices.Equal(ids, whole[:len(ids)]) {
				t.Errorf("%q, then %q: %d, want the first of %d", text[:cut], text[cut:], ids, whole)
			}
			known = max(known, len(ids))
		}
		if known < len(whole)/2 {
			t.Errorf("%q: at most %d of %d ids are known before its end", text, known, len(whole))
		}
	}
}

// TestEncodeOpenLeavesLinesOpen has white space at the end that one more line end makes one word with
// the line end before it.
func TestEncodeOpenLeavesLinesOpen(t *testing.T) {
	tok := mustNew(t, smallFile(t, func(_, model object) {
		model["vocab"].(object)["ĊĠ"] = 262 // a line end and a space
		model["merges"] = append(model["merges"].([]any), []string{"Ċ", "Ġ"})
	}))
	checkIDs(t, tok, "x\n \n", 'x', 262, '\n')
	for text, want := range map[string][]int32{"x\n ": {'x'}, "x\r\n \t": {'x'}, "x\n": {'x'}, "x y ": {'x', ' ', 'y'}, "\n ": {}} {
		if got := tok.EncodeOpen(text); !slices.Equal(got, want) {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
