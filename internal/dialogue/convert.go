package dialogue

import (
	"slices"
	"strings"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/dialogue/values"
	"github.com/foretoken/foretoken/internal/jinja"
)

// Types lists the JSON types of a parameter in its schema, none if
// it has none. In calls of the formats [ToolXML] and [ToolGLM] a parameter that may be a string is null
// if that is one of its types and the text, apart from white space, is null or None; else it is
// the string.
func Types(t chat.Tool, parameter string) []string {
	s := typesOf(t, parameter)
	var names []string
	for _, name := range jsonTypes {
		if s.is[name] || name == "string" && s.word {
			names = append(names, name)
		}
	}
	return names
}

func typesOf(t chat.Tool, parameter string) *schemaTypes {
	function := *values.Tool(&t)
	if f, ok := function.Get("function"); ok {
		function = f.Map()
	}
	schema, _ := function.Get("parameters")
	properties, _ := schema.Map().Get("properties")
	property, _ := properties.Map().Get(parameter)
	s := &schemaTypes{root: schema.Map(), is: map[string]bool{}}
	s.add(property)
	return s
}

// convert turns the text of an argument into the type of the tool's schema.
// A parameter without a type, or that may be a string, is a
// string; so is a text that does not fit its type, for the client to judge. With
// guess a parameter without a type is the JSON value of its text, if it is valid.
func convert(t chat.Tool, parameter, text string, guess bool) jinja.Value {
	s := typesOf(t, parameter)
	trimmed := strings.TrimSpace(text)
	if guess && len(s.is) == 0 && !s.word {
		if v, err := jinja.DecodeJSON([]byte(trimmed)); err == nil && v.Kind() != jinja.KindString {
			return v
		}
		return jinja.String(text)
	}
	switch {
	case s.is["null"] && (trimmed == "null" || trimmed == "None"):
		return jinja.None()
	case s.is["string"]:
		return jinja.String(text)
	case s.is["boolean"] && (trimmed == "true" || trimmed == "True"):
		return jinja.Bool(true)
	case s.is["boolean"] && (trimmed == "false" || trimmed == "False"):
		return jinja.Bool(false)
	}
	v, err := jinja.DecodeJSON([]byte(trimmed))
	if err != nil {
		return jinja.String(text)
	}
	switch kind := v.Kind(); kind {
	case jinja.KindInt, jinja.KindFloat, jinja.KindMap, jinja.KindList:
		if s.is[kindTypes[kind]] || kind == jinja.KindInt && s.is["number"] {
			return v
		}
	}
	return jinja.String(text)
}

// jsonTypes are the types of JSON schemas.
var jsonTypes = []string{"null", "string", "boolean", "integer", "number", "object", "array"}

// kindTypes are those of values, but for strings.
var kindTypes = map[jinja.Kind]string{
	jinja.KindNone: "null", jinja.KindBool: "boolean", jinja.KindInt: "integer", jinja.KindFloat: "number", jinja.KindMap: "object", jinja.KindList: "array",
}

// schemaTypes are the types a JSON schema allows for a value.
type schemaTypes struct {
	root    *jinja.Map // the root of references
	visited int        // schemas visited, of maxSchemas
	is      map[string]bool
	word    bool // a string is among the values it lists
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
	if name, ok := kindTypes[v.Kind()]; ok {
		s.is[name] = true
	} else if v.Kind() == jinja.KindString {
		s.word = true
	}
}

func (s *schemaTypes) addName(v jinja.Value) {
	if name, _ := v.Text(); slices.Contains(jsonTypes, name) {
		s.is[name] = true
	}
}
