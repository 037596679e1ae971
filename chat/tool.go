package chat

import (
	"errors"
	"fmt"
	"strings"

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

// Types lists the JSON types of a parameter in its schema, none if
// it has none. In calls of the formats [ToolXML] and [ToolGLM] a parameter that may be a string is null
// if that is one of its types and the text, apart from white space, is null or None; else it is
// the string.
func (t Tool) Types(parameter string) []string {
	s := t.types(parameter)
	var names []string
	for _, kind := range []struct {
		name string
		ok   bool
	}{
		{"null", s.null},
		{"string", s.text || s.word},
		{"boolean", s.boolean},
		{"integer", s.integer},
		{"number", s.number},
		{"object", s.object},
		{"array", s.array},
	} {
		if kind.ok {
			names = append(names, kind.name)
		}
	}
	return names
}

func (t Tool) types(parameter string) *schemaTypes {
	schema, _ := t.function().Get("parameters")
	properties, _ := schema.Map().Get("properties")
	property, _ := properties.Map().Get(parameter)
	s := &schemaTypes{root: schema.Map()}
	s.add(property)
	return s
}

// convert turns the text of an argument into the type of the tool's schema.
// A parameter without a type, or that may be a string, is a
// string; so is a text that does not fit its type, for the client to judge. With
// guess a parameter without a type is the JSON value of its text, if it is valid.
func (t Tool) convert(parameter, text string, guess bool) jinja.Value {
	s := t.types(parameter)
	trimmed := strings.TrimSpace(text)
	if guess && s.none() {
		if v, err := jinja.DecodeJSON([]byte(trimmed)); err == nil && v.Kind() != jinja.KindString {
			return v
		}
		return jinja.String(text)
	}
	switch {
	case s.null && (trimmed == "null" || trimmed == "None"):
		return jinja.None()
	case s.text:
		return jinja.String(text)
	case s.boolean && (trimmed == "true" || trimmed == "True"):
		return jinja.Bool(true)
	case s.boolean && (trimmed == "false" || trimmed == "False"):
		return jinja.Bool(false)
	}
	v, err := jinja.DecodeJSON([]byte(trimmed))
	if err != nil {
		return jinja.String(text)
	}
	switch v.Kind() {
	case jinja.KindInt:
		if s.integer || s.number {
			return v
		}
	case jinja.KindFloat:
		if s.number {
			return v
		}
	case jinja.KindMap:
		if s.object {
			return v
		}
	case jinja.KindList:
		if s.array {
			return v
		}
	}
	return jinja.String(text)
}

// schemaTypes are the types a JSON schema allows for a value.
type schemaTypes struct {
	root                                                *jinja.Map // the root of references
	visited                                             int        // schemas visited, of maxSchemas
	null, text, boolean, integer, number, object, array bool
	word                                                bool // a string is among the values it lists
}

// none reports whether no type was found.
func (s *schemaTypes) none() bool {
	return !s.null && !s.text && !s.word && !s.boolean && !s.integer && !s.number && !s.object && !s.array
}

// maxSchemas bounds how many alternatives and references are followed; they may
// go round in circles.
const maxSchemas = 100

func (s *schemaTypes) add(schema jinja.Value) {
	if s.visited++; s.visited > maxSchemas {
		return
	}
	if kind, ok := schema.Map().Get("type"); ok {
		s.addName(kind)
		for _, k := range kind.Items() {
			s.addName(k)
		}
	} else {
		listed, _ := schema.Map().Get("enum")
		for _, v := range listed.Items() {
			s.addValue(v)
		}
		if v, ok := schema.Map().Get("const"); ok {
			s.addValue(v)
		}
	}
	for _, key := range []string{"anyOf", "oneOf", "allOf"} {
		alternatives, _ := schema.Map().Get(key)
		for _, alternative := range alternatives.Items() {
			s.add(alternative)
		}
	}
	reference, _ := schema.Map().Get("$ref")
	if path, ok := reference.Text(); ok && strings.HasPrefix(path, "#/") {
		at := jinja.Dict(s.root)
		for _, part := range strings.Split(path[2:], "/") {
			part = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
			at, _ = at.Map().Get(part)
		}
		s.add(at)
	}
}

// addValue adds the type of a value that a schema without a type lists. Strings among them do not
// make the others strings.
func (s *schemaTypes) addValue(v jinja.Value) {
	switch v.Kind() {
	case jinja.KindNone:
		s.null = true
	case jinja.KindString:
		s.word = true
	case jinja.KindBool:
		s.boolean = true
	case jinja.KindInt:
		s.integer = true
	case jinja.KindFloat:
		s.number = true
	case jinja.KindMap:
		s.object = true
	case jinja.KindList:
		s.array = true
	}
}

func (s *schemaTypes) addName(v jinja.Value) {
	switch name, _ := v.Text(); name {
	case "null":
		s.null = true
	case "string":
		s.text = true
	case "boolean":
		s.boolean = true
	case "integer":
		s.integer = true
	case "number":
		s.number = true
	case "object":
		s.object = true
	case "array":
		s.array = true
	}
}
