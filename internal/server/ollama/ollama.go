// Package ollama serves the part of Ollama's API that chats, completes and lists models: it reads
// requests, and writes answers as lines of JSON. It knows that protocol but no models; the server handles
// keys and limits. Endpoints that manage models are refused.
package ollama

import (
	"net/http"
	"time"

	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
)

// handler is the shared state of the routes.
type handler struct {
	service *generate.Service
	start   time.Time // of the server, in place of modification times of files
}

// refused are the routes of Ollama without a counterpart, and alternatives.
var refused = map[string]string{
	"POST /api/embed":      "the models generate text, not embeddings",
	"POST /api/embeddings": "the models generate text, not embeddings",
	"POST /api/pull":       "models are fetched on the server's machine: foretoken pull NAME",
	"POST /api/push":       "publishing models is not supported",
	"POST /api/create":     "models are created on the server's machine: foretoken convert",
	"POST /api/copy":       "other names of models are set by: foretoken serve --served-model-name",
	"DELETE /api/delete":   "models are removed on the server's machine: foretoken rm NAME",
}

// Register adds the routes of the protocol.
func Register(routes body.Routes, service *generate.Service) {
	h := &handler{service: service, start: time.Now()}
	for pattern, f := range map[string]body.Handler{
		"POST /api/chat": h.chat, "POST /api/generate": h.generate, "POST /api/show": h.show,
		"GET /api/tags": h.tags, "GET /api/ps": h.running, "GET /api/version": version,
	} {
		routes(pattern, f, WriteError)
	}
	for pattern, remedy := range refused {
		routes(pattern, func(http.ResponseWriter, *http.Request, generate.Caller) (any, error) {
			return nil, &generate.Error{Status: http.StatusNotImplemented, Kind: generate.Unsupported, Message: "not supported: " + remedy}
		}, WriteError)
	}
}

// chat answers a conversation.
func (h *handler) chat(w http.ResponseWriter, r *http.Request, c generate.Caller) (any, error) {
	q, err := h.decodeChat(body.Read(w, r).Strict(c.Strict))
	return h.answer(w, r, c, q, err)
}

// generate answers a single prompt, or continues a text.
func (h *handler) generate(w http.ResponseWriter, r *http.Request, c generate.Caller) (any, error) {
	q, err := h.decodeGenerate(body.Read(w, r).Strict(c.Strict))
	return h.answer(w, r, c, q, err)
}

// answer runs a decoded request, unless err is an error of it.
func (h *handler) answer(w http.ResponseWriter, r *http.Request, c generate.Caller, q *request, err error) (any, error) {
	began := time.Now()
	if err == nil {
		err = h.load(r, q)
	}
	if err != nil {
		return nil, err
	}
	loaded := time.Since(began)
	if q.empty {
		return q.response(q.Model, part{}, &final{Reason: "load", Total: loaded, Load: loaded}), nil
	}
	q.Caller = c
	run, err := h.service.Start(r.Context(), &q.Request)
	if err != nil {
		return nil, q.explain(err)
	}
	defer run.Close()
	q.stats = q.stats || c.Stats
	if q.stream {
		c.Report(run, q.lines(w, run, began, loaded))
		return nil, nil
	}
	answer, err := q.whole(run, began, loaded)
	c.Report(run, err)
	return answer, err
}

// load loads the model, which is all that a request without a prompt asks for, and checks the parts
// that depend on it.
func (h *handler) load(r *http.Request, q *request) error {
	m, done, err := h.service.Library.Use(r.Context(), h.service.Resolve(q.Model))
	if err != nil {
		return generate.Wrap(err)
	}
	defer done()
	if q.context > m.Context() {
		return generate.Invalid("options.num_ctx", "%d, but the server runs the model with a context of %d tokens: see foretoken serve --context", q.context, m.Context())
	}
	return nil
}

// problem is the JSON of an error.
type problem struct {
	Error string `json:"error"`
}

// WriteError writes an error as the protocol has it.
func WriteError(w http.ResponseWriter, err error) {
	e := generate.Wrap(err)
	body.Fail(w, e, problem{e.Error()})
}
