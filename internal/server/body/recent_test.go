package body

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/foretoken/foretoken/internal/server/generate"
)

func TestRecentStaysBounded(t *testing.T) {
	r := NewRecent(3, 10, func(v *int, n int) int { return n * *v })
	put := func(size int, ids ...string) { r.Put("me", &size, ids...) }
	for i := range 4 {
		put(1, fmt.Sprint(i), fmt.Sprint("also ", i))
		r.Get("me", "1") // the last used stay
	}
	for id, kept := range map[string]bool{"0": false, "1": true, "2": true, "also 3": true, "also 0": false} {
		if got := r.Get("me", id) != nil; got != kept {
			t.Errorf("%s is kept: %v", id, got)
		}
	}
	if r.Get("you", "1") != nil || r.Remove("you", "1") || r.Remove("me", "0") || !r.Remove("me", "also 1") || r.Get("me", "1") != nil {
		t.Error("a value of another tenant, or one that is not there")
	}
	put(8, "large")
	if n, ids, size := r.Len(); n != 3 || ids != 5 || size != 10 {
		t.Errorf("%d values with %d ids, %d bytes", n, ids, size)
	}
	put(11, "too large")
	if n, ids, size := r.Len(); n != 0 || ids != 0 || size != 0 {
		t.Errorf("%d values with %d ids, %d bytes after one that is too large", n, ids, size)
	}
}

// A handler returns its answer or an error, or has written the response.
func TestRoutesWriteAnswers(t *testing.T) {
	var reported error
	mux := http.NewServeMux()
	routes := On(mux, func(http.ResponseWriter) generate.Caller {
		return generate.Caller{Reporter: func(_ *generate.Run, err error) { reported = err }}
	})
	fault := errors.New("a fault")
	for path, h := range map[string]Handler{
		"/answer": func(_ http.ResponseWriter, _ *http.Request, c generate.Caller) (any, error) { return c.Stats, nil },
		"/fault":  func(http.ResponseWriter, *http.Request, generate.Caller) (any, error) { return nil, fault },
		"/own": func(w http.ResponseWriter, _ *http.Request, _ generate.Caller) (any, error) {
			w.WriteHeader(http.StatusAccepted)
			return nil, nil
		},
	} {
		routes("GET "+path, h, func(w http.ResponseWriter, err error) { JSON(w, http.StatusTeapot, err.Error()) })
	}
	for path, want := range map[string]string{"/answer": "200 true\n", "/fault": "418 \"a fault\"\n", "/own": "202 "} {
		reported = nil
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, http.NoBody)
		r.Header.Set("X-Foretoken-Stats", "1")
		mux.ServeHTTP(w, r)
		if got := fmt.Sprintf("%d %s", w.Code, w.Body); got != want || (path == "/fault") != errors.Is(reported, fault) {
			t.Errorf("%s: %s, reported %v; want %s", path, got, reported, want)
		}
	}
}
