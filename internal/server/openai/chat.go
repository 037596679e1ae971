package openai

import (
	"cmp"
	"net/http"
	"time"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
)

// keepAlive is the interval of comments in a stream, for proxies that close silent connections.
const keepAlive = 15 * time.Second

// chat reads a request to answer a conversation.
func (h *API) chat(c generate.Caller, v *body.Value) (*task, error) {
	q, err := readChat(c, v)
	return &task{
		requests: []*generate.Request{&q.Request}, stream: q.stream, explain: q.explain,
		whole: func(runs []*generate.Run) (any, error) { return newChat(runs[0], q).whole() },
		send:  func(runs []*generate.Run, w http.ResponseWriter) error { return newChat(runs[0], q).stream(w) },
	}, err
}

// readChat reads a request.
func readChat(c generate.Caller, v *body.Value) (*request, error) {
	q := newRequest(c, v)
	q.Messages = q.conversation(v.Field("messages"))
	q.tools(v, false)
	q.choices(v)
	q.limit(v, "max_completion_tokens", "max_tokens")
	q.thinking(v, v.Field("reasoning_effort"))
	if f := v.Field("response_format"); !f.Absent() {
		q.Grammar = format(f, func() *body.Value {
			described := f.Field("json_schema").Required()
			described.Ignore("name", "description", "strict")
			return described.Field("schema")
		})
	}
	q.guided(v)
	top := v.Field("top_logprobs")
	n := top.Int(0, maxTopLogProbs)
	switch {
	case v.Field("logprobs").True():
		if q.LogProbs = true; n != nil {
			q.TopLogProbs = int(*n)
		}
	case n != nil && *n > 0:
		top.Fault("alternatives need log-probabilities: set logprobs to true")
	}
	for _, item := range v.Field("modalities").List() {
		item.OneOf("text")
	}
	verbosity(v.Field("verbosity"))
	if f := v.Field("functions"); !f.Absent() {
		f.Unsupported("functions are not supported: use tools, which replaced them")
	}
	v.Ignore("prediction") // drafts never change the answer
	return &q, v.Err()
}

// verbosity reads the length of the answer, which models cannot be told.
func verbosity(v *body.Value) {
	if v.OneOf("low", "medium", "high") != "medium" && !v.Absent() {
		v.Drop("the length of answers cannot be controlled: leave it out, or set medium")
	}
}

// explain gives an error the client's name of the field.
func (q *request) explain(err error) error {
	name := cmp.Or(q.format, "response_format")
	if q.Grammar.IsZero() {
		name = "tools"
	}
	return rename(err, map[string]string{"response_format": name})
}

// completion is a response, or a chunk of one.
type completion struct {
	ID          string   `json:"id"`
	Object      string   `json:"object"`
	Created     int64    `json:"created"`
	Model       string   `json:"model"`
	Fingerprint string   `json:"system_fingerprint"`
	Choices     []choice `json:"choices"`
	Usage       *usage   `json:"usage,omitempty"`
	Foretoken   *details `json:"foretoken,omitempty"`
}

// choice is one of the answers. A chunk has a delta, a whole response a message, and a
// completion of a text has that.
type choice struct {
	Index    int               `json:"index"`
	Message  *messageObject    `json:"message,omitempty"`
	Delta    *delta            `json:"delta,omitempty"`
	Text     *string           `json:"text,omitempty"`
	LogProbs any               `json:"logprobs"`
	Finish   *foretoken.Finish `json:"finish_reason"` // the protocol's words
}

// messageObject is the assistant's message.
type messageObject struct {
	Role      string     `json:"role"`
	Content   *string    `json:"content"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
	Refusal   *string    `json:"refusal"` // always null
}

// delta is the new part of it.
type delta struct {
	Role      string     `json:"role,omitempty"`
	Content   *string    `json:"content,omitempty"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
}

// toolCall is a whole call, in a stream as well.
type toolCall struct {
	Index    *int          `json:"index,omitempty"` // in a stream
	ID       string        `json:"id"`
	Type     string        `json:"type"`
	Function *functionCall `json:"function,omitempty"`
	Custom   *customCall   `json:"custom,omitempty"` // of a tool whose input is a text
}

type customCall struct {
	Name  string `json:"name"`
	Input string `json:"input"`
}

type functionCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// newToolCall is a call as the protocol has it.
func (q *request) newToolCall(id string, c *chat.ToolCall) toolCall {
	call := toolCall{ID: id, Type: "function"}
	if q.origins[c.Name].custom {
		call.Type, call.Custom = "custom", &customCall{c.Name, inputOf(c)}
	} else {
		call.Function = &functionCall{c.Name, c.Arguments.JSON()}
	}
	return call
}

// inputOf is the text that a custom tool is called with.
func inputOf(c *chat.ToolCall) string {
	if text, ok := c.Arguments.Text(generate.InputName); ok {
		return text
	}
	return c.Arguments.JSON() // the model called it in another way: the client gets all of it
}

// chatWriter writes the answers of a run. Chunks and whole responses are made of the same pieces.
type chatWriter struct {
	run     *generate.Run
	q       *request
	head    completion
	answers []chatAnswer
}

// chatAnswer is the content of an answer: in a stream, the part that was not sent yet.
type chatAnswer struct {
	content, reasoning []byte
	calls              []toolCall
	called             int // calls so far
	logprobs           []tokenLogProb
	tokens             []generate.Traced
}

func newChat(run *generate.Run, q *request) *chatWriter {
	return &chatWriter{run: run, q: q, answers: make([]chatAnswer, len(run.Answers)), head: completion{
		ID: run.ID("chatcmpl-"), Object: "chat.completion", Created: run.Created.Unix(),
		Model: run.Name, Fingerprint: fingerprint(run.Model),
	}}
}

// take makes an event part of its answer, and reports whether there is something to show.
func (c *chatWriter) take(e generate.Event) bool {
	a := &c.answers[e.Choice]
	a.tokens, a.logprobs = c.q.token(c.run, e, a.tokens, a.logprobs)
	for _, event := range e.Events {
		switch event.Kind {
		case chat.EventContent:
			a.content = append(a.content, event.Text...)
		case chat.EventReasoning:
			a.reasoning = append(a.reasoning, event.Text...)
		case chat.EventToolCall:
			id := c.run.ID("call_", e.Choice, a.called+len(a.calls))
			a.calls = append(a.calls, c.q.newToolCall(id, event.Call))
		}
	}
	return a.some()
}

// some reports whether there is something to show.
func (a *chatAnswer) some() bool { return len(a.content)+len(a.reasoning)+len(a.calls) > 0 }

// whole is all answers when they have ended.
func (c *chatWriter) whole() (any, error) {
	for e, err := range c.run.Events() {
		if err != nil {
			return nil, err
		}
		if !e.Ended {
			c.take(e)
		}
	}
	for i, a := range c.answers {
		m := &messageObject{Role: "assistant", Reasoning: string(a.reasoning), ToolCalls: a.calls}
		if content := string(a.content); content != "" || len(a.calls) == 0 {
			m.Content = &content
		}
		c.head.Choices = append(c.head.Choices, choice{
			Index: i, Message: m, LogProbs: c.q.logProbs(a.logprobs), Finish: &c.run.Answers[i].Finish,
		})
	}
	c.head.Usage, c.head.Foretoken = newUsage(c.run), c.q.details(c.run, c.answers[0].tokens)
	return c.head, nil
}

// stream writes the answers as they come.
func (c *chatWriter) stream(w http.ResponseWriter) error {
	out := body.Events(w)
	defer out.KeepAlive(keepAlive, func() { out.Comment("keep-alive") })()
	c.head.Object = "chat.completion.chunk"
	for i := range c.answers {
		c.send(out, choice{Index: i, Delta: &delta{Role: "assistant", Content: new(string)}})
	}
	out.Flush()
	left := len(c.answers)
	for e, err := range c.run.Events() {
		switch {
		case err != nil:
			return fail(out, err)
		case e.Ended:
			left--
			c.end(out, e.Choice, left == 0)
		case c.take(e) && !e.More:
			c.show(out, e.Choice)
		}
		if !e.More {
			out.Flush()
		}
	}
	out.Mark("[DONE]")
	out.Flush()
	return nil
}

// show sends the unsent part of an answer.
func (c *chatWriter) show(out *body.Stream, i int) {
	a := &c.answers[i]
	d := &delta{Reasoning: string(a.reasoning), ToolCalls: a.calls}
	if content := string(a.content); content != "" {
		d.Content = &content
	}
	for j := range a.calls {
		index := a.called + j
		a.calls[j].Index = &index
	}
	c.send(out, choice{Index: i, Delta: d})
	called := a.called + len(a.calls)
	*a = chatAnswer{called: called}
}

// end sends the rest of an answer, and with the last one the data about all.
func (c *chatWriter) end(out *body.Stream, i int, last bool) {
	if c.answers[i].some() {
		c.show(out, i)
	}
	if last && !c.q.usage {
		c.head.Foretoken = c.q.details(c.run, nil)
	}
	c.send(out, choice{Index: i, Delta: &delta{}, Finish: &c.run.Answers[i].Finish})
	if last && c.q.usage {
		c.head.Choices, c.head.Usage, c.head.Foretoken = []choice{}, newUsage(c.run), c.q.details(c.run, nil)
		out.Send("", c.head)
	}
}

// send writes a chunk with the data of its tokens.
func (c *chatWriter) send(out *body.Stream, one choice) {
	a := &c.answers[one.Index]
	one.LogProbs = c.q.logProbs(a.logprobs)
	out.Send("", c.head.chunk(one, a.tokens))
}

// chunk is a chunk with a piece of an answer and the tokens it came with.
func (c completion) chunk(one choice, tokens []generate.Traced) completion {
	if c.Choices = []choice{one}; len(tokens) > 0 {
		d := details{}
		if c.Foretoken != nil {
			d = *c.Foretoken
		}
		d.Tokens = tokens
		c.Foretoken = &d
	}
	return c
}

// fail ends a stream with an error, and returns it.
func fail(out *body.Stream, err error) error {
	out.Send("", errorBody{newErrorObject(generate.Wrap(err))})
	out.Flush()
	return err
}
