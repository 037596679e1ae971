package grammar

import (
	"fmt"
	"strings"
	"testing"
)

func TestCompileNamesWhatIsWrong(t *testing.T) {
	v := bytesVocab(t)
	deep := strings.Repeat(`{"items":`, 200) + `true` + strings.Repeat(`}`, 200)
	wide := `{"enum": ["` + strings.Repeat("x", 40_000) + `"]}`
	for _, c := range []struct {
		source Source
		want   []string
	}{
		{Schema([]byte(`{`)), []string{"not valid JSON"}},
		{Schema([]byte(``)), []string{"not valid JSON"}},
		{Schema([]byte(`true true`)), []string{"more text follows"}},
		{Schema([]byte(`3`)), []string{"#", "is a number, want a schema"}},
		{Schema([]byte(`{"a": 1, "a": 2}`)), []string{"#", `two members "a"`}},
		{Schema([]byte(deep)), []string{"nested more than 128 deep"}},
		{Schema(make([]byte, maxSchemaBytes+1)), []string{"1048577 bytes, want at most 1048576"}},
		{Schema([]byte(`{"type": "strin"}`)), []string{"#/type", `"strin" is not a type`}},
		{Schema([]byte(`{"type": 3}`)), []string{"#/type", "want a list of strings"}},
		{Schema([]byte(`{"properties": {"a/b": {"contains": true}}}`)), []string{"#/properties/a~1b/contains", "not supported", "use items"}},
		{Schema([]byte(`{"not": {}}`)), []string{"no value satisfies"}},
		{Schema([]byte(`{"not": {"$ref": "#"}}`)), []string{"refers to itself without end"}},
		{Schema([]byte(`{"not": {"propertyNames": {"maxLength": 3}}}`)), []string{"#/not/propertyNames", "say what is allowed"}},
		{Schema([]byte(`{"not": {"patternProperties": {"a": {"type": "string"}}}}`)), []string{"#/not", "patternProperties", "say what is allowed"}},
		{Schema([]byte(`{"dependentRequired": {"a": {}}}`)), []string{"#/dependentRequired/a", "want a list of strings"}},
		{Schema([]byte(`{"items": [true], "prefixItems": [true]}`)), []string{"#/items", "with prefixItems"}},
		{Schema([]byte(`{"items": [3]}`)), []string{"#/items/0", "is a number, want a schema"}},
		{Schema([]byte(`{"items": [true], "additionalItems": 3}`)), []string{"#/additionalItems", "is a number, want a schema"}},
		{Schema([]byte(`{"uniqueItems": true}`)), []string{"#/uniqueItems", "only for items of few values"}},
		{Schema([]byte(`{"uniqueItems": true, "items": {"enum": [[1]]}}`)), []string{"#/uniqueItems", "only for items of few values"}},
		{Schema([]byte(`{"uniqueItems": true, "items": {"enum": [` + numbers(13) + `]}}`)), []string{"#/uniqueItems", "4096 sets"}},
		{Schema([]byte(`{"uniqueItems": true, "items": {"enum": [` + numbers(65) + `]}}`)), []string{"#/uniqueItems", "64 values"}},
		{Schema([]byte(`{"minProperties": 2}`)), []string{"#/minProperties", "required"}},
		{Schema([]byte(`{"maxProperties": -1}`)), []string{"#/maxProperties", "integer from 0"}},
		{Schema([]byte(`{"propertyNames": 3}`)), []string{"#/propertyNames", "is a number, want a schema"}},
		{Schema([]byte(`{"type": "object", "required": ["a"], "propertyNames": {"maxLength": 0}}`)), []string{"no value satisfies"}},
		{Schema([]byte(`{"minLength": -1}`)), []string{"#/minLength", "integer from 0"}},
		{Schema([]byte(`{"maxLength": 1.5}`)), []string{"#/maxLength", "1.5"}},
		{Schema([]byte(`{"exclusiveMinimum": true}`)), []string{"#/exclusiveMinimum", "is a boolean, want a number"}},
		{Schema([]byte(`{"minimum": 1e999}`)), []string{"#/minimum", "exponent"}},
		{Schema([]byte(`{"multipleOf": "2"}`)), []string{"#/multipleOf", "is a string, want a number"}},
		{Schema([]byte(`{"multipleOf": -2}`)), []string{"#/multipleOf", "above 0"}},
		{Schema([]byte(`{"multipleOf": 0.0}`)), []string{"#/multipleOf", "above 0"}},
		{Schema([]byte(`{"multipleOf": 0.123456789}`)), []string{"#/multipleOf", "0.123456789", "fewer decimals"}},
		{Schema([]byte(`{"type": "string", "pattern": "(?=a)"}`)), []string{"#/pattern", "(?="}},
		{Schema([]byte(`{"type": "string", "pattern": "\\ba"}`)), []string{"#/pattern", "word boundaries"}},
		{Schema([]byte(`{"type": "string", "pattern": "(.*a.{999}){9}"}`)), []string{"#/pattern", ""}},
		{Schema([]byte(`{"type": "string", "pattern": "a.{15}a.*b.{15}b"}`)), []string{"#/pattern", "more than 32768"}},
		{Schema([]byte(`{"format": "idn-email"}`)), []string{"#/format", `"idn-email" is not supported`, "date-time"}},
		{Schema([]byte(`{"$ref": "other.json"}`)), []string{"#/$ref", "only references within"}},
		{Schema([]byte(`{"$ref": "#/$defs/a"}`)), []string{"#/$ref", "there is no schema at"}},
		{Schema([]byte(`{"$ref": "#"}`)), []string{"#", "refers to itself without end"}},
		{Schema([]byte(`{"anyOf": [{"$ref": "#"}, {"type": "string"}]}`)), []string{"#", "refers to itself without end"}},
		{Schema([]byte(`{"allOf": []}`)), []string{"#/allOf", "at least one schema"}},
		{Schema([]byte(`{"type": "object", "oneOf": [{"patternProperties": {"^a": {"type": "string"}}}, {"patternProperties": {"^b": {"type": "string"}}}]}`)), []string{"#/oneOf", "0 and 1 may both hold", "anyOf"}},
		{Schema([]byte(`{"enum": []}`)), []string{"no value satisfies"}},
		{Schema([]byte(`{"type": "integer", "minimum": 3, "maximum": 2}`)), []string{"no value satisfies"}},
		{Schema([]byte(`{"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}`)), []string{"no value satisfies"}},
		{Schema([]byte(`{"items": {"$id": "x", "$ref": "#"}}`)), []string{"#/items/$ref", "with $id", "$schema"}},
		{Schema([]byte(`{"$ref": "#a"}`)), []string{"#/$ref", "there is no schema at"}},
		{Schema([]byte(`{"$ref": "#/%zz"}`)), []string{"#/$ref", "invalid URL escape"}},
		{Schema([]byte(`{"$ref": "x", "$defs": {"a": {"$id": "x"}, "b": {"$id": "x"}}}`)), []string{"#/$ref", "two schemas have the name"}},
		{Schema([]byte(wide)), []string{"more than 32768 automaton states"}},
		{Schema([]byte(doubling(20))), []string{"more than"}},
		{Schema([]byte(crossing(12))), []string{"more than"}},
		{Regexp(`(`), []string{"expression", "missing closing )"}},
		{Regexp(`(?m)^a`), []string{"line anchors"}},
		{Choice(), []string{"choice", "no value satisfies"}},
		{Choice(strings.Repeat("x", maxChoice+1)), []string{"at most"}},
		{Repeat(Literal("a"), 3, 2), []string{"repetition of 3 to 2 times"}},
		{Sequence(Literal("a"), Choice()), []string{"no value satisfies"}},
		{Either(), []string{"no value satisfies"}},
	} {
		g, err := Compile(c.source, v)
		if err == nil || g != nil {
			t.Errorf("no error, want %q", c.want)
			continue
		}
		for _, part := range append(c.want, "grammar: ") {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("error %q does not say %q", err, part)
			}
		}
	}
}

// doubling is a schema whose alternatives multiply.
func doubling(n int) string {
	group := `{"anyOf": [{"minLength": 1}, {"maxLength": 9}]}`
	return `{"allOf": [` + strings.TrimSuffix(strings.Repeat(group+",", n), ",") + `]}`
}

// crossing is a schema of definitions that each refer to all others, so that sets of
// them multiply.
func crossing(n int) string {
	var defs, all []string
	for i := range n {
		var next []string
		for j := range n {
			if (j+i)%3 > 0 {
				next = append(next, fmt.Sprintf(`{"$ref": "#/$defs/d%d"}`, j))
			}
		}
		defs = append(defs, fmt.Sprintf(`"d%d": {"properties": {"p%d": {"allOf": [%s]}, "q": {"anyOf": [%s]}}}`, i, i%5, strings.Join(next, ","), strings.Join(next, ",")))
		all = append(all, fmt.Sprintf(`{"$ref": "#/$defs/d%d"}`, i))
	}
	return `{"$defs": {` + strings.Join(defs, ",") + `}, "anyOf": [` + strings.Join(all, ",") + `]}`
}

func TestAnnotationsAreIgnored(t *testing.T) {
	v := bytesVocab(t)
	g := compile(t, Schema([]byte(`{"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "x", "title": "t", "description": "d",
		"default": 1, "examples": [2], "$comment": "c", "deprecated": true, "readOnly": true, "x-mine": {"not": 1}, "contentEncoding": "base64",
		"uniqueItems": false, "type": "boolean"}`)), v)
	if !accepts(g, "true") || accepts(g, "1") {
		t.Error("an annotation changed what is valid")
	}
}

// TestObjectOrder checks the order, which the validator of the other tests ignores.
func TestObjectOrder(t *testing.T) {
	v := bytesVocab(t)
	g := compile(t, Schema([]byte(`{"type": "object", "properties": {"b": {}, "a": {}}, "required": ["c", "a"]}`)), v)
	for text, want := range map[string]bool{
		`{"b": 1, "a": 2, "c": 3, "x": 4, "y": 5}`: true,
		`{"a": 2, "c": 3}`:                         true,
		`{"a": 2, "b": 1, "c": 3}`:                 false, // not in the schema's order
		`{"x": 1, "a": 2, "c": 3}`:                 false, // undeclared members come last
		`{"a": 2, "c": 3, "b": 1}`:                 false, // a name must not come back as an undeclared one
		`{"a": 2, "c": 3, "\u0062": 1}`:            false,
		`{"b": 1, "a": 2}`:                         false,
	} {
		if got := accepts(g, text); got != want {
			t.Errorf("%s: accepted %v, want %v", text, got, want)
		}
	}
}

func TestWhiteSpaceIsBounded(t *testing.T) {
	v := bytesVocab(t)
	g := compile(t, JSON(), v)
	for text, want := range map[string]bool{
		`[1,2]`: true, `[ 1, 2 ]`: true, "[\n\t\t1,\r\n  2\n]": true, `{}`: true, `[ ]`: true, "{\n}": true, `{"a": 1}`: true, `{ "a":1 }`: true,
		`[  1]`: false, `[1 ,2]`: false, `{"a" :1}`: false, `{"a":  1}`: false, "{\"a\":\n1}": false, "[\n\n1]": false, ` 1`: false, `1 `: false, "[\t1]": false,
		"[\n" + strings.Repeat(" ", 64) + "1]": true, "[\n" + strings.Repeat(" ", 65) + "1]": false,
	} {
		if got := accepts(g, text); got != want {
			t.Errorf("%q: accepted %v, want %v", text, got, want)
		}
	}
}

func TestNewVocabValidates(t *testing.T) {
	all := make([]string, 257)
	for b := range 256 {
		all[b] = string([]byte{byte(b)})
	}
	missing := append([]string{}, all...)
	missing['{'] = "x"
	for _, c := range []struct {
		tokens []string
		end    []int32
		want   string
	}{
		{all, []int32{256}, ""},
		{all, nil, "has no end id"},
		{all, []int32{257}, "end id 257 is outside"},
		{all, []int32{-1}, "end id -1 is outside"},
		{missing, []int32{256}, "no token for byte 0x7b"},
		{nil, nil, "has no end id"},
		{make([]string, maxVocab+1), []int32{1}, "at most"},
	} {
		if _, err := NewVocab(c.tokens, c.end); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}

// FuzzSchema compiles any schema, and matches any text against the compiled grammar.
func FuzzSchema(f *testing.F) {
	for i := range uint64(20) {
		f.Add(schemaMaker{newRand(i)}.root(), `{"a": 1}`)
	}
	f.Add(`{"anyOf": [{"$ref": "#/$defs/a"}, {"type": "array", "items": {"$ref": "#"}}], "$defs": {"a": {"const": 1e3}}}`, `[1e3]`)
	v := bytesVocab(f, pieces...)
	f.Fuzz(func(t *testing.T, schema, text string) {
		g, err := Compile(Schema([]byte(schema)), v)
		if err != nil {
			return
		}
		m := g.Matcher()
		for i := range min(len(text), 64) {
			mask := m.Allowed(nil)
			if len(members(mask)) == 0 {
				t.Fatalf("schema %q: nothing is allowed after %q", schema, text[:i])
			}
			if _, fits := m.machine.feed(m.now, text[i:i+1]); fits != has(mask, int32(text[i])) {
				t.Fatalf("schema %q: after %q byte %q fits: %v", schema, text[:i], text[i], fits)
			}
			m.Accept(int32(text[i]))
		}
	})
}
