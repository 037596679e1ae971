package generate

import (
	"regexp/syntax"
	"slices"
	"strconv"
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
	return &foretoken.Format{Name: formName("schema", string(schema)), Source: grammar.Schema(schema)}
}

// Expression is the form of the texts that a regular expression matches.
func Expression(expr string) *foretoken.Format {
	return &foretoken.Format{Name: formName("expression", expr), Source: grammar.Regexp(expr)}
}

// CheckExpression says what is wrong with an expression, nil if nothing is that can be told
// without compiling it.
func CheckExpression(expr string) error {
	_, err := syntax.Parse(expr, syntax.Perl)
	return err
}

// Lark is the form of the texts of a grammar in Lark's notation. An error says what of it
// cannot be had.
func Lark(definition string) (*foretoken.Format, error) {
	source, err := grammar.Lark(definition)
	return &foretoken.Format{Name: formName("lark", definition), Source: source}, err
}

// Choice is the form of a few texts.
func Choice(texts []string) *foretoken.Format {
	return &foretoken.Format{Name: formName("choice", texts...), Source: grammar.Choice(texts...)}
}

// formName is the name of a form made of parts. No other kind or parts have the same one, whatever
// they contain: the parts' lengths are in it.
func formName(kind string, parts ...string) string {
	var b strings.Builder
	b.WriteString(kind)
	for _, p := range parts {
		b.WriteString(" " + strconv.Itoa(len(p)) + ":" + p)
	}
	return b.String()
}

// form is what the answer is held to, nil for nothing: the form that was asked for, calls
// that must be made, and the arguments of calls whose schemas are binding. Thinking says that
// the answer begins inside of a think block.
func (a *Request) form(m *foretoken.Model, thinking bool) (*foretoken.Format, error) {
	if len(a.Tools) == 0 || a.Calls == CallNone {
		return a.Grammar, nil
	}
	tools := a.Tools
	if a.Calls == CallNamed {
		at := slices.IndexFunc(tools, func(t chat.Tool) bool { return t.Name() == a.Named })
		if at < 0 {
			return nil, Invalid("tool_choice", "there is no tool %q", a.Named)
		}
		tools = tools[at : at+1]
	}
	if a.Calls == CallAuto && !a.Strict && !a.Constrained && len(a.Inputs) == 0 {
		if a.Grammar != nil {
			return nil, NotSupported("response_format", "a form of the answer beside tools: it would rule out calls; use tool_choice none, or strict tools")
		}
		return nil, nil
	}
	calls, name, err := a.calls(tools, m.ToolFormat())
	if err != nil {
		return nil, err
	}
	switch {
	case a.Calls != CallAuto && thinking:
		// What templates put behind a think block.
		return &foretoken.Format{Name: formName("thought and", name), Source: grammar.Sequence(grammar.Literal("\n\n"), calls)}, nil
	case a.Calls != CallAuto:
		return &foretoken.Format{Name: name, Source: calls}, nil
	case a.Grammar != nil:
		return &foretoken.Format{Name: formName("form or", a.Grammar.Name, name), Source: grammar.Either(a.Grammar.Source, calls)}, nil
	}
	text := grammar.TextWithout(callBegin)
	return &foretoken.Format{Name: formName("text or", name), Source: grammar.Sequence(text, grammar.Repeat(calls, 0, 1))}, nil
}
