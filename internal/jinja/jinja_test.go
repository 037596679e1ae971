package jinja

import (
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestRenderRaises(t *testing.T) {
	_, err := render("a\n{{ raise_exception('no ' ~ 'good') }}", nil, Options{})
	var raised *RaiseError
	if !errors.As(err, &raised) || raised.Message != "no good" {
		t.Fatalf("error %v, want a RaiseError with 'no good'", err)
	}
	var placed *Error
	if !errors.As(err, &placed) || placed.Line != 2 {
		t.Errorf("error %v, want one at line 2", err)
	}
	if got := err.Error(); got != "jinja: line 2: no good" {
		t.Errorf("error text %q", got)
	}
}

// TestErrorNamesLine checks the line of the innermost statement, also inside a
// macro and after strings and comments with newlines.
func TestErrorNamesLine(t *testing.T) {
	for src, line := range map[string]int{
		"{{ x.y }}":             1,
		"\n\n{{ x.y }}":         3,
		"{# \n\n #}\n{{ x.y }}": 4,
		"{% macro m() %}\n{{ x.y }}\n{% endmacro %}\n{{ m() }}":            2,
		"{% for i in [1] %}\n{% if i %}\n{{ x.y }}{% endif %}{% endfor %}": 3,
		"\n{{ ( }}":             2,
		"{{ 'a\nb' }}{{ x.y }}": 2,
		"a\n{% if %}":           2,
	} {
		_, err := render(src, nil, Options{})
		var placed *Error
		if !errors.As(err, &placed) || placed.Line != line {
			t.Errorf("%q: error %v, want one at line %d", src, err, line)
		}
	}
}

func TestErrorTextNamesThing(t *testing.T) {
	vars := &Map{}
	vars.Set("m", Dict(&Map{}))
	for src, want := range map[string]string{
		"{{ x.y }}":                     "'x' is undefined",
		"{{ m.a.b }}":                   "'dict object' has no attribute 'a'",
		"{{ [][0].x }}":                 "list object has no element 0",
		"{{ 'a' + [] }}":                `can only concatenate str (not "list") to str`,
		"{{ 'a'|nope }}":                "filter 'nope'",
		"{{ 1 is nope }}":               "test 'nope'",
		"{% nope %}":                    "tag 'nope'",
		"{{ [].append(1) }}":            "'append'",
		"{{ '%s' % 1 }}":                "formatting",
		"{{ 'a'.format(1) }}":           "'format'",
		"{% if 1 %}":                    "endif",
		"{{ 9223372036854775807 + 1 }}": "64 bits",
		"{{ 99999999999999999999 }}":    "64 bits",
		"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}":      "macro 'm' takes not more than 1",
		"{% macro m(a) %}{{ a.b }}{% endmacro %}{{ m() }}": "parameter 'a' was not provided",
		"\xff":           "UTF-8",
		`{{ "\ud800" }}`: "not a character",
	} {
		_, err := render(src, vars, Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", src, err, want)
		}
	}
}

func TestArithmeticStaysIn64Bits(t *testing.T) {
	for src, want := range map[string]string{
		"{{ 9223372036854775807 }}":                                  "9223372036854775807",
		"{{ -9223372036854775807 - 1 }}":                             "-9223372036854775808",
		"{{ 4611686018427387904 * 2 }}":                              "",
		"{{ 4611686018427387904 * -2 }}":                             "-9223372036854775808",
		"{{ (-9223372036854775807 - 1) // -1 }}":                     "",
		"{{ -(-9223372036854775807 - 1) }}":                          "",
		"{{ 9223372036854775807 - -1 }}":                             "",
		"{{ (-9223372036854775807 - 1) + -1 }}":                      "",
		"{{ range(9223372036854775806, 9223372036854775807)|list }}": "[9223372036854775806]",
	} {
		got, err := render(src, nil, Options{})
		if (err != nil) != (want == "") || got != want {
			t.Errorf("%s: got %q, %v, want %q", src, got, err, want)
		}
	}
}

func TestStrftimeNowUsesClock(t *testing.T) {
	at := time.Date(2026, 1, 4, 15, 4, 5, 0, time.UTC)
	got, err := render("{{ strftime_now('%d %B %Y %I:%M %p %-d %%') }}", nil,
		Options{Now: func() time.Time { return at }})
	if want := "04 January 2026 03:04 PM 4 %"; err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	for _, format := range []string{"%Q", "%", "%-"} {
		if _, err := strftime(at, format); err == nil {
			t.Errorf("format %q: no error", format)
		}
	}
}

func TestTemplateServesManyAtOnce(t *testing.T) {
	tmpl, err := Parse("{% set ns = namespace(n=0) %}{% for i in range(n) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			vars := &Map{}
			vars.Set("n", intValue(100))
			if got, err := tmpl.Render(vars, Options{}); err != nil || got.Text != "4950" {
				t.Errorf("got %q, %v", got.Text, err)
			}
		})
	}
	wg.Wait()
}

// FuzzRender checks that no source panics or exceeds the budget.
func FuzzRender(f *testing.F) {
	ref, vars := loadReference(f)
	for _, c := range ref.Cases {
		f.Add(c.Template)
	}
	for _, src := range hostile {
		if len(src) < 1000 {
			f.Add(src)
		}
	}
	limits := Limits{Steps: 20_000, Bytes: 1 << 20, Depth: 200}
	f.Fuzz(func(t *testing.T, src string) {
		tmpl, err := Parse(src)
		if err != nil {
			return
		}
		start := time.Now()
		out, err := tmpl.Render(vars, Options{Limits: limits})
		if len(out.Text)+rangeSize*len(out.Trusted) > limits.Bytes {
			t.Errorf("%d bytes of output, more than the limit", len(out.Text))
		}
		if spent := time.Since(start); spent > patience {
			t.Errorf("took %v (%v)", spent, err)
		}
		again, err2 := tmpl.Render(vars, Options{Limits: limits})
		if (err == nil) != (err2 == nil) || !reflect.DeepEqual(out, again) && !strings.Contains(src, "strftime_now") {
			t.Errorf("two renderings differ: %q (%v), %q (%v)", out.Text, err, again.Text, err2)
		}
	})
}

// Features that no released template uses are refused by name.
func TestRenderNamesWhatIsNotSupported(t *testing.T) {
	for src, want := range map[string]string{
		"{{ 1.5|round }}":                                    "filter 'round' is unknown or not supported",
		"{{ 3 is odd }}":                                     "test 'odd' is unknown or not supported",
		"{% with a = 1 %}{% endwith %}":                      "tag 'with' is unknown or not supported",
		"{{ 'a'.center(3) }}":                                "method 'center' of 'str object' is not available",
		"{{ strftime_now('%s') }}":                           "time directive %s is not supported",
		"{% for x in [1] %}{{ loop.depth + 1 }}{% endfor %}": "'loop' has no attribute 'depth'",
	} {
		if _, err := render(src, nil, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", src, err, want)
		}
	}
}
