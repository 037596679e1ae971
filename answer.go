package foretoken

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/grammar"
	"github.com/foretoken/foretoken/internal/dialogue"
	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/prompt"
	"github.com/foretoken/foretoken/sample"
)

// Request is a request for one answer.
type Request struct {
	Prompt      *Prompt
	MaxTokens   int             // 0: until the context is full
	Sampling    *sample.Options // nil: those of the checkpoint, with a random seed; &sample.Options{} is greedy
	Stop        []string        // texts that end the answer and are not part of it
	IgnoreEnd   bool            // no token ends the answer
	LogProbs    bool            // report the log-probability of each token
	TopLogProbs int             // how many of the most likely tokens to report in place of each; LogProbs must be set
	Hash        bool            // compute Token.Hash and Answer.LogitsHash
	Trace       bool            // report rejected drafts, in Token.Rejected
	Priority    int             // the higher is served first, and may preempt a lower one
	Offline     bool            // lower priority: beside other requests it gets a fixed share of the time
	Flow        string          // names the client: of one priority, waiting requests are admitted round-robin between flows; the answer does not depend on it
	Depth       Depth           // tokens to draft per round; DepthDefault: as the model was opened
	Rule        Rule            // which drafts are accepted; "": as the model was opened
	// CacheSalt separates requests in the prefix cache and in its folder, and their prepared images:
	// requests with different salts do not find each other's entries, and so cannot detect the other's
	// prompts. "": shared with all requests without a salt.
	CacheSalt string

	// Grammar constrains the answer after any thinking; zero: no constraint. It is
	// compiled once for all requests with the same one.
	Grammar     grammar.Source
	MaxThinking int // maximum tokens of thinking; 0: unlimited
	// Raw leaves the text unchanged: thinking and tool calls are not parsed.
	Raw bool

	sent <-chan struct{} // closed when the answer has been delivered; nil: when all pieces were yielded
}

// Piece is a token with its text and events. Text that may still turn out to be part
// of a character, a stop text or a tag comes with a later piece; the last one may have no
// token.
type Piece struct {
	Token   Token
	Text    string       // of the unparsed answer, without special tokens
	Events  []chat.Event // of the parsed answer; with Raw, Text as content
	More    bool         // the next piece is available already: writers need not flush yet
	Thought bool         // the token is part of thinking, its end included
}

// Answer is a running request. It must be read to its end, or its context canceled.
type Answer struct {
	Seed   uint64 // of all draws
	Tokens []Token
	Finish Finish
	Stop   string // the stop text that ended it, or ""
	Result Result // set at the end
	chat.Answer

	m       *Model
	req     *Request
	prompt  *prompt.Prompt
	stop    []int32
	text    []byte
	stream  *engine.Stream
	cancel  context.CancelFunc
	ctx     context.Context
	stopper *dialogue.Stopper
	parser  *dialogue.Parser
	thought int // tokens

	hash uint64 // of the logits, likewise
}

// Generate starts a request.
func (m *Model) Generate(ctx context.Context, r Request) (*Answer, error) {
	q, err := m.question(ctx, &r)
	if err != nil {
		return nil, err
	}
	r.Sampling = nil // the caller may change it from now on
	ctx, cancel := context.WithCancel(ctx)
	stream, err := m.engine.Generate(ctx, q)
	if err != nil {
		cancel()
		return nil, err
	}
	a := &Answer{
		Seed: q.Sampling.Seed, m: m, req: &r, stop: q.Stop, stream: stream, cancel: cancel, ctx: ctx, stopper: dialogue.NewStopper(r.Stop),
	}
	if a.prompt = r.Prompt.inner(); r.Prompt.Chat && !r.Raw {
		o := dialogue.ParserOptions{Thinking: r.Prompt.Thinking, Thought: a.prompt.Thought(), Tags: a.prompt.Tags(), ToolFormat: dialogue.ToolNone}
		if talk := a.prompt.Talk; talk != nil && len(talk.Tools) > 0 {
			o.Tools, o.ToolFormat = talk.Tools, m.text.Syntax().Reads()
			// A grammar holds from the end of the thoughts on, and for calls that begin as it demands.
			o.Exact = !r.Grammar.IsZero()
		}
		a.parser = dialogue.NewParser(o)
	}
	return a, nil
}

// Complete generates an answer and returns its text, without thinking and tool calls. It is Generate,
// Wait and Content in one call.
func (m *Model) Complete(ctx context.Context, r Request) (string, error) {
	a, err := m.Generate(ctx, r)
	if err != nil {
		return "", err
	}
	err = a.Wait()
	return a.Content(), err
}

// question is a request in the engine's terms.
func (m *Model) question(ctx context.Context, r *Request) (engine.Request, error) {
	if r.Prompt == nil {
		return engine.Request{}, errors.New("foretoken: Request.Prompt is nil: make one with TextPrompt or ChatPrompt")
	}
	if over := r.Prompt.Over; over > 0 {
		return engine.Request{}, fmt.Errorf("foretoken: the prompt has more than %d tokens, which does not fit into a context of %d: shorten it", over, m.context)
	}
	s := m.Sampling()
	if r.Sampling != nil {
		s = *r.Sampling
	}
	s.Vocab = m.text.Vocab()
	s.XTCExempt = slices.Clip(s.XTCExempt) // the caller's, which are not to be written to
	stop := m.text.Stops()
	for _, id := range append(m.tok.Encode("\n"), stop...) {
		if int(id) < s.Vocab {
			s.XTCExempt = append(s.XTCExempt, id)
		}
	}
	rule, err := r.Rule.or(m.draft.rule)
	if err != nil {
		return engine.Request{}, err
	}
	depth, err := r.Depth.or(m.draft.depth)
	if err != nil {
		return engine.Request{}, err
	}
	if s.Constraint, err = m.constraint(ctx, r, s.Constraint); err != nil {
		return engine.Request{}, err
	}
	p := r.Prompt.inner()
	ids, inputs := p.Inputs(len(p.IDs))
	if len(inputs) > 0 {
		s.LogitBias = m.text.Unsaid(s.LogitBias)
	}
	q := engine.Request{
		Prompt: ids, Inputs: inputs, MaxTokens: r.MaxTokens, Sampling: s, Stop: stop, IgnoreEnd: r.IgnoreEnd,
		LogProbs: r.LogProbs, TopLogProbs: r.TopLogProbs, Hash: r.Hash, Trace: r.Trace, Priority: r.Priority, Offline: r.Offline, Flow: r.Flow,
		Depth: depth, Rule: rule, Boundaries: m.text.Boundaries(p),
		Salt: m.salt(r.CacheSalt),
	}
	if m.cached {
		q.Conversation = m.text.Key(p, q.Salt)
	}
	return q, nil
}

// Pieces yields the answer as it comes, and at last the error if it did not end by itself:
// that of the context, if it was canceled. It may be ranged over once.
func (a *Answer) Pieces() iter.Seq2[Piece, error] {
	return func(yield func(Piece, error) bool) {
		defer a.cancel()
		decoder := a.m.tok.Decoder(true)
		stopped := false
		for t, err := range a.stream.Tokens() {
			// The engine may be ahead of the reader: a canceled answer ends at once.
			if err = errors.Join(err, a.ctx.Err()); err != nil {
				a.end("")
				yield(Piece{}, err)
				return
			}
			a.Tokens = append(a.Tokens, Token(t))
			p := Piece{Token: Token(t), More: a.stream.Ready() > 0, Thought: a.parser != nil && a.parser.Thinking()}
			if p.Thought {
				a.thought++
			}
			if a.req.IgnoreEnd || !slices.Contains(a.stop, t.ID) { // an end token is not text, even if it is not special
				p.Text, stopped = a.stopper.Write(decoder.Next(t.ID))
			}
			if a.take(&p); !yield(p, nil) {
				a.end("")
				return
			}
			if stopped {
				break
			}
		}
		last := Piece{Token: Token{ID: -1}}
		if !stopped {
			last.Text, stopped = a.stopper.Write(decoder.Flush())
			if !stopped {
				last.Text += a.stopper.Flush()
			}
		}
		a.take(&last)
		finish := FinishStop
		if !stopped {
			finish = Finish(a.stream.Result().Finish)
		}
		if a.parser != nil {
			closing := a.parser.Close
			if stopped || finish == FinishLength { // a call that is cut off is neither a call nor text
				closing = a.parser.Cut
			}
			events := closing()
			a.Add(events)
			last.Events = append(last.Events, events...)
		}
		a.end(finish)
		if last.Text != "" || len(last.Events) > 0 {
			yield(last, nil)
		}
		if a.m.cached && a.prompt.Talk != nil { // and it ended by itself
			a.m.remember(a.said())
		}
	}
}

// said is the answer for the preparation of the next turn.
func (a *Answer) said() said {
	x := said{prompt: a.prompt, message: a.Message(), ids: slices.Clone(a.prompt.IDs), salt: a.m.salt(a.req.CacheSalt), sent: a.req.sent}
	for _, t := range a.Tokens {
		x.ids = append(x.ids, t.ID)
	}
	return x
}

// Wait reads the answer to its end, in place of Pieces, and returns why it did not end by itself.
func (a *Answer) Wait() error {
	for _, err := range a.Pieces() {
		if err != nil {
			return err
		}
	}
	return nil
}

// take makes a piece part of the answer.
func (a *Answer) take(p *Piece) {
	a.text = append(a.text, p.Text...)
	switch {
	case p.Text == "":
	case a.parser != nil:
		p.Events = a.parser.Write(p.Text)
	default:
		p.Events = []chat.Event{{Kind: chat.EventContent, Text: p.Text}}
	}
	a.Add(p.Events)
}

// end closes the answer.
func (a *Answer) end(finish Finish) {
	a.cancel()
	r := a.stream.Result()
	a.Result, a.Stop = newResult(&r), a.stopper.By()
	a.hash = r.LogitsHash
	if a.Finish = finish; finish == FinishStop && len(a.ToolCalls) > 0 {
		a.Finish = FinishToolCalls
	}
}

// Text is the unparsed answer so far, thinking and tool calls included.
func (a *Answer) Text() string { return string(a.text) }

// ReasoningTokens is the number of tokens of thinking so far.
func (a *Answer) ReasoningTokens() int { return a.thought }

// LogitsHash is a hash of the logits of the answer's tokens, if Request.Hash is
// set. The engine may have been some tokens ahead when a stop text ended the answer; those
// do not count.
func (a *Answer) LogitsHash() uint64 {
	if n := len(a.Tokens); n > 0 {
		return a.Tokens[n-1].Hash
	}
	return a.hash
}

// Message is the answer as a message of the conversation.
func (a *Answer) Message() chat.Message {
	msg := chat.Message{Role: "assistant", Content: chat.Text(a.Content()), ToolCalls: a.ToolCalls}
	if talk := a.prompt.Talk; talk != nil && talk.Prefill != "" {
		msg.Content = chat.Text(talk.Prefill + a.Content())
	}
	if r := a.Reasoning(); r != "" {
		msg.ReasoningContent = &r
	}
	return msg
}

// constraint limits a request's tokens, nil for no limit. The grammar of the request, or the
// constraint own of its sampling options, begins after thinking.
func (m *Model) constraint(ctx context.Context, r *Request, own func() sample.Constraint) (func() sample.Constraint, error) {
	if !r.Grammar.IsZero() {
		if own != nil {
			return nil, errors.New("foretoken: Request.Grammar and the Constraint of its sampling options are both set: set one of them")
		}
		g, err := m.grammar(ctx, r.Grammar)
		if err != nil {
			return nil, err
		}
		own = func() sample.Constraint { return g.Matcher() }
	}
	return m.text.Constraint(r.Prompt.inner(), own, r.MaxThinking)
}

// grammar compiles a source, or returns the cached grammar.
func (m *Model) grammar(ctx context.Context, s grammar.Source) (*grammar.Grammar, error) {
	return m.grammars.get(ctx, s.Key(), func(ctx context.Context) (*grammar.Grammar, error) {
		v, err := m.grammars.vocab()
		if err != nil {
			return nil, fmt.Errorf("model %s: %w", m.name, err)
		}
		g, err := grammar.CompileContext(ctx, s, v)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrGrammar, err)
		}
		return g, nil
	})
}
