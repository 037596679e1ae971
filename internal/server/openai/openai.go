// Package openai serves OpenAI's HTTP API: chat completions, completions, responses and models; and
// the prompts of the former two as ids, as vLLM has them for gateways.
// It knows their JSON and their streams of events; package generate runs the requests.
package openai

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"time"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
)

// API answers the requests of the protocol.
type API struct {
	service *generate.Service
	started time.Time
	stored  *store
}

// New returns an API. Stored responses are kept in memory, within the limits of a store.
func New(s *generate.Service) *API {
	return &API{service: s, started: time.Now(), stored: newStore()}
}

// Register adds the routes of the protocol.
func Register(routes body.Routes, s *generate.Service) { New(s).Register(routes) }

// Register adds the routes of the protocol.
func (h *API) Register(routes body.Routes) {
	for pattern, read := range generating {
		routes(pattern, func(w http.ResponseWriter, r *http.Request, c generate.Caller) (any, error) {
			return h.answer(r.Context(), c, read, body.Read(w, r).Strict(c.Strict), w)
		}, WriteError)
	}
	for pattern, f := range map[string]body.Handler{
		"POST /v1/chat/completions/render": h.renderChat,
		"POST /v1/completions/render":      h.renderText,
		"POST /v1/responses/input_tokens":  h.countInput,
		"POST /v1/responses/compact":       refuse("conversations are not compacted here: send fewer items, or ask the model for a summary with /v1/responses"),
		"GET /v1/responses/{id}":           h.response,
		"DELETE /v1/responses/{id}":        h.deleteResponse,
		"GET /v1/models":                   h.models,
		"GET /v1/models/{id...}":           h.model,
		"POST /v1/embeddings":              refuse("embeddings are not supported: the models generate text and are not trained for embeddings"),
	} {
		routes(pattern, f, WriteError)
	}
}

// refuse answers an endpoint that there is not.
func refuse(message string) body.Handler {
	return func(http.ResponseWriter, *http.Request, generate.Caller) (any, error) {
		return nil, generate.NotSupported("", "%s", message)
	}
}

// task is a request to generate that was read. Its requests run at the same time.
type task struct {
	requests []*generate.Request
	stream   bool
	// whole is the response when all answers have ended, and send writes them as they come.
	whole func(runs []*generate.Run) (any, error)
	send  func(runs []*generate.Run, w http.ResponseWriter) error
	// explain gives an error the endpoint's names of fields.
	explain func(error) error
}

// reader reads a request to an endpoint that generates.
type reader func(*API, generate.Caller, *body.Value) (*task, error)

// generating are the endpoints that generate.
var generating = map[string]reader{
	"POST /v1/chat/completions": (*API).chat,
	"POST /v1/completions":      (*API).complete,
	"POST /v1/responses":        (*API).respond,
}

// Answer is the response to a request to an endpoint that generates: its status and its JSON. The
// request cannot have stream set.
func (h *API) Answer(ctx context.Context, c generate.Caller, endpoint string, request []byte) (status int, response []byte) {
	var answer any
	err := error(&generate.Error{Status: http.StatusNotFound, Kind: generate.NotFound, Message: fmt.Sprintf("the endpoint %.80q does not generate", endpoint)})
	if read := generating["POST "+endpoint]; read != nil {
		answer, err = h.answer(ctx, c, read, body.Parse(request).Strict(c.Strict), nil)
	}
	status = http.StatusOK
	if err != nil {
		c.Report(nil, err)
		e := generate.Wrap(err)
		status, answer = e.Status, errorBody{newErrorObject(e)}
	}
	return status, append(body.Marshal(answer), '\n')
}

// answer runs the request v and reports how it ended. It returns the response, or writes a stream to w and
// returns nil. An error is still to be sent to the client.
func (h *API) answer(ctx context.Context, c generate.Caller, read reader, v *body.Value, w http.ResponseWriter) (answer any, err error) {
	t, err := read(h, c, v)
	if err != nil {
		return nil, err
	}
	if t.stream && w == nil {
		return nil, generate.NotSupported("stream", "the answer to this request cannot be streamed: leave it out")
	}
	var runs []*generate.Run
	defer func() {
		for _, run := range runs {
			run.Close()
		}
	}()
	for _, q := range t.requests {
		run, err := h.service.Start(ctx, q)
		if err != nil {
			return nil, t.explain(err)
		}
		runs = append(runs, run)
	}
	var fault error // that the client was sent in the stream
	if t.stream {
		fault = t.send(runs, w)
	} else {
		answer, err = t.whole(runs)
	}
	for _, run := range runs {
		c.Report(run, errors.Join(fault, err))
	}
	return answer, t.explain(err)
}

// errorBody is an error as the protocol has it.
type errorBody struct {
	Error errorObject `json:"error"`
}

type errorObject struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

// WriteError writes an error as the protocol has it.
func WriteError(w http.ResponseWriter, err error) {
	e := generate.Wrap(err)
	body.Fail(w, e, errorBody{newErrorObject(e)})
}

func newErrorObject(e *generate.Error) errorObject {
	o := errorObject{Message: e.Error(), Type: "invalid_request_error"}
	if e.Param != "" {
		o.Param = &e.Param
	}
	code := ""
	switch e.Kind {
	case generate.Unauthorized:
		code = "invalid_api_key"
	case generate.NotFound:
		if code = "not_found"; e.Param == "model" {
			code = "model_not_found"
		}
	case generate.TooLarge:
		if code = "context_length_exceeded"; e.Status == http.StatusRequestEntityTooLarge {
			code = "request_too_large"
		}
	case generate.Unsupported:
		code = "unsupported_parameter"
	case generate.Busy:
		o.Type, code = "rate_limit_error", "rate_limit_exceeded"
	case generate.Unavailable:
		o.Type, code = "server_error", "unavailable"
	case generate.Internal:
		o.Type, code = "server_error", "internal_error"
	}
	if code != "" {
		o.Code = &code
	}
	return o
}

// rename gives an error this request's name of a field.
func rename(err error, names map[string]string) error {
	var e *generate.Error
	if !errors.As(err, &e) || names[e.Param] == "" {
		return err
	}
	renamed := *e
	renamed.Param = names[e.Param]
	return &renamed
}

// fingerprint identifies the inputs of an answer besides the request: the weights and the
// arithmetic. With a seed, equal fingerprints mean equal answers.
func fingerprint(m *foretoken.Model) string {
	i := m.Info()
	h := fnv.New64a()
	_, _ = fmt.Fprintln(h, m.Name(), i.Family, i.Parameters, i.Bytes, i.Compute) // a hash does not fail
	return fmt.Sprintf("fp_%016x", h.Sum64())
}
