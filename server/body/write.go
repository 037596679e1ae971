package body

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"sync"

	"github.com/foretoken/foretoken/server/turn"
)

// WantsReceipt reports whether a request asks for a receipt by its header.
func WantsReceipt(r *http.Request) bool { return r.Header.Get("X-Foretoken-Receipt") == "1" }

// NewID is an identifier that nobody else has.
func NewID(prefix string) string { return prefix + rand.Text() }

// Fail writes an error, which v is in the words of a protocol.
func Fail(w http.ResponseWriter, e *turn.Error, v any) {
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
	JSON(w, e.Status, v)
}

// JSON writes a response.
func JSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(encode(v)) // a client that has left needs no answer
}

// encode is the JSON of one of our own types, with a newline at its end. Text is written as
// it is: a response is no page of HTML.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		b.Reset() // no type of a response can fail
		b.WriteString("{}\n")
	}
	return b.Bytes()
}

// Stream writes a response piece by piece. Its methods may be called from several
// goroutines.
type Stream struct {
	mu   sync.Mutex // protects what follows
	w    http.ResponseWriter
	kind string
	err  error // of writing: the client has left
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
	h.Set("X-Accel-Buffering", "no") // proxies are to pass on what they have
	w.WriteHeader(http.StatusOK)
	return &Stream{w: w, kind: kind}
}

// Send writes a value; name is that of the event, "" for one without a name, and lines have
// none. It is on its way when Flush is called.
func (s *Stream) Send(name string, v any) {
	data := encode(v)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kind == events {
		if name != "" {
			s.write([]byte("event: " + name + "\n"))
		}
		s.write([]byte("data: "))
	}
	s.write(data)
	if s.kind == events {
		s.write([]byte("\n"))
	}
}

func (s *Stream) write(data []byte) {
	if s.err == nil {
		_, s.err = s.w.Write(data)
	}
}

// Flush hands what was written to the client.
func (s *Stream) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = http.NewResponseController(s.w).Flush()
	}
}
