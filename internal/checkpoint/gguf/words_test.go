package gguf

import (
	"encoding/json"
	"testing"

	"github.com/foretoken/foretoken/internal/checkpoint/gguf/gguftest"
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
