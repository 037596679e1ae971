// Package turn is a turn of an assistant behind whatever protocol asked for it: the request
// in our words, the checks that all protocols share, and the answer as it comes. It knows
// models; it knows neither HTTP nor the JSON of any protocol.
package turn

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"math"
	"time"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/grammar"
	"github.com/foretoken/foretoken/internal/rescue"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/sample"
)

// MaxChoices is the most answers to one request, MaxStops the most texts that may end one.
const (
	MaxChoices = 16
	MaxStops   = 16
)

// Ask is a request. A field that is not set is for the checkpoint, or for us, to choose.
type Ask struct {
	Model string // "": the server's first

	// What to answer or to continue: messages, or else a text, or else ids.
	Messages []chat.Message
	Tools    []chat.Tool
	Prefill  string // what the answer to messages begins with
	Text     string
	IDs      []int32

	Sampling
	MaxTokens   int      // 0: until the context is full
	Stop        []string // texts that end the answer
	IgnoreEnd   bool     // no token ends the answer: for measuring
	LogProbs    bool     // report the log-probability of each token
	TopLogProbs int      // alternatives to report per token
	Choices     int      // answers; 0: 1

	Form     grammar.Source // that the answer is held to; with tools it is for answers that call none
	Calls    Calls          // which tools may, or must, be called
	Named    string         // the tool, for CallNamed
	Parallel bool           // several calls in one answer
	Strict   bool           // arguments of calls are held to their schemas
	Held     bool           // calls are held to their form, and arguments to schemas that can be held to
	// Inputs are the forms of the texts that some tools take as their only argument, which is
	// called InputName. Calls of these tools are held to them.
	Inputs map[string]grammar.Source

	Thinking    *bool          // whether to think before the answer
	MaxThinking int            // tokens; 0: any number
	Effort      string         // of reasoning, for templates that know it
	Variables   map[string]any // further ones of the template
	Depth       spec.Depth     // tokens to draft per round
	Trace       bool           // report refused guesses with the tokens
	Priority    int
	CacheSalt   string // what is read is shared with requests of the same only
}

// SetDepth has n tokens drafted per round; 0: none.
func (a *Ask) SetDepth(n int) { a.Depth = spec.FixedDepth(n) }

// Sampling is how to choose tokens, as far as a client says.
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

// Calls says what an answer may do with tools.
type Calls uint8

// The ways to deal with tools.
const (
	CallAuto     Calls = iota // as the assistant sees fit
	CallNone                  // none: they are not even shown
	CallRequired              // at least one
	CallNamed                 // that of Ask.Named, once
)

// Host runs turns on the models of a library.
type Host struct {
	Library *foretoken.Library
	Default string            // the model where a request names none
	Aliases map[string]string // other names of models
	// Read is how the pieces of an answer are had, for tests that need them to go wrong. Nil:
	// as the answer gives them.
	Read func(*foretoken.Answer) iter.Seq2[foretoken.Piece, error]
	// SharePrefixes lets tenants find in the prefix cache what others have read. Otherwise a
	// request of a tenant finds that tenant's only.
	SharePrefixes bool
}

// Resolve is the library's name of the model that a client names.
func (h *Host) Resolve(name string) string {
	if name == "" {
		return h.Default
	}
	if model, ok := h.Aliases[name]; ok {
		return model
	}
	return name
}

// Turn is a running request. Events must be read to its end, or the context canceled; Close
// must be called in any case.
type Turn struct {
	Model   *foretoken.Model
	Name    string // of the model, as the client called it
	Ask     *Ask
	Prompt  *foretoken.Prompt
	Seed    uint64 // of the first answer; the others have the ones that follow it
	Created time.Time
	Answers []*foretoken.Answer // one for each choice

	read   func(*foretoken.Answer) iter.Seq2[foretoken.Piece, error]
	done   func()
	cancel context.CancelFunc
	salt   string
}

// Event is a piece of one of a turn's answers.
type Event struct {
	Choice int
	foretoken.Piece
	Ended bool // it was the last of this answer, which has its Finish and Result now
}

// Start checks a request and begins to answer it. An error is an *Error.
func (h *Host) Start(ctx context.Context, a *Ask) (*Turn, error) {
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
	t := &Turn{Model: m, Name: name, Ask: a, Created: time.Now(), read: h.Read, done: done, salt: h.salt(ctx, a)}
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
func (h *Host) Count(ctx context.Context, a *Ask) (int, error) {
	m, done, err := h.Library.Use(ctx, h.Resolve(a.Model))
	if err != nil {
		return 0, Wrap(err)
	}
	defer done()
	n, err := m.CountTokens(a.conversation())
	if err != nil {
		return 0, Wrap(err)
	}
	return n, nil
}

// check refuses what no model could do.
func (a *Ask) check() error {
	switch {
	case a.Choices < 0 || a.Choices > MaxChoices:
		return Invalid("n", "%d answers, want 1 to %d", a.Choices, MaxChoices)
	case a.MaxTokens < 0:
		return Invalid("max_tokens", "%d tokens, want a positive number", a.MaxTokens)
	case a.MaxThinking < 0:
		return Invalid("max_thinking_tokens", "%d tokens, want a positive number", a.MaxThinking)
	case !a.Depth.Valid():
		n, _ := a.Depth.Fixed()
		return Invalid("mtp_depth", "%d, want 0 to %d", n, spec.MaxDepth)
	case a.Calls >= CallRequired && len(a.Tools) == 0:
		return Invalid("tool_choice", "a call of a tool is required, and there are no tools")
	}
	return nil
}

// start renders the prompt and begins all answers.
func (t *Turn) start(ctx context.Context) (err error) {
	a := t.Ask
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
			Prompt: t.Prompt, MaxTokens: a.MaxTokens, Sampling: &options, Stop: a.Stop, IgnoreEnd: a.IgnoreEnd, LogProbs: a.LogProbs, TopLogProbs: a.TopLogProbs,
			Trace: a.Trace, Priority: a.Priority, Grammar: form, MaxThinking: a.MaxThinking, Depth: a.Depth,
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
func (a *Ask) conversation() foretoken.Conversation {
	vars := map[string]any{}
	maps.Copy(vars, a.Variables)
	if a.Thinking != nil {
		vars["enable_thinking"] = *a.Thinking
	}
	if a.Effort != "" {
		vars["reasoning_effort"] = a.Effort
	}
	c := foretoken.Conversation{Messages: Arrange(a.Messages), Variables: vars, Prefill: a.Prefill}
	if a.Calls != CallNone {
		c.Tools = a.Tools
	}
	return c
}

// prompt is what the model gets.
func (a *Ask) prompt(m *foretoken.Model) (*foretoken.Prompt, error) {
	switch {
	case a.Messages != nil:
		return m.ChatPrompt(a.conversation())
	case a.IDs != nil:
		for _, id := range a.IDs {
			if id < 0 || int(id) >= m.Info().Vocab {
				return nil, Invalid("prompt", "%d is not a token of the model; its ids are 0 to %d", id, m.Info().Vocab-1)
			}
		}
		return &foretoken.Prompt{IDs: a.IDs}, nil
	}
	p := m.TextPrompt(a.Text)
	if len(p.IDs) == 0 && p.Over == 0 {
		return nil, Invalid("prompt", "the prompt is empty")
	}
	return p, nil
}

// options are the sampling options: what the client says, else what the checkpoint
// recommends.
func (a *Ask) options(m *foretoken.Model) (sample.Options, error) {
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
func (t *Turn) Events() iter.Seq2[Event, error] {
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
func (t *Turn) pieces(i int, send func(Event) bool) (err error) {
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
func (t *Turn) several(yield func(Event, error) bool) {
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

// Close ends a turn: answers that still run are canceled.
func (t *Turn) Close() {
	if t.cancel != nil {
		t.cancel()
	}
	t.done()
}
