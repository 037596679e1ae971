// Package generate runs the requests of all protocols: it checks them, starts their answers and
// yields these as they are generated. It knows models, but neither HTTP nor the JSON of any
// protocol.
package generate

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/grammar"
	"github.com/foretoken/foretoken/internal/library"
	"github.com/foretoken/foretoken/internal/private"
	"github.com/foretoken/foretoken/internal/rescue"
	"github.com/foretoken/foretoken/internal/sampling"
	"github.com/foretoken/foretoken/internal/server/fetch"
	"github.com/foretoken/foretoken/sample"
)

// Limits of one request.
const (
	MaxChoices  = 16    // answers
	MaxStops    = 16    // stop texts
	MaxMessages = 8_192 // messages, or items that become messages
	MaxTools    = 1_024
)

// Request is a request in the terms that all protocols share. A field that is not
// set has the checkpoint's default, or else the server's.
type Request struct {
	Caller Caller
	Model  string // "": the server's first

	// The prompt: messages to answer, or else ids, or else a text to continue.
	Messages []chat.Message
	Tools    []chat.Tool
	Prefill  string // how the answer to messages begins
	Text     string
	IDs      []int32

	Media  []string // the fields of the images and videos in Messages, for errors
	Remote []Remote // files of these that are still to be fetched

	// The model's own options. Start completes a copy of them: it sets Prompt, Sampling and Sent, adds
	// the tenant to CacheSalt and the calls of tools to Grammar.
	foretoken.Request
	Sampling
	Choices int // answers; 0: 1

	Calls    Calls  // which tools may, or must, be called
	Named    string // the tool, for CallNamed
	Parallel bool   // several calls in one answer
	Strict   bool   // constrain the arguments of calls to their schemas
	// Constrained constrains calls to their syntax, and arguments to the schemas that can be
	// compiled.
	Constrained bool
	// Inputs are the grammars of tools that take one text, by the tool's name. The text is the
	// argument InputName, and calls of these tools are constrained to the grammar.
	Inputs map[string]grammar.Source

	Thinking  *bool          // whether to think before the answer
	Effort    string         // of reasoning, for templates that support it
	Variables map[string]any // further variables of the template
}

// Sampling are the sampling options that a client sets. nil: the checkpoint's.
type Sampling struct {
	Temperature, TopP, MinP           *float64
	TopK                              *int
	XTCProbability, XTCThreshold      *float64
	RepetitionPenalty                 *float64
	RepetitionWindow                  *int // tokens of the window; 0: all
	PresencePenalty, FrequencyPenalty *float64
	LogitBias                         map[int32]float32
	Seed                              *uint64
}

// InputName is the argument of a tool whose input is a text.
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
	Library *library.Library
	Default string            // the model for requests that name none
	Aliases map[string]string // other names of models
	// Read yields the pieces of an answer. Tests replace it to inject errors; nil: Answer.Pieces.
	Read func(*foretoken.Answer) iter.Seq2[foretoken.Piece, error]
	// Images fetches images from other machines; nil: none are.
	Images *fetch.Client
	// SharePrefixes lets tenants share the prefix cache. Otherwise a request finds only entries
	// of its own tenant.
	SharePrefixes bool
}

// Resolve is the library's name of the model that a client names.
func (s *Service) Resolve(name string) string {
	if name == "" {
		return s.Default
	}
	if model, ok := s.Aliases[name]; ok {
		return model
	}
	return name
}

// Names are the models that a client may name: the library's in its order, then the aliases.
func (s *Service) Names() []string {
	names := slices.Clone(s.Library.Names())
	for _, alias := range slices.Sorted(maps.Keys(s.Aliases)) {
		if !slices.Contains(names, alias) { // a model may be an alias of itself
			names = append(names, alias)
		}
	}
	return names
}

// Name is the model of a request as its client calls it.
func (s *Service) Name(r *Request) string { return cmp.Or(r.Model, s.Default) }

// Run is a running request. Events must be read to its end, or the context canceled; Close
// must be called in any case.
type Run struct {
	Model   *foretoken.Model
	Name    string // of the model, as in the request
	Request *Request
	Prompt  *foretoken.Prompt
	Seed    uint64 // of the first answer; answer i has Seed+i
	Created time.Time
	Answers []*foretoken.Answer // one for each choice

	read     func(*foretoken.Answer) iter.Seq2[foretoken.Piece, error]
	prompted func() // to be called when the prompt has been processed; nil: not
	done     func()
	cancel   context.CancelFunc
}

// Event is a piece of one of the answers.
type Event struct {
	Choice int
	foretoken.Piece
	Ended bool // the answer is complete and has its Finish and Result
}

// Start checks a request and starts its answers. An error is an *Error.
func (s *Service) Start(ctx context.Context, r *Request) (*Run, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	m, done, err := s.use(ctx, r)
	if err != nil {
		return nil, err
	}
	run := &Run{Model: m, Name: s.Name(r), Request: r, Created: time.Now(), read: s.Read, done: done}
	if d := r.Caller.Deterministic; d != nil {
		run.Created = d.Created
	}
	if run.read == nil {
		run.read = (*foretoken.Answer).Pieces
	}
	if err := run.start(ctx, s.salt(r)); err != nil {
		run.Close()
		return nil, r.locate(err)
	}
	return run, nil
}

// use loads the model of a request and fetches the request's files. An error is an *Error; without one
// done must be called.
func (s *Service) use(ctx context.Context, r *Request) (m *foretoken.Model, done func(), err error) {
	if err := s.checkRemote(r); err != nil {
		return nil, nil, err
	}
	if m, done, err = s.Library.Use(ctx, s.Resolve(r.Model)); err != nil {
		return nil, nil, Wrap(err)
	}
	if err := s.fetch(ctx, r, m); err != nil {
		done()
		return nil, nil, r.locate(err)
	}
	return m, done, nil
}

// Count is the number of tokens of the prompt of a request's messages. The context does not limit
// it, only the size of the body does. An error is an *Error.
func (s *Service) Count(ctx context.Context, r *Request) (int, error) {
	m, done, err := s.use(ctx, r)
	if err != nil {
		return 0, err
	}
	defer done()
	n, err := m.CountTokens(ctx, r.conversation(s.salt(r)))
	if err != nil {
		return 0, r.locate(err)
	}
	return n, nil
}

// Render is the prompt that Start would have the model answer. An error is an *Error.
func (s *Service) Render(ctx context.Context, r *Request) (*foretoken.Prompt, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	m, done, err := s.use(ctx, r)
	if err != nil {
		return nil, err
	}
	defer done()
	p, err := r.prompt(ctx, m, s.salt(r))
	if err == nil {
		err = checkLength(p, m.Context())
	}
	if err != nil {
		return nil, r.locate(err)
	}
	return p, nil
}

// check checks the parts that do not depend on the model.
func (r *Request) check() error {
	switch {
	case r.Choices < 0 || r.Choices > MaxChoices:
		return Invalid("n", "%d answers, want 1 to %d", r.Choices, MaxChoices)
	case r.MaxTokens < 0:
		return Invalid("max_tokens", "%d tokens, want a positive number", r.MaxTokens)
	case r.MaxThinking < 0:
		return Invalid("max_thinking_tokens", "%d tokens, want a positive number", r.MaxThinking)
	case r.Calls >= CallRequired && len(r.Tools) == 0:
		return Invalid("tool_choice", "a tool call is required, but there are no tools")
	}
	return nil
}

// start renders the prompt and starts all answers. salt is that of the prefix cache.
func (r *Run) start(ctx context.Context, salt string) (err error) {
	q := r.Request.Request // the model's request, completed here
	if r.Prompt, err = r.Request.prompt(ctx, r.Model, salt); err != nil {
		return err
	}
	if err := checkLength(r.Prompt, r.Model.Context()); err != nil {
		return err
	}
	options, err := r.Request.options(r.Model)
	if err != nil {
		return err
	}
	if q.Grammar, err = r.Request.grammar(r.Model, r.Prompt); err != nil {
		return err
	}
	q.Prompt, q.Sampling, q.CacheSalt, r.Seed = r.Prompt, &options, salt, options.Seed
	c := &r.Request.Caller
	q.Priority, q.Offline, q.Flow = q.Priority+c.Priority, q.Offline || c.Offline, c.Flow
	r.prompted = c.Prompted
	private.SetSent(&q, ctx.Done()) // a request's context ends when its answer has been written
	ctx, r.cancel = context.WithCancel(ctx)
	for i := range max(r.Request.Choices, 1) {
		options.Seed = r.Seed + uint64(i)
		answer, err := r.Model.Generate(ctx, q)
		if err != nil {
			return err
		}
		r.Answers = append(r.Answers, answer)
	}
	return nil
}

// checkLength refuses a prompt that leaves no token of the context for an answer.
func checkLength(p *foretoken.Prompt, context int) error {
	n := fmt.Sprint(len(p.IDs))
	switch {
	case p.Over > 0:
		n = fmt.Sprintf("more than %d", p.Over)
	case len(p.IDs) < context:
		return nil
	}
	return &Error{Status: 400, Kind: TooLarge, Param: "messages", Message: fmt.Sprintf("the prompt has %s tokens, but the context has %d for prompt and answer: shorten the prompt", n, context)}
}

// conversation is the conversation that the messages and options make. salt is that of caches.
func (r *Request) conversation(salt string) foretoken.Conversation {
	vars := map[string]any{}
	maps.Copy(vars, r.Variables)
	if r.Thinking != nil {
		vars["enable_thinking"] = *r.Thinking
	}
	if r.Effort != "" {
		vars["reasoning_effort"] = r.Effort
	}
	c := foretoken.Conversation{Messages: Arrange(r.Messages), Variables: vars, Prefill: r.Prefill, CacheSalt: salt}
	if r.Calls != CallNone {
		c.Tools = r.Tools
	}
	return c
}

// prompt is the prompt of the model. salt is that of caches.
func (r *Request) prompt(ctx context.Context, m *foretoken.Model, salt string) (*foretoken.Prompt, error) {
	switch {
	case r.Messages != nil:
		return m.ChatPrompt(ctx, r.conversation(salt))
	case r.IDs != nil:
		vocab := m.Info().Vocab
		for _, id := range r.IDs {
			if id < 0 || int(id) >= vocab {
				return nil, Invalid("prompt", "%d is not a token of the model; its ids are 0 to %d", id, vocab-1)
			}
		}
		return &foretoken.Prompt{IDs: r.IDs}, nil
	}
	p := m.TextPrompt(r.Text)
	if len(p.IDs) == 0 && p.Over == 0 {
		return nil, Invalid("prompt", "the prompt is empty")
	}
	return p, nil
}

// options are the sampling options: the client's, else those of the checkpoint.
func (r *Request) options(m *foretoken.Model) (sample.Options, error) {
	o := m.Sampling()
	for _, f := range []struct {
		param    string
		to, from *float64
		sampling.Range
	}{
		{"temperature", &o.Temperature, r.Temperature, sampling.Temperature},
		{"top_p", &o.TopP, r.TopP, sampling.TopP},
		{"min_p", &o.MinP, r.MinP, sampling.MinP},
		{"xtc_probability", &o.XTCProbability, r.XTCProbability, sampling.XTCProbability},
		{"xtc_threshold", &o.XTCThreshold, r.XTCThreshold, sampling.XTCThreshold},
		{"repetition_penalty", &o.RepetitionPenalty, r.RepetitionPenalty, sampling.RepetitionPenalty},
		{"presence_penalty", &o.PresencePenalty, r.PresencePenalty, sampling.Penalty},
		{"frequency_penalty", &o.FrequencyPenalty, r.FrequencyPenalty, sampling.Penalty},
	} {
		if f.from == nil {
			continue
		}
		if !f.Holds(*f.from) {
			return o, Invalid(f.param, "%v, want a number from %v to %v", *f.from, f.Low, f.High)
		}
		*f.to = *f.from
	}
	if o.XTCProbability > 0 && o.XTCThreshold == 0 {
		return o, Invalid("xtc_threshold", "0, want a number above 0, at most 0.5")
	}
	if r.TopK != nil {
		if *r.TopK < 0 {
			return o, Invalid("top_k", "%d, want a positive number, or 0 for all tokens", *r.TopK)
		}
		o.TopK = *r.TopK
	}
	sampling.ClientTopP(&o)
	if r.RepetitionWindow != nil {
		o.RepetitionWindow = max(*r.RepetitionWindow, 0)
	}
	for id := range r.LogitBias {
		if id < 0 || int(id) >= m.Vocab() {
			return o, Invalid("logit_bias", "%d is not a token of the model; its ids are 0 to %d", id, m.Vocab()-1)
		}
	}
	o.LogitBias = r.LogitBias
	if r.Seed != nil {
		o.Seed = *r.Seed
	}
	return o, nil
}

// Events yields the pieces of all answers as they are generated, and last an *Error if one of them
// failed. It may be ranged over once.
func (r *Run) Events() iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		defer r.cancel()
		if len(r.Answers) == 1 {
			r.single(yield)
		} else {
			r.several(yield)
		}
	}
}

// single yields the events of one answer, on the goroutine that reads them.
func (r *Run) single(yield func(Event, error) bool) {
	for p, err := range rescue.Seq(r.read(r.Answers[0])) {
		if err != nil {
			yield(Event{}, Wrap(err))
			return
		}
		r.processed()
		if !yield(Event{Piece: p}, nil) {
			return
		}
	}
	r.processed()
	yield(Event{Ended: true}, nil)
}

// several yields the events of several answers, each of which has a reading goroutine.
func (r *Run) several(yield func(Event, error) bool) {
	type result struct {
		Event
		err error
	}
	results, stop := make(chan result), make(chan struct{})
	defer close(stop)
	send := func(x result) bool {
		select {
		case results <- x:
			return true
		case <-stop:
			return false
		}
	}
	for i, a := range r.Answers {
		go func() {
			for p, err := range rescue.Seq(r.read(a)) {
				if !send(result{Event{Choice: i, Piece: p}, err}) || err != nil {
					return
				}
			}
			send(result{Event: Event{Choice: i, Ended: true}})
		}()
	}
	for left := len(r.Answers); left > 0; {
		x := <-results
		if x.err != nil {
			yield(Event{}, Wrap(x.err))
			return
		}
		r.processed()
		if x.Ended {
			left--
		}
		if !yield(x.Event, nil) {
			return
		}
	}
}

// processed reports once that the prompt has been processed: a token comes after all of it.
func (r *Run) processed() {
	if r.prompted != nil {
		r.prompted()
		r.prompted = nil
	}
}

// Close ends the run: answers that are still being generated are canceled.
func (r *Run) Close() {
	if r.cancel != nil {
		r.cancel()
	}
	r.done()
}
