package dialogue

import (
	"regexp"
	"slices"
	"strings"
)

// CallSyntax is the exact syntax of a model's tool calls, as its template shows them. A
// parser accepts other white space too; a grammar requires exactly this.
type CallSyntax struct {
	Format ToolFormat
	// Lead stands between the end of a think block and the first call.
	Lead string
	// Begin stands before the first call, Between between two of them, End after the last.
	Begin, Between, End string
	// A call is Open, the name of the function, Named, its arguments and Close.
	Open, Named, Close string
	// Arguments are written one by one: Key, the name of the parameter, Value, its value, ValueEnd.
	// Key is "" where all of them are one JSON object, or if Quote is not "" an object with bare keys and strings
	// between two of it.
	Key, Value, ValueEnd string
	Quote                string
}

// Marker is the common beginning of the tags that calls begin with.
func (s CallSyntax) Marker() string {
	tags := s.form().tags()
	n := 0
	for first, last := tags[0], tags[len(tags)-1]; n < min(len(first), len(last)) && first[n] == last[n]; {
		n++
	}
	return tags[0][:n]
}

// Tags are the texts by which a [Parser] splits answers. If they are tokens, the text for the parser
// must include them.
func Tags() []string {
	var tags []string
	for _, f := range thinkForms {
		tags = append(tags, f.Open, f.Close)
	}
	for _, f := range callForms {
		for _, tag := range []string{f.quote, f.begin, f.end, f.open, f.close, f.key, f.keyEnd, f.value, f.valueEnd, f.last, f.sep} {
			if tag != "" && !slices.Contains(tags, tag) {
				tags = append(tags, tag)
			}
		}
	}
	slices.Sort(tags)
	return tags
}

// Reads is the format that a [Parser] should look for in answers of a model that is taught s: for the
// two of Qwen models it accepts either.
func (s CallSyntax) Reads() ToolFormat {
	if s.Format == ToolXML || s.Format == ToolJSON {
		return ToolAuto
	}
	return s.Format
}

// Guesses reports whether an argument without a type in the schema is the JSON value of its text, if it
// is valid, and otherwise a string. In other syntaxes it is always a string.
func (s CallSyntax) Guesses() bool { return s.form().guess }

// Fits reports whether a function or parameter of that name can be called in the syntax.
func (s CallSyntax) Fits(name string) bool {
	if s.Format == ToolJSON {
		return name != ""
	}
	reserved := "<>\n"
	if s.form().sep != "" || s.Quote != "" {
		reserved = "<>\n`{"
	}
	if s.form().name == "" && strings.HasPrefix(name, "{") {
		return false // that begins a call in JSON
	}
	return name != "" && len(name) <= maxName && !strings.ContainsAny(name, reserved) && strings.TrimSpace(name) == name
}

// form is the form for a reader.
func (s CallSyntax) form() *callForm {
	if f := callForms[s.Format]; f != nil {
		return f
	}
	return callForms[ToolAuto]
}

// JSONCalls is the syntax of calls as JSON objects, which a [Parser] reads of every model that
// writes them between the same tags. The name stands in it as JSON has it, without its quotation
// marks.
var JSONCalls = CallSyntax{
	Format: ToolJSON, Lead: "\n\n", Between: "\n",
	Open: callOpen + "\n{\"name\": \"", Named: `", "arguments": `, Close: "}\n" + callClose,
}

// xmlCalls is Qwen's syntax.
var xmlCalls = CallSyntax{
	Format: ToolXML, Lead: "\n\n", Between: "\n",
	Open: callOpen + "\n" + functionOpen, Named: ">\n", Close: functionClose + "\n" + callClose,
	Key: parameterOpen, Value: ">\n", ValueEnd: "\n" + parameterClose + "\n",
}

// glmCalls is GLM's syntax with the given white space: for GLM-4.5 and 4.6 each is a line break, for
// GLM-4.7 each is empty.
func glmCalls(lead, named, value, next, between string) CallSyntax {
	return CallSyntax{
		Format: ToolGLM, Lead: lead, Between: between,
		Open: callOpen, Named: named, Close: callClose,
		Key: argKeyOpen, Value: argKeyClose + value + argValueOpen, ValueEnd: argValueClose + next,
	}
}

// deepSeekCalls is DeepSeek's syntax with the texts before a name, behind it, and behind the
// arguments.
func deepSeekCalls(lead, begin, kind, named, closed, between string) CallSyntax {
	return CallSyntax{
		Format: ToolDeepSeek, Lead: lead, Begin: begin, Between: between, End: deepSeekEnd,
		Open: deepSeekOpen + kind, Named: named, Close: closed + deepSeekClose,
	}
}

// markedCalls is Gemma's syntax.
func markedCalls(lead, between string) CallSyntax {
	return CallSyntax{Format: ToolMarked, Lead: lead, Between: between, Open: markedOpen + markedCall, Close: markedClose, Quote: markedQuote}
}

// spelled find the calls of a probe: two of them, the first with two arguments.
var spelled = []struct {
	calls *regexp.Regexp
	make  func(lead string, part []string) CallSyntax
}{
	{
		regexp.MustCompile(functionOpen + probeName),
		func(string, []string) CallSyntax { return xmlCalls },
	},
	{
		regexp.MustCompile(callOpen + `\s*` + probeName + `(\s*)` + argKeyOpen + probeKey + argKeyClose + `(\s*)` + argValueOpen + probeValue + argValueClose +
			`(\s*)(?:` + argKeyOpen + probeMore + `(?s:.*?)` + argValueClose + `\s*)?` + callClose + `(?:(\s*)` + callOpen + `)?`),
		func(lead string, part []string) CallSyntax { return glmCalls(lead, part[1], part[2], part[3], part[4]) },
	},
	{
		regexp.MustCompile(`(` + deepSeekBegin + `\s*)?` + deepSeekOpen + `((?:\w+` + deepSeekSep + `)?)` + probeName + `([^{]*)\{[^}]*` + probeValue + `[^}]*\}(\s*(?:` + "```" + `\s*)?)` +
			deepSeekClose + `(?:(\s*)` + deepSeekOpen + `)?`),
		func(lead string, part []string) CallSyntax {
			return deepSeekCalls(lead, part[1], part[2], part[3], part[4], part[5])
		},
	},
	{
		regexp.MustCompile(regexp.QuoteMeta(markedOpen+markedCall+probeName+"{") + `[^}]*` + regexp.QuoteMeta(probeKey+":"+markedQuote+probeValue+markedQuote) + `[^}]*\}` +
			regexp.QuoteMeta(markedClose) + `(?:(\s*)` + regexp.QuoteMeta(markedOpen) + `)?`),
		func(lead string, part []string) CallSyntax { return markedCalls(lead, part[1]) },
	},
}

// said are the syntaxes that instructions teach if a template shows no call, by texts that they
// mention.
var said = []struct {
	tag    string
	syntax CallSyntax
}{
	{functionOpen, xmlCalls},
	{argKeyOpen, glmCalls("\n", "\n", "\n", "\n", "\n")},
	{markedOpen, markedCalls("", "")},
	{deepSeekOpen, deepSeekCalls("", deepSeekBegin, "function"+deepSeekSep, "\n```json\n", "\n```", "\n")},
}
