package generate

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/grammar"
	"github.com/foretoken/foretoken/internal/jinja"
)

// The tags of a tool call, as templates teach them.
const (
	callBegin = "<tool_call>"
	callEnd   = "</tool_call>"
)

// calls is the grammar of one call of any of the tools, or of several.
func (r *Request) calls(tools []chat.Tool, taught chat.ToolFormat) (grammar.Source, error) {
	var either []grammar.Source
	for _, t := range tools {
		inside, err := r.call(t, taught)
		if err != nil {
			return grammar.Source{}, Invalid("tools", "%s: %v", t.Name(), err)
		}
		either = append(either, inside)
	}
	call := grammar.Sequence(grammar.Literal(callBegin+"\n"), grammar.Either(either...), grammar.Literal("\n"+callEnd))
	if !r.Parallel || r.Calls == CallNamed {
		return call, nil
	}
	more := grammar.Repeat(grammar.Sequence(grammar.Literal("\n"), call), 0, 0)
	return grammar.Sequence(call, more), nil
}

// call is the grammar of a call between its tags. A tool that cannot be called in the syntax that
// the template teaches is called in JSON, which the parser reads as well.
func (r *Request) call(t chat.Tool, taught chat.ToolFormat) (grammar.Source, error) {
	name, err := json.Marshal(t.Name())
	arguments := t.Parameters()
	if arguments == nil {
		arguments = []byte(`{"type": "object"}`)
	}
	begin := `{"name": ` + string(name) + `, "arguments": `
	g := grammar.Sequence(grammar.Literal(begin), grammar.Schema(arguments), grammar.Literal("}"))
	if r.Calls == CallAuto && !r.Strict && r.Inputs[t.Name()].IsZero() {
		// It is constrained only because other tools are: its schema need not compile.
		any := grammar.Sequence(grammar.Literal(begin), grammar.Object(), grammar.Literal("}"))
		g = grammar.Prefer(g, any)
	}
	if taught == chat.ToolXML && r.unique(t) {
		if x := newXMLCall(t); x != nil {
			g = grammar.Prefer(x.grammar(), g)
		}
	}
	if input := r.Inputs[t.Name()]; !input.IsZero() {
		g = grammar.Prefer(inputCall(t, begin, input, taught), g)
	}
	return g, err
}

// inputCall is the grammar of a call of a tool that takes a text of the grammar input.
func inputCall(t chat.Tool, begin string, input grammar.Source, taught chat.ToolFormat) grammar.Source {
	if taught == chat.ToolXML && chat.FitsXML(t.Name()) {
		const end = chat.ParameterEnd + "\n</function>"
		return grammar.Sequence(
			grammar.Literal("<function="+t.Name()+">\n<parameter="+InputName+">\n"),
			grammar.Without(chat.ParameterEnd, input), grammar.Literal("\n"+end),
		)
	}
	return grammar.Sequence(grammar.Literal(begin+`{"`+InputName+`": `), grammar.InString(input), grammar.Literal("}}"))
}

// unique reports whether no other tool has the name of t. The parser could not tell which one's
// types the arguments have.
func (r *Request) unique(t chat.Tool) bool {
	n := 0
	for _, other := range r.Tools {
		if other.Name() == t.Name() {
			n++
		}
	}
	return n == 1
}

// xmlCall is a tool that can be called in the XML syntax:
//
//	<function=NAME>
//	<parameter=KEY>
//	the value, in lines of its own
//	</parameter>
//	</function>
//
// Its rules follow from what package chat's parser makes of such a call.
type xmlCall struct {
	tool   chat.Tool
	schema *jinja.Map // of all arguments; nil: there are none
}

// xmlKeywords are those that the schema of a tool's arguments may have: of objects that are
// nothing but their properties.
var xmlKeywords = []string{
	"type", "properties", "required", "additionalProperties", "$defs", "definitions",
	"title", "description", "$schema", "$id", "$comment", "default", "examples", "strict",
}

// newXMLCall is nil for a tool that has to be called in JSON.
func newXMLCall(t chat.Tool) *xmlCall {
	x := &xmlCall{tool: t}
	if !chat.FitsXML(t.Name()) {
		return nil
	}
	text := t.Parameters()
	if text == nil {
		return x
	}
	v, err := jinja.DecodeJSON(text)
	if x.schema = v.Map(); err != nil || x.schema == nil {
		return nil
	}
	for keyword := range x.schema.All() {
		if !slices.Contains(xmlKeywords, keyword) {
			return nil
		}
	}
	if _, ok := references(v); !ok || !x.object() || !x.closed() {
		return nil
	}
	for name, property := range x.properties().All() {
		if !chat.FitsXML(name) || !x.typed(name, property) {
			return nil
		}
	}
	return x
}

// references reports whether a schema has references, and whether all are to definitions, which
// each parameter's own schema gets too.
func references(v jinja.Value) (some, ok bool) {
	ok = true
	look := func(part jinja.Value) {
		inner, fine := references(part)
		some, ok = some || inner, ok && fine
	}
	for key, member := range v.Map().All() {
		if to, is := member.Text(); is && key == "$ref" {
			some, ok = true, ok && (strings.HasPrefix(to, "#/$defs/") || strings.HasPrefix(to, "#/definitions/"))
		}
		look(member)
	}
	for _, item := range v.Items() {
		look(item)
	}
	return some, ok
}

// object reports whether the arguments are an object whose required members have schemas.
func (x *xmlCall) object() bool {
	kind, some := x.schema.Get("type")
	name, _ := kind.Text()
	if some && name != "object" {
		return false
	}
	if p, ok := x.schema.Get("properties"); ok && p.Kind() != jinja.KindMap {
		return false
	}
	required, some := x.schema.Get("required")
	if some && required.Kind() != jinja.KindList {
		return false
	}
	for _, v := range required.Items() {
		name, ok := v.Text()
		if _, known := x.properties().Get(name); !ok || !known {
			return false
		}
	}
	return true
}

// closed reports whether the arguments can be limited to those that the schema names. A tool of
// arbitrary arguments only has no parameters to list.
func (x *xmlCall) closed() bool {
	more, ok := x.schema.Get("additionalProperties")
	text, err := jinja.AppendJSON(nil, more)
	switch {
	case !ok || err == nil && string(text) == "false":
		return true
	case err == nil && (string(text) == "true" || string(text) == "{}"):
		return x.properties().Len() > 0
	}
	return false
}

func (x *xmlCall) properties() *jinja.Map {
	v, _ := x.schema.Get("properties")
	return v.Map()
}

// typed reports whether the type of an argument follows from its text: it is always a string or
// null, or never a string.
func (x *xmlCall) typed(name string, property jinja.Value) bool {
	types := x.tool.Types(name)
	if len(types) == 0 {
		for _, keyword := range []string{"properties", "required", "additionalProperties", "patternProperties", "items", "prefixItems"} {
			if _, ok := property.Map().Get(keyword); ok {
				return false // meant to be an object or a list, and read as a string
			}
		}
		return true
	}
	others := slices.ContainsFunc(types, func(t string) bool { return t != "string" && t != "null" })
	return !others || !slices.Contains(types, "string")
}

// grammar is the grammar of a call: parameters in the order of the schema.
func (x *xmlCall) grammar() grammar.Source {
	parts := []grammar.Source{grammar.Literal("<function=" + x.tool.Name() + ">\n")}
	required, _ := x.schema.Get("required")
	for name, property := range x.properties().All() {
		part := grammar.Sequence(grammar.Literal("<parameter="+name+">\n"), x.value(name, property), grammar.Literal("\n"))
		if !slices.ContainsFunc(required.Items(), func(v jinja.Value) bool { text, _ := v.Text(); return text == name }) {
			part = grammar.Repeat(part, 0, 1)
		}
		parts = append(parts, part)
	}
	return grammar.Sequence(append(parts, grammar.Literal("</function>"))...)
}

// value is the grammar of an argument with its end tag: what its schema allows of the types that
// the parser gives it.
func (x *xmlCall) value(name string, property jinja.Value) grammar.Source {
	types := x.tool.Types(name)
	if len(types) == 0 {
		types = []string{"string"}
	}
	list := make([]jinja.Value, len(types))
	for i, t := range types {
		list[i] = jinja.String(t)
	}
	schema := &jinja.Map{}
	schema.Set("type", jinja.List(list))
	schema.Set("allOf", jinja.List([]jinja.Value{property}))
	if some, _ := references(property); some {
		for _, key := range []string{"$defs", "definitions"} {
			if defs, ok := x.schema.Get(key); ok {
				schema.Set(key, defs)
			}
		}
	}
	text, err := jinja.AppendJSON(nil, jinja.Dict(schema))
	if err != nil {
		text = nil // cannot be: it was read from JSON
	}
	var reserved []string
	if slices.Contains(types, "null") {
		reserved = []string{"null", "None"}
	}
	return grammar.Bare(text, chat.ParameterEnd, reserved...)
}
