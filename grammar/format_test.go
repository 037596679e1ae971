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

// TestFormatHostname checks the lengths of names and of their labels, and that labels reserved
// for encoded names are not accepted.
func TestFormatHostname(t *testing.T) {
	label := strings.Repeat("a", 63)
	name := func(n int) string { return strings.Repeat("a.", (n-1)/2) + strings.Repeat("b", 2-n%2) }
	hosts := schemaCase{yes: []string{"a", "ab", "a-b", "a--b", "ab-c", "abc-d", "a-1.b-2", "1a.2", "a.b-c", label + "." + label, name(253), "abc--d", "a-c-d"}}
	hosts.no = []string{
		"", ".", "a.", ".a", "a..b", "-a", "a-", "a.-b", label + "a", "b." + label + "a", name(254), name(255), "a_b", "é",
		"xn--a", "xn--X", "ab--c", "a.xn--ihqwcrb4cv8a8dqg056pqjye.b", "XN--aa---o47jg78q", "a--",
	}
	quoted := func(before string, list []string) []string {
		out := make([]string, len(list))
		for i, text := range list {
			out[i] = `"` + before + text + `"`
		}
		return out
	}
	long := strings.Repeat("x", 64)
	checkCases(t, []schemaCase{
		{`{"type": "string", "format": "hostname"}`, quoted("", hosts.yes), quoted("", hosts.no)},
		{`{"type": "string", "format": "hostname", "minLength": 3, "maxLength": 5}`, []string{`"a.b"`, `"abcde"`}, []string{`"ab"`, `"abcdef"`}},
		{`{"enum": ["` + name(253) + `", "` + name(255) + `"], "format": "hostname"}`, quoted("", []string{name(253)}), quoted("", []string{name(255)})},
		{
			`{"type": "string", "format": "email"}`,
			append(quoted("a@x.", hosts.yes[:9]), `"a.b@c.d"`, `"`+long[:60]+`@a.b"`, `"a@b.`+long[:60]+`"`),
			append(quoted("a@x.", hosts.no), `"`+long[:61]+`@a.b"`, `"a@b.`+long[:61]+`"`, `"a..b@c.d"`, `"@a.b"`, `"a@b@c.d"`, `"a@localhost"`),
		},
	})
	bare := compile(t, Bare([]byte(`{"type": "string", "format": "hostname"}`), "</end>"), bytesVocab(t))
	if !accepts(bare, name(253)+"</end>") || accepts(bare, name(255)+"</end>") || accepts(bare, label+"a</end>") {
		t.Error("the host name of an argument has other lengths")
	}
}
