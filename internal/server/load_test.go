package server

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"
)

// dial opens a connection that no test waits for without end.
func (r *running) dial() net.Conn {
	r.t.Helper()
	c, err := (&net.Dialer{}).DialContext(r.t.Context(), "tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		r.t.Fatal(err)
	}
	return c
}

func TestBodiesOverTheLimit(t *testing.T) {
	r := start(t, func(o *Options) { o.MaxBody = 1000 })
	large := `{"messages": [{"role": "user", "content": "` + strings.Repeat("a", 1000) + `"}]}`
	for _, path := range []string{chatPath, "/v1/messages", "/api/chat"} {
		if a := r.do("POST", path, large); a.status != http.StatusRequestEntityTooLarge || !strings.Contains(a.body, "larger than 1000 bytes") {
			t.Errorf("%s: %+v", path, a)
		}
	}
	// Without a length in advance.
	q, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+chatPath, io.MultiReader(strings.NewReader(large)))
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.read(a); got.status != http.StatusRequestEntityTooLarge {
		t.Errorf("chunked: %+v", got)
	}
	if a := r.do("POST", chatPath, hello); a.status != 200 {
		t.Errorf("within the limit: %+v", a)
	}
}

// TestLengthsOverTheLimit declares bodies that are too long and waits for 100 Continue, as curl does.
func TestLengthsOverTheLimit(t *testing.T) {
	r, _ := startBatches(t, t.TempDir(), nil)
	for _, path := range []string{chatPath, "/v1/messages", "/api/chat", "/v1/files"} {
		c := r.dial()
		if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 99999999999\r\n\r\n", path); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || line != "HTTP/1.1 413 Request Entity Too Large\r\n" {
			t.Errorf("%s: %q, %v", path, line, err)
		}
		_ = c.Close()
	}
}

// TestResetStreamsAreNotLogged has clients leave before an answer begins, like clients that open and
// reset streams of HTTP/2: the log has nothing above debug, and all are counted.
func TestResetStreamsAreNotLogged(t *testing.T) {
	r := start(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, q := range []struct {
		method, path string
		body         io.Reader
	}{
		{"GET", "/v1/models", http.NoBody},
		{"POST", chatPath, strings.NewReader(hello)},
		{"POST", chatPath, iotest.ErrReader(context.Canceled)},
		{"POST", "/v1/messages", iotest.ErrReader(errors.New("stream reset"))},
	} {
		r.Handler().ServeHTTP(newAnswer(), httptest.NewRequestWithContext(ctx, q.method, q.path, q.body))
	}
	if log := r.log.String(); strings.Count(log, "level=DEBUG msg=request") != 4 || strings.Contains(log, "level=INFO msg=request") {
		t.Errorf("log: %s", log)
	}
	if a := r.do("GET", "/metrics", ""); strings.Count(a.body, `status="499"} 1`)+2*strings.Count(a.body, `status="499"} 2`) != 3 {
		t.Errorf("metrics: %s", a.body)
	}
}

// Stalled clients delay no other client, however many there are, and are answered when they go on.
func TestStalledClientsDelayNoOtherClient(t *testing.T) {
	r := start(t, func(o *Options) { o.HeaderTimeout, o.BodyTimeout = time.Hour, time.Hour })
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n", chatPath, len(hello))
	request := head + hello
	var stalled []net.Conn
	cuts := []int{10, len(head) - 1, len(head) + 1, len(request) - 1}
	for i := range 40 {
		c := r.dial()
		defer func() { _ = c.Close() }()
		if _, err := io.WriteString(c, request[:cuts[i%len(cuts)]]); err != nil {
			t.Fatal(err)
		}
		stalled = append(stalled, c)
	}
	until(t, "half of them wait for their bodies", func() bool { return r.metrics.active.Load() == 20 })
	if a := r.do("POST", chatPath, hello); a.status != 200 {
		t.Errorf("meanwhile: %+v", a)
	}
	for i, c := range stalled {
		_, err := io.WriteString(c, request[cuts[i%len(cuts)]:])
		if err != nil {
			t.Fatal(err)
		}
		if back, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(back), "HTTP/1.1 200") {
			t.Errorf("connection %d: %v %.200s", i, err, back)
		}
	}
}

// sockets is how many connections TestIdleConnections opens: ten thousand in make soak.
var sockets = flag.Uint64("sockets", 300, "how many connections are left idle")

func TestIdleConnections(t *testing.T) {
	// Both ends are in this process, and some files are open already.
	n := int(min(*sockets, (maxOpenFiles(t)-200)/2))
	r := start(t, func(o *Options) { o.Models[0].Options.KVMemory = 64 << 20 })
	before := runtime.NumGoroutine()
	idle := make([]net.Conn, n)
	errs := make(chan error, 8)
	for k := range cap(errs) {
		go func() {
			var err error
			for i := k; i < n && err == nil; i += cap(errs) {
				idle[i], err = r.asked()
			}
			errs <- err
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d connections are open and idle", n)
	if a := r.do("POST", chatPath, hello); a.status != 200 {
		t.Errorf("beside them: %+v", a)
	}
	for _, c := range idle {
		_ = c.Close()
	}
	until(t, "the connections are forgotten", func() bool { return runtime.NumGoroutine() < before+50 })
}

// asked opens a connection, sends one request on it, and leaves it open.
func (r *running) asked() (net.Conn, error) {
	c, err := net.DialTimeout("tcp", r.addr, patience)
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		return nil, err
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	a, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, a.Body)
	return c, errors.Join(err, a.Body.Close())
}

func TestConnectionsOverTheLimitWait(t *testing.T) {
	r := start(t, func(o *Options) { o.MaxConnections = 2 })
	var open [2]net.Conn
	for i := range open {
		var err error
		if open[i], err = r.asked(); err != nil {
			t.Fatal(err)
		}
	}
	var room atomic.Bool
	got := make(chan error, 1)
	third := r.dial()
	go func() {
		_, err := io.WriteString(third, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
		if err == nil {
			_, err = io.ReadAll(third)
		}
		if !room.Load() {
			t.Error("a third connection was served beside two others")
		}
		got <- err
	}()
	for range 100 { // which leaves the third all the time it would need
		if _, err := io.WriteString(open[1], "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		a, err := http.ReadResponse(bufio.NewReader(open[1]), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, a.Body)
	}
	room.Store(true)
	_ = open[0].Close()
	if err := <-got; err != nil {
		t.Error(err)
	}
	_ = open[1].Close()
}

// Five hundred requests at once: as many as may wait are served, the rest are told to try
// again, and no resources are left in use.
func TestFlood(t *testing.T) {
	const requests, queue = 500, 64
	r := start(t, func(o *Options) { o.Models[0].Options.MaxQueue = queue })
	if a := r.do("POST", chatPath, hello); a.status != 200 {
		t.Fatalf("before: %+v", a)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: -1}
	client := &http.Client{Transport: transport}
	before := runtime.NumGoroutine()
	counts := map[int]int{}
	var mu sync.Mutex // protects counts
	var wg sync.WaitGroup
	gate := make(chan struct{})
	for i := range requests {
		wg.Go(func() {
			body := fmt.Sprintf(`{"prompt": "Number %d", "max_tokens": 8, "stream": %v}`, i, i%2 == 0)
			q, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/v1/completions", strings.NewReader(body))
			<-gate
			a, err := client.Do(q)
			if err != nil {
				t.Error(err)
				return
			}
			got := r.read(a)
			if got.status == http.StatusTooManyRequests && got.header.Get("Retry-After") == "" {
				t.Error("429 without Retry-After")
			}
			if got.status == http.StatusOK && i%2 == 0 && !strings.HasSuffix(got.body, "data: [DONE]\n\n") {
				t.Errorf("a stream without its end: %s", got.body)
			}
			mu.Lock()
			counts[got.status]++
			mu.Unlock()
		})
	}
	close(gate)
	wg.Wait()
	t.Logf("%d requests at once: %v", requests, counts)
	if counts[200]+counts[429] != requests || counts[200] < queue {
		t.Errorf("%d requests gave %v", requests, counts)
	}
	until(t, "nothing is left", func() bool {
		return r.idle() && r.metrics.active.Load() == 0 && runtime.NumGoroutine() <= before+10
	})
	if a := r.do("POST", chatPath, hello); a.status != 200 {
		t.Errorf("afterwards: %+v", a)
	}
}

// stream starts a streamed completion of a number of tokens and reads its first event. Comments
// before it say that the machine is slow.
func (r *running) stream(ctx context.Context, tokens int) (*http.Response, *bufio.Reader) {
	r.t.Helper()
	q, _ := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/v1/completions", strings.NewReader(long(tokens, `, "stream": true`)))
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		r.t.Fatal(err)
	}
	events := bufio.NewReader(a.Body)
	for {
		line, err := events.ReadString('\n')
		switch {
		case err != nil || a.StatusCode != http.StatusOK:
			r.t.Fatalf("%d %q %v", a.StatusCode, line, err)
		case strings.HasPrefix(line, "data: "):
			return a, events
		}
	}
}

func TestDisconnectFreesTheSequenceWithinARound(t *testing.T) {
	r := start(t, slow)
	model := r.library.Status()[0].Model
	gone := make(chan int64, 1)
	inner := r.http.Handler
	r.http.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		// The handler's context ends before the rounds are counted: later rounds ignore
		// it.
		ctx, cancel := context.WithCancel(context.WithoutCancel(q.Context()))
		context.AfterFunc(q.Context(), func() {
			cancel()
			gone <- model.Stats().Rounds
		})
		inner.ServeHTTP(w, q.WithContext(ctx))
	})
	ctx, cancel := context.WithCancel(t.Context())
	a, _ := r.stream(ctx, 4000)
	if s := r.stats(); s.Running != 1 {
		t.Errorf("while it runs: %+v", s)
	}
	cancel()
	_ = a.Body.Close()
	at := <-gone
	until(t, "the sequence is gone", r.idle)
	x := model.Stats()
	if x.Rounds > at+1 || x.Canceled != 1 {
		t.Errorf("%d rounds after the client had gone, %d canceled", x.Rounds-at, x.Canceled)
	}
	until(t, "the request is logged", func() bool { return strings.Contains(r.log.String(), "status=499") })
	if log := r.log.String(); !strings.Contains(log, "kind=canceled") {
		t.Errorf("log: %s", log)
	}
}

func TestDrainLetsStreamsEnd(t *testing.T) {
	r := start(t, nil)
	_, events := r.stream(t.Context(), 200)
	var rest []byte
	read := make(chan error, 1)
	go func() { // it is not the socket's buffers that let it end
		var err error
		rest, err = io.ReadAll(events)
		read <- err
	}()
	down := make(chan error, 1)
	go func() { down <- r.Shutdown(context.Background()) }()
	if err := <-r.done; err != nil { // which waits for all of it
		t.Error(err)
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
	if err := <-read; err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
		t.Errorf("the stream was cut: %v", err)
	}
	if c, err := net.DialTimeout("tcp", r.addr, patience); err == nil {
		_ = c.Close()
		t.Error("a drained server takes connections")
	}
}

func TestDrainEndsAtItsDeadline(t *testing.T) {
	r := start(t, slow)
	_, events := r.stream(t.Context(), 4000)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	err := r.Shutdown(over)
	if err == nil || !strings.Contains(err.Error(), "1 requests were cut off") {
		t.Errorf("got %v", err)
	}
	if err := <-r.done; err != nil {
		t.Error(err)
	}
	if rest, _ := io.ReadAll(events); strings.Contains(string(rest), "[DONE]") {
		t.Error("the stream came to its end")
	}
}
