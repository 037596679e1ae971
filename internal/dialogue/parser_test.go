package dialogue

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/filetest"
)

const parserTools = `[{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
	"$defs": {"point": {"type": "object"}, "loop": {"$ref": "#/$defs/loop"}, "a/b": {"type": "integer"}},
	"properties": {
	"s": {"type": "string"}, "i": {"type": "integer"}, "n": {"type": "number"}, "b": {"type": "boolean"},
	"o": {"type": "object"}, "a": {"type": "array"}, "z": {"type": "null"}, "sn": {"type": ["string", "null"]},
	"in": {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "si": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
	"p": {"$ref": "#/$defs/point"}, "l": {"$ref": "#/$defs/loop"}, "e": {"$ref": "#/$defs/a~1b"}, "q": {"$ref": "#/no/where"},
	"u": {"description": "no type"}, "w": {"enum": ["a", 1, null, false]}, "k": {"const": 1.5},
	"x": {"anyOf": [{"const": "auto"}, {"type": "integer"}]}}}}}]`

var decodedTools = sync.OnceValues(func() ([]chat.Tool, error) { return chat.DecodeTools([]byte(parserTools)) })

func newTestParser(t testing.TB, thinking bool, format ToolFormat) *Parser {
	t.Helper()
	tools, err := decodedTools()
	if err != nil {
		t.Fatal(err)
	}
	o := ParserOptions{Thinking: thinking, Tools: tools, ToolFormat: format}
	if format == ToolMarked {
		o.Tags = thinkForms[1]
	}
	return NewParser(o)
}

// outline writes events on one line, adjacent ones of the same kind joined, so that
// it is the same for any split of the text.
func outline(p *Parser, chunks []string) string {
	var b strings.Builder
	last := chat.EventToolCall
	write := func(events []chat.Event) {
		for _, e := range events {
			switch {
			case e.Kind == chat.EventToolCall:
				fmt.Fprintf(&b, "|CALL %s %s", e.Call.Name, e.Call.Arguments.JSON())
			case e.Kind != last:
				b.WriteString([]string{"|C ", "|R "}[e.Kind])
			}
			b.WriteString(e.Text)
			last = e.Kind
		}
	}
	for _, chunk := range chunks {
		write(p.Write(chunk))
	}
	write(p.Close())
	return b.String()
}

// bareCall writes a call as Qwen models do that forget its outer tags.
func bareCall(name string, arguments ...string) string {
	return strings.TrimSuffix(strings.TrimPrefix(xmlCall(name, arguments...), "<tool_call>\n"), "\n</tool_call>")
}

// xmlCall writes a call the way Qwen templates do.
func xmlCall(name string, arguments ...string) string {
	s := "<tool_call>\n<function=" + name + ">\n"
	for i := 0; i < len(arguments); i += 2 {
		s += "<parameter=" + arguments[i] + ">\n" + arguments[i+1] + "\n</parameter>\n"
	}
	return s + "</function>\n</tool_call>"
}

const hermes = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": [1.0, \"}</tool_call>\\\"\"]}}\n</tool_call>"

var parserCases = []struct {
	name     string
	thinking bool
	text     string
	want     string
}{
	{"nothing", false, "", ""},
	{"plain", false, "Hello.\n\nBye.\n", "|C Hello.\n\nBye.\n"},
	{"leading newlines stay", false, "\n\nHello", "|C \n\nHello"},
	{"only newlines", false, "\n\n", "|C \n\n"},
	{"thinks", false, "<think>\nhm\n\nso\n</think>\n\nHello\n", "|R hm\n\nso|C Hello\n"},
	{"thinks after blanks", false, " \n<think>hm</think>Hello", "|R hm|C Hello"},
	{"starts thinking", true, "hm\n</think>\n\nHello", "|R hm|C Hello"},
	{"starts thinking, tag again", true, "\n<think>\nhm</think>x", "|R hm|C x"},
	{"empty reasoning", true, "\n\n</think>\n\nHello", "|C Hello"},
	{"only reasoning", true, "hm\n", "|R hm"},
	{"unclosed reasoning", false, "<think>\nhm </thin", "|R hm </thin"},
	{"unclosed reasoning, newline and part of a tag", true, "hm\n\n</", "|R hm\n\n</"},
	{"part of a tag is reasoning", true, "a </think b </thinking></think>c", "|R a </think b </thinking>|C c"},
	{"think tag later is text", false, "a <think>b</think>", "|C a <think>b</think>"},
	{"close tag without open is text", false, "a</think>b", "|C a</think>b"},
	{"second block is text", true, "a</think>b<think>c</think>", "|R a|C b<think>c</think>"},
	{"think tag after a page of newlines", false, strings.Repeat("\n", 65) + "<think>", "|C " + strings.Repeat("\n", 65) + "<think>"},
	{"part of think tag", false, "<thin", "|C <thin"},
	{"almost a think tag", false, " <thinker>", "|C  <thinker>"},
	{"JSON call in reasoning is text", true, hermes + "</think>x", "|R " + hermes + "|C x"},
	{"call ends the reasoning", true, "hm\n\n" + xmlCall("f", "s", "x"), `|R hm|CALL f {"s": "x"}`},
	{"call instead of reasoning", true, "\n" + xmlCall("f"), `|CALL f {}`},
	{"calls end the reasoning", true, "hm" + xmlCall("f", "s", "1") + "\n" + xmlCall("g") + "\n" + hermes + "\n", `|R hm|CALL f {"s": "1"}|CALL g {}|CALL f {"b": 1, "a": [1.0, "}</tool_call>\""]}`},
	{"call at the end of the reasoning", true, "hm\n" + xmlCall("f") + "\n</think>\n\n", "|R hm|CALL f {}"},
	{"call, then words, in reasoning", true, "hm" + xmlCall("f") + "\n\nSo.\n<tool_call>", "|R hm|CALL f {}|C So.\n<tool_call>"},
	{"call in reasoning that goes on", true, "hm\n" + xmlCall("f") + "\nNo.\n</think>\n\nHello", "|R hm\n" + xmlCall("f") + "\nNo.|C Hello"},
	{"call in reasoning and after it", true, "hm\n" + xmlCall("f") + "\n</think>\n\n" + xmlCall("f") + "\nx</think>", "|R hm\n" + xmlCall("f") + "|CALL f {}|C x</think>"},
	{"undeclared call in reasoning is text", true, "a\n" + xmlCall("g") + "\n</think>\nb", "|R a\n" + xmlCall("g") + "|C b"},
	{"reasoning about calls", true, "So <tool_call>\n<function=f>\n<parameter=s>\nx, then?\n</think>\n\n" + xmlCall("f") + "y", "|R So <tool_call>\n<function=f>\n<parameter=s>\nx, then?|CALL f {}|C y"},
	{"closing tag in a call of the reasoning", true, xmlCall("f", "s", "</think>") + "x", "|R <tool_call>\n<function=f>\n<parameter=s>|C </parameter>\n</function>\n</tool_call>x"},
	{"unfinished call in reasoning", true, "hm\n<tool_call>\n<function=f>\n<parameter=s>", "|R hm\n<tool_call>\n<function=f>\n<parameter=s>"},
	{"bare call in reasoning is text", true, "hm\n" + bareCall("f") + "\n</think>x", "|R hm\n" + bareCall("f") + "|C x"},

	{"bare call", false, bareCall("f", "s", "x", "i", "5"), `|CALL f {"s": "x", "i": 5}`},
	{"bare call with words", false, "Let me.\n\n" + bareCall("f", "s", "x") + "\n\nSo.", `|C Let me.|CALL f {"s": "x"}|C So.`},
	{"bare call with the closing tag", false, "A.\n" + bareCall("f") + "\n</tool_call>\n" + bareCall("f") + "</tool_call>\n" + xmlCall("f") + "\nB.", "|C A.|CALL f {}|CALL f {}|CALL f {}|C B."},
	{"closing tag later", false, bareCall("f") + "a</tool_call>b", "|CALL f {}|C a</tool_call>b"},
	{"closing tag without a call", false, "a</tool_call>\n</think>b", "|C a</tool_call>\n</think>b"},
	{"bare call after thinking", true, "hm\n</think>\n\n" + bareCall("f"), `|R hm|CALL f {}`},
	{"bare call of another tool", false, "a\n" + bareCall("g", "s", "x") + "\nb", "|C a\n" + bareCall("g", "s", "x") + "\nb"},
	{"words about bare calls", false, "Write <function=f>, then <parameter=s>.\n", "|C Write <function=f>, then <parameter=s>.\n"},
	{"bare name without an end", false, "a <function=" + strings.Repeat("f", 300) + ">", "|C a <function=" + strings.Repeat("f", 300) + ">"},
	{"bare name in two lines", false, "<function=\nf></function>", "|C <function=\nf></function>"},
	{"bare call, then one that is", false, "<function=f> <function=<function=g>" + bareCall("f") + "x", "|C <function=f> <function=<function=g>|CALL f {}|C x"},
	{"unfinished bare call", false, "a\n<function=f>\n<parameter=s>\nx\n", "|C a\n<function=f>\n<parameter=s>\nx\n"},
	{"bare value holds tags", false, bareCall("f", "s", "</parameter>x</function>\n<function=f>"), `|CALL f {"s": "</parameter>x</function>\n<function=f>"}`},
	{"broken call is no bare one", false, "<tool_call>\n" + bareCall("f") + "\nx\n</tool_call>", "|C <tool_call>\n" + bareCall("f") + "\nx\n</tool_call>"},

	{"XML call", false, xmlCall("f", "s", "x"), `|CALL f {"s": "x"}`},
	{"XML call without arguments", false, xmlCall("f"), `|CALL f {}`},
	{"text around calls", false, "Let me.\n\n" + xmlCall("f") + "\n\nDone.\n", `|C Let me.|CALL f {}|C Done.` + "\n"},
	{
		"several calls", false, xmlCall("f", "s", "1") + "\n" + xmlCall("g", "s", "2") + "\n" + hermes + "\n",
		`|CALL f {"s": "1"}|CALL g {"s": "2"}|CALL f {"b": 1, "a": [1.0, "}</tool_call>\""]}`,
	},
	{"thinks then calls", true, "hm\n</think>\n\n" + xmlCall("f") + "\n", `|R hm|CALL f {}`},
	{
		"values are verbatim", false, xmlCall("f", "s", " a\n\n<b> </parameter> \"c\"\\n\n", "u", "\n"),
		`|CALL f {"s": " a\n\n<b> </parameter> \"c\"\\n\n", "u": "\n"}`,
	},
	{
		"value holds tags", false, xmlCall("f", "s", "<tool_call>\n</tool_call></function>\n</parameter>x"),
		`|CALL f {"s": "<tool_call>\n</tool_call></function>\n</parameter>x"}`,
	},
	{"value without newlines", false, "<tool_call><function=f><parameter=s>x</parameter></function></tool_call>", `|CALL f {"s": "x"}`},
	{"empty value", false, xmlCall("f", "s", ""), `|CALL f {"s": ""}`},
	{"value without anything", false, "<tool_call><function=f><parameter=s></parameter></function></tool_call>", `|CALL f {"s": ""}`},
	{"order is kept", false, xmlCall("f", "z1", "1", "a1", "2", "z1", "3"), `|CALL f {"z1": "3", "a1": "2"}`},
	{"unicode", false, xmlCall("f", "s", "日本\u2028é😀"), "|CALL f {\"s\": \"日本\u2028é😀\"}"},

	{
		"types", false, xmlCall("f", "i", "5", "n", "2.50", "b", "true", "o", `{"z": 1, "a": null}`, "a", "[1, 2]", "z", "null"),
		`|CALL f {"i": 5, "n": 2.5, "b": true, "o": {"z": 1, "a": null}, "a": [1, 2], "z": null}`,
	},
	{"strings stay strings", false, xmlCall("f", "s", "5", "u", "true", "other", "null"), `|CALL f {"s": "5", "u": "true", "other": "null"}`},
	{"Python forms", false, xmlCall("f", "b", "False", "z", "None", "sn", "None"), `|CALL f {"b": false, "z": null, "sn": null}`},
	{"alternatives", false, xmlCall("f", "in", "5", "si", "5", "sn", "5"), `|CALL f {"in": 5, "si": "5", "sn": "5"}`},
	{"references", false, xmlCall("f", "p", "{}", "l", "5", "e", "5", "q", "5"), `|CALL f {"p": {}, "l": "5", "e": 5, "q": "5"}`},
	{
		"misfits are strings", false, xmlCall("f", "i", "five", "n", "[]", "b", "yes", "o", "[1]", "a", "{}", "z", "x"),
		`|CALL f {"i": "five", "n": "[]", "b": "yes", "o": "[1]", "a": "{}", "z": "x"}`,
	},
	{
		"listed values", false, xmlCall("f", "w", "a", "k", "1.5", "x", "auto") + xmlCall("f", "w", "1", "x", "1") + xmlCall("f", "w", "False") + xmlCall("f", "w", "null"),
		`|CALL f {"w": "a", "k": 1.5, "x": "auto"}|CALL f {"w": 1, "x": 1}|CALL f {"w": false}|CALL f {"w": null}`,
	},
	{"integer as float", false, xmlCall("f", "i", "5.0", "n", "5"), `|CALL f {"i": "5.0", "n": 5}`},

	{"JSON call", false, hermes, `|CALL f {"b": 1, "a": [1.0, "}</tool_call>\""]}`},
	{"JSON call without newlines", false, `<tool_call>{"name": "f", "arguments": {}}</tool_call>`, `|CALL f {}`},
	{"JSON call without arguments", false, `<tool_call>{"name": "f"}</tool_call>`, `|CALL f {}`},
	{"JSON call with text as arguments", false, `<tool_call>{"name": "f", "arguments": "{\"a\": 1}"}</tool_call>`, `|CALL f {"a": 1}`},

	{"no call", false, "a\n<tool_call>\nnothing", "|C a\n<tool_call>\nnothing"},
	{"no name", false, `<tool_call>{"arguments": {}}</tool_call>x`, `|C <tool_call>{"arguments": {}}</tool_call>x`},
	{"arguments are no object", false, `<tool_call>{"name": "f", "arguments": [1]}</tool_call>`, `|C <tool_call>{"name": "f", "arguments": [1]}</tool_call>`},
	{"missing brace", false, "<tool_call>{\"name\": \"f\"\n</tool_call>\nx", "|C <tool_call>{\"name\": \"f\"\n</tool_call>\nx"},
	{"brackets crossed", false, `<tool_call>{"name": ["f"}]</tool_call>`, `|C <tool_call>{"name": ["f"}]</tool_call>`},
	{"newline in a JSON string", false, "<tool_call>{\"name\": \"f\n\"}</tool_call>", "|C <tool_call>{\"name\": \"f\n\"}</tool_call>"},
	{"no closing tag", false, "a\n\n<tool_call>{\"name\": \"f\"}\n", "|C a\n\n<tool_call>{\"name\": \"f\"}\n"},
	{"unfinished XML", false, "a\n\n<tool_call>\n<function=f>\n<parameter=s>\nx\n", "|C a\n\n<tool_call>\n<function=f>\n<parameter=s>\nx\n"},
	{"text in a function", false, "<tool_call><function=f>x</function></tool_call>", "|C <tool_call><function=f>x</function></tool_call>"},
	{"empty name", false, "<tool_call><function=></function></tool_call>", "|C <tool_call><function=></function></tool_call>"},
	{"newline in a name", false, "<tool_call><function=a\nb></function></tool_call>", "|C <tool_call><function=a\nb></function></tool_call>"},
	{
		"long name", false, "<tool_call><function=" + strings.Repeat("n", 300) + "></function></tool_call>",
		"|C <tool_call><function=" + strings.Repeat("n", 300) + "></function></tool_call>",
	},
	{"a call after what is none", false, "<tool_call> no <tool_call>" + xmlCall("f") + "y", "|C <tool_call> no <tool_call>|CALL f {}|C y"},
	{"part of a tag", false, "a <tool_cal", "|C a <tool_cal"},
	{"newlines and part of a tag", false, "a\n\n<tool", "|C a\n\n<tool"},
	{"tags of other kinds", false, "a <b> </b> <tool_callx> <", "|C a <b> </b> <tool_callx> <"},
}

type familyCase struct {
	name     string
	format   ToolFormat
	thinking bool
	text     string
	want     string
}

// familyCases are answers in the formats of GLM and DeepSeek.
var familyCases = []familyCase{
	{"GLM in lines", ToolGLM, false, "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>x</arg_value>\n<arg_key>i</arg_key>\n<arg_value>5</arg_value>\n</tool_call>", `|CALL f {"s": "x", "i": 5}`},
	{"GLM tight", ToolGLM, false, "<tool_call>f<arg_key>s</arg_key><arg_value>x</arg_value></tool_call>", `|CALL f {"s": "x"}`},
	{"GLM in between", ToolGLM, false, "Let me.\n<tool_call>\n f <arg_key> s </arg_key> <arg_value> x\n</arg_value> </tool_call>\nSo.", `|C Let me.|CALL f {"s": " x\n"}|C So.`},
	{"GLM without arguments", ToolGLM, false, "<tool_call>f\n</tool_call><tool_call>g</tool_call>", `|CALL f {}|CALL g {}`},
	{"GLM values are verbatim", ToolGLM, false, glmCall("f", "s", "\n a<b></arg_value> </arg_key><tool_call>\n"), `|CALL f {"s": "\n a<b></arg_value> </arg_key><tool_call>\n"}`},
	{
		"GLM types", ToolGLM, false, glmCall("f", "i", "5", "n", "2.50", "b", "true", "o", `{"z": 1}`, "a", "[1]", "z", "null", "sn", "None", "s", "5", "in", "7"),
		`|CALL f {"i": 5, "n": 2.5, "b": true, "o": {"z": 1}, "a": [1], "z": null, "sn": null, "s": "5", "in": 7}`,
	},
	{
		"GLM without a type", ToolGLM, false, glmCall("f", "u", "5", "x1", "[1, 2]", "x2", `"5"`, "x3", " true", "x4", "True", "x5", "a b", "x6", "") + glmCall("g", "s", "5"),
		`|CALL f {"u": 5, "x1": [1, 2], "x2": "\"5\"", "x3": true, "x4": "True", "x5": "a b", "x6": ""}|CALL g {"s": 5}`,
	},
	{"GLM misfits are strings", ToolGLM, false, glmCall("f", "i", "five", "b", "yes"), `|CALL f {"i": "five", "b": "yes"}`},
	{"GLM in JSON", ToolGLM, false, hermes, `|CALL f {"b": 1, "a": [1.0, "}</tool_call>\""]}`},
	{"GLM thinks by itself", ToolGLM, false, "\n<think>hm</think>\n" + glmCall("f"), "|R hm|CALL f {}"},
	{"GLM forgets to end its thoughts", ToolGLM, true, "hm\n\n" + glmCall("f") + "x", "|R hm|CALL f {}|C x"},
	{"GLM thinks about calls", ToolGLM, true, "a <tool_call> b " + glmCall("nobody") + "\n</think>c", "|R a <tool_call> b " + glmCall("nobody") + "|C c"},
	{"GLM thinks and stops within a call", ToolGLM, true, "a\n<tool_call>f\n", "|R a\n<tool_call>f\n"},
	{"GLM no name", ToolGLM, false, "<tool_call>\n</tool_call>", "|C <tool_call>\n</tool_call>"},
	{"GLM two lines for a name", ToolGLM, false, "<tool_call>f\ng</tool_call>", "|C <tool_call>f\ng</tool_call>"},
	{"GLM tag in a key", ToolGLM, false, "<tool_call>f<arg_key>s<arg_value>x</arg_value></tool_call>", "|C <tool_call>f<arg_key>s<arg_value>x</arg_value></tool_call>"},
	{"GLM key without a value", ToolGLM, false, "<tool_call>f<arg_key>s</arg_key></tool_call>", "|C <tool_call>f<arg_key>s</arg_key></tool_call>"},
	{"GLM empty key", ToolGLM, false, "<tool_call>f<arg_key> </arg_key><arg_value></arg_value></tool_call>", "|C <tool_call>f<arg_key> </arg_key><arg_value></arg_value></tool_call>"},
	{"GLM unfinished", ToolGLM, false, "a\n<tool_call>f<arg_key>s</arg_key><arg_value>x</arg_value>", "|C a\n<tool_call>f<arg_key>s</arg_key><arg_value>x</arg_value>"},
	{"GLM reads no XML", ToolGLM, false, xmlCall("f"), "|C " + xmlCall("f")},

	{"DeepSeek-V3", ToolDeepSeek, false, deepSeekBegin + fencedCall("f", `{"s": "x"}`) + "\n" + fencedCall("g", "{\n}") + deepSeekEnd, `|CALL f {"s": "x"}|CALL g {}`},
	{"DeepSeek-V3.1", ToolDeepSeek, true, "hm</think>" + deepSeekBegin + sepCall("f", `{"s": "x"}`) + sepCall("g", `{}`) + deepSeekEnd, `|R hm|CALL f {"s": "x"}|CALL g {}`},
	{"DeepSeek with words", ToolDeepSeek, false, "Let me.\n" + deepSeekBegin + "\n" + sepCall("f", `{}`) + "\n" + deepSeekEnd + "\n\nSo.", "|C Let me.|CALL f {}|C So."},
	{"DeepSeek without the outer tags", ToolDeepSeek, false, sepCall("f", `{}`) + deepSeekEnd, "|CALL f {}|C " + deepSeekEnd},
	{"DeepSeek tags in arguments", ToolDeepSeek, false, sepCall("f", `{"s": "}`+deepSeekClose+"```"+`"}`), `|CALL f {"s": "}` + deepSeekClose + "```" + `"}`},
	{"DeepSeek, a fence without a language", ToolDeepSeek, false, deepSeekOpen + "function" + deepSeekSep + "f\n```\n{}\n```\n" + deepSeekClose, "|CALL f {}"},
	{"DeepSeek without a name", ToolDeepSeek, false, deepSeekBegin + sepCall("", `{}`), "|C " + deepSeekBegin + sepCall("", `{}`)},
	{"DeepSeek without arguments", ToolDeepSeek, false, deepSeekOpen + "f" + deepSeekSep + deepSeekClose, "|C " + deepSeekOpen + "f" + deepSeekSep + deepSeekClose},
	{"DeepSeek, a list of arguments", ToolDeepSeek, false, sepCall("f", `[1]`), "|C " + sepCall("f", `[1]`)},
	{"DeepSeek unfinished", ToolDeepSeek, false, "a" + deepSeekBegin + deepSeekOpen + "f" + deepSeekSep + "{", "|C a" + deepSeekBegin + deepSeekOpen + "f" + deepSeekSep + "{"},
	{"DeepSeek, part of a tag", ToolDeepSeek, false, "a<｜tool▁call", "|C a<｜tool▁call"},
}

// glmCall writes a call the way templates of GLM-4.7 do.
func glmCall(name string, arguments ...string) string {
	s := "<tool_call>" + name
	for i := 0; i < len(arguments); i += 2 {
		s += "<arg_key>" + arguments[i] + "</arg_key><arg_value>" + arguments[i+1] + "</arg_value>"
	}
	return s + "</tool_call>"
}

// fencedCall writes a call the way templates of DeepSeek-V3 do, sepCall that of DeepSeek-V3.1.
func fencedCall(name, arguments string) string {
	return deepSeekOpen + "function" + deepSeekSep + name + "\n```json\n" + arguments + "\n```" + deepSeekClose
}

func sepCall(name, arguments string) string {
	return deepSeekOpen + name + deepSeekSep + arguments + deepSeekClose
}

// TestParserOfFamiliesAtEverySplit is TestParserAtEverySplit with familyCases.
func TestParserOfFamiliesAtEverySplit(t *testing.T) {
	for _, c := range append(familyCases, markedCases...) {
		t.Run(c.name, func(t *testing.T) {
			for _, chunks := range everySplit(c.text) {
				if got := outline(newTestParser(t, c.thinking, c.format), chunks); got != c.want {
					t.Fatalf("chunks %q:\n got %q\nwant %q", chunks, got, c.want)
				}
			}
		})
	}
}

// TestParserAtEverySplit parses each text whole, byte by byte, and cut in two at
// every place; all must say the same.
func TestParserAtEverySplit(t *testing.T) {
	for _, c := range parserCases {
		t.Run(c.name, func(t *testing.T) {
			for _, chunks := range everySplit(c.text) {
				if got := outline(newTestParser(t, c.thinking, ToolAuto), chunks); got != c.want {
					t.Fatalf("chunks %q:\n got %q\nwant %q", chunks, got, c.want)
				}
			}
		})
	}
}

// TestParserAtRandomSplits strings tags and texts together at random and compares
// random splits with the whole.
func TestParserAtRandomSplits(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	pieces := []string{
		"<think>", "</think>", "<tool_call>", "</tool_call>", "\n", "\n\n", "a", " b", "<function=f>", "</function>",
		"<parameter=s>", "</parameter>", `{"name": "f", "arguments": {}}`, hermes, xmlCall("f", "i", "7"), bareCall("f", "i", "7"), "<function=", "<", "</", "é", "{", `"`,
		"<arg_key>s</arg_key>", "<arg_value>", "</arg_value>", "f", glmCall("f", "i", "7"), deepSeekBegin, deepSeekEnd, deepSeekOpen, deepSeekSep, "```",
		fencedCall("f", "{}"), sepCall("f", "{}"), markedOpen, markedClose, markedQuote, markedCall, "<|channel>", "thought", "<channel|>", markedOpen + "call:f{a:1", "}",
	}
	for range 2000 {
		var text strings.Builder
		for range rng.IntN(14) {
			text.WriteString(pieces[rng.IntN(len(pieces))])
		}
		thinking, format := rng.IntN(2) == 0, ToolFormat(rng.IntN(int(ToolMarked)+1))
		want := outline(newTestParser(t, thinking, format), []string{text.String()})
		chunks := randomSplit(rng, text.String())
		if got := outline(newTestParser(t, thinking, format), chunks); got != want {
			t.Fatalf("chunks %q:\n got  %q\nwhole %q", chunks, got, want)
		}
	}
}

func TestParserFormats(t *testing.T) {
	xml := xmlCall("f")
	for _, c := range []struct {
		format    ToolFormat
		xml, json string
	}{
		{ToolAuto, "|CALL f {}", `|CALL f {"b": 1, "a": [1.0, "}</tool_call>\""]}`},
		{ToolXML, "|CALL f {}", "|C " + hermes},
		{ToolJSON, "|C " + xml, `|CALL f {"b": 1, "a": [1.0, "}</tool_call>\""]}`},
		{ToolNone, "|C " + xml, "|C " + hermes},
	} {
		if got := outline(newTestParser(t, false, c.format), []string{xml}); got != c.xml {
			t.Errorf("format %d, XML: got %q", c.format, got)
		}
		if got := outline(newTestParser(t, false, c.format), []string{hermes}); got != c.json {
			t.Errorf("format %d, JSON: got %q", c.format, got)
		}
	}
}

// TestParserHoldsBackOnlyPossibleTags checks that text is emitted as soon as it cannot be part of
// a tag any more.
func TestParserHoldsBackOnlyPossibleTags(t *testing.T) {
	p := newTestParser(t, true, ToolAuto)
	for _, c := range []struct{ chunk, want string }{
		{"h", "h"},
		{"m <", "m "},
		{"/", ""},
		{"x", "</x"},
		{"\n", ""},
		{"y", "\ny"},
		{"</think", ""},
		{">", ""},
		{"\n", ""},
		{"a <tool", "a "},
		{"s", "<tools"},
		{" <tool_call>", " "},
		{"\n", ""},
		{"{", ""},
		{"!", "<tool_call>\n{!"},
		{"z", "z"},
	} {
		got := ""
		for _, e := range p.Write(c.chunk) {
			got += e.Text
		}
		if got != c.want {
			t.Errorf("after %q: got %q, want %q", c.chunk, got, c.want)
		}
	}
}

// TestExactParserReadsNoMistakes has calls that only a parser that is not Exact accepts.
func TestExactParserReadsNoMistakes(t *testing.T) {
	tools, err := decodedTools()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		format     ToolFormat
		thinking   bool
		text, want string
	}{
		{ToolAuto, false, bareCall("f") + "\n</tool_call>", "|C " + bareCall("f") + "\n</tool_call>"},
		{ToolAuto, true, "hm\n" + xmlCall("f"), "|R hm\n" + xmlCall("f")},
		{ToolGLM, true, "hm\n" + glmCall("f"), "|R hm\n" + glmCall("f")},
	} {
		for _, chunks := range everySplit(c.text) {
			p := NewParser(ParserOptions{Thinking: c.thinking, Tools: tools, ToolFormat: c.format, Exact: true})
			if got := outline(p, chunks); got != c.want {
				t.Fatalf("%q is %q, want %q", chunks, got, c.want)
			}
		}
	}
}

// TestParserSetsThoughtsApart has answers behind a think block that the prompt closed.
func TestParserSetsThoughtsApart(t *testing.T) {
	for text, want := range map[string]string{"\n\nHello\n": "|C Hello\n", "Hello": "|C Hello", "\n" + glmCall("f"): "|CALL f {}", "\n": ""} {
		for _, chunks := range everySplit(text) {
			if got := outline(NewParser(ParserOptions{Thought: true, ToolFormat: ToolGLM}), chunks); got != want {
				t.Fatalf("%q is %q, want %q", chunks, got, want)
			}
		}
	}
}

// TestToolTypes has the types by which arguments are read.
func TestToolTypes(t *testing.T) {
	tools, err := chat.DecodeTools([]byte(parserTools))
	if err != nil {
		t.Fatal(err)
	}
	for parameter, want := range map[string]string{
		"s": "[string]", "sn": "[null string]", "in": "[null integer]", "si": "[string integer]", "p": "[object]", "l": "[]", "e": "[integer]",
		"u": "[]", "w": "[null string boolean integer]", "k": "[number]", "x": "[string integer]", "nobody": "[]",
	} {
		if got := fmt.Sprint(Types(tools[0], parameter)); got != want {
			t.Errorf("%s: %s, want %s", parameter, got, want)
		}
	}
}

// TestMarkers checks that the marker is in every call and in no text before the first.
func TestMarkers(t *testing.T) {
	for format, want := range map[ToolFormat]string{ToolXML: "<tool_call>", ToolJSON: "<tool_call>", ToolGLM: "<tool_call>", ToolDeepSeek: "<｜tool▁call"} {
		if got := (CallSyntax{Format: format}).Marker(); got != want {
			t.Errorf("format %d: %q", format, got)
		}
	}
}

// TestFits compares names with those that the parser reads.
func TestFits(t *testing.T) {
	long := strings.Repeat("n", maxName)
	for _, name := range []string{"f", "a b", "日本", `"`, "a.b/c=d", long, "", " f", "f ", "\u00a0f", "a<b", "a>b", "a\nb", "a`b", "a{b", "{a", long + "n"} {
		p := NewParser(ParserOptions{})
		events := p.Write(xmlCall(name))
		read := len(events) == 1 && events[0].Kind == chat.EventToolCall && events[0].Call.Name == name
		if got := xmlCalls.Fits(name); got != read {
			t.Errorf("%q: %v, but read: %v", name, got, read)
		}
		for text, s := range map[string]CallSyntax{
			glmCall(name): glmCalls("", "", "", "", ""), fencedCall(name, "{}"): deepSeekCalls("", "", "", "", "", ""), sepCall(name, "{}"): deepSeekCalls("", "", "", "", "", ""),
		} {
			events := NewParser(ParserOptions{ToolFormat: s.Format}).Write(text)
			if read := len(events) == 1 && events[0].Kind == chat.EventToolCall && events[0].Call.Name == name; s.Fits(name) && !read {
				t.Errorf("%q fits, but is not read in %q", name, text)
			}
		}
	}
}

func TestAnswerCollects(t *testing.T) {
	p := newTestParser(t, true, ToolAuto)
	var a chat.Answer
	for _, chunk := range []string{"hm", "</think>", "Hel", "lo ", xmlCall("f"), "."} {
		a.Add(p.Write(chunk))
	}
	a.Add(p.Close())
	if a.Reasoning() != "hm" || a.Content() != "Hello ." || len(a.ToolCalls) != 1 || a.ToolCalls[0].Name != "f" {
		t.Errorf("got %q, %q, %v", a.Reasoning(), a.Content(), a.ToolCalls)
	}
}

// TestConvertSurvivesWideSchemas follows references that multiply.
func TestConvertSurvivesWideSchemas(t *testing.T) {
	wide := strings.Repeat(`{"$ref": "#/properties/x"},`, 1000)
	var tool chat.Tool
	schema := `{"name": "f", "parameters": {"properties": {"x": {"anyOf": [` + wide + `{"type": "integer"}]}}}}`
	filetest.Decode(t, schema, &tool)
	if got, ok := convert(tool, "x", "a", false).Text(); !ok || got != "a" {
		t.Errorf("got %q, %v", got, ok)
	}
}

// FuzzParser compares a random split with the whole, and checks that an answer without
// reasoning and calls is unchanged.
func FuzzParser(f *testing.F) {
	for _, c := range parserCases {
		f.Add(c.text, c.thinking, uint8(0), uint64(1))
	}
	for _, c := range append(familyCases, markedCases...) {
		f.Add(c.text, c.thinking, uint8(c.format), uint64(1))
	}
	f.Fuzz(func(t *testing.T, text string, thinking bool, format uint8, seed uint64) {
		tf := ToolFormat(format % (uint8(ToolMarked) + 1))
		whole := outline(newTestParser(t, thinking, tf), []string{text})
		rng := rand.New(rand.NewPCG(seed, 0))
		if got := outline(newTestParser(t, thinking, tf), randomSplit(rng, text)); got != whole {
			t.Errorf("split: %q\nwhole: %q", got, whole)
		}
		if thinking || strings.Contains(text, thinkForms[0].Open) || tf == ToolMarked && strings.Contains(text, "channel") || tf != ToolNone && strings.Contains(whole, "|CALL") {
			return
		}
		if text != "" && whole != "|C "+text {
			t.Errorf("plain text %q became %q", text, whole)
		}
	})
}

func BenchmarkParser(b *testing.B) {
	text := strings.Repeat("The cat sat on the <b>mat</b>.\n\n", 500) + strings.Repeat(xmlCall("f", "s", strings.Repeat("code < more\n", 200)), 4)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		p := newTestParser(b, false, ToolAuto)
		for i := 0; i < len(text); i += 4 {
			p.Write(text[i:min(i+4, len(text))])
		}
		p.Close()
	}
}

// Wherever an answer is cut off, its content has no markup of a call, and all
// text before the call.
func TestParserCutLeavesNoMarkup(t *testing.T) {
	for _, c := range []struct {
		name, before, answer string
		thinking             bool
		format               ToolFormat
	}{
		{"JSON", "", hermes, false, ToolAuto},
		{"XML", "", xmlCall("f", "s", "a < b\n<c>", "i", "5"), false, ToolAuto},
		{"text before", "Let me look.", "Let me look.\n\n" + hermes, false, ToolAuto},
		{"thinking before", "", "hm\n</think>\n\n" + xmlCall("f", "s", "x"), true, ToolAuto},
		{"several", "One.", "One.\n\n" + xmlCall("f", "s", "x") + "\n" + hermes + "\n" + xmlCall("f"), false, ToolAuto},
		{"GLM", "One.", "One.\n" + glmCall("f", "s", "a < b\n<c>", "i", "5") + glmCall("f"), false, ToolGLM},
		{"GLM forgets to end its thoughts", "", "hm\n" + glmCall("f", "s", "x"), true, ToolGLM},
		{"XML ends thoughts", "", "hm\n" + xmlCall("f", "s", "x"), true, ToolAuto},
		{"marked", "One.", "One." + markedOpen + `call:f{s:<|"|>{]<|"|>}` + markedClose + markedOpen + "call:g{}" + markedClose, false, ToolMarked},
		{"DeepSeek", "One.", "One." + deepSeekBegin + fencedCall("f", `{"s": "<｜"}`) + "\n" + sepCall("g", "{}") + deepSeekEnd, false, ToolDeepSeek},
	} {
		for cut := range len(c.answer) + 1 {
			for _, size := range []int{1, 3, len(c.answer)} {
				p := newTestParser(t, c.thinking, c.format)
				var a chat.Answer
				for at := 0; at < cut; at += size {
					a.Add(p.Write(c.answer[at:min(at+size, cut)]))
				}
				a.Add(p.Cut())
				content := a.Content()
				if !strings.HasPrefix(c.before, strings.TrimRight(content, "\n")) {
					t.Fatalf("%s cut after %q: the content is %q", c.name, c.answer[:cut], content)
				}
				closing := map[ToolFormat]string{ToolAuto: "\n</tool_call>", ToolGLM: "</tool_call>", ToolDeepSeek: deepSeekClose, ToolMarked: "}" + markedClose}[c.format]
				if calls := strings.Count(c.answer[:cut], closing); calls != len(a.ToolCalls) {
					t.Fatalf("%s cut after %q: %d calls, want %d", c.name, c.answer[:cut], len(a.ToolCalls), calls)
				}
			}
		}
	}
}

// Text that is not the beginning of a call is kept, cut off or not.
func TestParserCutKeepsText(t *testing.T) {
	for text, want := range map[string]string{
		"a < b":                    "a < b",
		"done\n\n":                 "done\n\n",
		"x <tool_call>nonsense":    "x <tool_call>nonsense",
		"if a <":                   "if a ",
		"if a <function=":          "if a ",
		"a\n<function=f>\n</funct": "a",
		"a <function=g>":           "a <function=g>",
		"<tool_call>\n{\"name\": ": "",
	} {
		p := newTestParser(t, false, ToolAuto)
		var a chat.Answer
		a.Add(p.Write(text))
		if a.Add(p.Cut()); a.Content() != want {
			t.Errorf("%q cut off is %q, want %q", text, a.Content(), want)
		}
	}
	p := NewParser(ParserOptions{ToolFormat: ToolNone})
	var a chat.Answer
	a.Add(p.Write("<tool_call>\n{"))
	if a.Add(p.Cut()); a.Content() != "<tool_call>\n{" {
		t.Errorf("without tools: %q", a.Content())
	}
}
