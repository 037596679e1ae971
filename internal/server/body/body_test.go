package body

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/server/generate"
)

func TestValueReadsWhatIsThere(t *testing.T) {
	v := Parse([]byte(` {"a": "x", "b": [1, 2.0, 3e0], "c": {"d": true, "e": null}, "f": 0.5, "g": ["p", "q"]} `))
	if got := v.Field("a").Text(); got != "x" {
		t.Errorf("a is %q", got)
	}
	for i, item := range v.Field("b").List() {
		if n := item.Int(0, 9); n == nil || *n != int64(i)+1 {
			t.Errorf("b[%d] is %v", i, n)
		}
	}
	if c := v.Field("c"); !c.IsObject() || !c.Field("d").True() || !c.Field("e").Absent() || c.Field("e").True() || !c.Field("none").Absent() {
		t.Error("c is something else")
	}
	if f := v.Field("f").Number(); f == nil || *f != 0.5 {
		t.Errorf("f is %v", f)
	}
	if g := v.Field("g").Texts(2); strings.Join(g, "") != "pq" {
		t.Errorf("g is %q", g)
	}
	if err := v.Err(); err != nil {
		t.Error(err)
	}
}

func TestValueNamesTheFirstFault(t *testing.T) {
	for _, c := range []struct {
		body, want string
		read       func(v *Value)
	}{
		{`{"a": 1}`, "a: 1, want a string", func(v *Value) { v.Field("a").Text(); v.Field("z").Required() }},
		{`{}`, "z: this field is missing", func(v *Value) { v.Field("z").Required() }},
		{`{"a": null}`, "a: this field is missing", func(v *Value) { v.Field("a").Required() }},
		{`{"a": [{}, {"b": "c"}]}`, `a[1].b: the string "c", want a number`, func(v *Value) {
			for _, item := range v.Field("a").List() {
				item.Field("b").Number()
			}
		}},
		{`{"a": {}}`, "a: an object, want an array", func(v *Value) { v.Field("a").Len() }},
		{`{"a": []}`, "a: an array, want an object", func(v *Value) { v.Field("a").Field("b") }},
		{`{"a": [""]}`, "a[0]: the string is empty", func(v *Value) { v.Field("a").Texts(9) }},
		{`{"a": 1e99}`, "a: 1e99, want a whole number", func(v *Value) { v.Field("a").Int(0, 9) }},
		{`{"a": 10}`, "a: 10, want a number from 0 to 9", func(v *Value) { v.Field("a").Int(0, 9) }},
		{`{"a": "x"}`, `a: "x", want one of ["y"]`, func(v *Value) { v.Field("a").OneOf("y") }},
		{`{"a": 0}`, "a: 0, want true or false", func(v *Value) { v.Field("a").Bool() }},
		{`{"a": 1`, "the body is not JSON: unexpected end of JSON input, at byte 7", func(*Value) {}},
		{`null`, "the body is nothing, want a JSON object", func(v *Value) { v.Field("a") }},
		{" \n", "the body is empty, want a JSON object", func(v *Value) { v.Field("a") }},
	} {
		v := Parse([]byte(c.body))
		c.read(v)
		if err := v.Err(); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.body, err, c.want)
		}
	}
}

func TestDepthIsAutoOrANumber(t *testing.T) {
	for text, want := range map[string]foretoken.Depth{
		"null": foretoken.DepthDefault, `"auto"`: foretoken.DepthAuto, "0": foretoken.DepthOff, "1": 1, "8": foretoken.MaxDepth, "2.0": 2,
	} {
		v := Parse([]byte(`{"mtp_depth": ` + text + `}`))
		if got := Depth(v); got != want || v.Err() != nil {
			t.Errorf("%s is %v, %v; want %v", text, got, v.Err(), want)
		}
	}
	for _, text := range []string{"-1", "-2", "9", "1.5", `"off"`, `"3"`, `""`, "true", "[]", "{}"} {
		v := Parse([]byte(`{"mtp_depth": ` + text + `}`))
		Depth(v)
		if want := "mtp_depth: " + text + `, want 0 to 8, or "auto"`; v.Err() == nil || v.Err().Error() != want {
			t.Errorf("%v, want %s", v.Err(), want)
		}
	}
}

func TestReadTellsAnEarlyEndFromALargeBody(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Body = io.NopCloser(iotest.ErrReader(io.ErrUnexpectedEOF))
	if e := generate.Wrap(Read(httptest.NewRecorder(), r).Err()); e.Status != http.StatusBadRequest || !strings.Contains(e.Message, "ended early") {
		t.Errorf("early end: %+v", e)
	}
	r.Body = http.MaxBytesReader(httptest.NewRecorder(), io.NopCloser(strings.NewReader(`{"a": 1}`)), 3)
	if e := generate.Wrap(Read(httptest.NewRecorder(), r).Err()); e.Status != http.StatusRequestEntityTooLarge || e.Kind != generate.TooLarge {
		t.Errorf("large body: %+v", e)
	}
}

func TestStreamsHaveTheirSyntax(t *testing.T) {
	w := httptest.NewRecorder()
	s := Events(w)
	s.Send("hello", map[string]string{"a": "<b>"})
	s.Flush()
	if got, want := w.Body.String(), "event: hello\ndata: {\"a\":\"<b>\"}\n\n"; got != want || !w.Flushed || w.Header().Get("Content-Type") != "text/event-stream" {
		t.Errorf("%q with %v, want %q", got, w.Header(), want)
	}
	w = httptest.NewRecorder()
	s = Lines(w)
	s.Send("", 1)
	s.Send("", 2)
	if w.Body.Len() > 0 {
		t.Errorf("%q before it is flushed", w.Body)
	}
	s.Flush()
	if got := w.Body.String(); got != "1\n2\n" || w.Header().Get("Content-Type") != "application/x-ndjson" {
		t.Errorf("%q with %v", got, w.Header())
	}
}

func TestFailSaysWhenToTryAgain(t *testing.T) {
	w := httptest.NewRecorder()
	Fail(w, &generate.Error{Status: http.StatusTooManyRequests, RetryAfter: 1100 * time.Millisecond}, struct{}{})
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "2" || w.Body.String() != "{}\n" {
		t.Errorf("%d %v %q", w.Code, w.Header(), w.Body)
	}
}

// gone is a client that has left.
type gone struct{ *httptest.ResponseRecorder }

func (gone) Write([]byte) (int, error) { return 0, errors.New("gone") }

func TestStreamStopsWritingToAClientThatHasLeft(t *testing.T) {
	w := gone{httptest.NewRecorder()}
	s := Events(w)
	s.Send("a", 1)
	if s.Flush(); w.Flushed {
		t.Error("it was flushed")
	}
}

// told reports every write.
type told struct {
	*httptest.ResponseRecorder
	writes chan string
}

func (w told) Write(p []byte) (int, error) {
	w.writes <- string(p)
	return len(p), nil
}

func TestSilentStreamIsKeptAlive(t *testing.T) {
	w := told{httptest.NewRecorder(), make(chan string)}
	s := Lines(w)
	stop := s.KeepAlive(time.Millisecond, func() { s.Send("", "alive") })
	for range 3 {
		if got := <-w.writes; got != "\"alive\"\n" {
			t.Errorf("%q", got)
		}
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for range w.writes { // one more may be under way
			continue
		}
	}()
	stop()
	close(w.writes) // a write after stop would panic
	<-read
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"a": [{"b": "c"}], "d": 1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		v := Parse(data)
		a := v.Field("a")
		for _, item := range a.List() {
			item.Field("b").Text()
		}
		v.Field("d").Int(-9, 9)
		if err := v.Err(); err == nil && !json.Valid(data) {
			t.Errorf("%q was taken", data)
		}
	})
}
