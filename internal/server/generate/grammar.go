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

// JSONObject is the grammar of any JSON object.
func JSONObject() *foretoken.Format {
	return &foretoken.Format{Name: "object", Source: grammar.Object()}
}

// JSONSchema is the grammar of the JSON values that a schema allows.
func JSONSchema(schema []byte) *foretoken.Format {
	return &foretoken.Format{Name: grammarName("schema", string(schema)), Source: grammar.Schema(schema)}
}

// Expression is the grammar of the texts that a regular expression matches.
func Expression(expr string) *foretoken.Format {
	return &foretoken.Format{Name: grammarName("expression", expr), Source: grammar.Regexp(expr)}
}

// CheckExpression returns the syntax error of an expression, or nil.
func CheckExpression(expr string) error {
	_, err := syntax.Parse(expr, syntax.Perl)
	return err
}

// Lark is a grammar in Lark's notation. An error names what of it is not supported.
func Lark(definition string) (*foretoken.Format, error) {
	source, err := grammar.Lark(definition)
	return &foretoken.Format{Name: grammarName("lark", definition), Source: source}, err
}

// Choice is the grammar of a list of texts.
func Choice(texts []string) *foretoken.Format {
	return &foretoken.Format{Name: grammarName("choice", texts...), Source: grammar.Choice(texts...)}
}

// grammarName is the name of a grammar of a kind, made of parts. It is unique, since it has the
// parts' lengths: compiled grammars are cached by their names.
func grammarName(kind string, parts ...string) string {
	var b strings.Builder
	b.WriteString(kind)
	for _, p := range parts {
		b.WriteString(" " + strconv.Itoa(len(p)) + ":" + p)
	}
	return b.String()
}

// grammar is the grammar of the answer, nil for none: the one that was asked for, and that of the
// calls that must be made or whose arguments are constrained. thinking says that the answer begins
// inside a think block.
func (r *Request) grammar(m *foretoken.Model, thinking bool) (*foretoken.Format, error) {
	if len(r.Tools) == 0 || r.Calls == CallNone {
		return r.Grammar, nil
	}
	tools := r.Tools
	if r.Calls == CallNamed {
		at := slices.IndexFunc(tools, func(t chat.Tool) bool { return t.Name() == r.Named })
		if at < 0 {
			return nil, Invalid("tool_choice", "there is no tool %q", r.Named)
		}
		tools = tools[at : at+1]
	}
	if r.Calls == CallAuto && !r.Strict && !r.Constrained && len(r.Inputs) == 0 {
		if r.Grammar != nil {
			return nil, NotSupported("response_format", "a format of the answer beside tools: it would rule out calls; use tool_choice none, or strict tools")
		}
		return nil, nil
	}
	calls, name, err := r.calls(tools, m.ToolFormat())
	if err != nil {
		return nil, err
	}
	switch {
	case r.Calls != CallAuto && thinking:
		// Templates put an empty line after a think block.
		return &foretoken.Format{Name: grammarName("thought and", name), Source: grammar.Sequence(grammar.Literal("\n\n"), calls)}, nil
	case r.Calls != CallAuto:
		return &foretoken.Format{Name: name, Source: calls}, nil
	case r.Grammar != nil:
		return &foretoken.Format{Name: grammarName("grammar or", r.Grammar.Name, name), Source: grammar.Either(r.Grammar.Source, calls)}, nil
	}
	text := grammar.TextWithout(callBegin)
	return &foretoken.Format{Name: grammarName("text or", name), Source: grammar.Sequence(text, grammar.Repeat(calls, 0, 1))}, nil
}
