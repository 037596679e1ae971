package grammar

import (
	"strings"
	"testing"
)

// TestFormatsOfIntegers has formats that bound integers, as tools write them that make schemas of
// types.
func TestFormatsOfIntegers(t *testing.T) {
	checkCases(t, []schemaCase{
		{
			`{"type": "integer", "format": "int32"}`,
			[]string{`0`, `-2147483648`, `2147483647`},
			[]string{`-2147483649`, `2147483648`, strings.Repeat("1", 200)},
		},
		{`{"type": "integer", "format": "int64", "minimum": 0}`, []string{`7`, `9223372036854775807`}, []string{`-1`, `9223372036854775808`}},
		{`{"type": ["integer", "null"], "format": "uint16"}`, []string{`65535`, `null`}, []string{`65536`, `-1`}},
		{`{"type": "number", "format": "int32"}`, []string{`0.5`, `2147483648`}, nil}, // no format of these
		{`{"type": ["number", "null"], "format": "double"}`, []string{`0.5`}, nil},
		{`{"properties": {"n": {"type": "integer", "format": "uint8", "enum": [1, 256]}}}`, []string{`{"n": 256}`}, []string{`{"n": 2}`}},
	})
	bare := compile(t, Bare([]byte(`{"type": "integer", "format": "int32"}`), "</end>"), bytesVocab(t))
	if !accepts(bare, "7</end>") || accepts(bare, "2147483648</end>") {
		t.Error("an argument with a format is not bounded")
	}
}

// TestFormatsUnknownToTheDraft are annotations.
func TestFormatsUnknownToTheDraft(t *testing.T) {
	checkCases(t, []schemaCase{
		{`{"type": "string", "format": "topic"}`, []string{`""`, `"a b"`}, []string{`1`}},
		{`{"type": "string", "format": "url", "pattern": "^a"}`, []string{`"ab"`}, []string{`"b"`}},
		{`{"format": "int32"}`, []string{`"a"`, `0.5`, `null`}, nil},
	})
}
