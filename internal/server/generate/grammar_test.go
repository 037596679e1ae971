package generate

import (
	"testing"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/grammar"
	"github.com/foretoken/foretoken/internal/dialogue"
)

// TestCallsHaveUniqueKeys checks similar grammars: compiled grammars are found by
// their keys.
func TestCallsHaveUniqueKeys(t *testing.T) {
	tool := func(name, schema string) chat.Tool {
		list, err := chat.DecodeTools([]byte(`[{"type": "function", "function": {"name": "` + name + `", "parameters": ` + schema + `}}]`))
		if err != nil {
			t.Fatal(err)
		}
		return list[0]
	}
	calls := func(parallel bool, tools ...chat.Tool) grammar.Key {
		source, err := (&Request{Tools: tools, Parallel: parallel}).calls(tools, dialogue.JSONCalls)
		if err != nil {
			t.Fatal(err)
		}
		return source.Key()
	}
	seen := map[grammar.Key]string{}
	for _, f := range []struct {
		what string
		key  grammar.Key
	}{
		{"one tool", calls(false, tool("a", `{"type":"object"}`))},
		{"the same tool, several times", calls(true, tool("a", `{"type":"object"}`))},
		{"two tools", calls(false, tool("a", `{"type":"object"}`), tool("b", `{"type":"object"}`))},
	} {
		if other, ok := seen[f.key]; ok {
			t.Errorf("%s and %s have the same key", f.what, other)
		}
		seen[f.key] = f.what
	}
}
