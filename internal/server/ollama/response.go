package ollama

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
)

// part is content of an answer: some of it, or all.
type part struct {
	Content  string
	Thinking string
	Calls    []call
	Tokens   []generate.Traced
}

// response is a line of a stream, or the only one.
type response struct {
	Model     string    `json:"model"`
	CreatedAt time.Time `json:"created_at"`

	Message  *said   `json:"message,omitempty"` // of a chat
	Response *string `json:"response,omitempty"`
	Thinking string  `json:"thinking,omitempty"`

	Done bool `json:"done"`
	*final
	Foretoken *generate.Extra `json:"foretoken,omitempty"`
}

// said is a message of an assistant.
type said struct {
	Role      string `json:"role"`
	Content   string `json:"content"`
	Thinking  string `json:"thinking,omitempty"`
	ToolCalls []call `json:"tool_calls,omitempty"`
}

// call is a call of a tool.
type call struct {
	ID       string   `json:"id"`
	Function function `json:"function"`
}

type function struct {
	Index     int             `json:"index"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// final is the additional content of the last line. Times are in nanoseconds.
type final struct {
	Reason      string        `json:"done_reason"`
	Total       time.Duration `json:"total_duration"`
	Load        time.Duration `json:"load_duration"`
	PromptCount int           `json:"prompt_eval_count"`
	PromptTime  time.Duration `json:"prompt_eval_duration"`
	Count       int           `json:"eval_count"`
	Time        time.Duration `json:"eval_duration"`

	stats *generate.Stats
}

// response is a line with p; f is nil unless it is the last.
func (q *request) response(model string, p part, f *final) response {
	r := response{Model: model, CreatedAt: time.Now().UTC(), Done: f != nil, final: f}
	if q.chat {
		r.Message = &said{Role: "assistant", Content: p.Content, Thinking: p.Thinking, ToolCalls: p.Calls}
	} else {
		r.Response, r.Thinking = &p.Content, p.Thinking
	}
	if p.Tokens != nil || f != nil && f.stats != nil {
		r.Foretoken = &generate.Extra{Tokens: p.Tokens}
		if f != nil {
			r.Foretoken.Stats = f.stats
		}
	}
	return r
}

// gatherer collects pieces of an answer into parts.
type gatherer struct {
	run               *generate.Run
	part              part
	content, thinking []byte
	calls             int
}

// add adds the next piece.
func (g *gatherer) add(e generate.Event) {
	if g.run.Request.Trace {
		g.part.Tokens = g.run.Trace(g.part.Tokens, e)
	}
	for _, p := range e.Events {
		switch p.Kind {
		case chat.EventContent:
			g.content = append(g.content, p.Text...)
		case chat.EventReasoning:
			g.thinking = append(g.thinking, p.Text...)
		case chat.EventToolCall:
			g.part.Calls = append(g.part.Calls, call{
				g.run.ID("call_"), function{g.calls, p.Call.Name, json.RawMessage(p.Call.Arguments.JSON())},
			})
			g.calls++
		}
	}
}

// take returns and removes the pieces since the last call.
func (g *gatherer) take() part {
	p := g.part
	p.Content, p.Thinking = string(g.content), string(g.thinking)
	g.part, g.content, g.thinking = part{}, nil, nil
	return p
}

// says reports whether there is anything to take that a client would show.
func (g *gatherer) says() bool {
	return len(g.content)+len(g.thinking)+len(g.part.Calls) > 0
}

// whole is an answer when all of it is there.
func (q *request) whole(run *generate.Run, began time.Time, loaded time.Duration) (any, error) {
	g := gatherer{run: run}
	for e, err := range run.Events() {
		if err != nil {
			return nil, err
		}
		g.add(e)
	}
	return q.response(run.Name, g.take(), q.final(run, began, loaded)), nil
}

// lines streams an answer. Pieces that are available at the same time are one line.
func (q *request) lines(w http.ResponseWriter, run *generate.Run, began time.Time, loaded time.Duration) error {
	s := body.Lines(w)
	s.Flush()
	g := gatherer{run: run}
	for e, err := range run.Events() {
		if err != nil {
			s.Send("", problem{generate.Wrap(err).Error()})
			s.Flush()
			return err
		}
		if g.add(e); g.says() && !e.More {
			s.Send("", q.response(run.Name, g.take(), nil))
			s.Flush()
		}
	}
	if g.says() {
		s.Send("", q.response(run.Name, g.take(), nil))
	}
	s.Send("", q.response(run.Name, g.take(), q.final(run, began, loaded)))
	s.Flush()
	return nil
}

// final describes an answer that has ended.
func (q *request) final(run *generate.Run, began time.Time, loaded time.Duration) *final {
	a := run.Answers[0]
	f := &final{
		Reason: "stop", Total: time.Since(began), Load: loaded,
		PromptCount: a.Result.Prompt, PromptTime: a.Result.Prefill, Count: len(a.Tokens), Time: a.Result.Decode,
	}
	if a.Finish == foretoken.FinishLength {
		f.Reason = "length"
	}
	if q.stats {
		r := generate.NewStats(a)
		f.stats = &r
	}
	return f
}
