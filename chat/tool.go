package chat

import (
	"errors"
	"fmt"

	"github.com/foretoken/foretoken/internal/jinja"
)

// Tool is a tool the model may call, as the request declared it: a JSON object
// of which templates show every field in its order.
type Tool struct{ fields *jinja.Map }

// DecodeTools reads a JSON array of tools as OpenAI's chat completions have them.
func DecodeTools(data []byte) ([]Tool, error) {
	v, err := jinja.DecodeJSON(data)
	if err != nil {
		return nil, fmt.Errorf("chat: tools: %w", err)
	}
	if v.Kind() != jinja.KindList {
		return nil, errors.New("chat: tools: expected a JSON array")
	}
	tools := make([]Tool, len(v.Items()))
	for i, item := range v.Items() {
		if tools[i], err = toolFrom(item); err != nil {
			return nil, fmt.Errorf("chat: tools[%d]: %w", i, err)
		}
	}
	return tools, nil
}

// UnmarshalJSON reads one tool.
func (t *Tool) UnmarshalJSON(data []byte) error {
	v, err := jinja.DecodeJSON(data)
	if err == nil {
		*t, err = toolFrom(v)
	}
	if err != nil {
		return fmt.Errorf("chat: tool: %w", err)
	}
	return nil
}

func toolFrom(v jinja.Value) (Tool, error) {
	t := Tool{v.Map()}
	if t.Name() == "" {
		return Tool{}, errors.New("expected an object with a 'function' that has a 'name'")
	}
	return t, nil
}

// function returns the description of the function, which is under "function" in
// OpenAI's format and at the top level in others.
func (t Tool) function() *jinja.Map {
	if f, ok := t.fields.Get("function"); ok {
		return f.Map()
	}
	return t.fields
}

// Name returns the name of the function.
func (t Tool) Name() string {
	v, _ := t.function().Get("name")
	name, _ := v.Text()
	return name
}

// Parameters returns the JSON schema of the arguments, nil if there is none.
func (t Tool) Parameters() []byte {
	v, ok := t.function().Get("parameters")
	if !ok || v.Kind() == jinja.KindNone {
		return nil
	}
	text, err := jinja.AppendJSON(nil, v)
	if err != nil {
		return nil // it was read from JSON
	}
	return text
}

// Strict reports whether the tool requires arguments that conform to its schema.
func (t Tool) Strict() bool {
	v, _ := t.function().Get("strict")
	text, _ := jinja.AppendJSON(nil, v)
	return string(text) == "true"
}
