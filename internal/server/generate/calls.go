package generate

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/grammar"
	"github.com/foretoken/foretoken/internal/dialogue"
	"github.com/foretoken/foretoken/internal/jinja"
)

// calls is the grammar of one call of any of the tools, or of several, in the syntax that the
// template teaches.
func (r *Request) calls(tools []chat.Tool, taught dialogue.CallSyntax) (grammar.Source, error) {
	// The common beginning and end of all calls are outside of the alternatives: calls in the syntax, and
	// calls in JSON, of tools that the syntax cannot express.
	open, closed := taught.Open, taught.Close
	if taught.Key != "" {
		open, closed = commonPrefix(open, dialogue.JSONCalls.Open), commonSuffix(closed, dialogue.JSONCalls.Close)
	}
	cut := func(s dialogue.CallSyntax) dialogue.CallSyntax {
		s.Open, s.Close = strings.TrimPrefix(s.Open, open), strings.TrimSuffix(s.Close, closed)
		return s
	}
	var either []grammar.Source
	for _, t := range tools {
		inside, err := r.call(t, cut(taught), cut(dialogue.JSONCalls))
		if err != nil {
			return grammar.Source{}, Invalid("tools", "%s: %v", t.Name(), err)
		}
		either = append(either, inside)
	}
	call := grammar.Sequence(grammar.Literal(open), grammar.Either(either...), grammar.Literal(closed))
	list := []grammar.Source{grammar.Literal(taught.Begin), call}
	if r.Parallel && r.Calls != CallNamed {
		list = append(list, grammar.Repeat(grammar.Sequence(grammar.Literal(taught.Between), call), 0, 0))
	}
	return grammar.Sequence(append(list, grammar.Literal(taught.End))...), nil
}

// commonPrefix is the longest common prefix of both texts.
func commonPrefix(a, b string) string {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return a[:n]
}

// commonSuffix is the longest common suffix of both texts.
func commonSuffix(a, b string) string {
	n := 0
	for n < min(len(a), len(b)) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return a[len(a)-n:]
}

// call is the grammar of a call of the tool. One that cannot be called in the syntax that the
// template teaches, since arguments stand there one by one, is called in JSON, which the parser
// reads as well.
func (r *Request) call(t chat.Tool, taught, inJSON dialogue.CallSyntax) (grammar.Source, error) {
	o := inJSON
	name, err := json.Marshal(t.Name())
	if err != nil {
		return grammar.Source{}, err
	}
	begin := o.Open + string(name[1:len(name)-1]) + o.Named
	if taught.Key == "" && taught.Format != dialogue.ToolJSON { // an object too, with the name outside of it
		if o = taught; !o.Fits(t.Name()) {
			return grammar.Source{}, errors.New("the model cannot call a tool of this name: use letters, digits, - and _")
		}
		begin = o.Open + t.Name() + o.Named
	}
	object := func(arguments grammar.Source) grammar.Source {
		return grammar.Sequence(grammar.Literal(begin), arguments, grammar.Literal(o.Close))
	}
	schema := grammar.Schema
	if o.Quote != "" {
		schema = func(text []byte) grammar.Source { return grammar.Marked(text, o.Quote) }
	}
	g := object(schema(argumentsOf(t)))
	if r.Calls == CallAuto && !r.Strict && r.Inputs[t.Name()].IsZero() {
		// It is constrained only because other tools are: its schema need not compile.
		g = grammar.Prefer(g, object(schema([]byte(`{"type": "object"}`))))
	}
	if r.unique(t) {
		if k := newKeyedCall(t, taught); k != nil {
			g = grammar.Prefer(k.grammar(), g)
		}
	}
	input := r.Inputs[t.Name()]
	if input.IsZero() {
		return g, nil
	}
	said := object(grammar.Sequence(grammar.Literal(`{"`+InputName+`": `), grammar.InString(input), grammar.Literal("}")))
	if o.Quote != "" {
		said = object(grammar.Sequence(
			grammar.Literal("{"+InputName+":"+o.Quote), grammar.Without(o.Quote, input), grammar.Literal(o.Quote+"}")))
	}
	if taught.Key != "" && taught.Fits(t.Name()) {
		said = grammar.Sequence(
			grammar.Literal(taught.Open+t.Name()+taught.Named+taught.Key+InputName+taught.Value),
			grammar.Without(strings.TrimSpace(taught.ValueEnd), input), grammar.Literal(taught.ValueEnd+taught.Close),
		)
	}
	return grammar.Prefer(said, g), nil
}

// argumentsOf is the schema of the tool's arguments: of an object, also where it does not say so.
func argumentsOf(t chat.Tool) []byte {
	text := t.Parameters()
	if text == nil {
		return []byte(`{"type": "object"}`)
	}
	v, err := jinja.DecodeJSON(text)
	if _, typed := v.Map().Get("type"); err != nil || typed || v.Kind() != jinja.KindMap {
		return text
	}
	v.Map().Set("type", jinja.String("object"))
	if said, err := jinja.AppendJSON(nil, v); err == nil {
		text = said
	}
	return text
}

// unique reports whether no other tool has the name of t. Otherwise the parser could not tell the
// types of the arguments.
func (r *Request) unique(t chat.Tool) bool {
	n := 0
	for _, other := range r.Tools {
		if other.Name() == t.Name() {
			n++
		}
	}
	return n == 1
}

// keyedCall is a tool that can be called with single arguments. Its rules follow from
// package chat's parser of such calls.
type keyedCall struct {
	tool   chat.Tool
	syntax dialogue.CallSyntax
	schema *jinja.Map // of all arguments; nil: there are none
}

// keyedKeywords are those that the schema of a tool's arguments may have: of objects with
// only properties.
var keyedKeywords = []string{
	"type", "properties", "required", "additionalProperties", "$defs", "definitions",
	"title", "description", "$schema", "$id", "$comment", "default", "examples", "strict",
}

// annotations are the keywords of a schema that forbid nothing.
var annotations = []string{"title", "description", "$comment", "default", "examples", "deprecated", "readOnly", "writeOnly"}

// newKeyedCall is nil for a tool that has to be called with an object.
func newKeyedCall(t chat.Tool, s dialogue.CallSyntax) *keyedCall {
	x := &keyedCall{tool: t, syntax: s}
	if s.Key == "" || !s.Fits(t.Name()) {
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
		if !slices.Contains(keyedKeywords, keyword) {
			return nil
		}
	}
	if _, ok := references(v); !ok || !x.object() || !x.closed() {
		return nil
	}
	for name, property := range x.properties().All() {
		if !s.Fits(name) || !x.typed(name, property) {
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
func (x *keyedCall) object() bool {
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

// closed reports whether the arguments can be limited to the properties of the schema. A tool of
// only arbitrary arguments has no parameters to list.
func (x *keyedCall) closed() bool {
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

func (x *keyedCall) properties() *jinja.Map {
	v, _ := x.schema.Get("properties")
	return v.Map()
}

// typed reports whether the type of an argument follows from its text: it is always a string or
// null, or never a string.
func (x *keyedCall) typed(name string, property jinja.Value) bool {
	types := dialogue.Types(x.tool, name)
	if len(types) == 0 {
		// Read as a string, or as the JSON value of the text.
		for keyword := range property.Map().All() {
			if x.syntax.Guesses() && !slices.Contains(annotations, keyword) {
				return false // it might be against that
			}
			if slices.Contains([]string{"properties", "required", "additionalProperties", "patternProperties", "items", "prefixItems"}, keyword) {
				return false // meant to be an object or a list
			}
		}
		return true
	}
	others := slices.ContainsFunc(types, func(t string) bool { return t != "string" && t != "null" })
	return !others || !slices.Contains(types, "string")
}

// grammar is the grammar of a call: parameters in the order of the schema.
func (x *keyedCall) grammar() grammar.Source {
	s := x.syntax
	parts := []grammar.Source{grammar.Literal(s.Open + x.tool.Name() + s.Named)}
	required, _ := x.schema.Get("required")
	for name, property := range x.properties().All() {
		part := grammar.Sequence(grammar.Literal(s.Key+name+s.Value), x.value(name, property))
		if !slices.ContainsFunc(required.Items(), func(v jinja.Value) bool { text, _ := v.Text(); return text == name }) {
			part = grammar.Repeat(part, 0, 1)
		}
		parts = append(parts, part)
	}
	return grammar.Sequence(append(parts, grammar.Literal(s.Close))...)
}

// value is the grammar of an argument with its end: the values of its schema among the types of
// the parser.
func (x *keyedCall) value(name string, property jinja.Value) grammar.Source {
	types := dialogue.Types(x.tool, name)
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
	return grammar.Bare(text, x.syntax.ValueEnd, reserved...)
}
