package body

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"sync"

	"github.com/foretoken/foretoken/internal/server/generate"
)

// Fail writes an error; v is its JSON in a protocol.
func Fail(w http.ResponseWriter, e *generate.Error, v any) {
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
	JSON(w, e.Status, v)
}

// JSON writes a response.
func JSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(Marshal(v), '\n')) // a client that has left needs no answer
}

// Marshal is the JSON of one of our own types. Text is not escaped for HTML, which would make
// untrusted text six times as long.
func Marshal(v any) []byte {
	var b bytes.Buffer
	encode(&b, json.NewEncoder(&b), v)
	return bytes.TrimRight(b.Bytes(), "\n")
}

// encode writes the JSON of one of our own types to e's buffer, with a newline at its end.
// Text is not escaped for HTML.
func encode(b *bytes.Buffer, e *json.Encoder, v any) {
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		b.WriteString("{}\n") // no type of a response can fail
	}
}

// Stream writes a response piece by piece: sent values wait for Flush. Its methods may be
// called from several goroutines.
type Stream struct {
	mu      sync.Mutex // protects what follows
	w       http.ResponseWriter
	control *http.ResponseController
	kind    string
	buf     bytes.Buffer // not flushed
	json    *json.Encoder
	err     error // of writing: the client has left
}

// The kinds of streams.
const (
	events = "text/event-stream"
	lines  = "application/x-ndjson"
)

// Events begins a stream of server-sent events.
func Events(w http.ResponseWriter) *Stream { return newStream(w, events) }

// Lines begins a stream of lines, each a JSON value.
func Lines(w http.ResponseWriter) *Stream { return newStream(w, lines) }

func newStream(w http.ResponseWriter, kind string) *Stream {
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // proxies are to pass data on at once
	w.WriteHeader(http.StatusOK)
	s := &Stream{w: w, control: http.NewResponseController(w), kind: kind}
	s.json = json.NewEncoder(&s.buf)
	return s
}

// Send adds a value; name is that of the event, "" for one without a name, and lines have
// none.
func (s *Stream) Send(name string, v any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kind == lines {
		encode(&s.buf, s.json, v)
		return
	}
	if name != "" {
		s.buf.WriteString("event: " + name + "\n")
	}
	s.buf.WriteString("data: ")
	encode(&s.buf, s.json, v)
	s.buf.WriteByte('\n')
}

// Flush sends the added values to the client.
func (s *Stream) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		_, s.err = s.w.Write(s.buf.Bytes())
	}
	if s.err == nil {
		s.err = s.control.Flush()
	}
	s.buf.Reset()
}
