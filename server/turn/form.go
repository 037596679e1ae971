package turn

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/grammar"
)

// JSONObject is the form of any JSON object.
func JSONObject() *foretoken.Format {
	return &foretoken.Format{Name: "object", Source: grammar.Object()}
}

// JSONSchema is the form of the JSON values that a schema allows.
func JSONSchema(schema []byte) *foretoken.Format {
	return &foretoken.Format{Name: "schema " + string(schema), Source: grammar.Schema(schema)}
}

// Expression is the form of the texts that a regular expression matches.
func Expression(expr string) *foretoken.Format {
	return &foretoken.Format{Name: "expression " + expr, Source: grammar.Regexp(expr)}
}

// Choice is the form of a few texts.
func Choice(texts []string) *foretoken.Format {
	return &foretoken.Format{Name: "choice " + strings.Join(texts, "\x00"), Source: grammar.Choice(texts...)}
}

// The marks of a tool call, as templates teach them.
const (
	callBegin = "<tool_call>"
	callEnd   = "</tool_call>"
)

// form is what the answer is held to, nil for nothing: the form that was asked for, calls
// that must be made, and the arguments of calls whose schemas are binding.
func (a *Ask) form() (*foretoken.Format, error) {
	if len(a.Tools) == 0 || a.Calls == CallNone {
		return a.Form, nil
	}
	tools := a.Tools
	if a.Calls == CallNamed {
		at := slices.IndexFunc(tools, func(t chat.Tool) bool { return t.Name() == a.Named })
		if at < 0 {
			return nil, Invalid("tool_choice", "there is no tool %q", a.Named)
		}
		tools = tools[at : at+1]
	}
	if a.Calls == CallAuto && !a.Strict {
		if a.Form != nil {
			return nil, NotSupported("response_format", "a form of the answer beside tools: it would rule out calls; use tool_choice none, or strict tools")
		}
		return nil, nil
	}
	var names strings.Builder
	var either []grammar.Source
	for _, t := range tools {
		begin, arguments, err := callParts(t)
		if err != nil {
			return nil, Invalid("tools", "%s: %v", t.Name(), err)
		}
		names.WriteString(begin)
		names.Write(arguments)
		either = append(either, grammar.Sequence(grammar.Literal(begin), grammar.Schema(arguments), grammar.Literal("}")))
	}
	call := grammar.Sequence(grammar.Literal(callBegin+"\n"), grammar.Either(either...), grammar.Literal("\n"+callEnd))
	most := 1
	if a.Parallel && a.Calls != CallNamed {
		most = 0
	}
	more := grammar.Sequence(call, grammar.Repeat(grammar.Sequence(grammar.Literal("\n"), call), 0, most-1))
	if most == 1 {
		more = call
	}
	f := &foretoken.Format{Name: "calls " + names.String(), Source: more}
	if a.Calls == CallAuto {
		f.Name = "text or " + f.Name
		text := grammar.TextWithout(callBegin)
		if a.Form != nil {
			f.Name += " after " + a.Form.Name
			f.Source = grammar.Either(a.Form.Source, more)
		} else {
			f.Source = grammar.Sequence(text, grammar.Repeat(more, 0, 1))
		}
	}
	if most != 1 {
		f.Name = "several " + f.Name
	}
	return f, nil
}

// callParts are how a call of a tool begins in an answer, and the schema of its arguments.
func callParts(t chat.Tool) (begin string, arguments []byte, err error) {
	name, err := json.Marshal(t.Name())
	if arguments = t.Parameters(); arguments == nil {
		arguments = []byte(`{"type": "object"}`)
	}
	return `{"name": ` + string(name) + `, "arguments": `, arguments, err
}
