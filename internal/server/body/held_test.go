package body

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
)

// TestLongStringsAreNotCopied reads a string deep in a body, which may be an image of megabytes.
func TestLongStringsAreNotCopied(t *testing.T) {
	const size = 4 << 20
	data := []byte(`{"messages": [{"content": [{"image_url": {"url": "` + strings.Repeat("A", size) + `"}}]}]}`)
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Body = Held(data)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	v := Read(httptest.NewRecorder(), r)
	text := v.Field("messages").First().Field("content").First().Field("image_url").Field("url").Bytes()
	runtime.ReadMemStats(&after)
	if spent := after.TotalAlloc - before.TotalAlloc; len(text) != size || spent > size/4 {
		t.Errorf("%d bytes of %d, for which %d were allocated", len(text), size, spent)
	}
	if rest, err := io.ReadAll(r.Body); len(rest) > 0 || err != nil {
		t.Errorf("the request still holds %d bytes: %v", len(rest), err)
	}
}

func TestBytes(t *testing.T) {
	for raw, want := range map[string]string{`"abc"`: "abc", `"a\/b\u0041"`: "a/bA", `""`: "", `null`: "", `5`: ""} {
		v := Parse([]byte(`{"a": ` + raw + `}`))
		if got := string(v.Field("a").Bytes()); got != want || (v.Err() != nil) != (raw == "5") {
			t.Errorf("%s: %q, %v", raw, got, v.Err())
		}
	}
}

func TestWithout(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": 1, "b": [2, {"a": 3}], "a": 4}`: `{"b":[2, {"a": 3}]}`,
		`{"b": "x", "c\n": null, "a": 1}`:      `{"b":"x","c\n":null}`,
		`{"a": 1}`:                             `{}`,
		`{}`:                                   `{}`,
	} {
		if got := string(Parse([]byte(text)).Without("a")); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestHeldIsABody(t *testing.T) {
	if err := iotest.TestReader(Held([]byte("some text")), []byte("some text")); err != nil {
		t.Error(err)
	}
}
