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
