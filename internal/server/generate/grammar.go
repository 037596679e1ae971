package generate

import (
	"regexp/syntax"
	"slices"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/grammar"
	"github.com/foretoken/foretoken/internal/private"
)

// CheckExpression returns the syntax error of an expression, or nil.
func CheckExpression(expr string) error {
	_, err := syntax.Parse(expr, syntax.Perl)
	return err
}

// grammar is the grammar of the answer, zero for none: the requested one, and that of the
// calls that must be made or whose arguments are constrained.
func (r *Request) grammar(m *foretoken.Model, p *foretoken.Prompt) (grammar.Source, error) {
	if len(r.Tools) == 0 || r.Calls == CallNone {
		return r.Grammar, nil
	}
	tools := r.Tools
	if r.Calls == CallNamed {
		at := slices.IndexFunc(tools, func(t chat.Tool) bool { return t.Name() == r.Named })
		if at < 0 {
			return grammar.Source{}, Invalid("tool_choice", "there is no tool %q", r.Named)
		}
		tools = tools[at : at+1]
	}
	if r.Calls == CallAuto && !r.Strict && !r.Constrained && len(r.Inputs) == 0 {
		if !r.Grammar.IsZero() {
			return grammar.Source{}, NotSupported("response_format", "a response format cannot be combined with tools, because it excludes tool calls: set tool_choice to none, or use strict tools")
		}
		return grammar.Source{}, nil
	}
	syntax := private.CallSyntax(m)
	calls, err := r.calls(tools, syntax)
	if err != nil {
		return grammar.Source{}, err
	}
	switch {
	case r.Calls != CallAuto:
		return grammar.Sequence(grammar.Literal(private.Apart(p, syntax.Lead)), calls), nil
	case !r.Grammar.IsZero():
		return grammar.Either(r.Grammar, calls), nil
	}
	text := grammar.TextWithout(syntax.Marker())
	return grammar.Sequence(text, grammar.Repeat(calls, 0, 1)), nil
}
