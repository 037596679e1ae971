package generatetest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
)

// Tolerated is a request with ignored parts: path, body, the names in the header,
// and the error of a strict server.
type Tolerated [4]string

// Tolerate makes requests, which must succeed and name the ignored parts, and again with a
// strict server, which must refuse them.
func Tolerate(t *testing.T, site string, register func(body.Routes, *generate.Service), h *generate.Service, list []Tolerated) {
	t.Helper()
	strict := Strict(t, register, h)
	for _, c := range list {
		path, request, names, says := c[0], c[1], c[2], c[3]
		if status, ignored, text := Post(t, site+path, request); status != http.StatusOK || ignored != names {
			t.Errorf("%s %s: status %d, ignored %q, want %q: %.200s", path, request, status, ignored, names, text)
		}
		status, ignored, text := Post(t, strict+path, request)
		if status != http.StatusBadRequest || ignored != "" || !strings.Contains(strings.ReplaceAll(text, `\"`, `"`), says) {
			t.Errorf("%s %s, strictly: status %d, ignored %q, want 400 that says %q: %.200s", path, request, status, ignored, says, text)
		}
	}
}

// Strict is the address of a server of a protocol that refuses ignored fields.
func Strict(t *testing.T, register func(body.Routes, *generate.Service), h *generate.Service) string {
	t.Helper()
	mux := http.NewServeMux()
	register(body.On(mux, func(http.ResponseWriter) generate.Caller { return generate.Caller{Strict: true} }), h)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// Post makes a request and returns the status, the ignored fields, and the body.
func Post(t testing.TB, url, request string) (status int, ignored, text string) {
	t.Helper()
	status, header, text := SendWith(t, http.MethodPost, url, request, nil)
	return status, header.Get(body.Ignored), text
}
