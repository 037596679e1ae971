package jinja

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// strangeVars are variables in a separate alphabet: Greek letters, and signs that neither
// literals of the test templates nor the engine write.
func strangeVars(text func(string) Value) *Map {
	vars := &Map{}
	vars.Set("s", text("αβ<γ&\"δ"))
	vars.Set("t", text("  ΣΤ\u2028λ-μ\\ν "))
	vars.Set("u", text("ω"))
	vars.Set("e", text(""))
	vars.Set("l", List([]Value{text("κ"), text("α,β"), text("Ω")}))
	d := &Map{}
	d.set(mapKey{kind: KindString, str: "χ"}, text("χ"), text("ψ"))
	d.set(mapKey{kind: KindString, str: "π"}, text("π"), List([]Value{text("ρ"), intValue(7777)}))
	vars.Set("d", Dict(d))
	vars.Set("n", intValue(7777))
	return vars
}

// strange reports whether text has characters of untrusted variables.
func strange(text string) bool {
	return strings.ContainsFunc(text, func(c rune) bool {
		return c >= 0x370 && c < 0x400 || strings.ContainsRune("<>&\"'\\\u20287", c)
	})
}

// TestOriginIsFollowed has the template's own text between brackets.
func TestOriginIsFollowed(t *testing.T) {
	for src, want := range map[string]string{
		"a{{ s }}b":                                                      "⟦a⟧αβ<γ&\"δ⟦b⟧",
		"{{ 'a' + u + 'b' }}":                                            "⟦a⟧ω⟦b⟧",
		"{{ 'a' ~ u ~ 1 ~ n }}":                                          "⟦a⟧ω⟦1⟧7777",
		"{{ 'ab' }}{{ 'cd' }}":                                           "⟦abcd⟧",
		"{{ ('ab' + u + 'cd')[1:4] }}":                                   "⟦b⟧ω⟦c⟧",
		"{{ ('ab' + u + 'cd')[3:] }}":                                    "⟦cd⟧",
		"{{ (u + 'cd')[::-1] }}":                                         "dcω",
		"{{ 'cd'[::-1] }}":                                               "⟦dc⟧",
		"{{ ('ab' + u)[0] }}{{ ('ab' + u)[-1] }}":                        "⟦a⟧ω",
		"{{ ('ab' + u)|first }}{{ (u + 'a')|last }}":                     "⟦aa⟧",
		"{{ (' a ' + u + ' ')|trim }}":                                   "⟦a ⟧ω",
		"{{ (' a ' + u + ' ').lstrip() }}":                               "⟦a ⟧ω⟦ ⟧",
		"{{ ('a,' + s + ',b').split(',')|join('-') }}":                   "⟦a-⟧αβ<γ&\"δ⟦-b⟧",
		"{{ (s + ' a b').rsplit(' ', 1)[1] }}":                           "⟦b⟧",
		"{{ (s + ' a').rsplit()[0] }}":                                   "αβ<γ&\"δ",
		"{{ ('a\\n' + u).splitlines()|join('|') }}":                      "⟦a|⟧ω",
		"{{ 'axa'.replace('x', u) }}":                                    "⟦a⟧ω⟦a⟧",
		"{{ s.replace('γ', 'a') }}":                                      "αβ<⟦a⟧&\"δ",
		"{{ s|replace('γ', 'a', 1) }}":                                   "αβ<⟦a⟧&\"δ",
		"{{ 'ab'|replace('', u) }}":                                      "ω⟦a⟧ω⟦b⟧ω",
		"{{ '-'.join(l) }}":                                              "κ⟦-⟧α,β⟦-⟧Ω",
		"{{ u.join(['a', 'b']) }}":                                       "⟦a⟧ω⟦b⟧",
		"{{ 'ab'|upper }}{{ u|upper }}":                                  "⟦AB⟧Ω",
		"{{ ('a' + u)|upper }}":                                          "AΩ",
		"{{ 'ab'.removeprefix('a') ~ (u + 'b').removesuffix(u) }}":       "⟦b⟧ω⟦b⟧",
		"{{ 'a' * 3 }}{{ u * 2 }}":                                       "⟦aaa⟧ωω",
		"{{ x|default('a') }}{{ u|default('a') }}":                       "⟦a⟧ω",
		"{{ e or 'a' }}{{ u and 'b' }}":                                  "⟦ab⟧",
		"{{ 'a' if u == 'ω' else 'b' }}":                                 "⟦a⟧",
		"{{ {'ω': 'a'}[u] }}":                                            "⟦a⟧",
		"{% for k, v in d.items() %}{{ k }}={{ v }},{% endfor %}":        "χ⟦=⟧ψ⟦,⟧π⟦=⟧['ρ', 7777]⟦,⟧",
		"{{ d|tojson }}":                                                 `{"χ": "ψ", "π": ["ρ", 7777]}`,
		"{{ ['a', u] }}":                                                 "['a', 'ω']",
		"{% macro m(x) %}[{{ x }}]{% endmacro %}a{{ m(u) }}{{ m('b') }}": "⟦a[⟧ω⟦][b]⟧",
		"{% set x %}a{{ u }}{% endset %}{{ x }}{{ x }}":                  "⟦a⟧ω⟦a⟧ω",
		"{% set ns = namespace(x='') %}{% for i in l %}{% set ns.x = ns.x + i + '-' %}{% endfor %}{{ ns.x }}": "κ⟦-⟧α,β⟦-⟧Ω⟦-⟧",
		"{% filter trim %} a{{ u }} {% endfilter %}":                                                          "⟦a⟧ω",
		"{% filter upper %}a{{ u }}{% endfilter %}":                                                           "AΩ",
		"{{ ('a\\n' + u)|indent(2) }}":                                                                        "⟦a⟧\n  ω",
		"{{ strftime_now('%Y') }}{{ strftime_now(u) }}":                                                       "⟦2026⟧ω",
		"{{ [u, 'a']|sort|join }}{{ [u, 'a']|max }}":                                                          "⟦a⟧ωω",
		"{{ ['b', u]|map('upper')|join }}":                                                                    "⟦B⟧Ω",
		"{{ u|string|safe ~ 'a'|safe }}":                                                                      "ω⟦a⟧",
		"{{ true }}{{ none }}{{ 1.5 }}{{ 1 + 1 }}{{ n }}":                                                     "⟦TrueNone1.5⟧27777",
	} {
		tmpl, err := Parse(src)
		if err != nil {
			t.Fatalf("%s: %v", src, err)
		}
		got, err := tmpl.Render(strangeVars(String), Options{Now: func() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }})
		want = strings.ReplaceAll(want, "⟧⟦", "")
		if err != nil || bracketed(got) != want {
			t.Errorf("%s\n got %s, %v\nwant %s", src, bracketed(got), err, want)
		}
	}
}

func bracketed(r Rendered) string {
	var b strings.Builder
	done := 0
	for _, own := range r.Trusted {
		fmt.Fprintf(&b, "%s⟦%s⟧", r.Text[done:own[0]], r.Text[own[0]:own[1]])
		done = own[1]
	}
	b.WriteString(r.Text[done:])
	return b.String()
}

// programs makes small templates; pick gives a number below its argument.
type programs struct {
	pick  func(n int) int
	depth int
}

func (p *programs) of(choices ...func() string) string {
	return choices[p.pick(len(choices))]()
}

func (p *programs) word() string {
	return []string{"'a'", "'b c'", "' '", "''", "'A-b'", "'c,d'", "'a\\nb'", "'.'", "'xyz'"}[p.pick(9)]
}

func (p *programs) number() string { return []string{"0", "1", "2", "3", "-1", "n"}[p.pick(6)] }

// text is an expression that is a string, as a rule.
func (p *programs) text() string {
	if p.depth++; p.depth > 12 {
		return p.word()
	}
	defer func() { p.depth-- }()
	variable := func() string { return []string{"s", "t", "u", "e", "v", "w", "l[0]", "d['χ']", "ns.x"}[p.pick(9)] }
	binary := func() string {
		return "(" + p.text() + []string{" + ", " ~ ", " or ", " and "}[p.pick(4)] + p.text() + ")"
	}
	method := func() string {
		return "(" + p.text() + ")" + []string{
			".upper()", ".lower()", ".title()", ".capitalize()", ".strip()", ".lstrip()", ".rstrip('a')",
			".strip(" + p.text() + ")", ".replace(" + p.text() + ", " + p.text() + ")", ".replace('', " + p.text() + ", 2)",
			".removeprefix(" + p.text() + ")", ".removesuffix(" + p.text() + ")", ".join(" + p.list() + ")", ".split()[0]", ".rsplit(',')[-1]", "[" + p.number() + "]", "[" + p.number() + ":]", "[:" + p.number() + "]", "[::-1]", "[1::2]",
		}[p.pick(20)]
	}
	filter := func() string {
		return "(" + p.text() + ")|" + []string{
			"trim", "upper", "lower", "capitalize", "replace(" + p.text() + ", " + p.text() + ")", "indent(" + p.text() + ", true)",
			"indent(2, true, true)", "first", "last", "reverse", "string", "safe",
			"default(" + p.text() + ", true)", "tojson", "tojson(ensure_ascii=true)", "list|join(" + p.text() + ")",
		}[p.pick(16)]
	}
	fromList := func() string {
		return "(" + p.list() + ")|" + []string{
			"join", "join(" + p.text() + ")", "first", "last", "max", "min", "tojson", "string", "map('upper')|join", "reverse|join('c')",
		}[p.pick(10)]
	}
	call := func() string { return "m(" + p.text() + ")" }
	choice := func() string {
		return "(" + p.text() + " if " + p.text() + " in " + p.text() + " else " + p.text() + ")"
	}
	look := func() string {
		return "{" + p.text() + ": " + p.text() + ", 'a': " + p.text() + "}" + []string{".a", "|tojson", ".keys()|join", "|items|first|last", "|dictsort|map('first')|join"}[p.pick(5)]
	}
	return p.of(p.word, variable, variable, binary, binary, method, method, filter, filter, fromList, call, choice, look)
}

func (p *programs) list() string {
	if p.depth++; p.depth > 12 {
		return "l"
	}
	defer func() { p.depth-- }()
	return p.of(
		func() string { return "l" },
		func() string { return "[" + p.text() + ", " + p.text() + "]" },
		func() string { return "(" + p.text() + ").split(" + p.word() + ")" },
		func() string { return "(" + p.text() + ").splitlines(true)" },
		func() string { return "(" + p.text() + ")|list" },
		func() string { return "d.keys()" },
		func() string { return "(" + p.list() + ")|map('replace', " + p.text() + ", 'a')|list" },
		func() string { return "(" + p.list() + ")|sort" },
		func() string { return "(" + p.list() + ")|unique|list" },
		func() string { return "(" + p.list() + " + [" + p.text() + "])" },
	)
}

func (p *programs) stmt() string {
	if p.depth++; p.depth > 6 {
		return "a"
	}
	defer func() { p.depth-- }()
	return p.of(
		func() string { return "b" },
		func() string { return "{{ " + p.text() + " }}" },
		func() string { return "{{ " + p.text() + " }}" },
		func() string { return "{% set v = " + p.text() + " %}" },
		func() string { return "{% set w %}" + p.body() + "{% endset %}{{ w }}" },
		func() string { return "{% set ns.x = ns.x ~ " + p.text() + " %}{{ ns.x }}" },
		func() string { return "{% if " + p.text() + " %}" + p.body() + "{% else %}" + p.body() + "{% endif %}" },
		func() string { return "{% for v in " + p.list() + " %}" + p.body() + "{% endfor %}" },
		func() string { return "{% for k, v in d.items() %}{{ k }}" + p.body() + "{% endfor %}" },
		func() string {
			return "{% filter " + []string{"upper", "trim", "indent", "replace('a', u)"}[p.pick(4)] + " %}" + p.body() + "{% endfilter %}"
		},
	)
}

func (p *programs) body() string {
	var b strings.Builder
	for range 1 + p.pick(3) {
		b.WriteString(p.stmt())
	}
	return b.String()
}

// program is a template, to be rendered with strangeVars.
func program(pick func(n int) int) string {
	p := &programs{pick: pick}
	return "{% macro m(x) %}a{{ x }}{{ v }}{% endmacro %}{% set v = 'c' %}{% set w = u + 'c' %}" +
		"{% set ns = namespace(x='x') %}" + p.body()
}

// checkOrigin renders a program and checks that no trusted text is from variables, and
// that the text equals that of trusted variables. It reports whether it could be rendered.
func checkOrigin(t *testing.T, src string) bool {
	t.Helper()
	tmpl, err := Parse(src)
	if err != nil {
		t.Fatalf("%s: %v", src, err)
	}
	limits := Limits{Steps: 200_000, Bytes: 4 << 20}
	out, err := tmpl.Render(strangeVars(String), Options{Limits: limits})
	if err != nil {
		return false
	}
	end := -1
	for _, own := range out.Trusted {
		if own[0] <= end || own[0] >= own[1] || own[1] > len(out.Text) {
			t.Fatalf("%s\n%q: ranges %v", src, out.Text, out.Trusted)
		}
		end = own[1]
		if part := out.Text[own[0]:own[1]]; strange(part) || !utf8.ValidString(part) {
			t.Fatalf("%s\n%s: %q is trusted", src, bracketed(out), part)
		}
	}
	all, err := tmpl.Render(strangeVars(Trusted), Options{})
	if err != nil || all.Text != out.Text {
		t.Fatalf("%s\n%q of strangers, and %q, %v without them", src, out.Text, all.Text, err)
	}
	return true
}

// TestOriginIsNeverLaundered renders random programs.
func TestOriginIsNeverLaundered(t *testing.T) {
	random := rand.New(rand.NewPCG(2026, 12))
	rendered := 0
	for range 8000 {
		if checkOrigin(t, program(random.IntN)) {
			rendered++
		}
	}
	if t.Logf("%d of 8000 programs could be rendered", rendered); rendered < 5000 {
		t.Errorf("only %d of 8000 programs could be rendered", rendered)
	}
}

// FuzzOrigin is TestOriginIsNeverLaundered with programs that the fuzzer chooses.
func FuzzOrigin(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		choices := make([]byte, 64)
		for i := range choices {
			choices[i] = byte(random.Uint32())
		}
		f.Add(choices)
	}
	f.Fuzz(func(t *testing.T, choices []byte) {
		checkOrigin(t, program(func(n int) int {
			if len(choices) == 0 {
				return 0
			}
			c := int(choices[0]) % n
			choices = choices[1:]
			return c
		}))
	})
}

// TestOriginCountsAsMemory makes a string of many ranges again and again.
func TestOriginCountsAsMemory(t *testing.T) {
	const src = "{% set ns = namespace(x='') %}{% for i in range(400) %}{% set ns.x = ns.x ~ 'a' ~ u %}{% endfor %}"
	vars := strangeVars(String)
	least := func(vars *Map) int {
		low, high := 1, 64<<20
		for low < high {
			mid := (low + high) / 2
			tmpl, err := Parse(src)
			if err != nil {
				t.Fatal(err)
			}
			var limit *LimitError
			if _, err = tmpl.Render(vars, Options{Limits: Limits{Bytes: mid}}); err == nil {
				high = mid
			} else if low = mid + 1; !errors.As(err, &limit) {
				t.Fatal(err)
			}
		}
		return low
	}
	// 400 strings with 200 ranges on average, each as large as two numbers.
	with, without := least(vars), least(strangeVars(Trusted))
	if with-without < 400*200*rangeSize {
		t.Errorf("%d bytes of budget with origins, %d without", with, without)
	}
	if valueSize > 48 {
		t.Errorf("a value takes %d bytes, more than before there were origins", valueSize)
	}
}
