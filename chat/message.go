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
	// ReasoningContent is an assistant's reasoning before its answer. Nil
	// and empty are different to templates.
	ReasoningContent *string
	ToolCalls        []ToolCall // that an assistant made
	ToolCallID       string     // of the call that a tool message answers
	Name             string     // of the author or tool

	extra *jinja.Map // all other fields of its JSON, which templates of some models read
}

// roles are the roles of the protocols. A message selects one of them, and its text is
// trusted: templates may combine control tokens with it.
var roles = []string{"system", "developer", "user", "assistant", "tool", "function"}

// Content is the content of a message: a text, or parts such as texts and images, or
// null. The zero Content is null.
type Content struct {
	value jinja.Value
	media []*Media // of its parts, in their order
}

// Text returns a content that is a text.
func Text(s string) Content { return Content{value: jinja.String(s)} }

// Text returns the content as one text, and whether that is possible: null
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

// Bytes returns the length of all texts of the content, also beside images.
func (c Content) Bytes() int {
	text, _ := c.value.Text()
	n := len(text)
	for _, part := range c.value.Items() {
		v, _ := part.Map().Get("text")
		text, _ := v.Text()
		n += len(text)
	}
	return n
}

// ToolCall is a call of a tool by the model.
type ToolCall struct {
	ID        string // empty in answers: the server assigns ids
	Name      string
	Arguments Arguments
}

// Arguments are the arguments of a tool call: a JSON object whose keys keep their order. The
// zero value is an empty one.
type Arguments struct{ fields *jinja.Map }

// ParseArguments reads a JSON object.
func ParseArguments(data []byte) (Arguments, error) {
	v, err := jinja.DecodeJSON(data)
	if err == nil && v.Kind() != jinja.KindMap {
		err = errors.New("expected a JSON object")
	}
	return Arguments{v.Map()}, err
}

// TextArgument returns arguments of which there is one, a text.
func TextArgument(name, text string) Arguments {
	fields := &jinja.Map{}
	fields.Set(name, jinja.String(text))
	return Arguments{fields}
}

// Text returns the argument of that name, if it is a text.
func (a Arguments) Text(name string) (string, bool) {
	v, _ := a.fields.Get(name)
	return v.Text()
}

// JSON returns the arguments as a JSON object.
func (a Arguments) JSON() string {
	b, err := jinja.AppendJSON(nil, jinja.Dict(a.fields))
	if err != nil { // decoded arguments can always be written as JSON
		return "{}"
	}
	return string(b)
}

// DecodeMessages reads a JSON array of messages in the format of OpenAI's chat completions.
// Unknown fields are kept for the template. open
// returns the file that a part names by its path or URL, which may be a data: URL; nil: images and
// videos are not read. Parts are read
// in the spellings of OpenAI (image_url), Anthropic (source) and Qwen (image, video, fps, max_pixels);
// a video is a list of names of frames, or the name of one animation.
func DecodeMessages(data []byte, open func(name string) ([]byte, error)) ([]Message, error) {
	v, err := jinja.DecodeJSON(data)
	if err != nil {
		return nil, fmt.Errorf("chat: messages: %w", err)
	}
	if v.Kind() != jinja.KindList {
		return nil, errors.New("chat: messages: expected a JSON array")
	}
	messages := make([]Message, len(v.Items()))
	for i, item := range v.Items() {
		if messages[i], err = messageFrom(item, open); err != nil {
			return nil, fmt.Errorf("chat: messages[%d]: %w", i, err)
		}
	}
	return messages, nil
}

// UnmarshalJSON reads one message; see [DecodeMessages].
func (m *Message) UnmarshalJSON(data []byte) error {
	v, err := jinja.DecodeJSON(data)
	if err == nil {
		*m, err = messageFrom(v, nil)
	}
	if err != nil {
		return fmt.Errorf("chat: message: %w", err)
	}
	return nil
}

func messageFrom(v jinja.Value, open opener) (m Message, err error) {
	if v.Kind() != jinja.KindMap {
		return m, errors.New("expected an object with 'role' and 'content'")
	}
	for key, field := range v.Map().All() {
		null := field.Kind() == jinja.KindNone
		switch key {
		case "role":
			m.Role, err = textField(key, field)
		case "content":
			m.Content, err = contentFrom(field, open)
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
			if m.extra == nil {
				m.extra = &jinja.Map{}
			}
			m.extra.Set(key, field)
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

func contentFrom(v jinja.Value, open opener) (Content, error) {
	switch v.Kind() {
	case jinja.KindNone:
		return Content{}, nil
	case jinja.KindString:
		return Content{value: v}, nil
	case jinja.KindList:
		for i, part := range v.Items() {
			kind, _ := part.Map().Get("type")
			if _, ok := kind.Text(); !ok {
				return Content{}, fmt.Errorf("'content[%d]' must be an object with a 'type'", i)
			}
		}
		if open != nil {
			return partsFrom(v.Items(), open)
		}
		return Content{value: v}, nil
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

// toolCallFrom reads a call with its name and arguments under "function", as in
// OpenAI's format, or without that level.
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

// argumentsFrom reads an object, or the JSON text of one, as in OpenAI's
// format. A missing value, null and an empty text are no arguments.
func argumentsFrom(v jinja.Value) (none Arguments, err error) {
	if text, ok := v.Text(); ok {
		if len(bytes.TrimSpace([]byte(text))) == 0 {
			return none, nil
		}
		if v, err = jinja.DecodeJSON([]byte(text)); err != nil {
			return none, err
		}
	}
	if !slices.Contains([]jinja.Kind{jinja.KindUndefined, jinja.KindNone, jinja.KindMap}, v.Kind()) {
		return none, errors.New("expected a JSON object, or a string with a JSON object")
	}
	return Arguments{v.Map()}, nil
}

// value returns the message as templates see it, see package values.
func (m *Message) value(textual, null bool) jinja.Value {
	out := &jinja.Map{}
	out.Set("role", jinja.String(m.Role))
	if slices.Contains(roles, m.Role) {
		out.Set("role", jinja.Trusted(m.Role))
	}
	said := m.Content.value.Kind() != jinja.KindUndefined
	if text, ok := m.Content.value.Text(); ok && text == "" && len(m.ToolCalls) > 0 {
		said = false
	}
	switch {
	case said:
		out.Set("content", m.Content.value)
	case len(m.ToolCalls) > 0 && null:
		out.Set("content", jinja.None())
	default:
		// Clients send null beside tool calls, and for empty answers and results. Many templates accept
		// only text, or print None.
		out.Set("content", jinja.String(""))
	}
	if m.ReasoningContent != nil {
		out.Set("reasoning_content", jinja.String(*m.ReasoningContent))
	}
	if len(m.ToolCalls) > 0 {
		calls := make([]jinja.Value, len(m.ToolCalls))
		for i, c := range m.ToolCalls {
			calls[i] = c.value(textual)
		}
		out.Set("tool_calls", jinja.List(calls))
	}
	if m.ToolCallID != "" {
		out.Set("tool_call_id", jinja.String(m.ToolCallID))
	}
	if m.Name != "" {
		out.Set("name", jinja.String(m.Name))
	}
	for key, v := range m.extra.All() {
		out.Set(key, v)
	}
	return jinja.Dict(out)
}

func (c ToolCall) value(textual bool) jinja.Value {
	function := &jinja.Map{}
	function.Set("name", jinja.String(c.Name))
	function.Set("arguments", jinja.Dict(c.Arguments.fields))
	if textual {
		function.Set("arguments", jinja.String(c.Arguments.JSON()))
	}
	out := &jinja.Map{}
	if c.ID != "" {
		out.Set("id", jinja.String(c.ID))
	}
	out.Set("type", jinja.String("function"))
	out.Set("function", jinja.Dict(function))
	return jinja.Dict(out)
}
