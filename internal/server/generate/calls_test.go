package generate

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math/big"
	"math/bits"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/grammar"
	"github.com/foretoken/foretoken/internal/dialogue"
)

//go:embed generatetest/caller.jinja
var caller string

//go:embed generatetest/lines.jinja
var inLines string

//go:embed generatetest/tight.jinja
var tight string

//go:embed generatetest/fenced.jinja
var fenced string

//go:embed generatetest/marked.jinja
var marked string

// vocab is all bytes, common parts of calls, and an end.
func vocab(t *testing.T) (*grammar.Vocab, []string) {
	t.Helper()
	var tokens []string
	for b := range 256 {
		tokens = append(tokens, string([]byte{byte(b)}))
	}
	tokens = append(tokens, "\n</parameter>\n", "</parameter>", "</parameter", "\n</", "</function>", "<parameter=", "<parameter=s>\n", "\n", "\n\n",
		"null", "None", " null", "True", "true", "1e9", `": `, `", "`, `"]`, "</parameter></function>", "é", "a", "ab",
		"</arg_value>", "</arg_value", "</arg_value>\n", "<arg_key>", "</tool_call>", `<|"|>`, "<", "")
	v, err := grammar.NewVocab(tokens, []int32{int32(len(tokens) - 1)})
	if err != nil {
		t.Fatal(err)
	}
	return v, tokens
}

// draw is a random text of a grammar, with a preference for words and
// ends.
func draw(r *rand.Rand, g *grammar.Grammar, tokens []string) (string, bool) {
	m := g.Matcher()
	var out strings.Builder
	for range 4000 {
		mask := m.Allowed(nil)
		var ids, words, ends []int32
		for id := range int32(len(tokens)) {
			if mask[id/64]>>(id%64)&1 == 0 {
				continue
			}
			ids = append(ids, id)
			if len(tokens[id]) > 1 {
				words = append(words, id)
			}
			if slices.Contains([]string{"", "\n</parameter>\n", "</arg_value>", "</arg_value>\n", `"`, "]", "}", `<|"|>`}, tokens[id]) {
				ends = append(ends, id)
			}
		}
		switch n := r.IntN(6); {
		case len(ends) > 0 && n < 2:
			ids = ends[len(ends)-1:] // the longest is the last
		case len(words) > 0 && n < 4:
			ids = words
		}
		id := ids[r.IntN(len(ids))]
		if tokens[id] == "" {
			return out.String(), true
		}
		out.WriteString(tokens[id])
		m.Accept(id)
	}
	return "", false
}

// accepts reports whether a text is of a grammar.
func accepts(g *grammar.Grammar, text string, end int) bool {
	m := g.Matcher()
	for _, id := range []byte(text) {
		if m.Allowed(nil)[id/64]>>(id%64)&1 == 0 {
			return false
		}
		m.Accept(int32(id))
	}
	return m.Allowed(nil)[end/64]>>(end%64)&1 != 0
}

// forced is the bytes that all texts of a grammar begin with.
func forced(g *grammar.Grammar, end int) string {
	m := g.Matcher()
	var out []byte
	for {
		mask := m.Allowed(nil)
		n := 0
		for _, word := range mask[:4] { // the bytes
			n += bits.OnesCount64(word)
		}
		if n != 1 || mask[end/64]>>(end%64)&1 != 0 {
			return string(out)
		}
		for i, word := range mask[:4] {
			if word != 0 {
				out = append(out, byte(64*i+bits.TrailingZeros64(word)))
			}
		}
		m.Accept(int32(out[len(out)-1]))
	}
}

// properties are schemas of parameters that are called in XML.
var properties = []string{
	`{"type": "string"}`, `{"description": "any"}`, `true`, `{"type": ["string", "null"]}`, `{"anyOf": [{"type": "string", "minLength": 2}, {"type": "null"}]}`,
	`{"type": "string", "enum": ["a", "b c", "\n", "", "null"]}`, `{"enum": ["x", "5", "true"]}`, `{"enum": ["x", null]}`, `{"const": 5}`, `{"enum": [1, 2.5, false, null, [1]]}`,
	`{"type": "string", "pattern": "^a+</"}`, `{"type": "string", "pattern": "b"}`, `{"type": "string", "minLength": 1, "maxLength": 20}`, `{"type": "string", "format": "date"}`,
	`{"type": "integer"}`, `{"type": "integer", "minimum": 3, "maximum": 70}`, `{"type": "number"}`, `{"type": "number", "exclusiveMinimum": 0.5}`,
	`{"type": "boolean"}`, `{"type": "null"}`, `{"type": ["boolean", "null"], "const": true}`, `{"anyOf": [{"type": "integer"}, {"type": "null"}]}`,
	`{"type": "array", "items": {"type": "string"}}`, `{"type": "array", "items": {"type": "string", "maxLength": 30}, "minItems": 1}`,
	`{"type": "object", "properties": {"s": {"type": "string"}}}`, `{"$ref": "#/$defs/word"}`, `{"$ref": "#/$defs/tree"}`, `{"type": "array", "items": {"$ref": "#/$defs/word"}}`,
	`{"anyOf": [{"type": "integer"}, {"maxLength": 2}]}`, `{"allOf": [{"type": ["string", "null"]}, {"type": "string"}]}`,
}

const defs = `"$defs": {"word": {"type": "string", "pattern": "^[a-z]+$"}, "tree": {"type": "object", "properties":
	{"kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}, "is": {"$ref": "#/$defs/word"}}, "additionalProperties": false}}`

// RandomTool is a tool with some of the parameters.
func RandomTool(r *rand.Rand, properties []string) string {
	var list, required []string
	for i := range r.IntN(5) {
		name := string(rune('s' + i))
		list = append(list, fmt.Sprintf("%q: %s", name, properties[r.IntN(len(properties))]))
		if r.IntN(2) == 0 {
			required = append(required, fmt.Sprintf("%q", name))
		}
	}
	return fmt.Sprintf(`[{"name": "f", "parameters": {"type": "object", "properties": {%s}, "required": [%s], %s}}]`,
		strings.Join(list, ", "), strings.Join(required, ", "), defs)
}

// Fault is the error of the arguments of a call, or "".
func Fault(t *testing.T, tool chat.Tool, call chat.ToolCall) string {
	t.Helper()
	schema := decode(t, string(tool.Parameters()))
	return fits(schema, schema, decode(t, call.Arguments.JSON()))
}

func decode(t *testing.T, text string) any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

// TestDrawnCallsFitTheirSchemas draws calls of random tools. The parser reads arguments
// that the schemas allow; and a template's rendering of these is a call of the grammar, too,
// with the same arguments.
func TestDrawnCallsFitTheirSchemas(t *testing.T) {
	for name, c := range map[string]struct {
		template string
		share    int // of the draws
	}{"XML": {caller, 1}, "lines": {inLines, 4}, "tight": {tight, 4}, "fenced": {fenced, 8}, "marked": {marked, 4}} {
		t.Run(name, func(t *testing.T) { testDrawnCalls(t, c.template, c.share) })
	}
}

func testDrawnCalls(t *testing.T, source string, share int) {
	v, tokens := vocab(t)
	template, err := dialogue.NewTemplate(source)
	if err != nil {
		t.Fatal(err)
	}
	taught := dialogue.Teaches(source)
	drawn := 0
	for i := range 100 {
		if i >= len(properties) && i%share != 0 {
			continue
		}
		r := rand.New(rand.NewPCG(12, uint64(i)))
		text, draws := RandomTool(r, properties), 4
		if i < len(properties) {
			text, draws = fmt.Sprintf(`[{"name": "f", "parameters": {"properties": {"s": %s}, "required": ["s"], %s}}]`, properties[i], defs), 40/share
		}
		tools, err := chat.DecodeTools([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		a := &Request{Tools: tools, Calls: CallRequired}
		source, err := a.calls(tools, taught)
		if err != nil {
			t.Fatal(err)
		}
		g, err := grammar.Compile(source, v)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for range draws {
			said, ok := draw(r, g, tokens)
			if !ok || taught.Key == "" && regexp.MustCompile(`[0-9][eE][+-]?[0-9]{3}`).MatchString(said) {
				continue // it does not end, or has a number that is out of range
			}
			drawn++
			call := parse(t, tools, taught, said)
			if fault := Fault(t, tools[0], call); fault != "" || !strings.HasPrefix(said, taught.Begin+taught.Open+"f"+taught.Named) {
				t.Fatalf("%s\n%q\n%s: %s", text, said, call.Arguments.JSON(), fault)
			}
			out, err := template.Render(dialogue.Input{Messages: []chat.Message{{Role: "assistant", ToolCalls: []chat.ToolCall{call}}}})
			if err != nil {
				t.Fatal(err)
			}
			rendered := strings.TrimSuffix(out.Text[strings.Index(out.Text, taught.Marker()):], "<|im_end|>\n")
			if again := parse(t, tools, taught, rendered); !reflect.DeepEqual(again, call) {
				t.Fatalf("%s\n%q\n%q: %s", text, said, rendered, again.Arguments.JSON())
			}
			exponent := regexp.MustCompile(`[0-9]e`).MatchString(rendered)
			if !exponent && !accepts(g, rendered, len(tokens)-1) {
				t.Fatalf("%s\n%q\n%q is not of the grammar", text, said, rendered)
			}
		}
	}
	if t.Logf("%d calls", drawn); drawn < 1200/share {
		t.Errorf("only %d calls", drawn)
	}
}

// parse is the call that a text is.
func parse(t *testing.T, tools []chat.Tool, taught dialogue.CallSyntax, text string) chat.ToolCall {
	t.Helper()
	p := dialogue.NewParser(dialogue.ParserOptions{Tools: tools, ToolFormat: taught.Reads()})
	var answer chat.Answer
	answer.Add(p.Write(text))
	answer.Add(p.Close())
	if len(answer.ToolCalls) != 1 || answer.Content() != "" {
		t.Fatalf("%q: %d calls, content %q", text, len(answer.ToolCalls), answer.Content())
	}
	return answer.ToolCalls[0]
}

// fits is the error of a value, or "".
func fits(root, schema, v any) string {
	s, ok := schema.(map[string]any)
	if !ok {
		return ""
	}
	for keyword, x := range s {
		if !keywordFits(root, s, keyword, x, v) {
			return fmt.Sprintf("%v is against %s of %v", v, keyword, schema)
		}
	}
	return ""
}

func keywordFits(root any, s map[string]any, keyword string, x, v any) bool {
	object, _ := v.(map[string]any)
	list, _ := v.([]any)
	text, isText := v.(string)
	number, isNumber := v.(json.Number)
	fine := func(schema any) bool { return fits(root, schema, v) == "" }
	alternatives, _ := x.([]any)
	switch keyword {
	case "type":
		if alternatives == nil {
			alternatives = []any{x}
		}
		return slices.ContainsFunc(alternatives, func(t any) bool { return hasType(t.(string), v) })
	case "enum":
		return slices.ContainsFunc(alternatives, func(y any) bool { return reflect.DeepEqual(v, y) })
	case "const":
		return reflect.DeepEqual(v, x)
	case "anyOf":
		return slices.ContainsFunc(alternatives, fine)
	case "allOf":
		return !slices.ContainsFunc(alternatives, func(y any) bool { return !fine(y) })
	case "$ref":
		return fine(root.(map[string]any)["$defs"].(map[string]any)[strings.TrimPrefix(x.(string), "#/$defs/")])
	case "minimum":
		return !isNumber || rational(number).Cmp(rational(x)) >= 0
	case "maximum":
		return !isNumber || rational(number).Cmp(rational(x)) <= 0
	case "exclusiveMinimum":
		return !isNumber || rational(number).Cmp(rational(x)) > 0
	case "minLength":
		return !isText || rational(x).Cmp(big.NewRat(int64(utf8.RuneCountInString(text)), 1)) <= 0
	case "maxLength":
		return !isText || rational(x).Cmp(big.NewRat(int64(utf8.RuneCountInString(text)), 1)) >= 0
	case "pattern":
		return !isText || regexp.MustCompile(x.(string)).MatchString(text)
	case "format":
		return !isText || regexp.MustCompile(`^\d{4}-\d\d-\d\d$`).MatchString(text)
	case "minItems":
		return list == nil || len(list) > 0
	case "items":
		return !slices.ContainsFunc(list, func(item any) bool { return fits(root, x, item) != "" })
	case "required":
		return !slices.ContainsFunc(alternatives, func(name any) bool { _, ok := object[name.(string)]; return !ok })
	case "properties":
		for name, p := range x.(map[string]any) {
			if m, ok := object[name]; ok && fits(root, p, m) != "" {
				return false
			}
		}
	case "additionalProperties":
		for name := range object {
			if _, ok := s["properties"].(map[string]any)[name]; !ok {
				return false
			}
		}
	}
	return true
}

func rational(v any) *big.Rat {
	x, _ := new(big.Rat).SetString(string(v.(json.Number)))
	return x
}

func hasType(name string, v any) bool {
	switch v := v.(type) {
	case nil:
		return name == "null"
	case bool:
		return name == "boolean"
	case string:
		return name == "string"
	case json.Number:
		return name == "number" || name == "integer" && rational(v).IsInt()
	case []any:
		return name == "array"
	}
	return name == "object"
}

// TestWhatIsCalledInJSON has tools that the XML syntax cannot express, of a model that is taught
// it, and some that it can.
func TestWhatIsCalledInJSON(t *testing.T) {
	v, tokens := vocab(t)
	schema := func(property string) string {
		return `{"type": "object", "properties": {"s": ` + property + `}, "required": ["s"]}`
	}
	for _, c := range []struct {
		name, schema string
		xml          bool
	}{
		{"f", `null`, true},
		{"f", `{"type": "object"}`, true},
		{"f", `{}`, true},
		{"f", schema(`{"type": "string"}`), true},
		{"f", `{"type": "object", "properties": {"s": {"type": "string"}}, "additionalProperties": true}`, true},
		{"f>", `null`, false},
		{"f\n", `null`, false},
		{strings.Repeat("f", 257), `null`, false},
		{"f", `{"type": "object", "properties": {"a<b": {"type": "string"}}}`, false},
		{"f", schema(`{"type": ["string", "integer"]}`), false},
		{"f", schema(`{"anyOf": [{"type": "string"}, {"type": "object"}]}`), false},
		{"f", schema(`{"enum": ["a", 1]}`), false},
		{"f", schema(`{"enum": ["a", "</parameter>"]}`), false},
		{"f", schema(`{"type": ["string", "null"], "enum": ["null", null]}`), false},
		{"f", schema(`{"type": "integer", "enum": [1.0]}`), false},
		{"f", schema(`{"type": "string", "maxLength": 1000}`), true},
		{"f", schema(`{"type": "array", "items": {"type": "string", "maxLength": 1000}}`), true},
		{"f", schema(`{"properties": {"a": {"type": "string"}}}`), false},
		{"f", `{"type": "object", "properties": {"s": {"$ref": "#/properties/t"}, "t": {"type": "string"}}}`, false},
		{"f", `{"type": "object", "required": ["s"]}`, false},
		{"f", `{"type": "object", "additionalProperties": true}`, false},
		{"f", `{"type": "object", "properties": {"s": {"type": "string"}}, "additionalProperties": {"type": "integer"}}`, false},
		{"f", `{"type": "object", "properties": {"s": {"type": "string"}}, "patternProperties": {"^x": {"type": "integer"}}}`, false},
		{"f", `{"anyOf": [{"type": "object", "properties": {"s": {"type": "string"}}, "required": ["s"]}, {"type": "object"}]}`, false},
	} {
		name, _ := json.Marshal(c.name)
		tools, err := chat.DecodeTools([]byte(`[{"name": ` + string(name) + `, "parameters": ` + c.schema + `}]`))
		if err != nil {
			t.Fatal(err)
		}
		grammars := map[grammar.Key]string{}
		for _, taught := range []dialogue.CallSyntax{dialogue.Teaches(caller), dialogue.JSONCalls} {
			a := &Request{Tools: tools, Calls: CallRequired}
			source, err := a.calls(tools, taught)
			if err != nil {
				t.Fatal(err)
			}
			g, err := grammar.Compile(source, v)
			if err != nil {
				t.Fatalf("%s: %v", c.schema, err)
			}
			begin, xml := "<tool_call>\n{", "<tool_call>\n<"
			if taught.Key != "" && c.xml {
				begin = xml
			}
			forced := forced(g, len(tokens)-1)
			if !strings.HasPrefix(forced, begin) {
				t.Errorf("%q %s: taught %d: begins with %q", c.name, c.schema, taught.Format, forced)
			}
			if before, ok := grammars[source.Key()]; ok && before != forced {
				t.Errorf("%q %s: two grammars have one key", c.name, c.schema)
			}
			grammars[source.Key()] = forced
		}
	}
}
