package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/server/kvevents"
)

// metricsOf serves the metrics of a running server, and returns what asks for them.
func (r *running) metricsOf() (url string, ended <-chan error) {
	r.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- r.ServeMetrics(l) }()
	return "http://" + l.Addr().String(), done
}

// TestMetricsNeedNoKeyOnTheirOwnListener reads a server with keys as a gateway does.
func TestMetricsNeedNoKeyOnTheirOwnListener(t *testing.T) {
	keys := keysOf(t, "secret")
	events := kvevents.New(kvevents.Options{Pod: "here", BlockTokens: foretoken.PageTokens})
	defer events.Close()
	r := start(t, func(o *Options) { o.Keys, o.Events = keys, events })
	url, ended := r.metricsOf()
	get := func(method, path string) (int, string) {
		q, err := http.NewRequestWithContext(t.Context(), method, url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		a, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		x := r.read(a)
		return x.status, x.body
	}
	r.do("POST", "/v1/completions", `{"prompt": "Once", "max_tokens": 2, "ignore_eos": true}`, "Authorization", "Bearer secret")
	r.do("POST", "/v1/completions", `{}`, "Authorization", "Bearer secret") // an error is counted as well
	status, text := get("GET", "/metrics")
	var names []string
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "# TYPE "); ok {
			names = append(names, name)
		}
	}
	for _, name := range metricNames {
		if !slices.Contains(names, name) {
			t.Errorf("there is no %s", name)
		}
	}
	for _, name := range names {
		if !slices.Contains(metricNames, name) && !strings.HasPrefix(name, "foretoken_kv_event_") {
			t.Errorf("there is %s", name)
		}
	}
	s := r.stats()
	for _, want := range []string{
		`foretoken_kv_page_tokens{model_name="tiny"} 64`, fmt.Sprintf(`foretoken_kv_pages_max{model_name="tiny"} %d`, s.KVMaxPages),
		"foretoken_all_requests_waiting 0", "foretoken_kv_event_subscribers 0",
	} {
		if status != 200 || s.KVMaxPages == 0 || !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("%d, without %s: %s", status, want, text)
		}
	}
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/": 404, "/v1/models": 404, "/v1/status": 404, "/openapi.json": 404, "/debug/pprof/": 404} {
		if status, text := get("GET", path); status != want {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	if status, _ := get("POST", "/metrics"); status != 405 {
		t.Errorf("POST: %d", status)
	}
	if a := r.do("GET", "/metrics", ""); a.status != 401 {
		t.Errorf("metrics of the API without a key: %d", a.status)
	}
	if err := r.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("metrics: %v", err)
	}
	if err := <-r.done; err != nil {
		t.Error(err)
	}
}

// TestMaxPagesAreWhatFits compares the gauge with the memory of one sequence.
func TestMaxPagesAreWhatFits(t *testing.T) {
	pages := map[int64]int{}
	for _, memory := range []int64{64 << 20, 128 << 20} {
		m, err := foretoken.Open(t.Context(), foretoken.Tiny, foretoken.Options{KVMemory: memory, Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		s := m.Stats()
		if pages[memory] = s.KVMaxPages; s.KVMaxPages*foretoken.PageTokens < m.Context() {
			t.Errorf("%d pages do not hold a context of %d tokens", s.KVMaxPages, m.Context())
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	// Beside a fixed part, pages are all that memory is for.
	if a, b := pages[64<<20], pages[128<<20]; b < 2*a || b > 2*a+a/10+1 {
		t.Errorf("%d pages in 64 MiB, %d in 128 MiB", a, b)
	}
}

// BenchmarkScrape is one reading of the metrics as gateways do it, up to twenty times a second of
// each server.
func BenchmarkScrape(b *testing.B) {
	r := start(b, nil)
	r.do("POST", "/v1/completions", `{"prompt": "Once", "max_tokens": 2}`)
	h := r.ops.Handler
	for name, h := range map[string]http.Handler{"gateway": h, "all": r.mux} {
		b.Run("for="+name, func(b *testing.B) {
			q := httptest.NewRequest(http.MethodGet, "/metrics", nil)
			for b.Loop() {
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, q); w.Code != http.StatusOK {
					b.Fatal(w.Code)
				}
				if n, err := io.Copy(io.Discard, w.Body); err != nil || n < 1000 {
					b.Fatal(n, err)
				}
			}
		})
	}
}
