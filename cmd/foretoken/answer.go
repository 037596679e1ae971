package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/engine"
)

// The reasons for an answer to end that the engine does not know.
const (
	finishCancelled = "cancelled" // Ctrl-C
	finishError     = "error"
)

// question is a request with what is done to the text that comes of it.
type question struct {
	engine.Request
	stop []string // texts that end the answer
}

// question is the request for an answer to p. likeliest is how many tokens to report the
// log-probabilities of in place of each, -1 for none at all.
func (s *session) question(p *prompt, sampling *samplingFlags, limits *limitFlags, likeliest int) (question, error) {
	options, err := sampling.options(s.generation)
	if err != nil {
		return question{}, err
	}
	for id := range options.LogitBias {
		if int(id) >= s.vocab {
			return question{}, usagef("--logit-bias: %d is not a token of the model; its ids are 0 to %d", id, s.vocab-1)
		}
	}
	options.Vocab = s.vocab
	stop := s.stops(p.chat)
	for _, id := range append(s.tok.Encode("\n"), stop...) {
		if int(id) < s.vocab {
			options.XTCExempt = append(options.XTCExempt, id)
		}
	}
	return question{
		Request: engine.Request{
			Prompt: p.ids, MaxTokens: limits.maxTokens.or(limits.otherwise), Sampling: options,
			Stop: stop, IgnoreEnd: limits.ignoreEOS, LogProbs: likeliest, Hash: true,
			Depth: s.draft.depth, Rule: s.draft.rule,
		},
		stop: limits.stop,
	}, nil
}

// answer is what came of a question.
type answer struct {
	prompt []int32
	tokens []engine.Token // the end token included
	text   string         // without special tokens, end token and stop text
	finish string
	result engine.Result
}

// hash is over the logits that the answer's tokens were drawn from. The engine may have
// been some tokens ahead when a stop text ended the answer; those do not count.
func (a *answer) hash() uint64 {
	if n := len(a.tokens); n > 0 {
		return a.tokens[n-1].Hash
	}
	return a.result.LogitsHash
}

// summary is a line on the answer for people.
func (a *answer) summary(seed uint64) string {
	r := &a.result
	line := fmt.Sprintf("%s (%s)", counted(len(a.tokens), "token"), a.finish)
	if v := rate(r.Tokens-1, r.Decode); v != nil {
		line += fmt.Sprintf(", %.1f tok/s", *v)
	}
	line += "; prompt " + counted(r.Prompt, "token")
	if v := rate(r.Prompt, r.Prefill); v != nil {
		line += fmt.Sprintf(", %.1f tok/s", *v)
	}
	return fmt.Sprintf("%s; seed %d", line, seed)
}

// counted is a number with its noun.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// ask runs a question and gives the text to emit as it comes. The answer is what there was
// also when an error is returned: errInterrupted when ctx was cancelled, or the error of
// the engine or of emit.
func (s *session) ask(ctx context.Context, q question, emit func(text string) error) (*answer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.engine.Generate(ctx, q.Request)
	if err != nil {
		return nil, err
	}
	a := &answer{prompt: q.Prompt}
	w := &textWriter{emit: emit, stopper: chat.NewStopper(q.stop)}
	decoder := s.tok.Decoder(true)
	for t, streamErr := range stream.Tokens() {
		// The engine may be ahead of what was shown: cancelled is cancelled, there and then.
		if err = errors.Join(streamErr, ctx.Err()); err != nil {
			break
		}
		a.tokens = append(a.tokens, t)
		if !q.IgnoreEnd && slices.Contains(q.Stop, t.ID) {
			continue // the last one; it need not be special, and yet is no text
		}
		if w.write(decoder.Next(t.ID)); w.ended() {
			break
		}
	}
	interrupted := ctx.Err() != nil
	cancel()
	if !w.ended() {
		w.write(decoder.Flush())
		w.flush()
	}
	a.result = stream.Result()
	a.text = w.text.String()
	switch {
	case w.stopped:
		a.finish = string(engine.FinishStop)
		return a, nil
	case w.err != nil:
		a.finish = finishError
		return a, w.err
	case err == nil:
		a.finish = string(a.result.Finish)
		return a, nil
	case interrupted:
		a.finish = finishCancelled
		return a, errInterrupted
	default:
		a.finish = finishError
		return a, err
	}
}

// textWriter passes text on up to a stop text, and keeps it.
type textWriter struct {
	emit    func(string) error
	stopper *chat.Stopper
	text    strings.Builder
	stopped bool  // a stop text was found
	err     error // of emit
}

// ended reports that no more text is wanted.
func (w *textWriter) ended() bool { return w.stopped || w.err != nil }

func (w *textWriter) write(chunk string) {
	var text string
	text, w.stopped = w.stopper.Write(chunk)
	w.pass(text)
}

// flush passes on what was held back because it could have become a stop text.
func (w *textWriter) flush() {
	if !w.ended() {
		w.pass(w.stopper.Flush())
	}
}

func (w *textWriter) pass(text string) {
	if text == "" {
		return
	}
	w.text.WriteString(text)
	w.err = w.emit(text)
}
