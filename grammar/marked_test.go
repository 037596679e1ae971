package grammar

import (
	"encoding/json"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
)

const testMark = `<|"|>`

func TestMarked(t *testing.T) {
	v := bytesVocab(t, append([]string{testMark, "<|", `"|>`}, pieces...)...)
	for _, c := range []struct {
		schema  string
		yes, no []string
	}{
		{`{"type": "string"}`, []string{"<>", "<a\n\"b\" {,}>", `<<|">`}, []string{`"a"`, "a", "<a", "<a<|\"|>b>", "<\xff>"}},
		{`{"type": "string", "pattern": "^a+$", "maxLength": 2}`, []string{"<a>", "<aa>"}, []string{"<>", "<aaa>", "<ab>"}},
		{`{"enum": ["a b", "\"", 1, null]}`, []string{"<a b>", `<">`, "1", "null"}, []string{"a b", "<1>", "None"}},
		{`{"type": "number"}`, []string{"1", "-0.5e-99"}, []string{"1e100", "1.", " 1"}},
		{`{"type": "array", "items": {"type": "string"}, "minItems": 1}`, []string{"[<a>]", "[<a>,<b>]"}, []string{"[]", "[<a>, <b>]", "[ <a>]", `["a"]`}},
		{`{"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": true}`, []string{"[<b>,<a>]", "[]"}, []string{"[<a>,<a>]"}},
		{`{"const": {"a": ["x", 2], "b c": {}}}`, []string{"{a:[<x>,2],<b c>:{}}"}, []string{"{a:[<x>,2],b c:{}}", `{"a":[<x>,2],<b c>:{}}`}},
		{
			`{"type": "object", "properties": {"city": {"type": "string"}, "n": {"type": "integer"}}, "required": ["city"], "additionalProperties": false}`,
			[]string{"{city:<Rome>,n:3}", "{city:<a}b>}"},
			[]string{"{}", "{n:3}", "{city: <Rome>}", "{city:<Rome>,n:3.5}", "{city:<Rome>,x:1}", "{<city>:<Rome>}"},
		},
		{`{"type": "object"}`, []string{"{}", "{a:null}", "{a.b-c:[1,<x>]}"}, []string{"{a b:1}", "{<a>:1}", `{"a":1}`, "{:1}"}},
		{
			`{"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": {"type": "string"}}`,
			[]string{"{x1:1}", "{y:<z>}", "{x:1,y:<z>}"},
			[]string{"{x:<z>}", "{y:1}", "{x y:1}"},
		},
		{`{"type": "object", "propertyNames": {"minLength": 2, "pattern": "^[a-c ]*$"}}`, []string{"{ab:1}"}, []string{"{a:1}", "{xy:1}", "{a b:1}"}},
	} {
		g := compile(t, Marked([]byte(c.schema), testMark), v)
		marked := func(text string) string { // outer < and > are marks
			return regexp.MustCompile(`<([^<>]*(?:<\|"(?:\|>[^<>]*)?)?)>`).ReplaceAllString(text, testMark+"$1"+testMark)
		}
		for _, text := range c.yes {
			if !accepts(g, marked(text)) {
				t.Errorf("%s refuses %q", c.schema, marked(text))
			}
		}
		for _, text := range c.no {
			if accepts(g, marked(text)) {
				t.Errorf("%s accepts %q", c.schema, marked(text))
			}
		}
	}
	for _, schema := range []string{`{"enum": ["a", "<|\"|>"]}`, `{"properties": {"<|\"|>": true}}`, `{"type": 5}`, `{`} {
		if _, err := Compile(Marked([]byte(schema), testMark), v); err == nil {
			t.Errorf("%s can be had", schema)
		}
	}
	if _, err := Compile(Marked([]byte(`{"type": "string"}`), ""), v); err == nil {
		t.Error("strings without a mark can be had")
	}
}

// asJSON is a text in the notation of Marked as JSON.
func asJSON(text string) string {
	var b strings.Builder
	for i, part := range strings.Split(text, testMark) {
		if i%2 == 1 {
			data, _ := json.Marshal(part)
			b.Write(data)
			continue
		}
		b.WriteString(regexp.MustCompile(`(`+bareKey+`):`).ReplaceAllString(part, `"$1":`))
	}
	return b.String()
}

// TestSampledMarkedTextsAreValid draws texts of random schemas and reads them as JSON.
func TestSampledMarkedTextsAreValid(t *testing.T) {
	schemas := 200
	if testing.Short() {
		schemas = 60
	}
	v := bytesVocab(t, append([]string{testMark, "<|", `"|>`}, pieces...)...)
	ended := 0
	for i := range schemas {
		r := rand.New(rand.NewPCG(10, uint64(i)))
		text := schemaMaker{r}.root()
		schema, err := decode(text)
		if err != nil {
			t.Fatal(err)
		}
		g, err := Compile(Marked([]byte(text), testMark), v)
		if err != nil {
			continue // no value satisfies it, or it is too long
		}
		out, ok := sampleText(t, r, g, 3000)
		if !ok {
			continue
		}
		ended++
		if value, err := decode(asJSON(out)); err != nil || !valid(schema, schema, value) {
			t.Fatalf("schema %s\nsampled %q: %v", text, out, err)
		}
	}
	t.Logf("%d of %d ended", ended, schemas)
	if ended < schemas/4 {
		t.Errorf("only %d texts ended", ended)
	}
}
