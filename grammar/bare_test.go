package grammar

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestBare(t *testing.T) {
	v := bytesVocab(t, pieces...)
	long := strings.Repeat("x", 64)
	for _, c := range []struct {
		schema    string
		reserved  []string
		yes, no   []string
		otherwise bool // it cannot be built
	}{
		{schema: `{"type": "string"}`, yes: []string{"", "null", `"a\`, "a\nb\n", "<p></p", "é"}, no: []string{"</p>", "a</p>b", "\xff"}},
		{schema: `{"type": ["string", "null"]}`, reserved: []string{"null", "None"}, yes: []string{"null", "None", "nul", "nulls", "x null"}, no: []string{" null", "None\n", " None "}},
		{schema: `{"type": "string", "minLength": 1, "maxLength": 64}`, yes: []string{"é", "\n", long}, no: []string{"", long + "x", "</p>"}},
		{schema: `{"type": "string", "pattern": "^[^b]*$", "minLength": 2, "maxLength": 5000}`, yes: []string{"é\n", strings.Repeat("é", 5000)}, no: []string{"a", "ab", strings.Repeat("é", 5001), "aa</p>"}},
		{schema: `{"type": "string", "pattern": "b"}`, yes: []string{"b", "a\nb\"c"}, no: []string{"", "ac", "b</p>"}},
		{schema: `{"type": "string", "format": "date"}`, yes: []string{"2024-02-29"}, no: []string{`"2024-02-29"`, "2023-02-29"}},
		{schema: `{"enum": ["a b", "\"", 1, true, null]}`, yes: []string{"a b", `"`, "1", "true", "True", "null", "None"}, no: []string{`"a b"`, "1.0", "false"}},
		{schema: `{"enum": ["a", "None"]}`, reserved: []string{"null", "None"}, otherwise: true},
		{schema: `{"enum": ["a", "</p>"]}`, otherwise: true},
		{schema: `{"type": "integer", "enum": [1.0]}`, otherwise: true},
		{schema: `{"type": "boolean"}`, yes: []string{"true", "True", "false", "False"}, no: []string{"TRUE", `"true"`}},
		{schema: `{"type": "number"}`, yes: []string{"1", "-0.5e-99"}, no: []string{"1e100", "1" + strings.Repeat("0", 200)}},
		{schema: `{"type": "number", "minimum": 2}`, yes: []string{"2", "2.5"}, no: []string{"1", "1" + strings.Repeat("0", 200) + ".5"}},
		{schema: `{"type": "array", "items": {"type": "string"}}`, yes: []string{`["a", "<"]`, `["\u003c/p>"]`, `["<\/p>"]`}, no: []string{`["</p>"]`, "[a]"}},
		{schema: `{"type": "array", "items": {"type": "string", "maxLength": 4}}`, yes: []string{`["abcd"]`}, no: []string{`["</p>"]`, `["abcde"]`}},
		{schema: `{"type": "array", "items": {"pattern": "p"}}`, yes: []string{`["</p"]`}, no: []string{`["</p>"]`, `["a"]`}},
		{schema: `{"type": "object"}`, yes: []string{`{"a": null}`}, no: []string{`{"</p>": 1}`, `{"a": "</p>"}`, `{"a": None}`}},
		{schema: `{"type": "object", "properties": {"a": true}}`, yes: []string{`{"b": 1}`}, no: []string{`{"</p>": 1}`}},
	} {
		source := Bare([]byte(c.schema), "\n</p>", c.reserved...)
		if c.otherwise {
			if _, err := Compile(source, v); err == nil {
				t.Errorf("%s can be had", c.schema)
			}
			c.yes, c.no = []string{"otherwise"}, []string{"a"}
		}
		g := compile(t, Prefer(source, Literal("otherwise\n</p>")), v)
		for _, text := range c.yes {
			if !accepts(g, text+"\n</p>") {
				t.Errorf("%s refuses %q", c.schema, text)
			}
		}
		for _, text := range c.no {
			if accepts(g, text+"\n</p>") {
				t.Errorf("%s accepts %q", c.schema, text)
			}
		}
	}
}

// TestBareEnds has values with other ends than a line.
func TestBareEnds(t *testing.T) {
	v := bytesVocab(t, pieces...)
	for _, end := range []string{"</p>", "</p>\n", "\n</p>\n"} {
		for schema, texts := range map[string][]string{`{"type": "string"}`: {"", "a\n", "<</p"}, `{"type": "integer"}`: {"5"}, `{"enum": ["a", 1]}`: {"a", "1"}} {
			g := compile(t, Bare([]byte(schema), end), v)
			for _, text := range texts {
				if !accepts(g, text+end) || accepts(g, text+"</p>"+end) || accepts(g, text) {
					t.Errorf("%s with the end %q: %q", schema, end, text)
				}
			}
		}
	}
	if _, err := Compile(Bare([]byte(`{"type": "string"}`), " \n"), v); err == nil {
		t.Error("values without an end can be had")
	}
}

// TestPreferLeavesNoTrace has a part that is too large beside one that is not.
func TestPreferLeavesNoTrace(t *testing.T) {
	v := bytesVocab(t)
	var parts []Source
	for i := range 30 {
		large := fmt.Sprintf(`{"type": "string", "minLength": %d, "maxLength": 60}`, i)
		parts = append(parts, Prefer(Sequence(Bare([]byte(large), "\n</p>"), Bare([]byte(`false`), "\n</p>")), Schema([]byte(`{"type": "string", "maxLength": 3}`))))
	}
	g := compile(t, Sequence(parts...), v)
	if !accepts(g, strings.Repeat(`"abc"`, 30)) || accepts(g, strings.Repeat(`"abcd"`, 30)) {
		t.Error("it is not the second part")
	}
}

// TestSampledBareTextsAreValid draws texts of random schemas and reads them as templates
// mean them.
func TestSampledBareTextsAreValid(t *testing.T) {
	schemas := 200
	if testing.Short() {
		schemas = 60
	}
	v := bytesVocab(t, append([]string{"\n</p>", "</p>", "</", "p>", "null", "None"}, pieces...)...)
	ended := 0
	for i := range schemas {
		r := rand.New(rand.NewPCG(9, uint64(i)))
		text := schemaMaker{r}.root()
		words := i%2 == 0
		kinds := `["null", "boolean", "integer", "number", "array", "object"]`
		if words {
			kinds = `"string"`
		}
		text = fmt.Sprintf(`{"type": %s, "allOf": [%s], %s`, kinds, text, text[strings.LastIndex(text, `"$defs"`):])
		schema, err := decode(text)
		if err != nil {
			t.Fatal(err)
		}
		g, err := Compile(Bare([]byte(text), "\n</p>", "null", "None"), v)
		if err != nil {
			continue // no value satisfies it, or it is too long
		}
		out, ok := sampleText(t, r, g, 3000)
		if !ok {
			continue
		}
		ended++
		out, ok = strings.CutSuffix(out, "\n</p>")
		spelled := map[string]string{"None": "null", "True": "true", "False": "false"}[out]
		if spelled == "" {
			spelled = out
		}
		if words {
			data, _ := json.Marshal(out)
			spelled = string(data)
		}
		value, err := decode(spelled)
		if err != nil || !ok || !valid(schema, schema, value) || strings.Contains(out, "</p>") || words && strings.TrimSpace(out) == "null" {
			t.Fatalf("schema %s\nsampled %q: %v", text, out, err)
		}
	}
	t.Logf("%d of %d ended", ended, schemas)
	if ended < schemas/4 {
		t.Errorf("only %d texts ended", ended)
	}
}
