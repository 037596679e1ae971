package generate

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/grammar"
	"github.com/foretoken/foretoken/internal/dialogue"
)

// The parser reads every drawn call of a tool whose input is a text, in either syntax of calls, as
// a text of the tool's grammar.
func TestInputsAreTextsOfTheirGrammars(t *testing.T) {
	tools, err := chat.DecodeTools([]byte(`[{"type": "function", "function": {"name": "patch", "parameters": {"type": "object",
		"properties": {"input": {"type": "string"}}, "required": ["input"], "additionalProperties": false}}}]`))
	if err != nil {
		t.Fatal(err)
	}
	lines, err := grammar.Lark("start: \"begin\" LF line~1..3 \"end\" LF?\nline: (\"+\" | \"-\") /[^\\n]{0,20}/ LF\n%import common.LF")
	if err != nil {
		t.Fatal(err)
	}
	v, tokens := vocab(t)
	r := rand.New(rand.NewPCG(3, 4))
	for i, constraint := range []grammar.Source{lines, grammar.Regexp(`[a-c"\n</]{1,9}`), grammar.Regexp(`é*`)} {
		plain, err := grammar.Compile(constraint, v)
		if err != nil {
			t.Fatal(err)
		}
		for _, taught := range []dialogue.CallSyntax{dialogue.Teaches(caller), dialogue.JSONCalls, dialogue.Teaches(inLines), dialogue.Teaches(tight), dialogue.Teaches(fenced), dialogue.Teaches(marked)} {
			a := &Request{Tools: tools, Inputs: map[string]grammar.Source{"patch": constraint}, Parallel: true}
			source, err := a.calls(tools, taught)
			if err != nil {
				t.Fatal(err)
			}
			g, err := grammar.Compile(source, v)
			if err != nil {
				t.Fatal(err)
			}
			drawn := 0
			for range 40 {
				text, ok := draw(r, g, tokens)
				if !ok {
					continue
				}
				drawn++
				p := dialogue.NewParser(dialogue.ParserOptions{Tools: tools, ToolFormat: taught.Reads()})
				var answer chat.Answer
				answer.Add(p.Write(text))
				answer.Add(p.Close())
				if answer.Content() != "" || len(answer.ToolCalls) == 0 || !strings.HasPrefix(text, taught.Begin+taught.Open+"patch"+taught.Named) {
					t.Fatalf("%d, %d: %q is %q with %d calls", i, taught.Format, text, answer.Content(), len(answer.ToolCalls))
				}
				for _, call := range answer.ToolCalls {
					said, _ := call.Arguments.Text(InputName)
					if !accepts(plain, said, len(tokens)-1) {
						t.Errorf("%d, %d: %q has the input %q", i, taught.Format, text, said)
					}
				}
			}
			if drawn < 10 {
				t.Errorf("%d, %d: only %d texts", i, taught.Format, drawn)
			}
		}
	}
}

// Tools beside one with a grammar may have schemas that cannot be compiled, unless a call is
// required or they are strict.
func TestSchemasBesideInputsMayBeAnything(t *testing.T) {
	tools, err := chat.DecodeTools([]byte(`[{"type": "function", "function": {"name": "odd", "parameters": {"type": "object", "properties": {"a": {"contains": {}}}}}},
		{"type": "function", "function": {"name": "word", "parameters": {"type": "object", "properties": {"input": {"type": "string"}}}}}]`))
	if err != nil {
		t.Fatal(err)
	}
	v, _ := vocab(t)
	for _, c := range []struct {
		a  Request
		ok bool
	}{{Request{}, true}, {Request{Constrained: true}, true}, {Request{Strict: true}, false}, {Request{Calls: CallRequired}, false}} {
		a := c.a
		a.Tools, a.Inputs = tools, map[string]grammar.Source{"word": grammar.Regexp("[ab]")}
		source, err := a.calls(tools, dialogue.JSONCalls)
		if err == nil {
			_, err = grammar.Compile(source, v)
		}
		if c.ok != (err == nil) {
			t.Errorf("strict %v, calls %d: %v", a.Strict, a.Calls, err)
		}
	}
}
