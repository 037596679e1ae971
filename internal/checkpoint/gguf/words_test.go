package gguf

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/checkpoint/gguf/gguftest"
	"github.com/foretoken/foretoken/internal/filetest"
)

// TestConfigSaysWhatBeginsAText has the token of a file that begins every text, and whether it
// does.
func TestConfigSaysWhatBeginsAText(t *testing.T) {
	for _, add := range []any{nil, false, true} {
		var w gguftest.File
		w.Set(tokensKey, []string{"a", "<s>"})
		w.Set("tokenizer.ggml.bos_token_id", uint32(1))
		if add != nil {
			w.Set("tokenizer.ggml.add_bos_token", add)
		}
		text, err := opened(t, write(t, "m.gguf", w.Bytes())).Folder(Words{})["tokenizer_config.json"]()
		var got struct {
			BOS string `json:"bos_token"`
			Add *bool  `json:"add_bos_token"`
		}
		if err == nil {
			err = json.Unmarshal(text, &got)
		}
		if err != nil || got.BOS != "<s>" || (got.Add == nil) != (add == nil) || got.Add != nil && *got.Add != add.(bool) {
			t.Errorf("%v: %s, %v", add, text, err)
		}
	}
}

// vocabularyOfCharacters is the parts of a tokenizer.json that a GGUF file keeps.
type vocabularyOfCharacters struct {
	Normalizer, Decoder any
	Added               []struct {
		ID      int
		Content string
		Special bool
	} `json:"added_tokens"`
	Model struct {
		Vocab  map[string]int
		Merges []any
	}
}

// TestTokenizerOfCharactersComesBack writes a tokenizer as llama.cpp does, with spaces in tokens of the user's kind, and
// reads it again.
func TestTokenizerOfCharactersComesBack(t *testing.T) {
	z, err := gzip.NewReader(bytes.NewReader(filetest.Read(t, "../../tokenizer/testdata/characters.json.gz")))
	if err != nil {
		t.Fatal(err)
	}
	var want, got vocabularyOfCharacters
	if err := json.NewDecoder(z).Decode(&want); err != nil {
		t.Fatal(err)
	}
	tokens := make([]string, len(want.Model.Vocab))
	types := make([]int32, len(tokens))
	for text, id := range want.Model.Vocab {
		if tokens[id], types[id] = text, 1; strings.HasPrefix(text, "<0x") && len(text) == 6 {
			types[id] = 6
		}
	}
	double := want.Model.Vocab["▁▁"]
	want.Added = append(want.Added, want.Added[0])
	last := &want.Added[len(want.Added)-1]
	last.ID, last.Content, last.Special = double, "▁▁", false
	tokens[double] = "  "
	for _, a := range want.Added {
		if types[a.ID] = tokenUser; a.Special {
			types[a.ID] = tokenControl
		}
	}
	merges := make([]string, len(want.Model.Merges))
	for i, m := range want.Model.Merges {
		pair := m.([]any)
		merges[i] = pair[0].(string) + " " + pair[1].(string)
		want.Model.Merges[i] = merges[i]
	}
	var w gguftest.File
	w.Set("tokenizer.ggml.model", "gemma4")
	w.Set(tokensKey, tokens)
	w.Set("tokenizer.ggml.token_type", types)
	w.Set("tokenizer.ggml.merges", merges)
	text, err := opened(t, write(t, "m.gguf", w.Bytes())).Folder(Words{})["tokenizer.json"]()
	if err != nil {
		t.Fatal(err)
	}
	filetest.Decode(t, text, &got)
	byID := func(v *vocabularyOfCharacters) map[int]any {
		m := map[int]any{}
		for _, a := range v.Added {
			m[a.ID] = a
		}
		v.Added = nil
		return m
	}
	if a, b := byID(&got), byID(&want); !reflect.DeepEqual(a, b) {
		t.Errorf("added tokens %v, want %v", a, b)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %.300s", text)
	}
}
