// Package anthropic serves Anthropic's Messages API: it reads requests, and writes answers as
// messages or streams of events. It knows that protocol but no models; the server handles keys
// and limits.
package anthropic

import (
	"errors"
	"net/http"
	"time"

	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
)

// pingInterval is the interval of pings in a stream, for proxies that close silent connections
// during the prefill of a long prompt.
const pingInterval = 10 * time.Second

// handler answers requests.
type handler struct {
	service *generate.Service
	threads threads
}

// Register adds the routes of the protocol.
func Register(routes body.Routes, s *generate.Service) {
	h := &handler{service: s, threads: newThreads()}
	routes("POST /v1/messages", h.create, WriteError)
	routes("POST /v1/messages/count_tokens", h.count, WriteError)
}

// count answers how many tokens a request's prompt has.
func (h *handler) count(w http.ResponseWriter, r *http.Request, c generate.Caller) (any, error) {
	v, _ := h.read(w, r, c)
	q, err := decode(v, true)
	if err != nil {
		return nil, err
	}
	q.Caller = c
	n, err := h.service.Count(r.Context(), &q.Request)
	return struct {
		Input int `json:"input_tokens"`
	}{n}, err
}

// create answers a conversation.
func (h *handler) create(w http.ResponseWriter, r *http.Request, c generate.Caller) (answer any, err error) {
	v, previous := h.read(w, r, c)
	q, err := decode(v, false)
	if err != nil {
		return nil, err
	}
	q.Caller = c
	run, err := h.service.Start(r.Context(), &q.Request)
	if err != nil {
		return nil, q.explain(err)
	}
	defer run.Close()
	q.stats, q.previous = q.stats || c.Stats, previous
	q.done = func(m *message) { h.keep(q, m) }
	if q.stream {
		c.Report(run, stream(w, run, q))
		return nil, nil
	}
	answer, err = whole(run, q)
	c.Report(run, err)
	return answer, err
}

// whole is an answer when all of it is there.
func whole(run *generate.Run, q *request) (any, error) {
	m, b := newMessage(run), &builder{run: run, silent: q.silent}
	for e, err := range run.Events() {
		if err != nil {
			return nil, err
		}
		b.piece(e)
	}
	m.finish(run, b, q.stats)
	q.done(m)
	return m, nil
}

// stream writes an answer as it comes.
func stream(w http.ResponseWriter, run *generate.Run, q *request) error {
	s := body.Events(w)
	m := newMessage(run)
	s.Send("message_start", start{"message_start", m})
	s.Send("ping", ping)
	s.Flush()
	defer s.KeepAlive(pingInterval, func() { s.Send("ping", ping) })()
	b := &builder{run: run, silent: q.silent, send: func(e event) { s.Send(e.Type, e) }}
	for e, err := range run.Events() {
		if err != nil {
			s.Send("error", wire(err, ""))
			s.Flush()
			return err
		}
		if b.piece(e); !e.More {
			s.Flush()
		}
	}
	m.finish(run, b, q.stats)
	q.done(m)
	s.Send("message_delta", last{"message_delta", ending{m.StopReason, m.StopSequence}, m.Usage, m.Foretoken})
	s.Send("message_stop", signal{"message_stop"})
	s.Flush()
	return nil
}

// signal is an event without content.
type signal struct {
	Type string `json:"type"`
}

var ping = signal{"ping"}

// start is the first event of a stream.
type start struct {
	Type    string   `json:"type"`
	Message *message `json:"message"`
}

// last is the event that completes a message.
type last struct {
	Type      string          `json:"type"`
	Delta     ending          `json:"delta"`
	Usage     usage           `json:"usage"`
	Foretoken *generate.Extra `json:"foretoken,omitempty"`
}

type ending struct {
	StopReason   *string `json:"stop_reason"`
	StopSequence *string `json:"stop_sequence"`
}

// problem is the JSON of an error.
type problem struct {
	Type      string `json:"type"`
	Error     detail `json:"error"`
	RequestID string `json:"request_id,omitempty"`
}

type detail struct {
	Type    string `json:"type"`
	Message string `json:"message"`
	Details *codes `json:"details,omitempty"`
}

// codes tell programs how to handle an error.
type codes struct {
	Code string `json:"error_code"`
}

// kinds are the protocol's types of errors, by status.
var kinds = map[int]string{
	http.StatusBadRequest:            "invalid_request_error",
	http.StatusUnauthorized:          "authentication_error",
	http.StatusForbidden:             "permission_error",
	http.StatusNotFound:              "not_found_error",
	http.StatusRequestEntityTooLarge: "request_too_large",
	http.StatusMethodNotAllowed:      "invalid_request_error",
	http.StatusRequestTimeout:        "invalid_request_error",
	http.StatusTooManyRequests:       "rate_limit_error",
	http.StatusServiceUnavailable:    "overloaded_error",
}

// wire is an error as the protocol has it.
func wire(err error, id string) problem {
	e := generate.Wrap(err)
	kind, ok := kinds[e.Status]
	if !ok {
		kind = "api_error"
	}
	p := problem{"error", detail{Type: kind, Message: e.Error()}, id}
	if errors.Is(err, errNoThread) {
		p.Error.Details = &codes{"thread_not_found"}
	}
	return p
}

// WriteError writes an error as the protocol has it.
func WriteError(w http.ResponseWriter, err error) {
	body.Fail(w, generate.Wrap(err), wire(err, w.Header().Get("X-Request-Id")))
}
