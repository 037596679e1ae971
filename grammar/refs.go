package grammar

import (
	"net/url"
	"strings"
)

// references resolves $ref within a schema. A schema with an $id is a document in the
// document: references inside of it, pointers too, are relative to it.
type references struct {
	root   *value
	former bool                // a draft before 2019-09: keywords beside $ref mean nothing
	bases  map[*value]*url.URL // of the schemas with an $id, and of the root
	named  map[string]*value   // schemas by URI, or by URI, # and anchor
	twice  map[string]bool     // names that are not clear
	id     string              // the keyword; in former drafts one that begins with # is an anchor
}

// nestedKeywords are those with nested schemas: one or a list of them, or (true) a table.
var nestedKeywords = map[string]bool{
	"items": false, "prefixItems": false, "additionalItems": false, "additionalProperties": false, "contains": false,
	"propertyNames": false, "not": false, "if": false, "then": false, "else": false, "allOf": false, "anyOf": false, "oneOf": false,
	"unevaluatedItems": false, "unevaluatedProperties": false,
	"properties": true, "patternProperties": true, "$defs": true, "definitions": true, "dependentSchemas": true, "dependencies": true,
}

func newReferences(root *value) *references {
	r := &references{root: root, bases: map[*value]*url.URL{}, named: map[string]*value{}, twice: map[string]bool{}, id: "$id"}
	if s := root.member("$schema"); s != nil {
		var draft string
		if _, draft, r.former = strings.Cut(s.text, "json-schema.org/draft-0"); r.former && draft < "6" {
			r.id = "id"
		}
	}
	r.bases[root] = &url.URL{}
	r.name("", root)
	r.walk(root, r.bases[root])
	return r
}

// name records the name of a schema.
func (r *references) name(uri string, v *value) {
	if to := r.named[uri]; to != nil && to != v {
		r.twice[uri] = true
	}
	r.named[uri] = v
}

// walk records the names in a schema, and in nested ones. Names that are not a URI are ignored.
func (r *references) walk(v *value, base *url.URL) {
	if v.kind != object {
		return
	}
	called := func(keyword string) string {
		if m := v.member(keyword); m != nil && m.kind == text && (v.member("$ref") == nil || !r.former) {
			return m.text
		}
		return ""
	}
	id := called(r.id)
	if name, ok := strings.CutPrefix(id, "#"); ok && r.former && name != "" {
		r.name(base.String()+"#"+name, v)
	} else if uri, err := base.Parse(id); err == nil && id != "" {
		uri.Fragment, uri.RawFragment = "", ""
		base = uri
		r.bases[v] = uri
		r.name(uri.String(), v)
	}
	for _, keyword := range []string{"$anchor", "$dynamicAnchor"} {
		if name := called(keyword); name != "" && !r.former {
			r.name(base.String()+"#"+name, v)
		}
	}
	for i, keyword := range v.names {
		table, ok := nestedKeywords[keyword]
		m := v.list[i]
		switch {
		case !ok:
		case m.kind == object && !table:
			r.walk(m, base)
		default:
			for _, part := range m.list {
				r.walk(part, base)
			}
		}
	}
}

// resolve follows a reference.
func (r *references) resolve(v *value) (*value, error) {
	if v.kind != text {
		return nil, v.errorf("is %s, want a string", kindNames[v.kind])
	}
	if at := v.parent; at != r.root && r.bases[at] != nil && r.root.member("$schema") == nil {
		return nil, v.errorf("is used with %s, which has another meaning in drafts before 2019-09; set the draft in $schema", r.id)
	}
	at := v
	for r.bases[at] == nil {
		at = at.parent
	}
	uri, err := r.bases[at].Parse(v.text)
	if err != nil {
		return nil, v.errorf("%w", err)
	}
	fragment := uri.Fragment
	uri.Fragment, uri.RawFragment = "", ""
	name := uri.String()
	to := r.named[name]
	if to == nil {
		return nil, v.errorf(`refers to %.60q; only references within the schema, "#/...", are supported`, v.text)
	}
	if fragment != "" && fragment[0] != '/' {
		name += "#" + fragment
		to, fragment = r.named[name], ""
	}
	if r.twice[name] {
		return nil, v.errorf("two schemas have the name %.60q", name)
	}
	if to != nil {
		to = to.follow(fragment)
	}
	if to == nil {
		return nil, v.errorf("there is no schema at %.60q", v.text)
	}
	return to, isSchema(to)
}
