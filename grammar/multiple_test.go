package grammar

import "testing"

func TestMultiplesOfNumbers(t *testing.T) {
	checkCases(t, []schemaCase{
		{`{"type": "integer", "multipleOf": 7}`, []string{`0`, `-7`, `14`, `700000000000000000007`}, []string{`1`, `15`, `07`, `7.0`, `7e1`, `-`, ``}},
		{`{"type": "integer", "multipleOf": 2.5}`, []string{`5`, `-10`}, []string{`1`, `2`, `2.5`}},
		{`{"type": "number", "multipleOf": 0.01}`, []string{`1.13`, `-0.5`, `3`, `3.10`, `3.100`}, []string{`1.135`, `1.`, `.5`, `1e1`, `00.5`}},
		{`{"type": "number", "multipleOf": 4, "minimum": 2, "maximum": 9}`, []string{`4`, `8`, `4.0`}, []string{`0`, `12`, `4.1`, `-4`}},
		{`{"type": "number", "multipleOf": 1e3}`, []string{`0`, `2000`}, []string{`200`}},
		{`{"allOf": [{"multipleOf": 4}, {"multipleOf": 6}], "type": "integer"}`, []string{`12`, `24`}, []string{`4`, `6`, `18`}},
		{`{"enum": [1, 1.5, 2, 3e0, "x"], "multipleOf": 1.5}`, []string{`1.5`, `3e0`, `"x"`}, []string{`1`, `2`}},
		{`{"type": "integer", "not": {"multipleOf": 3}, "minimum": 2}`, []string{`2`, `4`, `100`}, []string{`1`, `3`, `999`}},
		{`{"type": "number", "not": {"multipleOf": 0.5}}`, []string{`0.25`, `-1.51`}, []string{`1`, `0.5`, `-1.50`, `.3`}},
		{`{"enum": [1, 1.5, 2, 3], "not": {"multipleOf": 1.5}}`, []string{`1`, `2`}, []string{`1.5`, `3`}},
		{`{"type": "string", "multipleOf": 3}`, []string{`"a"`}, nil},
	})
	bare := compile(t, Bare([]byte(`{"type": "number", "multipleOf": 0.5}`), "</end>"), bytesVocab(t))
	if !accepts(bare, "1.5</end>") || accepts(bare, "1.2</end>") {
		t.Error("an argument is not held to its multiple")
	}
}
