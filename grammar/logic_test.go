package grammar

import "testing"

func TestNot(t *testing.T) {
	checkCases(t, []schemaCase{
		{`{"not": {"type": "string"}}`, []string{`1`, `1e3`, `null`, `[]`}, []string{`"a"`}},
		{`{"not": {"type": "integer"}}`, []string{`1.5`, `-0.50`, `"a"`}, []string{`1`, `1.0`, `1e3`, `-0.00`}},
		{`{"not": {"type": "string", "types": 1, "not values": ["a"], "some item": {}}}`, []string{`1`}, []string{`"a"`, `"b"`}}, // annotations
		{`{"types": 1, "not pattern": "a", "some member": {}, "not had": "x"}`, []string{`"a"`, `1`, `{}`}, nil},
		{`{"not": {"not": {"minimum": 3}}}`, []string{`3`, `"a"`, `{}`}, []string{`2`}},
		{`{"not": {"minimum": 3}}`, []string{`2.9`}, []string{`3`, `"a"`}},
		{`{"not": {"enum": ["a", 1, true, null]}}`, []string{`"b"`, `""`, `1.5`, `10`, `false`, `[]`}, []string{`"a"`, `1`, `1.0`, `1.00`, `1e0`, `true`, `null`}},
		{`{"not": {"const": 0}}`, []string{`1`, `-0.1`}, []string{`0`, `-0`, `0.0`, `-0.0`}},
		{`{"type": "array", "not": {"const": [1, "a"]}}`, []string{`[]`, `[1]`, `[1, "b"]`, `[1, "a", 2]`}, []string{`[1, "a"]`, `[1.0, "a"]`}},
		{`{"type": "string", "not": {"pattern": "^a"}, "maxLength": 2}`, []string{`""`, `"ba"`}, []string{`"a"`, `"ab"`, `"bab"`}},
		{`{"type": "string", "not": {"maxLength": 2}}`, []string{`"abc"`}, []string{`"ab"`}},
		{`{"type": "object", "not": {"required": ["a", "b"]}}`, []string{`{}`, `{"a": 1}`, `{"b": 1, "c": 2}`}, []string{`{"a": 1, "b": 1}`}},
		{`{"type": "object", "not": {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}}`, []string{`{}`, `{"c": 1}`}, []string{`{"a": 1}`, `{"b": 1}`}},
		{`{"not": {"properties": {"a": {"type": "string"}}}}`, []string{`{"a": 1}`, `{"a": 1, "b": 2}`}, []string{`{}`, `{"a": "x"}`, `1`}},
		{`{"not": {"prefixItems": [{"type": "null"}, {"type": "null"}], "maxItems": 3}}`, []string{`[1]`, `[null, 1]`, `[null, null, 1, 2]`}, []string{`[]`, `[null]`, `[null, null, 1]`}},
		{`{"not": {"items": {"type": "null"}}}`, []string{`[1]`, `[null, 1]`, `[1, null]`, `[1, 2]`}, []string{`[]`, `[null]`, `1`}},
		{`{"not": {"items": {"type": "null"}}, "minItems": 2, "maxItems": 3}`, []string{`[null, 1]`, `[1, null, null]`, `[1, 1, 1]`}, []string{`[1]`, `[null, null]`, `[1, 1, 1, 1]`}},
		{`{"not": {"items": {"type": "null"}}, "minItems": 2}`, []string{`[null, 1]`, `[null, null, null, 1]`, `[1, null, null]`}, []string{`[1]`, `[null, null, null]`}},
		{`{"enum": [[1], [null], []], "not": {"items": {"type": "null"}}}`, []string{`[1]`}, []string{`[null]`, `[]`}},
		{`{"not": {"allOf": [{"type": "string"}, {"minLength": 2}]}}`, []string{`1`, `"a"`}, []string{`"ab"`}},
		{`{"type": "integer", "not": {"oneOf": [{"minimum": 3}, {"minimum": 5}]}}`, []string{`2`, `5`}, []string{`3`, `4`}},
		{`{"enum": ["a", "b", 3, {"k": 1}], "not": {"anyOf": [{"type": "string", "pattern": "a"}, {"type": "object", "required": ["k"]}]}}`, []string{`"b"`, `3`}, []string{`"a"`, `{"k": 1}`}},
		{`{"type": "string", "not": {"format": "ipv4"}}`, []string{`"a"`, `"::1"`}, []string{`"127.0.0.1"`}},
		{`{"not": {"$ref": "#/$defs/list"}, "$defs": {"list": {"type": "object", "properties": {"next": {"$ref": "#/$defs/list"}}}}}`, []string{`1`, `{"next": 1}`, `{"next": {"next": null}}`}, []string{`{}`, `{"next": {"next": {}}}`}},
		{`{"type": "object", "minProperties": 1, "properties": {"a": {"not": {}}}}`, []string{`{"b": 1}`}, []string{`{"a": 1}`, `{}`}},
	})
}

func TestOneOfThatOverlaps(t *testing.T) {
	checkCases(t, []schemaCase{
		{`{"oneOf": [{"type": "integer"}, {"type": "number"}]}`, []string{`1.5`}, []string{`1`, `1.0`, `"a"`}},
		{
			`{"oneOf": [{"properties": {"a": {"type": "string"}}, "additionalProperties": false}, {"type": "object", "properties": {"a": {}, "b": {"type": "null"}}, "additionalProperties": false}]}`,
			[]string{`{"a": 1}`, `{"b": null}`, `{"a": "x", "b": null}`, `1`},
			[]string{`{}`, `{"a": "x"}`, `{"b": 1}`, `{"c": 1}`},
		},
		{
			`{"type": "object", "properties": {"ab": {}, "b": {}}, "additionalProperties": false, "not": {"properties": {"b": {}}, "patternProperties": {"^a": {"type": "null"}}, "additionalProperties": false}}`,
			[]string{`{"ab": 1}`, `{"ab": 1, "b": 2}`},
			[]string{`{}`, `{"b": 1}`, `{"ab": null}`},
		},
		{`{"oneOf": [{"type": "integer"}, {"minimum": 2}]}`, []string{`1`, `2.5`, `"a"`}, []string{`3`, `1.5`}},
		{`{"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}`, []string{`{"a": 1}`, `{"b": 1}`, `{"a": 1, "c": 2}`}, []string{`{}`, `{"a": 1, "b": 2}`}},
		{`{"oneOf": [{"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "b$"}]}`, []string{`"ac"`, `"cb"`}, []string{`"ab"`, `"c"`}},
		{`{"oneOf": [{"type": "string", "enum": ["x", "auto"]}, {"type": "string", "pattern": "^[a-z]{2,4}$"}]}`, []string{`"x"`, `"abc"`}, []string{`"auto"`, `"y"`}},
		{`{"oneOf": [{"const": 1}, {"const": 2}, {"const": 1.0}]}`, []string{`2`}, []string{`1`, `1.0`}},
		{`{"oneOf": [{"type": "string", "format": "ipv4"}, {"type": "string", "format": "ipv6"}]}`, []string{`"127.0.0.1"`, `"::1"`}, []string{`"a"`}},
		{`{"oneOf": [{"type": "object", "properties": {"a": {"const": 1}}}, {"type": "object", "properties": {"a": {"const": 2}}}]}`, []string{`{"a": 1}`, `{"a": 2, "b": 3}`}, []string{`{}`, `{"a": 3}`, `{"b": 3}`}},
		{
			`{"$ref": "#/$defs/tree", "$defs": {"tree": {"oneOf": [{"type": "null"}, {"type": "object", "required": ["l"], "properties": {"l": {"$ref": "#/$defs/tree"}}}, {"type": "object", "required": ["r"], "properties": {"r": {"$ref": "#/$defs/tree"}}}]}}}`,
			[]string{`null`, `{"l": null}`, `{"r": {"l": null}}`},
			[]string{`{}`, `{"l": null, "r": null}`, `{"l": {"l": null, "r": null}}`},
		},
	})
}

func TestConditions(t *testing.T) {
	const condition = `{"type": "object", "properties": {"kind": {"enum": ["a", "b"]}, "x": {"type": "integer"}, "y": {"type": "integer"}}, "required": ["kind"],
		"if": {"properties": {"kind": {"const": "a"}}}, "then": {"required": ["x"]}, "else": {"required": ["y"]}}`
	checkCases(t, []schemaCase{
		{condition, []string{`{"kind": "a", "x": 1}`, `{"kind": "b", "y": 1}`, `{"kind": "a", "x": 1, "y": 2}`}, []string{`{"kind": "a", "y": 1}`, `{"kind": "b", "x": 1}`}},
		{`{"not": ` + condition + `}`, []string{`{"kind": "a", "y": 1}`, `1`, `{"kind": "b"}`}, []string{`{"kind": "a", "x": 1}`, `{"kind": "b", "y": 1}`}},
		{`{"type": "integer", "if": {"minimum": 5}, "then": {"maximum": 7}}`, []string{`1`, `7`}, []string{`8`}},
		{`{"type": "integer", "if": {"minimum": 5}, "else": false}`, []string{`5`}, []string{`4`}},
		{`{"type": "integer", "if": {"minimum": 5}}`, []string{`4`, `5`}, nil},
		{`{"type": "integer", "then": {"minimum": 5}, "else": false}`, []string{`4`}, nil},
		{`{"dependentRequired": {"a": ["b"]}}`, []string{`1`, `{}`, `{"b": 1}`, `{"a": 1, "b": 1}`, `{"c": 1}`}, []string{`{"a": 1}`, `{"a": 1, "c": 2}`}},
		{`{"type": "object", "not": {"dependentRequired": {"a": ["b"]}}}`, []string{`{"a": 1}`}, []string{`{}`, `{"b": 1}`, `{"a": 1, "b": 1}`}},
		{`{"dependentSchemas": {"a": {"properties": {"b": {"type": "null"}}, "maxProperties": 2}}}`, []string{`{"b": 1}`, `{"b": null, "a": 1}`}, []string{`{"b": 1, "a": 1}`}},
		{`{"dependencies": {"a": ["b"], "c": {"required": ["a"]}}}`, []string{`{"a": 1, "b": 2, "c": 1}`, `{"b": 1}`}, []string{`{"c": 1}`, `{"a": 1, "c": 1}`}},
	})
}

// TestMembersOfAlternativesInOrder has members of alternatives in the order of the schema: before
// those behind the alternatives.
func TestMembersOfAlternativesInOrder(t *testing.T) {
	const kinds = `[{"properties": {"kind": {"const": "a"}}, "required": ["kind"]}, {"properties": {"kind": {"const": "b"}, "b": {"type": "null"}}, "required": ["kind"]}]`
	checkCases(t, []schemaCase{
		{
			`{"type": "object", "allOf": [{"oneOf": ` + kinds + `}, {"properties": {"name": {"type": "string"}}, "required": ["name"]}]}`,
			[]string{`{"kind": "a", "name": "x"}`, `{"kind": "b", "b": null, "name": "x"}`},
			[]string{`{"name": "x", "kind": "a"}`},
		},
		{
			`{"type": "object", "allOf": [{"properties": {"name": {"type": "string"}}}, {"anyOf": ` + kinds + `}, {"properties": {"last": {}}}]}`,
			[]string{`{"name": "x", "kind": "a", "last": 1}`},
			[]string{`{"kind": "a", "name": "x", "last": 1}`, `{"name": "x", "last": 1, "kind": "a"}`},
		},
		{
			`{"$ref": "#/$defs/kind", "type": "object", "properties": {"kind": {}, "name": {"type": "string"}}, "$defs": {"kind": {"not": {"properties": {"kind": {"const": "a"}, "name": {"const": "a"}}}}}}`,
			[]string{`{"kind": "b", "name": "b"}`, `{"kind": "a", "name": "b"}`},
			[]string{`{"kind": "a", "name": "a"}`, `{"name": "b", "kind": "b"}`},
		},
	})
}
