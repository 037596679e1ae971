// Package generate runs the requests of all protocols: it checks them, starts their answers and
// yields these as they are generated. It knows models; it knows neither HTTP nor the JSON of any
// protocol.
package generate

import (
	"context"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/jinja"
	"github.com/foretoken/foretoken/internal/rescue"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/sample"
)

// MaxChoices is the maximum number of answers to one request, MaxStops that of stop texts.
const (
	MaxChoices = 16
	MaxStops   = 16
)

// Request is what a client asks for, in the terms that all protocols share. A field that is not
// set has the checkpoint's default, or else the server's.
type Request struct {
	Model string // "": the server's first

	// The prompt: messages to answer, or else ids, or else a text to continue.
	Messages []chat.Message
	Tools    []chat.Tool
	Prefill  string // how the answer to messages begins
	Text     string
	IDs      []int32

	Sampling
	MaxTokens int      // 0: until the context is full
	Stop      []string // texts that end the answer
	IgnoreEnd bool     // no token ends the answer: for measuring
	LogProbs  int      // alternatives to report for each token; -1: no log-probabilities
	Choices   int      // answers; 0: 1

	Grammar  *foretoken.Format // constrains the answer; with tools, an answer that calls none
	Calls    Calls             // which tools may, or must, be called
	Named    string            // the tool, for CallNamed
	Parallel bool              // several calls in one answer
	Strict   bool              // constrain the arguments of calls to their schemas
	// Constrained constrains calls to their syntax, and arguments to those schemas that can be
	// compiled.
	Constrained bool
	// Inputs are the grammars of tools that take one text, by the tool's name. The text is the
	// argument InputName, and calls of these tools are constrained to the grammar.
	Inputs map[string]*foretoken.Format

	Thinking    *bool      // whether to think before the answer
	MaxThinking int        // tokens; 0: unlimited
	Effort      string     // of reasoning, for templates that know it
	Variables   *jinja.Map // further ones of the template
	Depth       *int       // tokens to draft per round; nil: auto
	Trace       bool       // report rejected draft tokens with the tokens
	Priority    int
	CacheSalt   string // the prefix cache is shared with requests of the same salt only
}

// Sampling are the sampling options that a client sets. nil: the checkpoint's.
type Sampling struct {
	Temperature, TopP, MinP           *float64
	TopK                              *int
	XTCProbability, XTCThreshold      *float64
	RepetitionPenalty                 *float64
	RepetitionWindow                  *int // tokens it looks back; 0: all
	PresencePenalty, FrequencyPenalty *float64
	LogitBias                         map[int32]float32
	Seed                              *uint64
}

// InputName is the argument of a tool that takes a text.
const InputName = "input"

// Calls says which tools an answer may, or must, call.
type Calls uint8

// The values of tool_choice.
const (
	CallAuto     Calls = iota // any or none
	CallNone                  // none: the template does not see the tools
	CallRequired              // at least one
	CallNamed                 // that of Request.Named, once
)

// Service runs requests on the models of a library.
type Service struct {
	Library *foretoken.Library
	Default string            // the model where a request names none
	Aliases map[string]string // other names of models
	// Read yields the pieces of an answer. Tests replace it to inject errors; nil: Answer.Pieces.
	Read func(*foretoken.Answer) iter.Seq2[foretoken.Piece, error]
	// SharePrefixes lets tenants share the prefix cache. Otherwise a request finds only what was
	// cached for its own tenant.
	SharePrefixes bool
}

// Resolve is the library's name of the model that a client names.
func (h *Service) Resolve(name string) string {
	if name == "" {
		return h.Default
	}
	if model, ok := h.Aliases[name]; ok {
		return model
	}
	return name
}

// Run is a running request. Events must be read to its end, or the context canceled; Close
// must be called in any case.
type Run struct {
	Model   *foretoken.Model
	Name    string // of the model, as the client called it
	Request *Request
	Prompt  *foretoken.Prompt
	Seed    uint64 // of the first answer; answer i has Seed+i
	Created time.Time
	Answers []*foretoken.Answer // one for each choice

	read   func(*foretoken.Answer) iter.Seq2[foretoken.Piece, error]
	done   func()
	cancel context.CancelFunc
	salt   string
}

// Event is a piece of one of the answers.
type Event struct {
	Choice int
	foretoken.Piece
	Ended bool // the answer is complete and has its Finish and Result
}

// Start checks a request and begins to answer it. An error is an *Error.
func (h *Service) Start(ctx context.Context, a *Request) (*Run, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	name := a.Model
	if name == "" {
		name = h.Default
	}
	m, done, err := h.Library.Use(ctx, h.Resolve(a.Model))
	if err != nil {
		return nil, Wrap(err)
	}
	t := &Run{Model: m, Name: name, Request: a, Created: time.Now(), read: h.Read, done: done, salt: h.salt(ctx, a)}
	if t.read == nil {
		t.read = (*foretoken.Answer).Pieces
	}
	if err := t.start(ctx); err != nil {
		t.Close()
		return nil, Wrap(err)
	}
	return t, nil
}

// Count is the number of tokens of the prompt for a request's messages, however many they
// are: the limit on bodies bounds them. An error is an *Error.
func (h *Service) Count(ctx context.Context, a *Request) (int, error) {
	m, done, err := h.Library.Use(ctx, h.Resolve(a.Model))
	if err != nil {
		return 0, Wrap(err)
	}
	defer done()
	n, err := m.Count(a.conversation())
	if err != nil {
		return 0, Wrap(err)
	}
	return n, nil
}

// check refuses what no model could do.
func (a *Request) check() error {
	switch {
	case a.Choices < 0 || a.Choices > MaxChoices:
		return Invalid("n", "%d answers, want 1 to %d", a.Choices, MaxChoices)
	case a.MaxTokens < 0:
		return Invalid("max_tokens", "%d tokens, want a positive number", a.MaxTokens)
	case a.MaxThinking < 0:
		return Invalid("max_thinking_tokens", "%d tokens, want a positive number", a.MaxThinking)
	case a.Depth != nil && (*a.Depth < 0 || *a.Depth > spec.MaxDepth):
		return Invalid("mtp_depth", "%d, want 0 to %d", *a.Depth, spec.MaxDepth)
	case a.Calls >= CallRequired && len(a.Tools) == 0:
		return Invalid("tool_choice", "a call of a tool is required, and there are no tools")
	}
	return nil
}

// start renders the prompt and begins all answers.
func (t *Run) start(ctx context.Context) (err error) {
	a := t.Request
	if t.Prompt, err = a.prompt(t.Model); err != nil {
		return err
	}
	if err := tooLong(t.Prompt, t.Model.Context()); err != nil {
		return err
	}
	options, err := a.options(t.Model)
	if err != nil {
		return err
	}
	t.Seed = options.Seed
	form, err := a.form(t.Model, t.Prompt.Thinking)
	if err != nil {
		return err
	}
	sent := ctx.Done() // a request's context ends when its answer has been written
	ctx, t.cancel = context.WithCancel(ctx)
	for i := range max(a.Choices, 1) {
		options.Seed = t.Seed + uint64(i)
		r := foretoken.Request{
			Prompt: t.Prompt, MaxTokens: a.MaxTokens, Sampling: options, Stop: a.Stop, IgnoreEnd: a.IgnoreEnd, LogProbs: a.LogProbs,
			Trace: a.Trace, Priority: a.Priority, Format: form, MaxThinking: a.MaxThinking, Depth: a.Depth,
			CacheSalt: t.salt, Sent: sent,
		}
		answer, err := t.Model.Generate(ctx, r)
		if err != nil {
			return err
		}
		t.Answers = append(t.Answers, answer)
	}
	return nil
}

// tooLong refuses a prompt that leaves no room for an answer.
func tooLong(p *foretoken.Prompt, most int) error {
	many := fmt.Sprint(len(p.IDs))
	switch {
	case p.Over > 0:
		many = fmt.Sprintf("more than %d", p.Over)
	case len(p.IDs) < most:
		return nil
	}
	return &Error{Status: 400, Kind: TooLarge, Param: "messages", Message: fmt.Sprintf("the prompt has %s tokens, and the context of %d takes them and the answer: shorten the prompt", many, most)}
}

// conversation is what the messages are of.
func (a *Request) conversation() foretoken.Conversation {
	vars := &jinja.Map{}
	for name, v := range a.Variables.All() {
		vars.Set(name, v)
	}
	if a.Thinking != nil {
		vars.Set("enable_thinking", jinja.Bool(*a.Thinking))
	}
	if a.Effort != "" {
		vars.Set("reasoning_effort", jinja.String(a.Effort))
	}
	c := foretoken.Conversation{Messages: Arrange(a.Messages), Variables: vars, Prefill: a.Prefill}
	if a.Calls != CallNone {
		c.Tools = a.Tools
	}
	return c
}

// prompt is what the model gets.
func (a *Request) prompt(m *foretoken.Model) (*foretoken.Prompt, error) {
	switch {
	case a.Messages != nil:
		return m.Ask(a.conversation())
	case a.IDs != nil:
		for _, id := range a.IDs {
			if id < 0 || int(id) >= m.Info().Vocab {
				return nil, Invalid("prompt", "%d is not a token of the model; its ids are 0 to %d", id, m.Info().Vocab-1)
			}
		}
		return &foretoken.Prompt{IDs: a.IDs}, nil
	}
	p := m.Continue(a.Text)
	if len(p.IDs) == 0 && p.Over == 0 {
		return nil, Invalid("prompt", "the prompt is empty")
	}
	return p, nil
}

// options are the sampling options: what the client says, else what the checkpoint
// recommends.
func (a *Request) options(m *foretoken.Model) (sample.Options, error) {
	o := m.Sampling()
	for _, f := range []struct {
		param     string
		to, from  *float64
		low, high float64
	}{
		{"temperature", &o.Temperature, a.Temperature, 0, 100},
		{"top_p", &o.TopP, a.TopP, 0, 1},
		{"min_p", &o.MinP, a.MinP, 0, 1},
		{"xtc_probability", &o.XTCProbability, a.XTCProbability, 0, 1},
		{"xtc_threshold", &o.XTCThreshold, a.XTCThreshold, 0, 0.5},
		{"repetition_penalty", &o.RepetitionPenalty, a.RepetitionPenalty, 0.01, 100},
		{"presence_penalty", &o.PresencePenalty, a.PresencePenalty, -100, 100},
		{"frequency_penalty", &o.FrequencyPenalty, a.FrequencyPenalty, -100, 100},
	} {
		if f.from == nil {
			continue
		}
		if x := *f.from; math.IsNaN(x) || x < f.low || x > f.high {
			return o, Invalid(f.param, "%v, want a number from %v to %v", x, f.low, f.high)
		}
		*f.to = *f.from
	}
	if o.XTCProbability > 0 && o.XTCThreshold == 0 {
		return o, Invalid("xtc_threshold", "0, want a number above 0, at most 0.5")
	}
	if a.TopK != nil {
		if *a.TopK < 0 {
			return o, Invalid("top_k", "%d, want a positive number, or 0 for all tokens", *a.TopK)
		}
		o.TopK = *a.TopK
	}
	if a.RepetitionWindow != nil {
		o.RepetitionWindow = max(*a.RepetitionWindow, 0)
	}
	for id := range a.LogitBias {
		if id < 0 || int(id) >= m.Vocab() {
			return o, Invalid("logit_bias", "%d is not a token of the model; its ids are 0 to %d", id, m.Vocab()-1)
		}
	}
	o.LogitBias = a.LogitBias
	if a.Seed != nil {
		o.Seed = *a.Seed
	}
	return o, nil
}

// Events yields the pieces of all answers as they come, and at last an *Error if one did
// not end by itself. It may be ranged over once.
func (t *Run) Events() iter.Seq2[Event, error] {
	if len(t.Answers) > 1 {
		return t.several
	}
	return func(yield func(Event, error) bool) {
		if err := t.pieces(0, func(e Event) bool { return yield(e, nil) }); err != nil {
			yield(Event{}, Wrap(err))
		}
	}
}

// pieces sends the pieces of answer i, and that it has ended, as long as they are taken. A panic
// on the way to a piece is an error; one of send is its caller's.
func (t *Run) pieces(i int, send func(Event) bool) (err error) {
	sending := false
	defer func() {
		if sending {
			return
		}
		if p := recover(); p != nil {
			err = rescue.Error(p)
		}
	}()
	deliver := func(e Event) bool {
		sending = true
		ok := send(e)
		sending = false
		return ok
	}
	for p, err := range t.read(t.Answers[i]) {
		if err != nil {
			return err
		}
		if !deliver(Event{Choice: i, Piece: p}) {
			return nil
		}
	}
	deliver(Event{Choice: i, Ended: true})
	return nil
}

// several yields the pieces of answers that come at the same time. Readers of the answers
// wait for this one's reader.
func (t *Run) several(yield func(Event, error) bool) {
	type news struct {
		Event
		err error
	}
	pieces, stop := make(chan news), make(chan struct{})
	defer close(stop)
	defer t.cancel()
	for i := range t.Answers {
		send := func(n news) bool {
			select {
			case pieces <- n:
				return true
			case <-stop:
				return false
			}
		}
		go func() {
			if err := t.pieces(i, func(e Event) bool { return send(news{Event: e}) }); err != nil {
				send(news{err: err})
			}
		}()
	}
	for left := len(t.Answers); left > 0; {
		n := <-pieces
		if n.err != nil {
			yield(Event{}, Wrap(n.err))
			return
		}
		if n.Ended {
			left--
		}
		if !yield(n.Event, nil) {
			return
		}
	}
}

// Close ends the run: answers that are still being generated are canceled.
func (t *Run) Close() {
	if t.cancel != nil {
		t.cancel()
	}
	t.done()
}
