package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/foretoken/foretoken/internal/server/batches"
	"github.com/foretoken/foretoken/internal/server/body"
)

// slow runs the first model by portable code, which takes minutes for thousands of
// tokens: a test can act before such an answer ends.
func slow(o *Options) { o.Models[0].Options.ISA = "generic" }

// pipes is a listener for connections within a bubble of synctest, where there are no sockets.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// newPipes returns a listener without connections.
func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// send writes text on a new connection and returns all data until the server
// hangs up, and when it does.
func (p *pipes) send(t *testing.T, text string) (back string, after time.Duration) {
	began := time.Now()
	client, server := net.Pipe()
	defer func() { _ = client.Close() }()
	p.conns <- server
	if _, err := io.WriteString(client, text); err != nil {
		t.Error(err)
	}
	data, err := io.ReadAll(client)
	if err != nil && !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
	return string(data), time.Since(began)
}

// piped runs a test with a server in a bubble, where time passes only while all goroutines wait. No
// model is loaded: models compute on threads that belong to the process.
func piped(t *testing.T, change func(*Options), test func(t *testing.T, s *Server, p *pipes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := Options{Models: []Model{tiny()}, Log: slog.New(slog.DiscardHandler)}
		change(&o)
		s, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		p := newPipes()
		served := make(chan error, 1)
		go func() { served <- s.http.Serve(p) }()
		test(t, s, p)
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// Slow clients are disconnected, and delay no other client.
func TestSlowClientsAreCutOff(t *testing.T) {
	const heads, bodies = 10 * time.Second, time.Minute
	limits := func(o *Options) { o.HeaderTimeout, o.BodyTimeout = heads, bodies }
	piped(t, limits, func(t *testing.T, s *Server, p *pipes) {
		s.mux.HandleFunc("POST /v1/echo", func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				back, after := p.send(t, "POST /v1/echo HTTP/1.1\r\nHost: localhost\r\nX-Slow")
				if back != "" && !strings.HasPrefix(back, "HTTP/1.1 4") || after != heads {
					t.Errorf("half a head: %q after %v", back, after)
				}
			})
			wg.Go(func() {
				back, after := p.send(t, "POST /v1/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
				if !strings.HasPrefix(back, "HTTP/1.1 408") || !strings.Contains(back, "did not arrive in time") || after != bodies {
					t.Errorf("half a body: %q after %v", back, after)
				}
			})
		}
		synctest.Wait()
		if n := s.metrics.active.Load(); n != 20 {
			t.Errorf("%d requests wait for their bodies, want 20", n)
		}
		back, after := p.send(t, "POST /v1/echo HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello")
		if !strings.HasPrefix(back, "HTTP/1.1 200") || !strings.HasSuffix(back, "hello") || after != 0 {
			t.Errorf("meanwhile: %q after %v", back, after)
		}
		wg.Wait()
		if n := s.metrics.active.Load(); n != 0 {
			t.Errorf("%d requests are left", n)
		}
	})
}

// net/http reads the body of a refused request before it sends the answer, and the rest of
// one that was not read to its end: both have a time limit.
func TestUnreadBodiesAreCutOff(t *testing.T) {
	const bodies = writeStall / 2 // later the answer is not sent any more
	keys := keysOf(t, "secret")
	limits := func(o *Options) { o.BodyTimeout, o.Keys = bodies, keys }
	piped(t, limits, func(t *testing.T, s *Server, p *pipes) {
		s.mux.HandleFunc(batches.PatternUpload, func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err == nil {
				t.Error("the upload was complete")
			}
			w.WriteHeader(http.StatusBadRequest)
		})
		const half = "Host: localhost\r\nContent-Length: 100\r\n\r\n{"
		for _, x := range []struct{ request, status string }{
			{"POST /v1/chat/completions HTTP/1.1\r\n" + half, "401"},
			{"POST /v1/nothing HTTP/1.1\r\n" + half, "404"},
			{"GET /healthz HTTP/1.1\r\n" + half, "200"},
			{"POST /v1/files HTTP/1.1\r\nX-Api-Key: secret\r\n" + half, "400"},
		} {
			if back, after := p.send(t, x.request); !strings.HasPrefix(back, "HTTP/1.1 "+x.status) || after != bodies {
				t.Errorf("%q: %q after %v", x.request, back, after)
			}
		}
	})
}

// The time for a head and for a body does not limit the answer's.
func TestAnswersMayTakeLongerThanBodies(t *testing.T) {
	const long = time.Hour
	limits := func(o *Options) { o.HeaderTimeout, o.BodyTimeout = time.Second, time.Second }
	piped(t, limits, func(t *testing.T, s *Server, p *pipes) {
		s.mux.HandleFunc("POST /v1/think", func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-time.After(long):
				_, _ = io.WriteString(w, "done")
			case <-r.Context().Done(): // as if the connection were dead
				t.Error("the answer was canceled")
			}
		})
		back, after := p.send(t, "POST /v1/think HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")
		if !strings.HasPrefix(back, "HTTP/1.1 200") || !strings.HasSuffix(back, "done") || after != long {
			t.Errorf("%q after %v", back, after)
		}
	})
}

// A stream may be silent for longer than a client may stop reading, for example during a long prefill:
// HTTP/2 applies a deadline to the end of the stream.
func TestStreamsMayBeSilent(t *testing.T) {
	piped(t, func(*Options) {}, func(t *testing.T, s *Server, _ *pipes) {
		s.mux.HandleFunc("GET /v1/silent", func(w http.ResponseWriter, _ *http.Request) {
			out := body.Lines(w)
			out.Flush()
			time.Sleep(2 * writeStall)
			out.Send("", "done")
			out.Flush()
		})
		l, protocols := newPipes(), new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		over := &http.Server{Handler: s.Handler(), Protocols: protocols, ReadHeaderTimeout: time.Hour}
		go func() { _ = over.Serve(l) }()
		transport := &http.Transport{Protocols: protocols, DialContext: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			l.conns <- server
			return client, nil
		}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/v1/silent", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		a, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(a.Body)
		if err != nil || string(data) != "\"done\"\n" || a.ProtoMajor != 2 {
			t.Errorf("%q by %s, %v", data, a.Proto, err)
		}
		if err := errors.Join(a.Body.Close(), over.Close()); err != nil {
			t.Error(err)
		}
		transport.CloseIdleConnections()
	})
}
