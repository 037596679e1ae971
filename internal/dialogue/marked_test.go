package dialogue

import (
	"strings"
	"testing"

	"github.com/foretoken/foretoken/chat"
)

// markedCases are answers in Gemma's format, with its think tags.
var markedCases = []familyCase{
	{"marked", ToolMarked, false, `<|tool_call>call:f{i:5,s:<|"|>a "b", {c}<|"|>}<tool_call|>`, `|CALL f {"i": 5, "s": "a \"b\", {c}"}`},
	{"marked values", ToolMarked, false, `<|tool_call>call:f{a:[1,-2.50,<|"|><|"|>,[]],b:true,n:null,o:{x:{}},z:<|"|>5<|"|>}<tool_call|>`, `|CALL f {"a": [1, -2.5, "", []], "b": true, "n": null, "o": {"x": {}}, "z": "5"}`},
	{"marked without arguments", ToolMarked, false, "<|tool_call>call:f{}<tool_call|><|tool_call>call:g{}<tool_call|>", "|CALL f {}|CALL g {}"},
	{"marked with words", ToolMarked, false, "Let me.\n<|tool_call>call:f{}<tool_call|>\n\nSo.", "|C Let me.|CALL f {}|C So."},
	{"marked tags in strings", ToolMarked, false, `<|tool_call>call:f{s:<|"|>}<tool_call|><|tool_call>call:g{<|"|>}<tool_call|>`, `|CALL f {"s": "}<tool_call|><|tool_call>call:g{"}`},
	{"marked with white space", ToolMarked, false, "<|tool_call>call: f {\n  a: [1, 2 ],\n  <|\"|>b c<|\"|> : <|\"|>x<|\"|> ,\n}\n<tool_call|>", `|CALL f {"a": [1, 2], "b c": "x"}`},
	{"marked as Python", ToolMarked, false, "<|tool_call>call:f{a:None,b:True,c:False,d:rainy day,e:1.2.3}<tool_call|>", `|CALL f {"a": null, "b": true, "c": false, "d": "rainy day", "e": "1.2.3"}`},
	{"marked as JSON", ToolMarked, false, `<|tool_call>call:f{"a": "}, \"x\" {", "b": ["]", 1]}<tool_call|>`, `|CALL f {"a": "}, \"x\" {", "b": ["]", 1]}`},
	{"marked numbers", ToolMarked, false, "<|tool_call>call:f{a:123456789012345678901234567890,b:1e3}<tool_call|>", `|CALL f {"a": 123456789012345678901234567890, "b": 1000.0}`},
	{"marked, a quotation mark within a word", ToolMarked, false, `<|tool_call>call:f{a:5" pipe,b:1}<tool_call|>`, `|CALL f {"a": "5\" pipe", "b": 1}`},
	{"marked, the end of the answer in place of the tag", ToolMarked, false, "<|tool_call>call:f{a:1}\n", `|CALL f {"a": 1}`},
	{"marked unfinished", ToolMarked, false, "a\n<|tool_call>call:f{a:1", "|C a\n<|tool_call>call:f{a:1"},
	{"marked, part of a tag", ToolMarked, false, "<|tool_call>call:f{a:1}<tool_c", "|C <|tool_call>call:f{a:1}<tool_c"},
	{"marked, an unfinished string", ToolMarked, false, `<|tool_call>call:f{s:<|"|>x}<tool_call|>`, `|C <|tool_call>call:f{s:<|"|>x}<tool_call|>`},
	{"marked without a name", ToolMarked, false, "<|tool_call>call:{}<tool_call|>", "|C <|tool_call>call:{}<tool_call|>"},
	{"marked without a call", ToolMarked, false, "<|tool_call>f{}<tool_call|>call:f{}", "|C <|tool_call>f{}<tool_call|>call:f{}"},
	{"marked without a value", ToolMarked, false, "<|tool_call>call:f{a:,b:1}<tool_call|>", "|C <|tool_call>call:f{a:,b:1}<tool_call|>"},
	{"marked without a key", ToolMarked, false, "<|tool_call>call:f{1}<tool_call|>", "|C <|tool_call>call:f{1}<tool_call|>"},
	{"marked, other brackets", ToolMarked, false, "<|tool_call>call:f{a:[1}}<tool_call|>", "|C <|tool_call>call:f{a:[1}}<tool_call|>"},
	{"marked, two values", ToolMarked, false, `<|tool_call>call:f{a:<|"|>x<|"|> <|"|>y<|"|>}<tool_call|>`, `|C <|tool_call>call:f{a:<|"|>x<|"|> <|"|>y<|"|>}<tool_call|>`},

	{"channel", ToolMarked, false, "<|channel>thought\nhm\n<channel|>Yes.", "|R hm|C Yes."},
	{"channel of the prompt", ToolMarked, true, "hm\n<channel|>Yes.", "|R hm|C Yes."},
	{"channel before a call", ToolMarked, false, "<|channel>thought\nhm<channel|><|tool_call>call:f{}<tool_call|><|channel>thought\nso\n<channel|>Yes.", "|R hm|CALL f {}|R \nso|C Yes."},
	{"empty channels", ToolMarked, false, "<|channel>thought\n<channel|><|channel><channel|>Yes.<channel|>", "|C Yes."},
	{"two channels", ToolMarked, false, "<|channel>thought\na<channel|><|channel>thought\nb\n<channel|>c\n<|channel>thought\nd", "|R a\nb|C c|R \nd"},
	{"channel of a thoughtful one", ToolMarked, false, "<|channel>I thought so.<channel|>x", "|R I thought so.|C x"},
	{"part of a label", ToolMarked, false, "<|channel>thou", "|R thou"},
	{"channel, unknown tags", ToolMarked, false, "<think>a</think>", "|C <think>a</think>"},
}

// TestMarkedArgumentsAreBounded nests arguments deeper than a reader may recurse.
func TestMarkedArgumentsAreBounded(t *testing.T) {
	for depth, want := range map[int]int{maxMarkedDepth: 1, maxMarkedDepth + 1: 0, 1 << 20: 0} {
		text := "<|tool_call>call:f{a:" + strings.Repeat("[", depth-1) + strings.Repeat("]", depth-1) + "}<tool_call|>"
		var a chat.Answer
		p := newTestParser(t, false, ToolMarked)
		for i := 0; i < len(text); i += 1000 {
			a.Add(p.Write(text[i:min(i+1000, len(text))]))
		}
		if a.Add(p.Close()); len(a.ToolCalls) != want || want == 0 && a.Content() != text {
			t.Errorf("depth %d: %d calls, want %d", depth, len(a.ToolCalls), want)
		}
	}
}

// TestExactParserReadsMarkedCallsExactly has variants of calls and blocks that a grammar does not allow.
func TestExactParserReadsMarkedCallsExactly(t *testing.T) {
	for text, want := range map[string]string{
		"<|channel>thought\na<channel|><|channel>b": "|R a|C <|channel>b",
		"x<channel|>":                        "|C x<channel|>",
		"<|tool_call>call:f{}":               "|C <|tool_call>call:f{}",
		"<|tool_call>call:f{}" + markedClose: "|CALL f {}",
	} {
		p := newTestParser(t, false, ToolMarked)
		p.options.Exact = true
		if got := outline(p, []string{text}); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
