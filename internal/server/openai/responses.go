package openai

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
)

// responseRequest is a request for a response.
type responseRequest struct {
	request
	keep     bool           // in the store
	owner    string         // there
	stored   *store         // for items that are named by their ids
	logprobs bool           // to be shown
	talk     []chat.Message // all of the conversation but instructions, which are for one response
	echo     responseObject // the part of a response that repeats its request
}

// renamed are the fields that responses have other names for.
var renamed = map[string]string{"messages": "input", "response_format": "text.format", "max_tokens": "max_output_tokens"}

// respond reads a request to answer its input and the stored response it continues.
func (h *API) respond(c generate.Caller, v *body.Value) (*task, error) {
	q, err := h.readResponse(c, v)
	return &task{
		requests: []*generate.Request{&q.Request}, stream: q.stream,
		explain: func(err error) error { return rename(q.explain(err), renamed) },
		whole:   func(runs []*generate.Run) (any, error) { return h.wholeResponse(newReply(runs[0], q)) },
		send: func(runs []*generate.Run, w http.ResponseWriter) error {
			return h.streamResponse(w, newReply(runs[0], q))
		},
	}, err
}

// wholeResponse is a response when it has ended.
func (h *API) wholeResponse(b *reply) (any, error) {
	for e, err := range b.run.Events() {
		if err != nil {
			return nil, err
		}
		b.take(e)
	}
	h.finish(b)
	return b.object, nil
}

// streamResponse writes the events of a response as they come.
func (h *API) streamResponse(w http.ResponseWriter, b *reply) error {
	out := body.Events(w)
	defer out.KeepAlive(keepAlive, func() { out.Comment("keep-alive") })()
	b.out = out
	b.send(event{Type: "response.created", Response: &b.object})
	b.send(event{Type: "response.in_progress", Response: &b.object})
	out.Flush()
	for e, err := range b.run.Events() {
		if err != nil {
			b.fail(rename(err, renamed))
			return err
		}
		if b.take(e); !e.More {
			out.Flush()
		}
	}
	h.finish(b)
	b.send(event{Type: "response." + b.object.Status, Response: &b.object})
	out.Flush()
	return nil
}

// finish completes a response and stores it, if that is wanted.
func (h *API) finish(b *reply) {
	b.finish()
	if !b.q.keep || b.q.Caller.Deterministic != nil { // the same response may be made again, elsewhere too
		return
	}
	said := b.run.Answers[0].Message()
	said.ToolCalls = slices.Clone(said.ToolCalls)
	for i := range said.ToolCalls {
		said.ToolCalls[i].ID = b.calls[i]
	}
	r := &stored{id: b.object.ID, body: body.Marshal(b.object), messages: append(slices.Clip(b.q.talk), said)}
	for _, i := range b.object.Output {
		r.items = append(r.items, i.ID)
	}
	h.stored.put(b.q.owner, r)
}

// readResponse reads a request.
func (h *API) readResponse(c generate.Caller, v *body.Value) (*responseRequest, error) {
	q := &responseRequest{request: newRequest(c, v), keep: true, owner: c.Tenant, stored: h.stored}
	if keep := v.Field("store").Bool(); keep != nil {
		q.keep = *keep
	}
	if previous := v.Field("previous_response_id"); !previous.Absent() {
		before := h.stored.get(q.owner, previous.Text())
		if before == nil {
			previous.Fail(notStored(previous.Path(), "response", previous.Text()))
			return q, v.Err()
		}
		q.talk = slices.Clip(before.messages)
		for range generate.CountMedia(q.talk) {
			q.Media = append(q.Media, previous.Path())
		}
	}
	q.talk = q.input(v.Field("input").Required(), q.talk)
	if len(q.talk) == 0 {
		v.Field("input").Fault("the input has no message to answer")
	}
	q.Messages = q.talk
	if text := v.Field("instructions").Text(); text != "" {
		q.Messages = append([]chat.Message{{Role: "system", Content: chat.Text(text)}}, q.talk...)
	}
	q.tools(v, true)
	q.limit(v, "max_output_tokens")
	reasoning := v.Field("reasoning")
	q.thinking(v, reasoning.Field("effort"))
	for _, name := range []string{"summary", "generate_summary"} {
		if f := reasoning.Field(name); !f.Absent() && f.OneOf("auto", "concise", "detailed") != "auto" {
			f.Drop("summaries of reasoning are not supported, it is returned in full: leave it out, or set auto")
		}
	}
	text := v.Field("text")
	verbosity(text.Field("verbosity"))
	if f := text.Field("format"); !f.Absent() {
		f.Ignore("name", "description", "strict")
		q.Grammar = format(f, func() *body.Value { return f.Field("schema") })
	}
	q.guided(v)
	q.include(v)
	refuseFields(v)
	q.repeat(v)
	return q, v.Err()
}

// countInput answers how many tokens the prompt of a response has.
func (h *API) countInput(w http.ResponseWriter, r *http.Request, c generate.Caller) (any, error) {
	q, err := h.readResponse(c, body.Read(w, r).Strict(c.Strict))
	if err != nil {
		return nil, err
	}
	n, err := h.service.Count(r.Context(), &q.Request)
	return struct {
		Object string `json:"object"`
		Input  int    `json:"input_tokens"`
	}{"response.input_tokens", n}, rename(q.explain(err), renamed)
}

// include reads the additional output of a response.
func (q *responseRequest) include(v *body.Value) {
	for _, item := range v.Field("include").List() {
		switch item.Text() {
		case "message.output_text.logprobs":
			q.logprobs = true
		case "reasoning.encrypted_content": // for servers that hide it; ours is readable
		default:
			item.Drop("this value of include is not supported")
		}
	}
	top := v.Field("top_logprobs")
	n := top.Int(0, maxTopLogProbs)
	switch {
	case q.logprobs:
		if q.LogProbs = true; n != nil {
			q.TopLogProbs = int(*n)
		}
	case n != nil && *n > 0:
		top.Fault("alternatives need log-probabilities: add message.output_text.logprobs to include")
	}
}

// refuseFields reports fields of features that this server does not have.
func refuseFields(v *body.Value) {
	if f := v.Field("background"); f.True() {
		f.Unsupported("background responses are not supported: stream the response")
	}
	if f := v.Field("truncation"); f.OneOf("disabled", "auto") == "auto" {
		f.Drop("truncating the conversation is not supported: shorten it")
	}
	for name, remedy := range map[string]string{
		"conversation": "use previous_response_id", "prompt": "send its text as input",
	} {
		if f := v.Field(name); !f.Absent() {
			f.Unsupported("stored conversations and prompts are not supported: %s", remedy)
		}
	}
	v.Ignore("max_tool_calls", "client_metadata") // the first counts calls of tools that servers run
}

// response returns a stored response.
func (h *API) response(_ http.ResponseWriter, r *http.Request, c generate.Caller) (any, error) {
	for name := range r.URL.Query() {
		if name != "include" {
			return nil, generate.NotSupported(name, "streaming a stored response is not supported")
		}
	}
	found := h.stored.get(c.Tenant, r.PathValue("id"))
	if found == nil {
		return nil, notStored("id", "response", r.PathValue("id"))
	}
	return json.RawMessage(found.body), nil
}

// deleteResponse deletes a stored response.
func (h *API) deleteResponse(_ http.ResponseWriter, r *http.Request, c generate.Caller) (any, error) {
	id := r.PathValue("id")
	if !h.stored.remove(c.Tenant, id) {
		return nil, notStored("id", "response", id)
	}
	return Deleted{id, "response", true}, nil
}

// Deleted is the answer of an endpoint that has deleted an object.
type Deleted struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Deleted bool   `json:"deleted"`
}

// notStored is the error for a response, or an item of one, that is not there.
func notStored(param, what, id string) *generate.Error {
	e := generate.Invalid(param, "there is no stored %s %.80q: it was not stored, was deleted, or was evicted", what, id)
	e.Status, e.Kind = http.StatusNotFound, generate.NotFound
	return e
}
