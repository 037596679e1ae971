package openai

import (
	"bytes"
	"encoding/json"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
)

// responseObject is a response: the echoed request, and the answer.
type responseObject struct {
	ID              string          `json:"id"`
	Object          string          `json:"object"`
	CreatedAt       int64           `json:"created_at"`
	Status          string          `json:"status"`
	Error           *errorObject    `json:"error"`
	Incomplete      *incomplete     `json:"incomplete_details"`
	Model           string          `json:"model"`
	Output          []*item         `json:"output"`
	Usage           *responseUsage  `json:"usage"`
	Previous        *string         `json:"previous_response_id"`
	Instructions    *string         `json:"instructions"`
	MaxOutputTokens *int            `json:"max_output_tokens"`
	Temperature     *float64        `json:"temperature"`
	TopP            *float64        `json:"top_p"`
	Parallel        bool            `json:"parallel_tool_calls"`
	Store           bool            `json:"store"`
	Truncation      string          `json:"truncation"`
	Reasoning       json.RawMessage `json:"reasoning"`
	Text            json.RawMessage `json:"text"`
	ToolChoice      json.RawMessage `json:"tool_choice"`
	Tools           json.RawMessage `json:"tools"`
	Metadata        json.RawMessage `json:"metadata"`
	User            *string         `json:"user,omitempty"`
	Foretoken       *details        `json:"foretoken,omitempty"`
}

type incomplete struct {
	Reason string `json:"reason"`
}

type responseUsage struct {
	Input         int               `json:"input_tokens"`
	InputDetails  promptDetails     `json:"input_tokens_details"`
	Output        int               `json:"output_tokens"`
	OutputDetails completionDetails `json:"output_tokens_details"`
	Total         int               `json:"total_tokens"`
}

// repeat records the echoed fields of a request.
func (q *responseRequest) repeat(v *body.Value) {
	or := func(name, otherwise string) json.RawMessage {
		if raw := v.Field(name).Raw(); raw != nil {
			return bytes.Clone(raw) // not all of the body
		}
		return json.RawMessage(otherwise)
	}
	text := func(name string) *string {
		if f := v.Field(name); !f.Absent() {
			s := f.Text()
			return &s
		}
		return nil
	}
	o := &q.echo
	o.Previous, o.Instructions, o.User = text("previous_response_id"), text("instructions"), text("user")
	o.Temperature, o.TopP, o.Parallel, o.Store, o.Truncation = q.Temperature, q.TopP, q.Parallel, q.keep, "disabled"
	if n := q.MaxTokens; n > 0 {
		o.MaxOutputTokens = &n
	}
	o.Reasoning = or("reasoning", `{"effort": null, "summary": null}`)
	o.Text = or("text", `{"format": {"type": "text"}}`)
	o.ToolChoice, o.Tools, o.Metadata = or("tool_choice", `"auto"`), or("tools", `[]`), or("metadata", `{}`)
}

// item is a part of a response's output. Which fields it has depends on its type.
type item struct {
	ID        string      `json:"id"`
	Type      string      `json:"type"`
	Status    string      `json:"status"`
	Role      string      `json:"role,omitempty"`
	Summary   *[]struct{} `json:"summary,omitempty"` // of thinking: always empty, because it is shown itself
	Content   *[]*part    `json:"content,omitempty"`
	CallID    string      `json:"call_id,omitempty"`
	Name      string      `json:"name,omitempty"`
	Namespace string      `json:"namespace,omitempty"`
	Arguments *string     `json:"arguments,omitempty"`
	Input     *string     `json:"input,omitempty"` // of a tool whose input is a text
}

// part is the text of an item.
type part struct {
	Type        string          `json:"type"`
	Text        string          `json:"text"`
	Annotations *[]struct{}     `json:"annotations,omitempty"`
	LogProbs    *[]tokenLogProb `json:"logprobs,omitempty"`
}

// event is one of a stream. Which fields it has depends on its type.
type event struct {
	Type         string          `json:"type"`
	Sequence     int             `json:"sequence_number"`
	Response     *responseObject `json:"response,omitempty"`
	ItemID       string          `json:"item_id,omitempty"`
	OutputIndex  *int            `json:"output_index,omitempty"`
	ContentIndex *int            `json:"content_index,omitempty"`
	Item         *item           `json:"item,omitempty"`
	Part         *part           `json:"part,omitempty"`
	Delta        *string         `json:"delta,omitempty"`
	Text         *string         `json:"text,omitempty"`
	Name         string          `json:"name,omitempty"`
	Arguments    *string         `json:"arguments,omitempty"`
	Input        *string         `json:"input,omitempty"`
	LogProbs     *[]tokenLogProb `json:"logprobs,omitempty"`
	Foretoken    *details        `json:"foretoken,omitempty"`
	*errorObject                 // of the type error
}

// reply makes a response of the events of a run. With out it also streams each change, so that
// stream and response have the same content.
type reply struct {
	run      *generate.Run
	q        *responseRequest
	out      *body.Stream // nil: no stream
	sequence int
	object   responseObject
	open     *item // the last one, while it may go on: thinking or a message
	text     []byte
	calls    []string          // ids of calls
	tokens   []generate.Traced // not sent yet
	logprobs []tokenLogProb
}

func newReply(run *generate.Run, q *responseRequest) *reply {
	b := &reply{run: run, q: q, object: q.echo}
	o := &b.object
	o.ID, o.Object, o.CreatedAt, o.Status, o.Model, o.Output = run.ID("resp_"), "response", run.Created.Unix(), "in_progress", run.Name, []*item{}
	return b
}

// send writes an event with the data of its tokens.
func (b *reply) send(e event) {
	if b.out == nil {
		return
	}
	e.Sequence = b.sequence
	b.sequence++
	if len(b.tokens) > 0 {
		e.Foretoken = &details{Extra: generate.Extra{Tokens: b.tokens}}
		b.tokens = nil
	}
	b.out.Send(e.Type, e)
}

// take makes an event of the run part of the response.
func (b *reply) take(e generate.Event) {
	if e.Ended {
		return
	}
	b.tokens, b.logprobs = b.q.token(b.run, e, b.tokens, b.logprobs)
	for _, event := range e.Events {
		switch event.Kind {
		case chat.EventContent:
			b.write("message", event.Text)
		case chat.EventReasoning:
			b.write("reasoning", event.Text)
		case chat.EventToolCall:
			b.call(event.Call)
		}
	}
}

// at is where an event of the last item belongs.
func (b *reply) at(kind string) event {
	n, zero := len(b.object.Output)-1, 0
	last := b.object.Output[n]
	e := event{Type: kind, ItemID: last.ID, OutputIndex: &n}
	if last.Content != nil {
		e.ContentIndex = &zero
	}
	return e
}

// add begins an item.
func (b *reply) add(i *item) {
	b.close("completed")
	i.Status = "in_progress"
	b.object.Output = append(b.object.Output, i)
	n := len(b.object.Output) - 1
	b.send(event{Type: "response.output_item.added", OutputIndex: &n, Item: i})
}

// write continues thinking or text.
func (b *reply) write(kind, text string) {
	if b.open == nil || b.open.Type != kind {
		b.begin(kind)
	}
	b.text = append(b.text, text...)
	e := b.at("response." + (*b.open.Content)[0].Type + ".delta")
	e.Delta = &text
	if kind == "message" {
		e.LogProbs = b.say()
	}
	b.send(e)
	b.logprobs = nil
}

// say assigns the log-probabilities of the last tokens to the message.
func (b *reply) say() *[]tokenLogProb {
	p := (*b.open.Content)[0]
	news := append([]tokenLogProb{}, b.logprobs...)
	all := append(*p.LogProbs, news...)
	p.LogProbs = &all
	return &news
}

// begin opens an item of text.
func (b *reply) begin(kind string) {
	i := &item{ID: b.run.ID("msg_", len(b.object.Output)), Type: kind, Role: "assistant", Content: &[]*part{}}
	p := &part{Type: "output_text", Annotations: &[]struct{}{}, LogProbs: &[]tokenLogProb{}}
	if kind == "reasoning" {
		i.ID, i.Role, i.Summary = b.run.ID("rs_", len(b.object.Output)), "", &[]struct{}{}
		p = &part{Type: "reasoning_text"}
	}
	b.add(i)
	b.open, b.text = i, nil
	*i.Content = []*part{p}
	e := b.at("response.content_part.added")
	e.Part = p
	b.send(e)
}

// close ends the item of text that is open, if one is.
func (b *reply) close(status string) {
	if b.open == nil {
		return
	}
	i, p := b.open, (*b.open.Content)[0]
	b.open, p.Text = nil, string(b.text)
	e := b.at("response." + p.Type + ".done")
	e.Text, e.LogProbs = &p.Text, p.LogProbs
	b.send(e)
	e = b.at("response.content_part.done")
	e.Part = p
	b.send(e)
	b.done(i, status)
}

// done ends an item.
func (b *reply) done(i *item, status string) {
	i.Status = status
	n := len(b.object.Output) - 1
	b.send(event{Type: "response.output_item.done", OutputIndex: &n, Item: i})
}

// call adds a call of a tool, which comes as a whole.
func (b *reply) call(c *chat.ToolCall) {
	b.logprobs = nil
	text := c.Arguments.JSON()
	at := len(b.object.Output)
	i := &item{ID: b.run.ID("fc_", at), Type: "function_call", CallID: b.run.ID("call_", at), Name: c.Name, Arguments: new(string)}
	from, known := b.q.origins[c.Name]
	if known {
		i.Namespace, i.Name = from.namespace, from.name
	}
	b.calls = append(b.calls, i.CallID)
	if from.custom {
		b.custom(i, inputOf(c))
		return
	}
	b.add(i)
	e := b.at("response.function_call_arguments.delta")
	e.Delta = &text
	b.send(e)
	e = b.at("response.function_call_arguments.done")
	e.Name, e.Arguments = i.Name, &text
	b.send(e)
	i.Arguments = &text
	b.done(i, "completed")
}

// custom adds a call of a tool whose input is a text.
func (b *reply) custom(i *item, input string) {
	i.ID, i.Type, i.Arguments, i.Input = b.run.ID("ctc_", len(b.object.Output)), "custom_tool_call", nil, new(string)
	b.add(i)
	e := b.at("response.custom_tool_call_input.delta")
	e.Delta = &input
	b.send(e)
	e = b.at("response.custom_tool_call_input.done")
	e.Input = &input
	b.send(e)
	i.Input = &input
	b.done(i, "completed")
}

// finish completes the response.
func (b *reply) finish() {
	o := &b.object
	o.Status = "completed"
	if b.run.Answers[0].Finish == foretoken.FinishLength {
		o.Status, o.Incomplete = "incomplete", &incomplete{"max_output_tokens"}
	}
	b.close(o.Status)
	u := newUsage(b.run)
	o.Usage = &responseUsage{u.Prompt, u.PromptDetails, u.Completion, u.CompletionDetails, u.Total}
	if o.Foretoken = b.q.details(b.run, nil); b.out == nil {
		o.Foretoken.Tokens = b.tokens
	}
}

// fail ends a stream with an error.
func (b *reply) fail(err error) {
	e := newErrorObject(generate.Wrap(err))
	b.send(event{Type: "error", errorObject: &e})
	b.object.Status, b.object.Error = "failed", &e
	b.send(event{Type: "response.failed", Response: &b.object})
	b.out.Flush()
}
