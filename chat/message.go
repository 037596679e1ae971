package chat

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/foretoken/foretoken/internal/jinja"
)

// Message is one message of a conversation.
type Message struct {
	Role    string // "system", "user", "assistant", "tool"; which ones there are is up to the template
	Content Content
	// ReasoningContent is what an assistant thought before it answered. Nil
	// and empty are different to templates.
	ReasoningContent *string
	ToolCalls        []ToolCall // that an assistant made
	ToolCallID       string     // of the call that a tool message answers
	Name             string     // of the author or tool
	// Extra holds all other fields, which templates of some models read. It
	// may be nil and is not changed.
	Extra *jinja.Map
}

// roles are the words for who speaks that protocols know. A message picks one of them, and
// does not write it: templates may put control tokens together with them.
var roles = []string{"system", "developer", "user", "assistant", "tool", "function"}

// Content is what a message says: a text, or parts such as texts and images, or
// null. The zero Content is null.
type Content struct{ value jinja.Value }

// Text returns a content that is a text.
func Text(s string) Content { return Content{jinja.String(s)} }

// Text returns the content as one text, and whether it can be had as one: null
// is the empty text, parts that are all texts are joined, others cannot be.
func (c Content) Text() (string, bool) {
	switch c.value.Kind() {
	case jinja.KindString:
		return c.value.Text()
	case jinja.KindList:
		var text []byte
		for _, part := range c.value.Items() {
			v, _ := part.Map().Get("text")
			s, ok := v.Text()
			if !ok {
				return "", false
			}
			text = append(text, s...)
		}
		return string(text), true
	}
	return "", true
}

// ToolCall is a call of a tool by the model.
type ToolCall struct {
	ID        string // empty in what a Parser gives: the server gives out ids
	Name      string
	Arguments *jinja.Map // in the order they were written; nil is none
}

// ArgumentsJSON returns the arguments as a JSON object.
func (c ToolCall) ArgumentsJSON() string {
	b, err := jinja.AppendJSON(nil, jinja.Dict(c.Arguments))
	if err != nil { // decoded arguments always have a JSON form
		return "{}"
	}
	return string(b)
}

// DecodeMessages reads a JSON array of messages in the form of OpenAI's chat
// completions. Fields it does not know are kept for the template.
func DecodeMessages(data []byte) ([]Message, error) {
	v, err := jinja.DecodeJSON(data)
	if err != nil {
		return nil, fmt.Errorf("chat: messages: %w", err)
	}
	if v.Kind() != jinja.KindList {
		return nil, errors.New("chat: messages: expected a JSON array")
	}
	messages := make([]Message, len(v.Items()))
	for i, item := range v.Items() {
		if messages[i], err = messageFrom(item); err != nil {
			return nil, fmt.Errorf("chat: messages[%d]: %w", i, err)
		}
	}
	return messages, nil
}

// UnmarshalJSON reads one message; see [DecodeMessages].
func (m *Message) UnmarshalJSON(data []byte) error {
	v, err := jinja.DecodeJSON(data)
	if err == nil {
		*m, err = messageFrom(v)
	}
	if err != nil {
		return fmt.Errorf("chat: message: %w", err)
	}
	return nil
}

func messageFrom(v jinja.Value) (m Message, err error) {
	if v.Kind() != jinja.KindMap {
		return m, errors.New("expected an object with 'role' and 'content'")
	}
	for key, field := range v.Map().All() {
		null := field.Kind() == jinja.KindNone
		switch key {
		case "role":
			m.Role, err = textField(key, field)
		case "content":
			m.Content, err = contentFrom(field)
		case "reasoning_content":
			if !null {
				m.ReasoningContent = new(string)
				*m.ReasoningContent, err = textField(key, field)
			}
		case "tool_calls":
			if !null {
				m.ToolCalls, err = toolCallsFrom(field)
			}
		case "tool_call_id":
			if !null {
				m.ToolCallID, err = textField(key, field)
			}
		case "name":
			if !null {
				m.Name, err = textField(key, field)
			}
		default:
			if m.Extra == nil {
				m.Extra = &jinja.Map{}
			}
			m.Extra.Set(key, field)
		}
		if err != nil {
			return m, err
		}
	}
	if m.Role == "" {
		return m, errors.New("'role' is missing or empty")
	}
	return m, nil
}

func textField(name string, v jinja.Value) (string, error) {
	s, ok := v.Text()
	if !ok {
		return "", fmt.Errorf("'%s' must be a string", name)
	}
	return s, nil
}

func contentFrom(v jinja.Value) (Content, error) {
	switch v.Kind() {
	case jinja.KindNone:
		return Content{}, nil
	case jinja.KindString:
		return Content{v}, nil
	case jinja.KindList:
		for i, part := range v.Items() {
			kind, _ := part.Map().Get("type")
			if _, ok := kind.Text(); !ok {
				return Content{}, fmt.Errorf("'content[%d]' must be an object with a 'type'", i)
			}
		}
		return Content{v}, nil
	}
	return Content{}, errors.New("'content' must be a string, an array of parts or null")
}

func toolCallsFrom(v jinja.Value) ([]ToolCall, error) {
	if v.Kind() != jinja.KindList {
		return nil, errors.New("'tool_calls' must be an array")
	}
	calls := make([]ToolCall, len(v.Items()))
	for i, item := range v.Items() {
		var err error
		if calls[i], err = toolCallFrom(item); err != nil {
			return nil, fmt.Errorf("'tool_calls[%d]': %w", i, err)
		}
	}
	return calls, nil
}

// toolCallFrom takes a call with its name and arguments under "function", as
// OpenAI has it, or without that level.
func toolCallFrom(v jinja.Value) (c ToolCall, err error) {
	if id, ok := v.Map().Get("id"); ok && id.Kind() != jinja.KindNone {
		if c.ID, err = textField("id", id); err != nil {
			return c, err
		}
	}
	f := v.Map()
	if function, ok := f.Get("function"); ok {
		f = function.Map()
	}
	name, _ := f.Get("name")
	if c.Name, _ = name.Text(); c.Name == "" {
		return c, errors.New("expected a function with a 'name'")
	}
	arguments, _ := f.Get("arguments")
	if c.Arguments, err = argumentsFrom(arguments); err != nil {
		return c, fmt.Errorf("arguments of '%s': %w", c.Name, err)
	}
	return c, nil
}

// argumentsFrom takes an object, or the JSON text of one, which is what OpenAI
// has. Nothing, null and an empty text are no arguments.
func argumentsFrom(v jinja.Value) (*jinja.Map, error) {
	if text, ok := v.Text(); ok {
		if len(bytes.TrimSpace([]byte(text))) == 0 {
			return nil, nil
		}
		var err error
		if v, err = jinja.DecodeJSON([]byte(text)); err != nil {
			return nil, err
		}
	}
	if !slices.Contains([]jinja.Kind{jinja.KindUndefined, jinja.KindNone, jinja.KindMap}, v.Kind()) {
		return nil, errors.New("expected a JSON object or a string that holds one")
	}
	return v.Map(), nil
}

// value returns the message as templates see it.
func (m Message) value() jinja.Value {
	out := &jinja.Map{}
	out.Set("role", jinja.String(m.Role))
	if slices.Contains(roles, m.Role) {
		out.Set("role", jinja.Trusted(m.Role))
	}
	switch {
	case m.Content.value.Kind() != jinja.KindUndefined:
		out.Set("content", m.Content.value)
	case len(m.ToolCalls) > 0:
		// Clients send null beside tool calls; many templates take only text.
		out.Set("content", jinja.String(""))
	default:
		out.Set("content", jinja.None())
	}
	if m.ReasoningContent != nil {
		out.Set("reasoning_content", jinja.String(*m.ReasoningContent))
	}
	if len(m.ToolCalls) > 0 {
		calls := make([]jinja.Value, len(m.ToolCalls))
		for i, c := range m.ToolCalls {
			calls[i] = c.value()
		}
		out.Set("tool_calls", jinja.List(calls))
	}
	if m.ToolCallID != "" {
		out.Set("tool_call_id", jinja.String(m.ToolCallID))
	}
	if m.Name != "" {
		out.Set("name", jinja.String(m.Name))
	}
	for key, v := range m.Extra.All() {
		out.Set(key, v)
	}
	return jinja.Dict(out)
}

func (c ToolCall) value() jinja.Value {
	function := &jinja.Map{}
	function.Set("name", jinja.String(c.Name))
	function.Set("arguments", jinja.Dict(c.Arguments))
	out := &jinja.Map{}
	if c.ID != "" {
		out.Set("id", jinja.String(c.ID))
	}
	out.Set("type", jinja.String("function"))
	out.Set("function", jinja.Dict(function))
	return jinja.Dict(out)
}
