package grammar

import (
	"strings"
	"testing"
)

func TestNumberOfMembers(t *testing.T) {
	checkCases(t, []schemaCase{
		{`{"type": "object", "maxProperties": 0}`, []string{`{}`}, []string{`{"a": 1}`}},
		{`{"type": "object", "minProperties": 1, "maxProperties": 1}`, []string{`{"a": 1}`}, []string{`{}`, `{"a": 1, "b": 2}`}},
		{
			`{"type": "object", "properties": {"a": true, "b": true, "c": true}, "required": ["b"], "maxProperties": 2}`,
			[]string{`{"b": 1}`, `{"a": 1, "b": 2}`, `{"b": 1, "c": 2}`, `{"b": 1, "x": 2}`},
			[]string{`{}`, `{"a": 1, "c": 2}`, `{"a": 1, "b": 2, "c": 3}`, `{"a": 1, "b": 2, "x": 3}`, `{"b": 1, "x": 2, "y": 3}`},
		},
		{
			`{"type": "object", "properties": {"a": true, "b": true, "c": true}, "additionalProperties": false, "minProperties": 2, "maxProperties": 2}`,
			[]string{`{"a": 1, "b": 2}`, `{"a": 1, "c": 2}`, `{"b": 1, "c": 2}`},
			[]string{`{}`, `{"a": 1}`, `{"c": 1}`, `{"a": 1, "b": 2, "c": 3}`},
		},
		{
			`{"type": "object", "properties": {"a": true, "b": true, "c": true}, "additionalProperties": false, "minProperties": 2, "maxProperties": 9}`,
			[]string{`{"a": 1, "b": 2}`, `{"a": 1, "b": 2, "c": 3}`},
			[]string{`{}`, `{"b": 1}`},
		},
		{`{"type": "object", "additionalProperties": {"type": "null"}, "maxProperties": 2}`, []string{`{}`, `{"a": null, "b": null}`}, []string{`{"a": null, "b": null, "c": null}`, `{"a": 1}`}},
	})
}

func TestNamesOfMembers(t *testing.T) {
	checkCases(t, []schemaCase{
		{`{"type": "object", "propertyNames": {"type": "string"}}`, []string{`{"a": 1}`}, nil},
		{`{"type": "object", "propertyNames": {"pattern": "^x"}, "properties": {"a": true, "xa": {"type": "null"}}}`, []string{`{}`, `{"xa": null, "xb": 1}`}, []string{`{"a": 1}`, `{"xa": 1}`, `{"b": 1}`}},
		{`{"type": "object", "propertyNames": {"minLength": 2, "maxLength": 3}}`, []string{`{"ab": 1}`, `{"äöü": 1}`}, []string{`{"a": 1}`, `{"abcd": 1}`}},
		{`{"type": "object", "propertyNames": {"enum": ["b", "a", 3]}, "minProperties": 2}`, []string{`{"b": 1, "a": 2}`}, []string{`{"b": 1}`, `{"c": 1, "d": 2}`, `{"b": 1, "b": 2}`}},
		{`{"type": "object", "propertyNames": {"anyOf": [{"const": "a"}, {"pattern": "^x"}]}, "additionalProperties": {"type": "null"}}`, []string{`{"xy": null, "a": null}`}, []string{`{"b": null}`, `{"a": 1}`}},
		{`{"type": "object", "propertyNames": false}`, []string{`{}`}, []string{`{"a": 1}`}},
	})
}

// TestManyPatternsOfNames has more patterns than sets of them could be listed.
func TestManyPatternsOfNames(t *testing.T) {
	var patterns []string
	for _, first := range strings.Split("abcdefghijk", "") {
		patterns = append(patterns, `"^`+first+`": {"const": "`+first+`"}`)
	}
	checkCases(t, []schemaCase{{
		`{"type": "object", "patternProperties": {` + strings.Join(patterns, ", ") + `, "z$": {"type": "string"}}, "additionalProperties": false}`,
		[]string{`{"ax": "a", "kz": "k", "xz": "y"}`, `{}`},
		[]string{`{"ax": "b"}`, `{"x": "x"}`, `{"kz": 1}`, `{"xz": 1}`},
	}})
}
