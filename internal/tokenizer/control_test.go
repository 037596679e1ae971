package tokenizer

import (
	"slices"
	"testing"
)

func TestAddedListsControlTokens(t *testing.T) {
	tok := tiny(t)
	list := tok.Added()
	for _, token := range []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</tool_call>"} {
		if id, _ := tok.ID(token); !slices.Contains(list, id) {
			t.Errorf("%s, id %d, is not among %v", token, id, list)
		}
	}
	if id, _ := tok.ID(" the"); slices.Contains(list, id) || !slices.IsSorted(list) {
		t.Errorf("%v", list)
	}
}
