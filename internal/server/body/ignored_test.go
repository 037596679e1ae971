package body

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/server/generate"
)

// read reads a request, strictly or not, and returns the header and the error.
func read(request string, strict bool, visit func(*Value)) (string, error) {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", strings.NewReader(request))
	v := Read(w, r).Strict(strict)
	visit(v)
	err := v.Err()
	return w.Header().Get(Ignored), err
}

func TestUnknownFieldsAreIgnoredAndNamed(t *testing.T) {
	for _, c := range []struct {
		request, want, strict string
		visit                 func(*Value)
	}{
		{`{"a": 1}`, "a", "a: this field is not supported: leave it out", func(*Value) {}},
		{`{"a": 1, "b": null}`, "", "", func(v *Value) { v.Field("a").Int(0, 9); v.Ignore("b") }},
		{`{"b": 1, "a": 2}`, "a, b", "b: this field is not supported: leave it out", func(*Value) {}},
		{`{"a": {"b": 1, "c": 2}}`, "a.c", "a.c: this field is not supported: leave it out", func(v *Value) { v.Field("a").Field("b") }},
		{`{"a": [{"b": 1, "x": 2}, {"x": 3}, {"y": 4}]}`, "a[].x, a[].y", "a[0].x: this field is not supported: leave it out", func(v *Value) {
			for _, item := range v.Field("a").List() {
				item.Field("b")
			}
		}},
		{`{"a": "x", "b": [1, 2]}`, "a=x, b[]", "a: not here", func(v *Value) {
			v.Field("a").Drop("not %s", "here")
			for _, item := range v.Field("b").List() {
				item.Drop("never")
			}
		}},
	} {
		if got, err := read(c.request, false, c.visit); got != c.want || err != nil {
			t.Errorf("%s: ignored %q, %v; want %q", c.request, got, err, c.want)
		}
		got, err := read(c.request, true, c.visit)
		if text := fmt.Sprint(err); got != "" || (c.strict == "") != (err == nil) || err != nil && text != c.strict {
			t.Errorf("%s, strictly: ignored %q, %v; want %s", c.request, got, err, c.strict)
		}
		if err == nil {
			continue
		}
		if e := generate.Wrap(err); e.Status != http.StatusBadRequest || e.Kind != generate.Unsupported {
			t.Errorf("%s, strictly: %+v", c.request, e)
		}
	}
}

// An invalid value is an error, whatever else is ignored.
func TestKnownFieldsAreStillChecked(t *testing.T) {
	for _, strict := range []bool{false, true} {
		got, err := read(`{"a": "x", "b": 1}`, strict, func(v *Value) { v.Field("a").Int(0, 9) })
		if want := `a: the string "x", want a whole number`; got != "" || err == nil || err.Error() != want {
			t.Errorf("ignored %q, %v; want %s", got, err, want)
		}
	}
}

// The names are untrusted: they cannot break the header, and its length is limited.
func TestIgnoredNamesAreBoundedAndPlain(t *testing.T) {
	got, err := read(`{"a\r\nSet-Cookie: x": 1, "b, c\"<é>": 2, "`+strings.Repeat("z", 5000)+`": 3}`, false, func(*Value) {})
	if want := "a??Set-Cookie:?x, b??c????, " + strings.Repeat("z", maxIgnoredName) + "..."; err != nil || got != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	var b strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&b, `"field%d": 0, `, i)
	}
	got, err = read(`{`+b.String()+`"last": 0}`, false, func(*Value) {})
	if err != nil || !strings.HasSuffix(got, ", and 9969 more") || len(got) > maxIgnored*(maxIgnoredName+5)+20 {
		t.Errorf("%d bytes, %v: %q", len(got), err, got)
	}
}
