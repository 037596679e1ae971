package generate

import (
	"testing"

	"github.com/foretoken/foretoken/chat"
)

// TestGrammarsHaveUniqueNames checks grammars that are easily taken for one another: a name is
// what a compiled grammar is found by.
func TestGrammarsHaveUniqueNames(t *testing.T) {
	tool := func(name, schema string) chat.Tool {
		list, err := chat.DecodeTools([]byte(`[{"type": "function", "function": {"name": "` + name + `", "parameters": ` + schema + `}}]`))
		if err != nil {
			t.Fatal(err)
		}
		return list[0]
	}
	calls := func(parallel bool, tools ...chat.Tool) string {
		_, name, err := (&Request{Tools: tools, Parallel: parallel}).calls(tools, chat.ToolJSON)
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	seen := map[string]string{}
	for _, f := range []struct{ what, name string }{
		{`choice "a\0b"`, Choice([]string{"a\x00b"}).Name},
		{`choice "a" "b"`, Choice([]string{"a", "b"}).Name},
		{`choice "a" "" "b"`, Choice([]string{"a", "", "b"}).Name},
		{`choice "a 1:b"`, Choice([]string{"a 1:b"}).Name},
		{`choice ""`, Choice([]string{""}).Name},
		{`no choice`, Choice(nil).Name},
		{`expression "a"`, Expression("a").Name},
		{`schema "a"`, JSONSchema([]byte("a")).Name},
		{`object`, JSONObject().Name},
		{`schema "object"`, JSONSchema([]byte("object")).Name},
		{"one tool", calls(false, tool("a", `{"type":"object"}`))},
		{"the same tool, several times", calls(true, tool("a", `{"type":"object"}`))},
		{"two tools", calls(false, tool("a", `{"type":"object"}`), tool("b", `{"type":"object"}`))},
	} {
		if other, ok := seen[f.name]; ok {
			t.Errorf("%s and %s have the same name %q", f.what, other, f.name)
		}
		seen[f.name] = f.what
	}
}
