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

// handler answers the requests of one mux.
type handler struct {
	service *generate.Service
	started time.Time
	stored  *store
}

// Register adds the routes of the protocol to mux. Stored responses are kept in memory, within
// the limits of a store.
func Register(mux *http.ServeMux, s *generate.Service) {
	h := &handler{service: s, started: time.Now(), stored: newStore()}
	handle := func(pattern string, f func(http.ResponseWriter, *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := f(w, r); err != nil {
				generate.Report(r.Context(), nil, err)
				WriteError(w, err)
			}
		})
	}
	handle("POST /v1/chat/completions", h.chat)
	handle("POST /v1/completions", h.complete)
	handle("POST /v1/chat/completions/render", h.renderChat)
	handle("POST /v1/completions/render", h.renderText)
	handle("POST /v1/responses", h.respond)
	handle("POST /v1/responses/input_tokens", h.countInput)
	handle("POST /v1/responses/compact", h.compact)
	handle("GET /v1/responses/{id}", h.response)
	handle("DELETE /v1/responses/{id}", h.deleteResponse)
	handle("GET /v1/models", h.models)
	handle("GET /v1/models/{id...}", h.model)
	handle("POST /v1/embeddings", h.embeddings)
}

// with runs requests and reports how they ended. f writes the response. Once it has begun a
// stream it tells the client of an error itself and returns it as fault, not as err.
func (h *handler) with(ctx context.Context, requests []*generate.Request, f func(runs []*generate.Run) (fault, err error)) error {
	var runs []*generate.Run
	defer func() {
		for _, run := range runs {
			run.Close()
		}
	}()
	for _, q := range requests {
		run, err := h.service.Start(ctx, q)
		if err != nil {
			return err
		}
		runs = append(runs, run)
	}
	fault, err := f(runs)
	for _, run := range runs {
		generate.Report(ctx, run, errors.Join(fault, err))
	}
	return err
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

// rename gives an error the name that this request has for a field.
func rename(err error, names map[string]string) error {
	var e *generate.Error
	if !errors.As(err, &e) || names[e.Param] == "" {
		return err
	}
	renamed := *e
	renamed.Param = names[e.Param]
	return &renamed
}

// embeddings answers that there are none.
func (h *handler) embeddings(http.ResponseWriter, *http.Request) error {
	return generate.NotSupported("", "embeddings are not supported: the models generate text and are not trained for embeddings")
}

// fingerprint identifies what an answer depends on beside the request: the weights and the
// arithmetic. With a seed, equal fingerprints mean equal answers.
func fingerprint(m *foretoken.Model) string {
	i := m.Info()
	h := fnv.New64a()
	_, _ = fmt.Fprintln(h, m.Name(), i.Family, i.Parameters, i.Bytes, i.Compute) // a hash takes all
	return fmt.Sprintf("fp_%016x", h.Sum64())
}
