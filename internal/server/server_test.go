package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/rescue"
)

// running is a server on a socket.
type running struct {
	*Server
	t    testing.TB
	url  string
	addr string
	log  *logBuffer
	done chan error // the result of Serve
}

// logBuffer keeps a log. Writers and readers may be on several goroutines.
type logBuffer struct {
	mu sync.Mutex // protects b
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// tiny is the embedded model as tests serve it.
func tiny() Model {
	return Model{Name: "tiny", Path: foretoken.Tiny, Options: foretoken.Options{KVMemory: 256 << 20, Threads: 1, Speculation: foretoken.Speculation{NoSelfTest: true}}}
}

// start serves the embedded model, with the changes of change.
func start(t testing.TB, change func(*Options)) *running {
	t.Helper()
	r := &running{t: t, log: &logBuffer{}, done: make(chan error, 1)}
	o := Options{Models: []Model{tiny()}, Log: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: rescue.Attr}))}
	if change != nil {
		change(&o)
	}
	ready := make(chan struct{})
	o.Ready = func() { close(ready) }
	var err error
	if r.Server, err = New(o); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr = l.Addr().String()
	if r.url = "http://" + r.addr; o.TLS != nil {
		r.url = "https://" + r.addr
	}
	go func() { r.done <- r.Serve(l) }()
	t.Cleanup(func() {
		if r.draining.Load() {
			return
		}
		if err := r.Shutdown(context.Background()); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-r.done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	select {
	case <-ready:
	case err := <-r.done:
		r.done <- err
		t.Fatal(err)
	}
	return r
}

// reply is a response that was read.
type reply struct {
	status int
	header http.Header
	body   string
}

// do sends a request. head has pairs of names and values.
func (r *running) do(method, path, body string, head ...string) reply {
	r.t.Helper()
	q, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i < len(head); i += 2 {
		if q.Header.Set(head[i], head[i+1]); head[i] == "Host" {
			q.Host = head[i+1]
		}
	}
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.read(a)
}

func (r *running) read(a *http.Response) reply {
	r.t.Helper()
	defer func() { _ = a.Body.Close() }()
	data, err := io.ReadAll(a.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return reply{a.StatusCode, a.Header, string(data)}
}

const (
	chatPath = "/v1/chat/completions"
	hello    = `{"messages": [{"role": "user", "content": "Hello."}], "max_tokens": 8, "seed": 1}`
)

// long is a request for tokens tokens, none of which ends it.
func long(tokens int, more string) string {
	return fmt.Sprintf(`{"prompt": "Once upon a time", "max_tokens": %d, "seed": 1, "ignore_eos": true%s}`, tokens, more)
}

// patience is the time limit for expected events. Only a fault takes that long, however
// busy the machine is.
const patience = 5 * time.Minute

// until waits for something that the server does in its own time.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, patience)
		}
		time.Sleep(time.Millisecond)
	}
}

// stats are those of the only model.
func (r *running) stats() foretoken.Stats { return r.library.Status()[0].Model.Stats() }

func (r *running) idle() bool {
	s := r.stats()
	return s.Running == 0 && s.Waiting == 0 && s.KVUsed <= s.PrefixCache.Bytes
}

func TestHealth(t *testing.T) {
	r := start(t, nil)
	if a := r.do("GET", "/healthz", ""); a.status != http.StatusOK || a.body != `{"status":"ok"}`+"\n" {
		t.Errorf("healthz: %+v", a)
	}
	if a := r.do("GET", "/readyz", ""); a.status != http.StatusOK || a.body != `{"ready":true,"state":"ready","models":[{"id":"tiny","state":"loaded"}]}`+"\n" {
		t.Errorf("readyz: %+v", a)
	}
}

// While weights are read probes are answered, with how far that is.
func TestReadyShowsProgress(t *testing.T) {
	o := Options{Models: []Model{tiny()}, Log: slog.New(slog.DiscardHandler)}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	look := func() (a readiness, status int) {
		w := newAnswer()
		s.Handler().ServeHTTP(w, get("/readyz"))
		filetest.Decode(t, w.body.Bytes(), &a)
		return a, w.status
	}
	if a, status := look(); a.Ready || a.State != "loading" || a.Models[0].State != stateIdle || status != http.StatusServiceUnavailable {
		t.Errorf("before: %d %+v", status, a)
	}
	// The hooks of loading send requests during the load.
	var during []progress
	m := s.entry("tiny")
	seen := make(chan struct{})
	s.o.Ready = func() { close(seen) }
	go func() {
		if err := s.preload(); err != nil {
			t.Error(err)
		}
	}()
	for loading := true; loading; {
		select {
		case <-seen:
			loading = false
		default:
			if a, _ := look(); a.Models[0].State == stateLoading {
				during = append(during, a.Models[0])
			}
		}
	}
	if m.done.Load() == 0 || m.done.Load() > m.total.Load() {
		t.Errorf("read %d of %d bytes", m.done.Load(), m.total.Load())
	}
	for _, p := range during {
		if p.Done > p.Total {
			t.Errorf("%d of %d bytes", p.Done, p.Total)
		}
	}
	if a, status := look(); !a.Ready || status != http.StatusOK {
		t.Errorf("after: %d %+v", status, a)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if a, status := look(); a.Ready || a.State != "draining" || status != http.StatusServiceUnavailable {
		t.Errorf("at the end: %d %+v", status, a)
	}
}

// answer is the least that a handler needs.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func newAnswer() *answer { return &answer{header: http.Header{}} }

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }

func get(path string) *http.Request {
	r, err := http.NewRequest(http.MethodGet, "http://localhost"+path, http.NoBody)
	if err != nil {
		panic(err) // an error of the test itself
	}
	return r
}

func TestServeEndsWithTheErrorOfLoading(t *testing.T) {
	s, err := New(Options{Models: []Model{{Name: "none", Path: t.TempDir()}}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(l); err == nil || !strings.Contains(err.Error(), "model none") {
		t.Errorf("got %v", err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, x := range []struct {
		o    Options
		want string
	}{
		{Options{}, "no model"},
		{Options{Models: []Model{tiny(), tiny()}}, "the name is empty or used twice"},
		{Options{Models: []Model{tiny()}, Aliases: map[string]string{"a": "b"}}, `there is no model "b"`},
		{Options{Models: []Model{tiny()}, Origins: []string{"example.com"}}, `origin "example.com"`},
	} {
		if _, err := New(x.o); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("got %v, want %s", err, x.want)
		}
	}
	if _, err := NewKeys("a", ""); err == nil {
		t.Error("an empty key was taken")
	}
	if _, err := NewKeys(); err == nil {
		t.Error("no keys were taken")
	}
}

func TestPanicsAreAnswered(t *testing.T) {
	r := start(t, nil)
	r.mux.HandleFunc("POST /v1/panic", func(http.ResponseWriter, *http.Request) { panic("oh no") })
	r.mux.HandleFunc("POST /v1/late", func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		panic("too late")
	})
	a := r.do("POST", "/v1/panic", "", "X-Request-Id", "abc-1")
	if a.status != http.StatusInternalServerError || !strings.Contains(a.body, "abc-1") || strings.Contains(a.body, "oh no") {
		t.Errorf("got %+v", a)
	}
	if log := r.log.String(); !strings.Contains(log, "oh no") || !strings.Contains(log, "TestPanicsAreAnswered") {
		t.Errorf("no stack in the log: %s", log)
	}
	// A response that has begun cannot become an error; it must not look complete either.
	q, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/v1/late", http.NoBody)
	late, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = late.Body.Close() }()
	if _, err := io.ReadAll(late.Body); err == nil {
		t.Error("an answer that was cut off looks complete")
	}
	if a := r.do("GET", "/healthz", ""); a.status != http.StatusOK {
		t.Errorf("after a panic: %+v", a)
	}
}

func TestRequestIDs(t *testing.T) {
	r := start(t, nil)
	for sent, kept := range map[string]bool{
		"abc-1": true, "a/b+c=:_.": true, "": false, "two words": false, "a\"b": false, `"; drop`: false, strings.Repeat("x", maxID+1): false,
	} {
		a := r.do("GET", "/healthz", "", "X-Request-Id", sent)
		if id := a.header.Get("X-Request-Id"); id == "" || (id == sent) != kept {
			t.Errorf("sent %q, got %q", sent, id)
		}
	}
}

func TestPageIsServed(t *testing.T) {
	r := start(t, nil)
	a := r.do("GET", "/", "")
	if a.status != http.StatusOK || !strings.Contains(a.header.Get("Content-Type"), "text/html") {
		t.Fatalf("%+v", a)
	}
	_, rest, _ := strings.Cut(a.body, `"assets/`)
	asset, _, _ := strings.Cut(rest, `"`)
	if a := r.do("GET", "/assets/"+asset, ""); a.status != http.StatusOK {
		t.Errorf("/assets/%s: %d", asset, a.status)
	}
}
