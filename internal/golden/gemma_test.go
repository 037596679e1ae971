package golden

import (
	"fmt"
	"slices"
	"testing"
)

// TestLoadGemma reads the fixtures of Gemma: their texts are greedy, and the arrays belong to them.
func TestLoadGemma(t *testing.T) {
	for _, name := range Gemma {
		f := Load(t, name)
		if len(f.Cases) != 3 {
			t.Fatalf("%s: %d cases", name, len(f.Cases))
		}
		for i, c := range f.Cases {
			from := len(c.Prompt)
			if !slices.Equal(c.Tokens[from:], c.Argmax[from-1:len(c.Argmax)-1]) || len(c.Tokens) != from+48 {
				t.Errorf("%s case %d: the continuation is not the argmax", name, i)
			}
			if c.ChainFirst != from-1 || len(c.Chain) != 48 || len(c.ChainMargin) != 48 || len(c.Draft1AtT) != 48 || len(c.AssistantRows) != 3 {
				t.Errorf("%s case %d: drafts of other rows", name, i)
			}
			logits := f.Array(t, fmt.Sprintf("%d.logits_last", i))
			for row := range 3 {
				if got, at := argmax(logits.Row(row)), from-3+row; got != c.Argmax[at] {
					t.Errorf("%s case %d row %d: argmax of the logits %d, of the table %d", name, i, at, got, c.Argmax[at])
				}
			}
			if x := argmax(f.Array(t, fmt.Sprintf("%d.assistant_logits_at_t", i)).Data); x != c.Draft1AtT[c.AssistantRows[0]-c.ChainFirst] {
				t.Errorf("%s case %d: draft %d", name, i, x)
			}
		}
		for _, folder := range []string{name, name + "/assistant"} {
			if c := Open(t, Dir(t, folder)); len(c.Tensors()) < 40 {
				t.Errorf("%s has %d tensors", folder, len(c.Tensors()))
			}
		}
	}
}
