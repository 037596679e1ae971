package jinja

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"
)

// hostile are templates that would take forever, fill the memory or overflow the
// stack if nothing stopped them.
var hostile = map[string]string{
	"doubling string":    "{% set ns = namespace(s='ab') %}{% for i in range(1000) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
	"doubling origins":   "{% set ns = namespace(s='a' ~ (1+1)) %}{% for i in range(1000) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
	"origins by replace": "{% set ns = namespace(s='a' ~ (1+1)) %}{% for i in range(100) %}{% set ns.s = ns.s|replace('a', 'a' ~ (2+2) ~ 'a') %}{% endfor %}",
	"origins of output":  "{% set s = ('a' ~ (1+1)) %}{% for i in range(99999) %}{{ s }}{{ s }}{{ s }}{{ s }}{{ s }}{{ s }}{{ s }}{{ s }}{{ s }}{{ s }}{% endfor %}",
	"origins of parts":   "{% set ns = namespace(s='a') %}{% for i in range(12) %}{% set ns.s = ns.s ~ (1+1) ~ ns.s %}{% endfor %}{% for i in range(99999) %}{{ ns.s[1:] }}{% endfor %}",
	"doubling by tilde":  "{% set ns = namespace(s='ab') %}{% for i in range(1000) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
	"doubling list":      "{% set ns = namespace(s=[1]) %}{% for i in range(1000) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
	"huge repeat":        "{{ 'ab' * 9000000000000000000 }}",
	"huge list repeat":   "{{ [1] * 9000000000000000000 }}",
	"large repeat":       "{{ ('a' * 200000000) | length }}",
	"nested loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}" +
		"{% endfor %}{% endfor %}{% endfor %}",
	"huge range":          "{% for i in range(100000000) %}{% endfor %}",
	"macro recursion":     "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
	"mutual recursion":    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
	"branching recursion": "{% macro m(n) %}{% if n %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}{% endmacro %}{{ m(100) }}",
	"default recursion":   "{% macro m(x=m()) %}{% endmacro %}{{ m() }}",
	"deep list":           "{% set ns = namespace(l=[]) %}{% for i in range(90000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
	"deep list as JSON":   "{% set ns = namespace(l=[]) %}{% for i in range(90000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l|tojson }}",
	"deep comparison": "{% set ns = namespace(l=[], m=[]) %}{% for i in range(90000) %}{% set ns.l = [ns.l] %}" +
		"{% set ns.m = [ns.m] %}{% endfor %}{{ ns.l == ns.m }}",
	"namespace in itself":  "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
	"exponential sharing":  "{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
	"exponential equality": "{% set ns = namespace(l=[1], m=[1]) %}{% for i in range(100) %}{% set ns.l = [ns.l, ns.l] %}{% set ns.m = [ns.m, ns.m] %}{% endfor %}{{ ns.l == ns.m }}",
	"replace growth":       "{% set ns = namespace(s='a') %}{% for i in range(100) %}{% set ns.s = ns.s|replace('a', 'aaaaaaaaaa') %}{% endfor %}",
	"empty replace":        "{% set ns = namespace(s='a') %}{% for i in range(100) %}{% set ns.s = ns.s.replace('', ns.s) %}{% endfor %}",
	"join growth":          "{% set ns = namespace(s='ab') %}{% for i in range(100) %}{% set ns.s = ns.s.join(ns.s) %}{% endfor %}",
	"indent width":         "{{ 'a\nb'|indent(999999999999) }}",
	"indent growth":        "{% set ns = namespace(s='a\nb') %}{% for i in range(100) %}{% set ns.s = ns.s|indent(ns.s) %}{% endfor %}",
	"JSON indent":          "{{ [[[[1]]]]|tojson(indent=999999999999) }}",
	"output":               "{% for i in range(99999) %}{{ 'x' * 10000 }}{% endfor %}",
	"search": "{% set s = 'a' * 1000000 %}{% for i in range(99999) %}{% if 'b' in s %}{% endif %}" +
		"{% if s.find('b') %}{% endif %}{% endfor %}",
	"index of unicode":  "{% set s = 'é' * 1000000 %}{% for i in range(99999) %}{{ s[999999] }}{% endfor %}",
	"strip many":        "{% set s = 'ab' * 100000 %}{% for i in range(99999) %}{{ s.strip(s) }}{% endfor %}",
	"split many":        "{% set s = 'a,' * 1000000 %}{% for i in range(99999) %}{% set x = s.split(',') %}{% endfor %}",
	"sort many":         "{% set l = range(99999)|list %}{% for i in range(99999) %}{% set x = l|sort(reverse=true) %}{% endfor %}",
	"many parameters":   "{% macro m(" + strings.Repeat("a,", 100_000) + "b) %}{% endmacro %}{% for i in range(99999) %}{{ m(b=1) }}{% endfor %}",
	"long chain":        "{{ 1" + strings.Repeat(" + 1", 100_000) + " }}",
	"long filter chain": "{{ 'a'" + strings.Repeat("|upper", 50_000) + " }}",
	"long attributes":   "{{ a" + strings.Repeat(".a", 100_000) + " }}",
	"strftime":          "{% for i in range(99999) %}{{ strftime_now('%c' * 100000) }}{% endfor %}",
	"long keys":         longKey("{% set x = {}[s] %}"),
	"long keys by get":  longKey("{% set x = d.get(s) %}"),
	"long keys by in":   longKey("{% set x = s in d %}"),
	"long keys to set":  longKey("{% set x = {s: 1} %}"),
	"long keys to compare": "{% set d = dict({'a' * 1000000: 1}) %}{% set e = dict({'a' * 1000000: 1}) %}" +
		"{% for i in range(9999) %}{% set x = d == e %}{% endfor %}",
	"long arguments":            "{% macro m() %}{{ kwargs|length }}{% endmacro %}" + longKey("{% set x = m(**{s: 1}) %}"),
	"long attributes of values": longKey("{% set x = s|attr(s) %}"),
	"long names of filters":     longKey("{% set x = s is filter %}"),
	"long numbers":              longKey("{% set x = s|int %}"),
	"long floats":               longKey("{% set x = s|float %}"),
	"empty strings":             "{% set l = [''] * 99999 %}{% for i in range(9999) %}{% set x = ''.join(l) %}{% endfor %}",
	"power":                     "{{ 10 ** 1000000000000 }}",
	"float power":               "{{ 1.5 ** 1000000000000 }}",
}

// longKey does something with a long text again and again, beside a map with many keys.
func longKey(what string) string {
	return "{% set s = 'A' * 1000000 %}{% set d = dict(a=1, b=2, c=3, d=4, e=5, f=6, g=7, h=8, i=9, j=10) %}" +
		"{% for i in range(9999) %}" + what + "{% endfor %}"
}

// patience is more than any busy machine needs for a template that is stopped, and
// far less than one without limits needs: those here would run for hours.
const patience = 5 * time.Minute

// TestRenderStopsHostileTemplates checks that expensive templates fail soon and without much
// memory.
func TestRenderStopsHostileTemplates(t *testing.T) {
	limits := Limits{Steps: 300_000, Bytes: 16 << 20}
	for name, src := range hostile {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			out, err := render(src, nil, Options{Limits: limits})
			if err == nil {
				t.Fatalf("rendered %d bytes, want an error", len(out))
			}
			if spent := time.Since(start); spent > patience {
				t.Errorf("took %v", spent)
			}
			runtime.ReadMemStats(&after)
			if made := after.TotalAlloc - before.TotalAlloc; made > 256<<20 {
				t.Errorf("allocated %d MiB in total under a limit of 16 MiB", made>>20)
			}
		})
	}
}

// TestRenderDefaultLimitsAreSafe runs two of the worst templates under the
// default limits.
func TestRenderDefaultLimitsAreSafe(t *testing.T) {
	if testing.Short() {
		t.Skip("spends the whole default budget: not with -short")
	}
	for _, name := range []string{"nested loops", "doubling string"} {
		var limit *LimitError
		_, err := render(hostile[name], nil, Options{})
		if !errors.As(err, &limit) {
			t.Errorf("%s: error %v, want a LimitError", name, err)
		}
	}
}

func TestParseStopsDeepNesting(t *testing.T) {
	const n = 50_000
	for name, src := range map[string]string{
		"parentheses":  "{{ " + strings.Repeat("(", n) + "1" + strings.Repeat(")", n) + " }}",
		"lists":        "{{ " + strings.Repeat("[", n) + strings.Repeat("]", n) + " }}",
		"dicts":        "{{ " + strings.Repeat("{1:", n) + "1" + strings.Repeat("}", n) + " }}",
		"calls":        "{{ " + strings.Repeat("a(", n) + strings.Repeat(")", n) + " }}",
		"subscripts":   "{{ " + strings.Repeat("a[", n) + "1" + strings.Repeat("]", n) + " }}",
		"not":          "{{ " + strings.Repeat("not ", n) + "1 }}",
		"minus":        "{{ " + strings.Repeat("-", n) + "1 }}",
		"conditionals": "{{ " + strings.Repeat("1 if 1 else ", n) + "1 }}",
		"targets":      "{% set " + strings.Repeat("(", n) + "a" + strings.Repeat(")", n) + " = 1 %}",
		"ifs":          strings.Repeat("{% if 1 %}", 20_000) + strings.Repeat("{% endif %}", 20_000),
		"loops":        strings.Repeat("{% for a in b %}", 20_000),
		"filters":      "{{ " + strings.Repeat("a|f(", n) + strings.Repeat(")", n) + " }}",
		"tests":        "{{ " + strings.Repeat("a is f(", n) + strings.Repeat(")", n) + " }}",
	} {
		var limit *LimitError
		if _, err := Parse(src); !errors.As(err, &limit) {
			t.Errorf("%s: error %v, want a LimitError", name, err)
		}
	}
}

func TestParseStopsLongSource(t *testing.T) {
	var limit *LimitError
	if _, err := Parse(strings.Repeat("x", maxSource+1)); !errors.As(err, &limit) {
		t.Errorf("error %v, want a LimitError", err)
	}
	if _, err := Parse(strings.Repeat("x", maxSource)); err != nil {
		t.Errorf("a source of exactly the limit: %v", err)
	}
	if _, err := Parse("{{ " + strings.Repeat("x", maxName+1) + " }}"); !errors.As(err, &limit) {
		t.Errorf("a long name: error %v, want a LimitError", err)
	}
	if _, err := Parse("{{ " + strings.Repeat("x", maxName) + " }}"); err != nil {
		t.Errorf("a name of exactly the limit: %v", err)
	}
}

// TestLimitsCountExactly finds the least budget of a template, and
// checks that one less is refused.
func TestLimitsCountExactly(t *testing.T) {
	const src = "{% for i in range(20) %}{{ 'ab' ~ i }}{% endfor %}"
	least := func(render func(n int) error) int {
		low, high := 1, 1<<20
		for low < high {
			if mid := (low + high) / 2; render(mid) == nil {
				high = mid
			} else {
				low = mid + 1
			}
		}
		return low
	}
	steps := least(func(n int) error { _, err := render(src, nil, Options{Limits: Limits{Steps: n}}); return err })
	bytes := least(func(n int) error { _, err := render(src, nil, Options{Limits: Limits{Bytes: n}}); return err })
	if steps < 60 || steps > 600 {
		t.Errorf("20 rounds take %d steps, expected a few per round", steps)
	}
	if bytes < 50 || bytes > 10_000 {
		t.Errorf("50 bytes of output take %d bytes of budget", bytes)
	}
}
