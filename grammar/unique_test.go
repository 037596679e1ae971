package grammar

import (
	"fmt"
	"strings"
	"testing"
)

func TestUniqueItemsOfFewValues(t *testing.T) {
	checkCases(t, []schemaCase{
		{
			`{"type": "array", "uniqueItems": true, "items": {"enum": ["a", "b", 1, 1.0, null]}}`,
			[]string{`[]`, `["a"]`, `["b", "a"]`, `[1.0, "a", null, "b"]`},
			[]string{`["a", "a"]`, `["a", "b", "a"]`, `[1, 1.0]`, `[1, 1]`, `["c"]`},
		},
		{`{"type": "array", "uniqueItems": true, "items": {"type": ["boolean", "null"]}, "minItems": 2}`, []string{`[true, false]`, `[null, true, false]`}, []string{`[true]`, `[true, true]`}},
		{`{"type": "array", "uniqueItems": true, "items": {"enum": ["a", "b", "c"], "minLength": 1}, "maxItems": 2}`, []string{`["c", "a"]`}, []string{`["a", "b", "c"]`}},
		{`{"type": "array", "uniqueItems": true, "items": {"anyOf": [{"const": "a"}, {"enum": ["a", "b"]}]}}`, []string{`["a", "b"]`}, []string{`["a", "a"]`}},
		{
			`{"type": "array", "uniqueItems": true, "prefixItems": [{"const": "a"}, {"enum": ["a", "b"]}], "items": false}`,
			[]string{`["a"]`, `["a", "b"]`, `[]`},
			[]string{`["b"]`, `["a", "a"]`, `["a", "b", "c"]`},
		},
		{`{"type": "array", "uniqueItems": true, "maxItems": 1}`, []string{`[]`, `["x"]`}, []string{`[1, 2]`}},
		{`{"type": "string", "uniqueItems": true}`, []string{`"a"`}, nil},
		{`{"type": "array", "uniqueItems": true, "maxItems": 2, "items": {"enum": [` + numbers(40) + `]}}`, []string{`[1, 39]`}, []string{`[7, 7]`, `[1, 2, 3]`}},
	})
}

// numbers lists the numbers below n.
func numbers(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint(i)
	}
	return strings.Join(list, ", ")
}
