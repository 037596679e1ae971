package server

import (
	"fmt"
	"iter"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/foretoken/foretoken"
)

// TestPanicsOfAnswersAreErrors makes the reading of answers panic behind every protocol, whole and
// streamed, one answer and several: each client gets an error in its protocol, the log
// one line with the stack, and the server continues.
func TestPanicsOfAnswersAreErrors(t *testing.T) {
	r := start(t, nil)
	var broken atomic.Bool
	r.service.Read = func(a *foretoken.Answer) iter.Seq2[foretoken.Piece, error] {
		return func(yield func(foretoken.Piece, error) bool) {
			n := 0
			for p, err := range a.Pieces() {
				if n++; n == 3 && broken.Load() {
					panic("of the test")
				}
				if !yield(p, err) {
					return
				}
			}
		}
	}
	// Temperature 0: answers end after the third piece, whatever the seed.
	const messages = `"messages": [{"role": "user", "content": "Hi."}], "max_tokens": 30, "temperature": 0`
	for i, c := range []struct {
		path, body string
		marks      []string // of an error in a stream; nil: the answer is whole
	}{
		{"/v1/chat/completions", `{` + messages + `}`, nil},
		{"/v1/chat/completions", `{` + messages + `, "n": 3}`, nil},
		{"/v1/chat/completions", `{` + messages + `, "stream": true}`, []string{`data: {"error":`}},
		{"/v1/chat/completions", `{` + messages + `, "stream": true, "n": 2}`, []string{`data: {"error":`}},
		{"/v1/completions", `{"prompt": "Once", "max_tokens": 30, "temperature": 0, "n": 2}`, nil},
		{"/v1/completions", `{"prompt": "Once", "max_tokens": 30, "temperature": 0, "n": 2, "stream": true}`, []string{`data: {"error":`}},
		{"/v1/responses", `{"input": "Hi.", "max_output_tokens": 30, "temperature": 0}`, nil},
		{"/v1/responses", `{"input": "Hi.", "max_output_tokens": 30, "temperature": 0, "stream": true}`, []string{"event: error", "event: response.failed"}},
		{"/v1/messages", `{"model": "tiny", ` + messages + `}`, nil},
		{"/v1/messages", `{"model": "tiny", "stream": true, ` + messages + `}`, []string{"event: error"}},
		{"/api/chat", `{"model": "tiny", "stream": false, "options": {"temperature": 0}, "messages": [{"role": "user", "content": "Hi."}]}`, nil},
		{"/api/chat", `{"model": "tiny", "options": {"temperature": 0}, "messages": [{"role": "user", "content": "Hi."}]}`, []string{`{"error":`}},
	} {
		broken.Store(true)
		id := fmt.Sprint("panic-", i)
		a := r.do("POST", c.path, c.body, "X-Request-Id", id)
		if c.marks == nil {
			if a.status != http.StatusInternalServerError || !strings.Contains(a.body, "of the test") {
				t.Errorf("%s %s: %d %s", c.path, c.body, a.status, a.body)
			}
		} else {
			found := false
			for _, m := range c.marks {
				found = found || strings.Contains(a.body, m)
			}
			if !found || strings.Contains(a.body, "[DONE]") {
				t.Errorf("%s %s: no error at the end of the stream: %d %s", c.path, c.body, a.status, a.body)
			}
		}
		if strings.Contains(a.body, "panic_test.go") || strings.Contains(a.body, "goroutine ") {
			t.Errorf("%s: the client got the stack: %s", c.path, a.body)
		}
		lines := 0
		for line := range strings.Lines(r.log.String()) {
			if strings.Contains(line, "request_id="+id+" ") && strings.Contains(line, "panic_test.go") {
				lines++
				if !strings.Contains(line, "level=ERROR") {
					t.Errorf("%s: a panic is no error in the log: %.300s", c.path, line)
				}
			}
		}
		if lines != 1 {
			t.Errorf("%s %s: %d lines with the stack in the log, want 1", c.path, c.body, lines)
		}
		broken.Store(false)
		if a := r.do("POST", "/v1/chat/completions", `{`+messages+`}`); a.status != http.StatusOK {
			t.Fatalf("after %s: %d %s", c.path, a.status, a.body)
		}
	}
}

// TestPanicsOfLoadingEndServe makes the Ready callback panic: Serve returns an error, the
// process continues.
func TestPanicsOfLoadingEndServe(t *testing.T) {
	s, err := New(Options{Models: []Model{tiny()}, Ready: func() { panic("of the test") }})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(l); err == nil || err.Error() != "panic: of the test" {
		t.Errorf("%v, want the panic", err)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestPanicsOfMetricsAreErrors has a collector panic on the registry's goroutine.
func TestPanicsOfMetricsAreErrors(t *testing.T) {
	r := start(t, nil)
	registry := prometheus.NewRegistry()
	registry.MustRegister(&engines{&Server{log: r.Server.log}}) // without a library
	if _, err := registry.Gather(); err == nil || !strings.Contains(err.Error(), "could not be read") {
		t.Errorf("gathered with %v", err)
	}
	if log := r.log.String(); !strings.Contains(log, "nil pointer") || !strings.Contains(log, "engines.go:") {
		t.Errorf("no stack in the log: %s", log)
	}
}
