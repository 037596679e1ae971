package dialogue

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/dialogue/values"
	"github.com/foretoken/foretoken/internal/jinja"
)

// Template is a checkpoint's chat template. It does not change and may be used
// by several goroutines at once.
type Template struct {
	template *jinja.Template
	tags     ThinkTags // of its think blocks

	// Found out when they are first wanted:
	shape    func() shape // of messages with tool calls
	thinking func() Thinking
}

// NewTemplate parses the Jinja source of a template, which is not trusted: its
// time and memory are bounded.
func NewTemplate(src string) (*Template, error) {
	t, err := jinja.Parse(src)
	if err != nil {
		return nil, fmt.Errorf("chat: template: %w", err)
	}
	out := &Template{template: t, tags: tagsOf(src)}
	out.shape, out.thinking = sync.OnceValue(out.findShape), sync.OnceValue(out.findThinking)
	return out, nil
}

// Input is the input of a template. Text in messages, tools and variables is untrusted.
type Input struct {
	Messages []chat.Message
	Tools    []chat.Tool // that the model may call
	// AddGenerationPrompt requests the opening of the assistant's turn at the
	// end.
	AddGenerationPrompt bool
	// Variables are further ones of the template, such as enable_thinking,
	// preserve_thinking or reasoning_effort, with values that encoding/json can write. A
	// json.RawMessage keeps the order of its keys.
	Variables map[string]any
	// BOSToken and EOSToken are the texts of the tokenizer's tokens, empty if it
	// has none. They are trusted like the template.
	BOSToken, EOSToken string
	// Now is the clock for templates that ask for the time. Default time.Now.
	Now func() time.Time

	steps int // maximum work of a rendering; 0: the default of package jinja
}

// Rendered is a prompt, and the ranges of it that the template wrote. Only there the
// spellings of control tokens stand for them; the rest is untrusted text.
type Rendered struct {
	Text string
	// Trusted are the ranges of Text, [from, to) in bytes, in order and apart, that the
	// template wrote.
	Trusted [][2]int
}

// RenderError is the error of a template that cannot render a conversation. The template itself
// was read without errors.
type RenderError struct{ Err error }

func (e *RenderError) Error() string { return "chat: template: " + e.Err.Error() }

// Unwrap returns the error of the template.
func (e *RenderError) Unwrap() error { return e.Err }

// VariableError is the error of a variable that a template cannot have.
type VariableError struct {
	Name string
	Err  error
}

func (e *VariableError) Error() string {
	return fmt.Sprintf("chat: template variable %q: %v", e.Name, e.Err)
}

// Unwrap returns the reason.
func (e *VariableError) Unwrap() error { return e.Err }

// errTaken is the reason to refuse a variable of a name that Render sets.
var errTaken = errors.New("the name is reserved: use another name")

// Render returns the prompt. An error is a [RenderError] or a [VariableError]. If the template
// refuses the conversation, the error has its words.
func (t *Template) Render(in Input) (Rendered, error) {
	var s shape
	if slices.ContainsFunc(in.Messages, func(m chat.Message) bool { return len(m.ToolCalls) > 0 }) {
		s = t.shape()
	}
	return t.render(in, s)
}

// render is Render with messages in the given shape.
func (t *Template) render(in Input, s shape) (Rendered, error) {
	vars := &jinja.Map{}
	messages := make([]jinja.Value, len(in.Messages))
	for i := range in.Messages {
		messages[i] = values.Message(&in.Messages[i], s.text, s.null)
	}
	vars.Set("messages", jinja.List(messages))
	vars.Set("tools", jinja.None())
	if len(in.Tools) > 0 {
		tools := make([]jinja.Value, len(in.Tools))
		for i := range in.Tools {
			tools[i] = jinja.Dict(*values.Tool(&in.Tools[i]))
		}
		vars.Set("tools", jinja.List(tools))
	}
	vars.Set("documents", jinja.None())
	vars.Set("add_generation_prompt", jinja.Bool(in.AddGenerationPrompt))
	for name, token := range map[string]string{"bos_token": in.BOSToken, "eos_token": in.EOSToken} {
		if token != "" {
			vars.Set(name, jinja.Trusted(token))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(in.Variables)) {
		if _, taken := vars.Get(name); taken {
			return Rendered{}, &VariableError{name, errTaken}
		}
		v, err := variable(in.Variables[name])
		if err != nil {
			return Rendered{}, &VariableError{name, err}
		}
		vars.Set(name, v)
	}
	out, err := t.template.Render(vars, jinja.Options{Now: in.Now, Limits: jinja.Limits{Steps: in.steps}})
	if err != nil {
		return Rendered{}, &RenderError{err}
	}
	return Rendered(out), nil
}

// variable is a value for templates, by its JSON.
func variable(v any) (jinja.Value, error) {
	if v, ok := v.(jinja.Value); ok { // a caller in this module has decoded it already
		return v, nil
	}
	text, err := json.Marshal(v)
	if err != nil {
		return jinja.Value{}, err
	}
	return jinja.DecodeJSON(text)
}
