package turn

import (
	"regexp/syntax"
	"slices"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/grammar"
)

// CheckExpression says what is wrong with an expression, nil if nothing is that can be told
// without compiling it.
func CheckExpression(expr string) error {
	_, err := syntax.Parse(expr, syntax.Perl)
	return err
}

// form is the grammar of the answer, zero for none: the one that was asked for, calls
// that must be made, and the arguments of calls whose schemas are binding. Thinking says that
// the answer begins inside of a think block.
func (a *Ask) form(m *foretoken.Model, thinking bool) (grammar.Source, error) {
	if len(a.Tools) == 0 || a.Calls == CallNone {
		return a.Form, nil
	}
	tools := a.Tools
	if a.Calls == CallNamed {
		at := slices.IndexFunc(tools, func(t chat.Tool) bool { return t.Name() == a.Named })
		if at < 0 {
			return grammar.Source{}, Invalid("tool_choice", "there is no tool %q", a.Named)
		}
		tools = tools[at : at+1]
	}
	if a.Calls == CallAuto && !a.Strict && !a.Held && len(a.Inputs) == 0 {
		if !a.Form.IsZero() {
			return grammar.Source{}, NotSupported("response_format", "a form of the answer beside tools: it would rule out calls; use tool_choice none, or strict tools")
		}
		return grammar.Source{}, nil
	}
	calls, err := a.calls(tools, m.ToolFormat())
	if err != nil {
		return grammar.Source{}, err
	}
	switch {
	case a.Calls != CallAuto && thinking:
		// What templates put behind a think block.
		return grammar.Sequence(grammar.Literal("\n\n"), calls), nil
	case a.Calls != CallAuto:
		return calls, nil
	case !a.Form.IsZero():
		return grammar.Either(a.Form, calls), nil
	}
	text := grammar.TextWithout(callBegin)
	return grammar.Sequence(text, grammar.Repeat(calls, 0, 1)), nil
}
