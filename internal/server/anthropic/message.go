package anthropic

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/server/generate"
)

// message is an answer.
type message struct {
	ID           string          `json:"id"`
	Type         string          `json:"type"`
	Role         string          `json:"role"`
	Model        string          `json:"model"`
	Content      []*block        `json:"content"`
	StopReason   *string         `json:"stop_reason"` // null until the end
	StopSequence *string         `json:"stop_sequence"`
	Usage        usage           `json:"usage"`
	Foretoken    *generate.Extra `json:"foretoken,omitempty"`
}

// block is a part of an answer. Which fields it has depends on its type.
type block struct {
	Type      string          `json:"type"`
	Text      *string         `json:"text,omitempty"`
	Thinking  *string         `json:"thinking,omitempty"`
	Signature *string         `json:"signature,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
}

// usage is the tokens of an answer. Input does not count tokens from the prefix cache.
type usage struct {
	Input         int            `json:"input_tokens"`
	CacheCreation int            `json:"cache_creation_input_tokens"`
	CacheRead     int            `json:"cache_read_input_tokens"`
	Output        int            `json:"output_tokens"`
	Details       *outputDetails `json:"output_tokens_details,omitempty"`
	ServiceTier   string         `json:"service_tier"`
}

type outputDetails struct {
	Thinking int `json:"thinking_tokens"`
}

// builder makes blocks of the pieces of an answer. With a stream it sends each
// change; without one it only collects. So a stream and a message have the same content.
type builder struct {
	run    *generate.Run
	silent bool        // thinking is not to be shown
	send   func(event) // nil: no stream
	blocks []*block
	open   bool              // the last block may go on
	text   []byte            // of the last block
	tokens []generate.Traced // not sent yet
}

// event is a change of blocks, in the protocol's format.
type event struct {
	Type      string          `json:"type"`
	Index     int             `json:"index"`
	Block     *block          `json:"content_block,omitempty"`
	Delta     *delta          `json:"delta,omitempty"`
	Foretoken *generate.Extra `json:"foretoken,omitempty"`
}

// delta is the new part of a block.
type delta struct {
	Type      string  `json:"type"`
	Text      *string `json:"text,omitempty"`
	Thinking  *string `json:"thinking,omitempty"`
	Signature *string `json:"signature,omitempty"`
	Partial   *string `json:"partial_json,omitempty"`
}

// piece adds the next piece of the answer.
func (b *builder) piece(e generate.Event) {
	if b.run.Request.Trace {
		b.tokens = b.run.Trace(b.tokens, e)
	}
	for _, part := range e.Events {
		switch part.Kind {
		case chat.EventContent:
			b.say(part.Text)
		case chat.EventReasoning:
			b.think(part.Text)
		case chat.EventToolCall:
			b.call(part.Call)
		}
	}
}

// say adds to the text of the answer.
func (b *builder) say(text string) {
	b.begin(&block{Type: "text", Text: new(string)})
	b.text = append(b.text, text...)
	b.changed(delta{Type: "text_delta", Text: &text})
}

// think adds to the thinking before it.
func (b *builder) think(text string) {
	b.begin(&block{Type: "thinking", Thinking: new(string), Signature: new(string)})
	if !b.silent {
		b.text = append(b.text, text...)
		b.changed(delta{Type: "thinking_delta", Thinking: &text})
	}
}

// call adds a call of a tool, which comes as a whole.
func (b *builder) call(c *chat.ToolCall) {
	b.end()
	arguments := c.Arguments.JSON()
	b.begin(&block{Type: "tool_use", ID: b.run.ID("toolu_"), Name: c.Name, Input: json.RawMessage("{}")})
	b.text = append(b.text, arguments...)
	b.changed(delta{Type: "input_json_delta", Partial: &arguments})
	b.end()
}

// begin opens a block, unless one of its type is open.
func (b *builder) begin(n *block) {
	if b.open && b.blocks[len(b.blocks)-1].Type == n.Type {
		return
	}
	b.end()
	b.blocks, b.open, b.text = append(b.blocks, n), true, nil
	b.tell(event{Type: "content_block_start", Block: n})
}

// changed sends the new part of the last block, with its tokens.
func (b *builder) changed(d delta) {
	if b.send != nil {
		b.tell(event{Type: "content_block_delta", Delta: &d, Foretoken: b.trace()})
	}
}

// end closes the last block.
func (b *builder) end() {
	if !b.open {
		return
	}
	b.open = false
	n, text := b.blocks[len(b.blocks)-1], string(b.text)
	switch n.Type {
	case "text":
		n.Text = &text
	case "tool_use":
		n.Input = json.RawMessage(text)
	case "thinking":
		// Clients send thinking back only if it is signed. Nothing here depends on the signature:
		// the text is trusted as much as everything else in a request.
		sum := sha256.Sum256(b.text)
		signature := base64.StdEncoding.EncodeToString(sum[:])
		n.Thinking, n.Signature = &text, &signature
		b.tell(event{Type: "content_block_delta", Delta: &delta{Type: "signature_delta", Signature: &signature}})
	}
	b.tell(event{Type: "content_block_stop"})
}

// tell sends an event about the last block.
func (b *builder) tell(e event) {
	if b.send != nil {
		e.Index = len(b.blocks) - 1
		b.send(e)
	}
}

// trace is the tokens since the last event; nil: none, or no trace is requested.
func (b *builder) trace() *generate.Extra {
	if len(b.tokens) == 0 {
		return nil
	}
	e := &generate.Extra{Tokens: b.tokens}
	b.tokens = nil
	return e
}

// newMessage is the message as it begins.
func newMessage(run *generate.Run) *message {
	return &message{
		ID: run.ID("msg_"), Type: "message", Role: "assistant", Model: run.Name, Content: []*block{},
		Usage: usage{Input: len(run.Prompt.IDs), ServiceTier: "standard"},
	}
}

// finish completes a message at the end of its answer.
func (m *message) finish(run *generate.Run, b *builder, stats bool) {
	b.end()
	if m.Content = b.blocks; m.Content == nil {
		m.Content = []*block{}
	}
	a, u := run.Answers[0], run.Usage()
	reason := "end_turn"
	switch {
	case a.Finish == foretoken.FinishToolCalls:
		reason = "tool_use"
	case a.Stop != "":
		reason, m.StopSequence = "stop_sequence", &a.Stop
	case a.Finish == foretoken.FinishLength && len(a.Tokens) < run.Request.MaxTokens:
		reason = "model_context_window_exceeded"
	case a.Finish == foretoken.FinishLength:
		reason = "max_tokens"
	}
	m.StopReason = &reason
	m.Usage = usage{
		Input: u.Prompt - u.Cached, CacheRead: u.Cached, Output: u.Completion,
		Details: &outputDetails{Thinking: u.Reasoning}, ServiceTier: "standard",
	}
	m.Foretoken = b.trace()
	if stats {
		if m.Foretoken == nil {
			m.Foretoken = &generate.Extra{}
		}
		r := generate.NewStats(a)
		m.Foretoken.Stats = &r
	}
}
