package server

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/foretoken/foretoken/internal/batch"
	"github.com/foretoken/foretoken/internal/server/batches"
	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
)

// serve handles every request: it admits it, runs the handler of its endpoint, and records it.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	_, pattern := s.mux.Handler(r)
	a := &account{s: s, r: r, start: time.Now(), id: requestID(r), pattern: pattern, leave: func() {}}
	rec := &recorder{ResponseWriter: w, control: http.NewResponseController(w)}
	rec.Header().Set("X-Request-Id", a.id)
	s.metrics.active.Add(1)
	defer func() {
		s.metrics.active.Add(-1)
		a.close(rec)
	}()
	defer s.rescue(rec, a)
	if r.ContentLength != 0 { // net/http reads also the body of a request that is refused, before it answers
		_ = rec.control.SetReadDeadline(time.Now().Add(s.bodyTimeout())) // a reader without deadlines waits as long as the system does
	}
	if err := s.admit(rec, r, a); err != nil {
		a.report(nil, err)
		writeError(rec, r, err)
		return
	}
	if rec.status != 0 {
		return // a preflight request has been answered
	}
	defer a.leave()
	rec.caller = generate.Caller{Tenant: a.tenant, Flow: a.flow, Strict: s.o.StrictFields, Reporter: a.report}
	s.mux.ServeHTTP(rec, r)
}

// rescue answers for a handler that panicked. The stack is for the log only.
func (s *Server) rescue(w *recorder, a *account) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler { //nolint:errorlint // panicked with, never wrapped
		panic(p)
	}
	s.log.Error("panic", "request_id", a.id, "panic", p, "stack", string(debug.Stack()))
	err := &generate.Error{
		Status: http.StatusInternalServerError, Kind: generate.Internal,
		Message: fmt.Sprintf("internal error: see request %s in the log of the server", a.id), Err: fmt.Errorf("panic: %v", p),
	}
	a.report(nil, err)
	if w.status != 0 {
		panic(http.ErrAbortHandler) // break the connection: a truncated response must not look complete
	}
	writeError(w, a.r, err)
}

// admit checks a request's origin, host, key, number and size, and reads its body.
func (s *Server) admit(w *recorder, r *http.Request, a *account) error {
	if s.origins.allow(w, r) {
		return nil
	}
	if s.o.Local {
		if err := checkHost(r.Host); err != nil {
			return err
		}
	}
	if err := s.origins.check(r); err != nil {
		return err
	}
	if s.public[a.pattern] {
		return nil
	}
	if s.o.Keys != nil {
		var ok bool
		if a.key, a.tenant, ok = s.o.Keys.find(r); !ok {
			return unauthorized(w, r)
		}
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	if a.flow = a.tenant; a.flow == "" {
		a.flow, _, _ = net.SplitHostPort(r.RemoteAddr)
	}
	if !s.perKey.enter(a.flow) {
		return &generate.Error{
			Status: http.StatusTooManyRequests, Kind: generate.Busy, RetryAfter: time.Second,
			Message: fmt.Sprintf("%d requests of this client are running, the maximum: try again when one has ended", s.o.PerKey),
		}
	}
	a.leave = func() { s.perKey.leave(a.flow) }
	if a.pattern == batches.PatternUpload {
		if err := checkLength(r, batch.MaxFile+uploadForm); err != nil {
			a.leave()
			return err
		}
		r.Body = &slowBody{r.Body, w.control, s.bodyTimeout()}
		return nil
	}
	if err := s.readBody(w, r); err != nil {
		a.leave()
		return err
	}
	return nil
}

// bodyTimeout is the time for the body of a request.
func (s *Server) bodyTimeout() time.Duration { return cmp.Or(s.o.BodyTimeout, DefaultBodyTimeout) }

// slowBody is a body that is read while it comes, and may take its time as long as it does.
type slowBody struct {
	io.ReadCloser
	control *http.ResponseController
	stall   time.Duration
}

// Read implements io.Reader.
func (b *slowBody) Read(to []byte) (int, error) {
	_ = b.control.SetReadDeadline(time.Now().Add(b.stall)) // as in serve
	n, err := b.ReadCloser.Read(to)
	if errors.Is(err, io.EOF) {
		_ = b.control.SetReadDeadline(time.Time{}) // later reads are not part of it
	}
	return n, err
}

func unauthorized(w *recorder, r *http.Request) error {
	w.Header().Set("WWW-Authenticate", `Bearer realm="foretoken"`)
	message := "an API key is required: send it as Authorization: Bearer KEY, or as X-Api-Key: KEY"
	if presented(r) != "" {
		message = "the API key is not valid for this server"
	}
	return &generate.Error{Status: http.StatusUnauthorized, Kind: generate.Unauthorized, Message: message}
}

// readBody reads all of a request before its handler runs: within a time that does not
// limit the answer's, and to the end, without which the server does not see that a client
// has gone.
func (s *Server) readBody(w *recorder, r *http.Request) error {
	limit := cmp.Or(s.o.MaxBody, defaultMaxBody)
	if err := checkLength(r, limit); err != nil {
		return err
	}
	data, err := readAll(http.MaxBytesReader(w.ResponseWriter, r.Body, limit), r.ContentLength)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return tooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		return &generate.Error{Status: http.StatusRequestTimeout, Kind: generate.BadRequest, Message: "the body of the request did not arrive in time", Err: err}
	case err != nil:
		return &generate.Error{Status: http.StatusBadRequest, Kind: generate.BadRequest, Message: "the body of the request could not be read", Err: errors.Join(err, r.Context().Err())}
	}
	r.Body = body.Held(data)
	_ = w.control.SetReadDeadline(time.Time{}) // as in serve
	return nil
}

// uploadForm is the maximum size of an upload without its file.
const uploadForm = 1 << 20

// checkLength refuses a request by its declared length, before any of its body is read: a client
// that expects 100 Continue then sends none of it.
func checkLength(r *http.Request, limit int64) error {
	if r.ContentLength > limit {
		return tooLarge(limit)
	}
	return nil
}

func tooLarge(limit int64) error {
	return &generate.Error{
		Status: http.StatusRequestEntityTooLarge, Kind: generate.TooLarge,
		Message: fmt.Sprintf("the request is larger than %d bytes, the maximum of this server", limit),
	}
}

// readAll reads a body of a declared length, negative if unknown. Memory is allocated for received
// bytes, not for the declared length: at most twice of them, and once at the end.
func readAll(r io.Reader, declared int64) ([]byte, error) {
	data := make([]byte, 0, 4<<10)
	for {
		if len(data) == cap(data) {
			size := 2 * cap(data)
			if declared >= int64(len(data)) {
				size = int(min(int64(size), declared+1)) // one more, to see the end in
			}
			data = append(make([]byte, 0, size), data...)
		}
		n, err := r.Read(data[len(data):cap(data)])
		switch data = data[:len(data)+n]; {
		case errors.Is(err, io.EOF):
			return data, nil
		case err != nil:
			return nil, err
		}
	}
}

// The characters and the maximum length of request ids that clients choose.
const (
	idCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/+="
	maxID        = 128
)

// requestID is the id that a request came with, if it may be logged and sent back, or a new
// one.
func requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	if id != "" && len(id) <= maxID && strings.Trim(id, idCharacters) == "" {
		return id
	}
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails, by its contract
	return "req_" + hex.EncodeToString(b[:])
}

// recorder is a response that records its status and size. A client that reads nothing for
// writeStall is disconnected.
type recorder struct {
	http.ResponseWriter
	control *http.ResponseController
	caller  generate.Caller // of the request, for its handler
	status  int
	bytes   int64
	renewed time.Time // when the write deadline is to be renewed next
}

// WriteHeader implements http.ResponseWriter.
func (w *recorder) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
	w.renew()
	w.ResponseWriter.WriteHeader(status)
}

// Write implements io.Writer.
func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	w.renew()
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// Flush implements http.Flusher.
func (w *recorder) Flush() {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	_ = w.control.Flush() // the request's context ends when the client disconnects
	// HTTP/2 ends a stream at its deadline whether or not something is being written.
	w.renewed = time.Time{}
	_ = w.control.SetWriteDeadline(time.Time{})
}

// Unwrap is for http.ResponseController.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *recorder) renew() {
	now := time.Now()
	if now.Before(w.renewed) {
		return
	}
	w.renewed = now.Add(time.Second)
	_ = w.control.SetWriteDeadline(now.Add(writeStall)) // a writer without deadlines waits as long as the system does
}
