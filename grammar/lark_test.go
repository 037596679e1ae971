package grammar

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// patchGrammar has the shape of the grammar that a well-known agent sends for its patches:
// the same kinds of rules, in words of our own.
const patchGrammar = `
// A change of files.
start: opening part+ closing
opening: "*** Begin" LF
closing: "*** End" LF?

part: new_file | old_file | changed_file
new_file: "*** New: " path LF added+
old_file: "*** Gone: " path LF
changed_file: "*** Changed: " path LF renamed? changes?

path: /(.+)/
added: "+" /(.*)/ LF -> line
renamed: "*** Now: " path LF
changes: (place | line)+ last_line?
place: ("@@" | "@@ " /(.+)/) LF
line: ("+" | "-" | " ") /(.*)/ LF
last_line: "*** Last line" LF

%import common.LF
`

// larkMatches reports whether a text is one of the grammar's, token by token.
func larkMatches(t *testing.T, s Source, text string) bool {
	t.Helper()
	v := bytesVocab(t, pieces...)
	return acceptsTokens(compile(t, s, v), cut(rand.New(rand.NewPCG(1, 2)), v, text))
}

func TestLarkMatches(t *testing.T) {
	for _, c := range []struct {
		name, grammar string
		yes, no       []string
	}{
		{
			"patch", patchGrammar,
			[]string{
				"*** Begin\n*** Gone: a.txt\n*** End",
				"*** Begin\n*** New: a b\n+x\n+\n*** Gone: c\n*** End\n",
				"*** Begin\n*** Changed: a\n*** Now: b\n@@ f\n-x\n+*** End\n y\n@@\n+z\n*** Last line\n*** End\n",
			},
			[]string{"", "*** Begin\n*** End\n", "*** Begin\n*** New: a\n*** End", "*** Begin\n*** Gone: \n*** End", "*** Begin\n*** Gone: a\n*** End\n\n", "x"},
		},
		{
			"source with a first line", "start: with | SOURCE\nwith: NOTE NL SOURCE\nNOTE: /[ \\t]*\\/\\/ note:[^\\r\\n]*/\nNL: /\\r?\\n/\nSOURCE: /[\\s\\S]+/",
			[]string{"// note: a\nb()", "b()\n\n", "// x"},
			[]string{""},
		},
		{
			"left recursion", "?sum: sum \"+\" product | sum \"-\" product | product\n?product: INT | \"(\" sum \")\"\nstart: sum\n%import common.INT\n%import common.WS\n%ignore WS",
			[]string{"1", "1+2-3", "( 1 + (2) )\n", " 4"},
			[]string{"1+", "(1", "1 2", "+1"},
		},
		{
			"priorities, ranges, counts, cases", "start.2: HEX~2 \"x\"i [word]\nHEX: \"0\"..\"9\" | \"a\"..\"f\"\nword: /ab/i~1..2 # the end",
			[]string{"0ax", "ffX", "00xabAB"},
			[]string{"0x", "ag", "00xababab", "00xa"},
		},
		{
			"counts in braces", "start: A{2} b{1,2} (\"c\" A){0,1} [/d/{2,}] \"e\"{,2}\nA: \"x\"{2}\nb: \"b\"",
			[]string{"xxxxb", "xxxxbb", "xxxxbcxx", "xxxxbddd", "xxxxbcxxddee"},
			[]string{"xxxx", "xxb", "xxxxbbb", "xxxxbd", "xxxxbeee", "xxxxbcxxcxx"},
		},
		{"hyphens in names", "start: a-b->alias | A-1\na-b: \"x\" -> other\nA-1: \"y\"", []string{"x", "y"}, []string{"", "xy"}},
		{"imports", "start: N (\",\" CNAME)*\n%import common (CNAME, INT -> N)", []string{"1", "12,a_1"}, []string{"a", "1,", "1,1"}},
		{"escapes", `start: "\\'" | "\'" | "\\\""`, []string{`\'`, `'`, `\"`}, []string{`\`, `\\'`}},
		{"nesting", "start: \"[\" start* \"]\" | \"\"", []string{"", "[]", "[[][[]]]"}, []string{"[", "]", "[]]"}},
	} {
		s, err := Lark(c.grammar)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for _, text := range c.yes {
			if !larkMatches(t, s, text) {
				t.Errorf("%s: %q is not one of its texts", c.name, text)
			}
			if quoted := `"` + inString(text) + `"`; !larkMatches(t, InString(s), quoted) {
				t.Errorf("%s: %s is not one of its strings", c.name, quoted)
			}
		}
		for _, text := range c.no {
			if larkMatches(t, s, text) {
				t.Errorf("%s: %q is one of its texts", c.name, text)
			}
		}
	}
}

func TestLarkWithoutAMarker(t *testing.T) {
	s, err := Lark("start: (/.+/ \"\\n\")+")
	if err != nil {
		t.Fatal(err)
	}
	marked := Sequence(Without("</end>", s), Literal("</end>"))
	for text, want := range map[string]bool{"a\n</end>": true, "a\n</end\n</end>": true, "a</end>\n</end>": false} {
		if larkMatches(t, marked, text) != want {
			t.Errorf("%q: want %v", text, want)
		}
	}
}

// larkChain is a grammar of n rules or terminals, each made of the next.
func larkChain(first string, n int, rule func(i int) string, last string) string {
	var b strings.Builder
	b.WriteString("start: " + first + "\n")
	for i := range n {
		b.WriteString(rule(i))
	}
	return b.String() + last
}

func TestLarkSaysWhatCannotBeHad(t *testing.T) {
	ways := larkChain("a0", 40, func(i int) string { return fmt.Sprintf("a%d: a%d \"x\" | a%d \"y\"\n", i, i+1, i+1) }, `a40: "z"`)
	long := larkChain("A0", 4000, func(i int) string { return fmt.Sprintf("A%d: A%d\n", i, i+1) }, `A4000: "z"`)
	for grammar, want := range map[string]string{
		"":                                   "no rule start",
		ways:                                 "begins in more than",
		long:                                 "needs more than",
		"start: other":                       "other is not defined",
		"start: \"a":                         "without its end",
		"start: /a/x":                        "the flag x",
		"start: /(?=a)b/":                    "invalid or unsupported Perl syntax",
		"start: (\"a\"":                      "want ')'",
		"start: (\"a\"?)~5000":               "may be empty",
		"start: \"a\"~3..1":                  "3 to 1 times",
		"start: \"ab\"..\"c\"":               "a range of characters",
		"start: \"a\"{3,1}":                  "3 to 1 times",
		"start: \"a\"{0}":                    "0 to 0 times",
		"start: \"a\"{}":                     "want a number of times",
		"start: \"a\"{2":                     "want '}'",
		"start: (\"a\"?){5000}":              "may be empty",
		"start: (\"a\"?){5000,}":             "may be empty",
		"start: \"a\"{99999999}":             "times are too many",
		"start: A\nA: b\nb: \"c\"":           "contains the rule b",
		"start: A\nA: \"x\" A?":              "contains itself",
		"start: a\na: b \"x\"\nb: a":         "begins with itself",
		"start: a? start \"x\"\na: \"\"":     "begins with itself",
		"start: \"a\"\nstart: \"b\"":         "defined twice",
		"start: pair{\"a\"}":                 "templates are not supported",
		"%import python.NAME\nstart: NAME":   "only the library common",
		"%import common.NOVEL\nstart: NOVEL": "common.NOVEL is not supported",
		"%declare A\nstart: A":               "%declare is not supported",
		"start: " + strings.Repeat("(", 100) + "\"a\"" + strings.Repeat(")", 100): "nested brackets",
		"start: \"" + strings.Repeat("a", maxLark) + "\"":                         "bytes, want at most",
	} {
		if _, err := Lark(grammar); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: %v, want %q", grammar, err, want)
		}
	}
}

func FuzzLark(f *testing.F) {
	f.Add(patchGrammar)
	f.Add("start: \"[\" start* \"]\" | A\nA.2: /a/i~1..3\n%ignore /b/")
	v := bytesVocab(f)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Lark(text)
		if err != nil {
			return
		}
		g, err := Compile(s, v)
		if err != nil {
			return
		}
		m := g.Matcher() // any grammar that compiles can be run
		for i := range 8 {
			mask := m.Allowed(nil)
			for id := range int32(257) {
				if id = (id + 31*int32(i)) % 257; has(mask, id) {
					m.Accept(id)
					break
				}
			}
		}
	})
}
