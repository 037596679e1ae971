package grammar

import "testing"

// schemaCase is a schema with texts that it allows and texts that it does not.
type schemaCase struct {
	schema  string
	yes, no []string
}

func checkCases(t *testing.T, cases []schemaCase) {
	t.Helper()
	v := bytesVocab(t)
	for _, c := range cases {
		g, err := Compile(Schema([]byte(c.schema)), v)
		if err != nil {
			t.Errorf("%s: %v", c.schema, err)
			continue
		}
		for _, text := range c.yes {
			if !accepts(g, text) {
				t.Errorf("%s does not allow %s", c.schema, text)
			}
		}
		for _, text := range c.no {
			if accepts(g, text) {
				t.Errorf("%s allows %s", c.schema, text)
			}
		}
	}
}

// TestItemsOfFormerDrafts has lists under items, and additionalItems, which means something
// beside such a list only.
func TestItemsOfFormerDrafts(t *testing.T) {
	checkCases(t, []schemaCase{
		{`{"type": "array", "items": {"type": "null"}, "additionalItems": false}`, []string{`[]`, `[null, null]`}, []string{`[1]`}},
		{`{"type": "array", "items": {"type": "null"}, "additionalItems": true}`, []string{`[null]`}, []string{`[1]`}},
		{`{"type": "array", "additionalItems": false}`, []string{`[]`, `[1, 2]`}, nil},
		{`{"type": "string", "additionalItems": {"type": "null"}}`, []string{`"a"`}, []string{`[]`}},
		{
			`{"type": "array", "items": [{"type": "null"}, {"type": "boolean"}], "additionalItems": false}`,
			[]string{`[]`, `[null]`, `[null, true]`},
			[]string{`[true]`, `[null, true, null]`},
		},
		{
			`{"type": "array", "items": [{"type": "null"}], "additionalItems": {"type": "boolean"}, "minItems": 2}`,
			[]string{`[null, true]`, `[null, true, false]`},
			[]string{`[]`, `[null]`, `[null, null]`},
		},
		{`{"type": "array", "items": [{"type": "null"}]}`, []string{`[]`, `[null, 1, "x"]`}, []string{`[1]`}},
		{`{"type": "array", "items": [{"type": "null"}], "additionalItems": true}`, []string{`[null, 1, "x"]`}, []string{`[1]`}},
		{`{"type": "array", "items": [], "additionalItems": {"type": "null"}}`, []string{`[]`, `[null, null]`}, []string{`[1]`}},
		{
			`{"allOf": [{"items": [{"type": "integer"}], "additionalItems": {"type": "null"}}, {"items": {"minimum": 3}}], "type": "array"}`,
			[]string{`[3, null]`},
			[]string{`[2]`, `[3, 3]`},
		},
	})
}

// TestReferencesByName has schemas that are called by $id and $anchor, as each draft spells them.
func TestReferencesByName(t *testing.T) {
	const (
		draft4 = `"$schema": "http://json-schema.org/draft-04/schema#"`
		draft7 = `"$schema": "http://json-schema.org/draft-07/schema#"`
	)
	checkCases(t, []schemaCase{
		{`{"properties": {"a": {"$id": "x", "type": "null"}}, "type": "object"}`, []string{`{"a": null}`}, []string{`{"a": 1}`}},
		{`{"$ref": "other", "$defs": {"a": {"$id": "other", "type": "null"}}}`, []string{`null`}, []string{`1`}},
		{`{"$id": "http://h/d/s", "$ref": "/d/other#x", "$defs": {"a": {"$id": "other", "$defs": {"b": {"$anchor": "x", "type": "null"}}}}}`, []string{`null`}, []string{`1`}},
		{`{"$id": "urn:a:b", "$ref": "urn:a:b#/$defs/x", "$defs": {"x": {"type": "null"}}}`, []string{`null`}, []string{`1`}},
		{`{"$ref": "#n", "$defs": {"a": {"$anchor": "n", "type": "null"}}}`, []string{`null`}, []string{`1`}},
		{`{"$ref": "#n", "$defs": {"a": {"$dynamicAnchor": "n", "type": "null"}}}`, []string{`null`}, []string{`1`}},
		{ // a pointer is relative to the document it stands in
			`{"$schema": "https://json-schema.org/draft/2020-12/schema", "$ref": "#/$defs/a", "$defs": {"b": {"type": "null"}, "a": {"$id": "x", "$ref": "#/$defs/b", "$defs": {"b": {"type": "boolean"}}}}}`,
			[]string{`true`},
			[]string{`null`},
		},
		{ // a member called $id is not an identifier
			`{"type": "object", "properties": {"$id": {"type": "null"}, "a": {"$ref": "#/properties/$id"}}}`,
			[]string{`{"$id": null, "a": null}`},
			[]string{`{"a": 1}`},
		},
		{`{"$ref": "#/$defs/a~1b%20~0c", "$defs": {"a/b ~c": {"type": "null"}}}`, []string{`null`}, []string{`1`}},
		{`{` + draft7 + `, "$ref": "#n", "definitions": {"a": {"$id": "#n", "type": "null"}}}`, []string{`null`}, []string{`1`}},
		{`{` + draft4 + `, "allOf": [{"$ref": "#n"}], "definitions": {"a": {"id": "#n", "type": "null"}}}`, []string{`null`}, []string{`1`}},
	})
}

// TestKeywordsBesideReferences hold since draft 2019-09.
func TestKeywordsBesideReferences(t *testing.T) {
	const rest = `"properties": {"a": {"$ref": "#/definitions/n", "maximum": 3}}, "definitions": {"n": {"type": "integer"}}, "type": "object"}`
	checkCases(t, []schemaCase{
		{`{` + rest, []string{`{"a": 3}`}, []string{`{"a": 4}`}},
		{`{"$schema": "https://json-schema.org/draft/2019-09/schema", ` + rest, []string{`{"a": 3}`}, []string{`{"a": 4}`}},
		{`{"$schema": "http://json-schema.org/draft-07/schema#", ` + rest, []string{`{"a": 3}`, `{"a": 4}`}, []string{`{"a": null}`}},
		{`{"$schema": "http://json-schema.org/draft-04/schema#", ` + rest, []string{`{"a": 4}`}, []string{`{"a": null}`}},
	})
}
