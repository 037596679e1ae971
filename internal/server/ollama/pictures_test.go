package ollama

import (
	"net/http"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate/generatetest"
)

func TestPicturesStandBeforeTheText(t *testing.T) {
	h := &handler{service: service}
	q, err := h.decodeChat(body.Parse([]byte(`{"messages": [
		{"role": "user", "content": "a", "images": ["Y2F0", "data:image/png;base64,ZG9n"]},
		{"role": "assistant", "content": "b", "images": []},
		{"role": "tool", "content": "c", "images": ["Y2F0"]},
		{"role": "user", "content": "", "images": ["ZG9n"]}
	]}`)))
	want := []string{"user: <image><image>a [cat] [dog]", "assistant: b", "tool: <image>c [cat]", "user: <image> [dog]"}
	if got := generatetest.Shown(t, q.Messages); err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	for request, want := range map[string][]string{
		`{"prompt": "a", "images": ["Y2F0"], "system": "b"}`: {"system: b", "user: <image>a [cat]"},
		`{"images": ["Y2F0"]}`:                               {"user: <image> [cat]"},
		`{"prompt": "a", "images": []}`:                      {"user: a"},
		`{"images": null}`:                                   nil,
	} {
		q, err := h.decodeGenerate(body.Parse([]byte(request)))
		if got := generatetest.Shown(t, q.Messages); err != nil || !slices.Equal(got, want) || q.empty != (want == nil) {
			t.Errorf("%s: %q, %v, want %q", request, got, err, want)
		}
	}
}

func TestBodiesAreReleased(t *testing.T) {
	h := &handler{service: service}
	generatetest.Released(t, `{"model": "tiny", "format": {"type": "object"}, "options": {"stop": ["x"]}, "messages": [{"role": "user", "content": "a", "images": ["Y2F0"]}],
		"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]}`,
		func(w http.ResponseWriter, r *http.Request) any {
			q, err := h.decodeChat(body.Read(w, r))
			if err != nil {
				t.Error(err)
			}
			return q
		})
}
